//! A policy with a typo is refused or listed with a warning: a deny with a typo would deny nothing.

use crate::common::{World, world_with};
use registry::{Policy, SecurityChange, WriteContext};
use serde_json::{Value, json};

fn world() -> World {
    world_with(|options| options.requests_per_minute_max = 0)
}

async fn send(world: &World, method: &str, path: &str, body: &Value) -> Value {
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    world.send(method, path, &headers, body.to_string()).await.json()
}

fn policy(actions: &[&str], resources: &[&str]) -> Value {
    json!({"actions": actions, "resources": resources, "effect": "deny"})
}

#[tokio::test]
async fn policy_that_can_never_match_is_refused_with_its_entry() {
    let world = world();
    let cases: &[(&[&str], &[&str], Option<&str>)] = &[
        (&["agent:*"], &["agent:id:*"], Some("agent:*")),
        (&["*:*"], &["agent:id:*"], Some("*:*")),
        (&["agent:reed"], &["agent:id:001"], Some("agent:reed")),
        (&["agent:read", "syscheck:rum"], &["agent:id:001"], Some("syscheck:rum")),
        (&["agent:read"], &["agent:id:0*"], Some("agent:id:0*")),
        (&["agent:read"], &["agent:id:web"], Some("agent:id:web")),
        (&["agent:read"], &["agent:group:we*"], Some("agent:group:we*")),
        (&["group:read"], &["group:id:w eb"], Some("group:id:w eb")),
        (&["security:read"], &["user:id:admin"], Some("user:id:admin")),
        (&["security:read"], &["role:id:1*"], Some("role:id:1*")),
        (&["rules:read"], &["rule:file:*.yml"], Some("rule:file:*.yml")),
        (&["agent:read"], &["what:id:*"], Some("what:id:*")),
        (&["agent:read"], &["agent:id:001", "*:*:x"], Some("*:*:x")),
        (&["agent:read"], &["agent:id"], Some("agent:id")),
        (&["agent:read"], &["agent:id:001&what:id:*"], Some("agent:id:001&what:id:*")),
        // Fine each, but the action does not apply to the resource.
        (&["agent:read"], &["node:id:*"], Some("node:id:*")),
        (&["agent:upgrade", "agent:read"], &["user:id:1"], Some("user:id:1")),
        (&["agent:read"], &["agent:id:001&group:id:web"], Some("agent:id:001&group:id:web")),
        // Compatible clients store these.
        (&["agent:upgrade"], &["agent:id:*"], None),
        (&["agent:read"], &["agent:id:*", "group:id:*"], None),
        (&["agent:read"], &["agent:id:777"], None),
        (&["agent:read"], &["agent:id:001&agent:group:web"], None),
        (&["Agent:Read"], &["AGENT:id:001"], None),
        (&["security:read_config"], &["*:*:*"], None),
    ];
    for (n, (actions, resources, entry)) in cases.iter().enumerate() {
        let body = json!({"name": format!("p{n}"), "policy": policy(actions, resources)});
        let answer = send(&world, "POST", "/security/policies", &body).await;
        let failed = &answer["data"]["failed_items"][0];
        let Some(entry) = entry else {
            assert_eq!(answer["error"], 0, "{answer}");
            continue;
        };
        assert_eq!((&answer["error"], &failed["error"]["code"]), (&json!(1), &json!(4006)));
        assert_eq!(failed["id"], json!([format!("p{n}")]), "{answer}");
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("not a policy: {entry}: ")), "{message}");
    }
    // A change is checked too.
    let fine = json!({"name": "fine", "policy": policy(&["agent:read"], &["agent:id:009"])});
    let made = send(&world, "POST", "/security/policies", &fine).await;
    let path = format!("/security/policies/{}", made["data"]["affected_items"][0]["id"]);
    let typo = json!({"policy": policy(&["agent:reed"], &["agent:id:001"])});
    let answer = send(&world, "PUT", &path, &typo).await;
    assert_eq!(answer["data"]["failed_items"][0]["error"]["code"], 4006);
}

#[tokio::test]
async fn policies_show_what_each_entry_matches_now() {
    let world = world();
    world.registry.create_group(&WriteContext::server(), "db").unwrap();
    let resources = [
        "agent:id:001",
        "agent:id:777",
        "agent:id:*",
        "agent:group:web",
        "agent:group:wbe",
        "agent:id:001&agent:group:web",
        "group:id:db",
        "group:id:wbe",
        "group:id:*",
        "node:id:node01",
    ];
    let actions = ["agent:read", "group:read"];
    let body = json!({"name": "p", "policy": policy(&actions, &resources)});
    let made = send(&world, "POST", "/security/policies", &body).await;
    let listed = world.ok("/security/policies?policy_ids=100", &world.admin().await).await;
    let item = &listed["data"]["affected_items"][0];
    assert_eq!(&made["data"]["affected_items"][0], item, "storing and listing show the same");
    let row = |name: &str| {
        let rows = item["matches"].as_array().unwrap();
        let row = rows.iter().find(|row| row["resource"] == name).unwrap_or(&Value::Null);
        (row["agents"].as_u64(), row["groups"].as_u64())
    };
    let agents = world.ok("/agents", &world.admin().await).await["data"]["total_affected_items"]
        .as_u64()
        .unwrap();
    assert_eq!(row("agent:id:*"), (Some(agents), Some(0)));
    assert_eq!(row("agent:id:001"), (Some(1), Some(0)));
    assert_eq!((row("group:id:db"), row("group:id:wbe")), ((Some(0), Some(1)), (Some(0), Some(0))));
    assert_eq!(row("node:id:node01"), (None, None));
    let warnings: Vec<&str> =
        item["warnings"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    let warns = |name: &str| warnings.iter().any(|w| w.starts_with(&format!("{name}: ")));
    for name in ["agent:id:777", "agent:group:wbe", "group:id:wbe", "node:id:node01"] {
        assert!(warns(name), "{name}: {warnings:?}");
    }
    assert!(
        !warns("agent:id:001") && !warns("group:id:db") && !warns("group:id:*"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn stored_policy_with_a_typo_stays_and_is_listed_with_a_warning() {
    let world = world();
    let old = Policy {
        id: 0,
        name: "old".into(),
        actions: vec!["agent:reed".into()],
        resources: vec!["agent:id:0*".into()],
        allow: false,
    };
    let change = SecurityChange::CreatePolicy(old);
    let id = world.registry.change_security(&WriteContext::server(), change).unwrap();
    let path = format!("/security/policies?policy_ids={id}");
    let listed = world.ok(&path, &world.admin().await).await;
    let item = &listed["data"]["affected_items"][0];
    assert_eq!(item["policy"]["actions"], json!(["agent:reed"]));
    let warning = item["warnings"][0].as_str().unwrap();
    assert!(warning.contains("agent:reed: no such action"), "{warning}");
    // The policies of the program have none.
    let all = world.ok("/security/policies", &world.admin().await).await;
    for item in all["data"]["affected_items"].as_array().unwrap() {
        let warned = !item["warnings"].as_array().unwrap().is_empty();
        assert_eq!(warned, item["id"] == id, "{item}");
    }
}
