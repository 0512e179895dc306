//! Forms of requests and answers that clients of the 4.x API rely on, one after the other: what they
//! may leave out or write differently, and which code comes first.

use crate::common::{Answered, World, column, world};
use axum::http::StatusCode;
use serde_json::{Value, json};

async fn send(world: &World, method: &str, path: &str, body: Option<Value>) -> Answered {
    let bearer = format!("Bearer {}", world.admin().await);
    let mut headers = vec![("authorization", &*bearer)];
    if body.is_some() {
        headers.push(("content-type", "application/json"));
    }
    world.send(method, path, &headers, body.map(|body| body.to_string()).unwrap_or_default()).await
}

/// Returns the code of the whole request, or the one of the first failed item.
fn code(answer: &Value) -> u64 {
    let item = &answer["data"]["failed_items"][0]["error"]["code"];
    item.as_u64().or_else(|| answer["error"].as_u64()).unwrap()
}

#[tokio::test]
async fn address_is_any_where_none_is_known() {
    let world = world();
    let token = world.admin().await;
    let listed = world.ok("/agents?agents_list=001,003", &token).await;
    assert_eq!(column(&listed, "ip"), ["10.0.0.1", "any"]);
    let distinct = world.ok("/agents/stats/distinct?fields=ip&q=id>1", &token).await;
    assert!(column(&distinct, "ip").contains(&"any".to_owned()), "{distinct}");
}

#[tokio::test]
async fn version_may_be_a_bare_number() {
    let world = world();
    let token = world.admin().await;
    for asked in ["0.1.0", "v0.1.0", "Holdfast%20v0.1.0", "Holdfast%200.1.0", "holdfast%200.1.0"] {
        let path = format!("/agents?version={asked}&agents_list=001,002,003");
        assert_eq!(column(&world.ok(&path, &token).await, "id"), ["001", "002"], "{asked}");
    }
}

#[tokio::test]
async fn added_agent_replaces_another_by_force() {
    let world = world();
    let mut new = json!({"name": "new-1", "ip": "any"});
    assert_eq!(code(&send(&world, "POST", "/agents", Some(new.clone())).await.json()), 1705);
    new["force"] = json!({"enabled": true, "after_registration_time": "1h",
        "disconnected_time": {"enabled": true, "value": "1h"}});
    let added = send(&world, "POST", "/agents", Some(new)).await.json();
    assert_eq!((&added["error"], &added["data"]["id"]), (&json!(0), &json!("004")), "{added}");
    let gone = world.ok("/agents?agents_list=003", &world.admin().await).await;
    assert_eq!(code(&gone), 1701);
}

#[tokio::test]
async fn policy_is_stored_in_lower_case() {
    let world = world();
    let new = json!({"name": "mixed", "policy": {
        "actions": ["Agent:READ", "active-response:command"],
        "resources": ["AGENT:Group:Web", "node:ID:N1&Rule:file:Own.yml"],
        "effect": "ALLOW",
    }});
    let made = send(&world, "POST", "/security/policies", Some(new)).await.json();
    assert_eq!(
        made["data"]["affected_items"][0]["policy"],
        json!({
            "actions": ["agent:read", "active-response:command"],
            "resources": ["agent:group:Web", "node:id:N1&rule:file:Own.yml"],
            "effect": "allow",
        }),
        "{made}"
    );
    let second = |actions: &str, name: &str| {
        json!({"name": name, "policy": {
            "actions": [actions], "resources": ["agent:id:001"], "effect": "allow"}})
    };
    send(&world, "POST", "/security/policies", Some(second("agent:read", "second"))).await;
    let same = json!({"policy": second("agent:read", "")["policy"]});
    let same = send(&world, "PUT", "/security/policies/100", Some(same)).await.json();
    assert_eq!(code(&same), 4013, "{same}");
}

#[tokio::test]
async fn reserved_number_fails_before_a_missing_one() {
    let world = world();
    for (method, path, body, expected) in [
        ("DELETE", "/security/policies?policy_ids=98", None, 4008),
        ("DELETE", "/security/users?user_ids=98", None, 5004),
        ("PUT", "/security/roles/98", Some(json!({"name": "x"})), 4008),
        ("PUT", "/security/policies/98", Some(json!({"name": "x"})), 4008),
        ("PUT", "/security/rules/98", Some(json!({"name": "x"})), 4008),
        ("POST", "/security/roles/1/policies?policy_ids=999", None, 4008),
        ("POST", "/security/roles/999/policies?policy_ids=1", None, 4002),
        ("DELETE", "/security/roles/1/rules?rule_ids=2", None, 4008),
        // The exception: a rule that does not exist fails before the role.
        ("DELETE", "/security/roles/1/rules?rule_ids=999", None, 4022),
    ] {
        let answer = send(&world, method, path, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.json());
        assert_eq!(code(&answer.json()), expected, "{path}");
    }
}

#[tokio::test]
async fn failed_rules_are_numbers_except_in_the_list_of_rules() {
    let world = world();
    for (method, path, body, id) in [
        ("GET", "/security/rules?rule_ids=999", None, json!("999")),
        ("DELETE", "/security/rules?rule_ids=1,999", None, json!(1)),
        ("PUT", "/security/rules/999", Some(json!({"name": "x"})), json!(999)),
        ("DELETE", "/security/roles?role_ids=999", None, json!(999)),
    ] {
        let answer = send(&world, method, path, body).await.json();
        assert_eq!(answer["data"]["failed_items"][0]["id"][0], id, "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn rules_of_a_role_are_listed_by_number() {
    let world = world();
    send(&world, "POST", "/security/roles", Some(json!({"name": "own"}))).await;
    for rule in [2, 1] {
        let path = format!("/security/roles/100/rules?rule_ids={rule}");
        let linked = send(&world, "POST", &path, None).await.json();
        let rules = &linked["data"]["affected_items"][0]["rules"];
        assert_eq!(rules, &json!(if rule == 2 { vec![2] } else { vec![1, 2] }), "{linked}");
    }
}

#[tokio::test]
async fn request_without_a_body_is_400() {
    let world = world();
    for (method, path) in [
        ("POST", "/agents"),
        ("POST", "/groups"),
        ("POST", "/security/users"),
        ("PUT", "/groups/web/configuration"),
        ("PUT", "/security/config"),
    ] {
        let answer = send(&world, method, path, None).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}: {}", answer.json());
        assert_eq!(answer.json().get("error"), None, "{path}: {}", answer.json());
    }
}

#[tokio::test]
async fn group_cannot_have_the_name_of_a_shared_file() {
    let world = world();
    for name in ["ar.conf", "agent-template.conf", "all"] {
        let made = send(&world, "POST", "/groups", Some(json!({"group_id": name}))).await;
        assert_eq!((made.status, code(&made.json())), (StatusCode::BAD_REQUEST, 1713), "{name}");
    }
    let made = send(&world, "POST", "/groups", Some(json!({"group_id": "br.conf"}))).await;
    assert_eq!(made.status, StatusCode::OK);
}

#[tokio::test]
async fn offset_beyond_a_database_is_2003_and_else_an_empty_page() {
    let world = world();
    let token = world.admin().await;
    for list in ["/agents", "/agents/no_group", "/groups/web/agents", "/syscheck/001"] {
        let beyond = world.ok(&format!("{list}?offset=4294967296"), &token).await;
        assert_eq!(beyond["data"]["affected_items"], json!([]), "{list}");
        for offset in ["9223372036854775808", "9999999999999999999", "99999999999999999999"] {
            let refused = world.get(&format!("{list}?offset={offset}"), &token).await;
            let found = (refused.status, code(&refused.json()));
            assert_eq!(found, (StatusCode::BAD_REQUEST, 2003), "{list} {offset}");
        }
    }
    for list in ["/groups", "/security/users", "/manager/logs"] {
        let page = world.ok(&format!("{list}?offset=9999999999999999999"), &token).await;
        assert_eq!(page["data"]["affected_items"], json!([]), "{list}");
    }
}

#[tokio::test]
async fn flag_given_twice_is_equal_in_any_case() {
    let world = world();
    let path = "/agents/002/group/web?force_single_group=true&force_single_group=True";
    let answer = send(&world, "PUT", path, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.json());
    let both = "/agents/002/group/web?force_single_group=true&force_single_group=False";
    assert_eq!(send(&world, "PUT", both, None).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn agents_sort_by_all_their_groups() {
    let world = world();
    let token = world.admin().await;
    // 001 is in default and web, the others in default only.
    let up = world.ok("/agents?sort=group&q=id>0", &token).await;
    assert_eq!(column(&up, "id"), ["002", "003", "001"]);
    let down = world.ok("/agents?sort=-group&q=id>0", &token).await;
    assert_eq!(column(&down, "id"), ["001", "002", "003"]);
}

#[tokio::test]
async fn links_are_counted_and_a_missing_owner_is_404() {
    let world = world();
    send(&world, "POST", "/security/roles", Some(json!({"name": "own"}))).await;
    let path = "/security/roles/100/policies?policy_ids=1,2,3";
    let linked = send(&world, "POST", path, None).await.json();
    assert_eq!(linked["data"]["total_affected_items"], 3);
    assert_eq!(linked["data"]["affected_items"].as_array().unwrap().len(), 1);
    for path in ["roles/999/policies?policy_ids=1", "roles/999/rules?rule_ids=all"] {
        let missing = send(&world, "DELETE", &format!("/security/{path}"), None).await;
        assert_eq!((missing.status, code(&missing.json())), (StatusCode::NOT_FOUND, 4002));
        assert_eq!(missing.json()["title"], "Resource Not Found");
    }
    let missing = send(&world, "DELETE", "/security/users/999/roles?role_ids=1", None).await;
    assert_eq!((missing.status, code(&missing.json())), (StatusCode::NOT_FOUND, 5001));
}

#[tokio::test]
async fn group_without_configuration_has_the_sum_of_an_empty_file() {
    let world = world();
    let token = world.admin().await;
    let groups = world.ok("/groups?groups_list=web", &token).await;
    let empty = "d41d8cd98f00b204e9800998ecf8427e";
    assert_eq!(column(&groups, "mergedSum"), [empty]);
    assert_eq!(column(&groups, "configSum"), [empty]);
    let files = world.ok("/groups/web/files", &token).await;
    assert_eq!(column(&files, "hash"), [empty, empty]);
    let sha1 = world.ok("/groups?groups_list=web&hash=sha1", &token).await;
    assert_eq!(column(&sha1, "configSum"), ["da39a3ee5e6b4b0d3255bfef95601890afd80709"]);
}

#[tokio::test]
async fn group_files_that_do_not_exist_have_their_codes() {
    let world = world();
    let token = world.admin().await;
    let missing = world.ok("/groups/none/files", &token).await;
    assert_eq!((code(&missing), &missing["error"]), (1710, &json!(1)));
    let unknown = world.get("/groups/web/files/other.conf", &token).await;
    assert_eq!((unknown.status, code(&unknown.json())), (StatusCode::BAD_REQUEST, 1006));
    let headers =
        [("authorization", &*format!("Bearer {token}")), ("content-type", "application/xml")];
    let put = async |body: &'static [u8]| {
        world.send("PUT", "/groups/web/configuration", &headers, body).await
    };
    assert_eq!(code(&put(b"<agent_config>\xe9</agent_config>").await.json()), 1911);
    assert_eq!(put(b"<agent_config/>").await.status, StatusCode::OK);
    let raw = world.get("/groups/web/files/agent.conf?raw=true", &token).await;
    assert_eq!(raw.header("content-type"), "application/xml; charset=utf-8");
    let merged = world.get("/groups/web/files/merged.mg?raw=true", &token).await;
    assert_eq!(merged.header("content-type"), "text/plain; charset=utf-8");
}

#[tokio::test]
async fn configuration_of_detection_is_that_of_the_groups() {
    let world = world();
    let token = world.admin().await;
    let path = "/agents/001/config/syscheck/syscheck";
    let none = world.ok(path, &token).await["data"]["syscheck"].clone();
    assert_eq!(none["directories"], json!([]));
    assert_eq!(none["frequency"], Value::Null);
    let config = "<agent_config><syscheck><frequency>3600</frequency>\
        <directories check_all=\"yes\" recursion_level=\"2\" tags=\"a,b\">/etc</directories>\
        <directories check_all=\"no\" check_sha256sum=\"yes\" realtime=\"no\">/srv</directories>\
        <ignore>/etc/mtab</ignore></syscheck></agent_config>";
    let headers =
        [("authorization", &*format!("Bearer {token}")), ("content-type", "application/xml")];
    let put = world.send("PUT", "/groups/web/configuration", &headers, config).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.json());
    let set = world.ok(path, &token).await["data"]["syscheck"].clone();
    assert_eq!((&set["disabled"], &set["frequency"]), (&json!("no"), &json!(3600)));
    assert_eq!(set["ignore"], json!(["/etc/mtab"]));
    let all = &set["directories"][0];
    assert_eq!((&all["dir"], &all["recursion_level"]), (&json!("/etc"), &json!(2)), "{all}");
    assert_eq!(all["tags"], "a,b");
    let srv = json!({"dir": "/srv", "opts": ["check_sha256sum", "whodata"]});
    assert_eq!(set["directories"][1], srv);
    for (agent, expected) in [("000", 1703), ("099", 1701)] {
        let answer = world.get(&path.replace("001", agent), &token).await.json();
        assert_eq!(code(&answer), expected, "{agent}");
    }
}

#[tokio::test]
async fn unknown_endpoint_of_the_catalogue_is_4020() {
    let world = world();
    let answer = send(&world, "GET", "/security/actions?endpoint=GET%20/none", None).await;
    assert_eq!((answer.status, code(&answer.json())), (StatusCode::BAD_REQUEST, 4020));
}
