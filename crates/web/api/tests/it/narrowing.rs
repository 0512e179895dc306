//! Lists are restricted to what the caller's roles permit: silently for implicit lists, with 4000
//! for named items.

use crate::common::{self, NARROW, World, column, observed, upsert, world};
use axum::http::StatusCode;
use control::Policy;
use model::{AgentId, Dataset, PackageBody, PackageDocument, Write};
use registry::{CommandKind, Reader, WriteContext};
use serde_json::json;

/// Creates a user who may see the group `web` and, of the agents, only 001.
async fn narrow(world: &World) -> String {
    let (groups, agents) = (["group:read", "group:delete"], ["agent:read", "syscheck:run"]);
    let told = ["change:read", "coverage:read", "state:read"];
    let policies: [(&[&str], &str, &str); 3] = [
        (&groups, "group:id:web", "allow"),
        (&agents, "agent:id:001", "allow"),
        (&told, "agent:id:001", "allow"),
    ];
    world.user_with(&policies, "100,101,102,23").await
}

fn codes(answer: &serde_json::Value) -> Vec<u64> {
    let failed = answer["data"]["failed_items"].as_array().unwrap();
    failed.iter().map(|item| item["error"]["code"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn group_lists_contain_only_permitted_groups() {
    let world = world();
    let token = narrow(&world).await;
    let all = world.ok("/groups", &token).await;
    assert_eq!(column(&all, "name"), ["web"]);
    assert_eq!(codes(&all), [0_u64; 0]);
    let named = world.ok("/groups?groups_list=web,default,gone", &token).await;
    assert_eq!(column(&named, "name"), ["web"]);
    assert_eq!(codes(&named), [4000], "an unknown group is answered like a denied one");
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let gone = world.send("DELETE", "/groups?groups_list=all", &headers, "").await.json();
    assert_eq!(gone["data"]["affected_items"], json!(["web"]));
    assert_eq!(world.registry.groups(&Reader::server()).unwrap().len(), 1, "default stays");
    let none = world.send("DELETE", "/groups?groups_list=default", &headers, "").await;
    assert_eq!((none.status, &none.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
}

#[tokio::test]
async fn named_but_denied_agents_fail_with_4000_in_histories() {
    let world = world();
    let token = narrow(&world).await;
    let file = observed(0o644, 5);
    for agent in [1, 2] {
        world
            .events(agent, vec![common::change("/etc/a", None, Some(&file), common::NOW_US)])
            .await;
    }
    for agent in [1, 2] {
        world.registry.watched(AgentId(agent), model::WatchReport::default());
    }
    for path in ["/changes", "/coverage", "/coverage/state"] {
        let all = world.ok(path, &token).await;
        assert_eq!(codes(&all), [0_u64; 0], "{path}: nothing was named");
        let named = world.ok(&format!("{path}?agents_list=001,002"), &token).await;
        assert_eq!(codes(&named), [4000], "{path}");
        let none = world.get(&format!("{path}?agents_list=002,900"), &token).await;
        assert_eq!((none.status, &none.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
        let detail = "Permission denied: Resource type: agent:id, ids: 002, 900";
        assert_eq!(none.json()["detail"], detail, "{path}");
    }
    let admin = world.admin().await;
    let missing = world.ok("/changes?agents_list=001,900", &admin).await;
    assert_eq!((column(&missing, "path"), codes(&missing)), (vec!["/etc/a".into()], vec![1701]));
    // A removed agent still has its history.
    let lives = world.registry.revoke_agents(&WriteContext::server(), &[AgentId(2)]).unwrap();
    world.registry.remove_agents(&WriteContext::server(), &lives).unwrap();
    let gone = world.ok("/changes?agents_list=002", &admin).await;
    assert_eq!((column(&gone, "path"), codes(&gone)), (vec!["/etc/a".into()], vec![]));
    for path in ["/agents/summary?agents_list=003", "/events/stream?agents_list=003"] {
        let denied = world.get(path, &token).await;
        assert_eq!((denied.status, &denied.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
    }
}

#[tokio::test]
async fn summary_counts_changes_only_for_readers_of_all_of_them() {
    let world = world();
    let policies: [(&[&str], &str, &str); 2] =
        [(&["agent:read"], "agent:id:*", "allow"), (&["change:read"], "agent:id:001", "allow")];
    let token = world.user_with(&policies, "100,101").await;
    let summary = world.ok("/agents/summary", &token).await;
    assert!(summary["data"].get("changes").is_none(), "{summary}");
    let all = world.ok("/agents/summary", &world.admin().await).await;
    assert_eq!(all["data"]["status"], summary["data"]["status"], "the same agents");
    assert!(all["data"].get("changes").is_some(), "{all}");
}

/// The groups of a removed agent are unknown. A user who may not see some group therefore does not
/// see the history of removed agents either.
#[tokio::test]
async fn agent_out_of_scope_stays_hidden_after_its_removal() {
    let world = world();
    let admin = world.admin().await;
    let bearer = format!("Bearer {admin}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let history = ["change:read", "coverage:read"];
    for (path, body) in [
        (
            "/security/policies",
            json!({"name": "all", "policy": {"actions": history,
            "resources": ["agent:id:*"], "effect": "allow"}})
            .to_string(),
        ),
        (
            "/security/policies",
            json!({"name": "but", "policy": {"actions": history,
            "resources": ["agent:group:web"], "effect": "deny"}})
            .to_string(),
        ),
        ("/security/roles", json!({"name": "some"}).to_string()),
        ("/security/roles/100/policies?policy_ids=100,101", String::new()),
    ] {
        let answer = world.send("POST", path, &headers, body).await.json();
        assert_eq!(answer["error"], 0, "{path}: {answer}");
    }
    world.registry.create_user(&WriteContext::server(), "some", NARROW, false, &["some"]).unwrap();
    let token = world.login("some", NARROW).await;
    let file = observed(0o644, 5);
    world.events(1, vec![common::change("/srv/hidden", None, Some(&file), common::NOW_US)]).await;
    let id = column(&world.ok("/changes", &admin).await, "id").remove(0);
    let lives = world.registry.revoke_agents(&WriteContext::server(), &[AgentId(1)]).unwrap();
    world.registry.remove_agents(&WriteContext::server(), &lives).unwrap();
    assert_eq!(column(&world.ok("/changes?agents_list=001", &admin).await, "id")[0], id);
    for path in ["/changes", "/changes?agents_list=001", "/changes?agents_list=001,002"] {
        let list = world.ok(path, &token).await;
        assert_eq!(list["data"]["affected_items"], json!([]), "{path}");
    }
    let one = world.get(&format!("/changes/{id}"), &token).await;
    assert_eq!(one.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn node_lists_contain_only_permitted_nodes() {
    let world = world();
    let admin = world.admin().await;
    let bearer = format!("Bearer {admin}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let policy = json!({"actions": ["cluster:read", "cluster:read_api_config"],
        "resources": ["node:id:other"], "effect": "allow"});
    for (path, body) in [
        ("/security/policies", json!({"name": "a", "policy": policy}).to_string()),
        ("/security/roles", json!({"name": "other"}).to_string()),
        ("/security/roles/100/policies?policy_ids=100", String::new()),
        ("/security/users", json!({"username": "other", "password": NARROW}).to_string()),
        ("/security/users/101/roles?role_ids=100", String::new()),
    ] {
        assert_eq!(world.send("POST", path, &headers, body).await.json()["error"], 0, "{path}");
    }
    let token = world.login("other", NARROW).await;
    for path in ["nodes", "healthcheck", "api/config", "configuration/validation"] {
        let seen = world.ok(&format!("/cluster/{path}"), &token).await;
        assert_eq!(seen["data"]["affected_items"], json!([]), "{path}");
        assert_eq!(seen["data"]["total_affected_items"], 0, "{path}");
        let all = world.ok(&format!("/cluster/{path}"), &admin).await;
        assert_eq!(all["data"]["total_affected_items"], 1, "{path}");
    }
    let named = world.ok("/cluster/nodes?nodes_list=node01,other,third", &token).await;
    assert_eq!(codes(&named), [3022, 4000]);
    assert_eq!(named["data"]["affected_items"], json!([]));
}

#[tokio::test]
async fn commands_and_their_counts_cover_only_permitted_agents() {
    let world = world();
    let token = narrow(&world).await;
    let order = |kind: CommandKind, agents: &[u32]| {
        let agents: Vec<AgentId> = agents.iter().copied().map(AgentId).collect();
        world.registry.create_command(&WriteContext::server(), kind, &agents, "admin").unwrap()
    };
    let scan = CommandKind::Rescan;
    let (own, both, other) = (order(scan, &[1]), order(scan, &[1, 2]), order(scan, &[2, 3]));
    let restart = order(CommandKind::Restart, &[1]);
    let list = world.ok("/commands", &token).await;
    let items = list["data"]["affected_items"].as_array().unwrap();
    let seen: Vec<(u64, u64)> = items
        .iter()
        .map(|item| (item["id"].as_u64().unwrap(), item["counts"]["total"].as_u64().unwrap()))
        .collect();
    assert_eq!(seen, [(restart, 1), (both, 1), (own, 1)]);
    let one = world.ok(&format!("/commands/{both}"), &token).await;
    assert_eq!(one["data"]["outcomes"].as_array().unwrap().len(), 1);
    assert_eq!(one["data"]["outcomes"][0]["agent"], "001");
    let denied = world.get(&format!("/commands/{other}"), &token).await;
    assert_eq!((denied.status, &denied.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let cancel =
        async |id: u64| world.send("DELETE", &format!("/commands/{id}"), &headers, "").await.status;
    assert_eq!(cancel(both).await, StatusCode::FORBIDDEN, "it is about 002 too");
    assert_eq!(cancel(restart).await, StatusCode::FORBIDDEN, "only scans are theirs to order");
    assert_eq!(cancel(own).await, StatusCode::OK);
    // The number of the agent in both commands is reused, so the first command covers the caller's
    // agent only.
    let (first, second) = (order(scan, &[1, 3]), order(scan, &[1, 2]));
    let admin = world.admin().await;
    let bearer = format!("Bearer {admin}");
    let by_admin = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let path = "/agents?agents_list=003&status=all&older_than=0s&purge=true";
    assert_eq!(world.send("DELETE", path, &by_admin, "").await.json()["error"], 0);
    let new = json!({"name": "another", "id": "003", "key": "k".repeat(64)}).to_string();
    let inserted = world.send("POST", "/agents/insert", &by_admin, new).await;
    assert_eq!(inserted.status, StatusCode::OK, "{}", inserted.json());
    assert_eq!(cancel(first).await, StatusCode::OK, "003 is another one");
    assert_eq!(cancel(second).await, StatusCode::FORBIDDEN);
    let whole = world.ok(&format!("/commands/{both}"), &admin).await;
    assert_eq!(whole["data"]["command"]["counts"]["pending"], 2);
}

#[tokio::test]
async fn stream_does_not_reveal_agents_outside_the_callers_scope() {
    let world = world();
    let policies: [(&[&str], &str, &str); 2] =
        [(&["change:read"], "agent:id:*", "allow"), (&["change:read"], "agent:id:002", "deny")];
    let token = world.user_with(&policies, "100,101").await;
    for (named, status) in [("001", 200), ("999,001", 200), ("999", 404), ("999,002", 404)] {
        let answer = world.get(&format!("/events/stream?agents_list={named}"), &token).await;
        assert_eq!(answer.status, status, "{named}");
        if status == 404 {
            assert_eq!(answer.json()["error"], 1701, "{named}");
        }
    }
}

#[tokio::test]
async fn fleet_documents_are_filtered_by_scope_searched_and_sorted() {
    let world = world();
    let token = narrow(&world).await;
    world.session(1, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
    let two = [("/etc/a", 7), ("/etc/b", 9), ("/srv/c", 1)];
    world
        .session(2, two.map(|(path, size)| upsert(path, &observed(0o600, size), 1)).to_vec())
        .await;
    let reader = world.reader().await;
    let paths = |answer: &serde_json::Value| -> Vec<String> {
        let items = answer["data"]["affected_items"].as_array().unwrap().clone();
        let of = |item: &serde_json::Value| {
            let path = item["document"]["file"]["path"].as_str().unwrap();
            format!("{} {path}", item["agent"]["id"].as_str().unwrap())
        };
        items.iter().map(of).collect()
    };
    let all = world.ok("/states/fim-files", &reader).await;
    assert_eq!(paths(&all), ["001 /etc/a", "002 /etc/a", "002 /etc/b", "002 /srv/c"]);
    for (query, wanted, total) in [
        ("limit=2&offset=1", vec!["002 /etc/a", "002 /etc/b"], 4),
        ("sort=-size&limit=3", vec!["002 /etc/b", "002 /etc/a", "001 /etc/a"], 4),
        ("sort=size&q=path~etc", vec!["001 /etc/a", "002 /etc/a", "002 /etc/b"], 3),
        ("q=(name=a;size>5),name=c", vec!["002 /etc/a", "002 /srv/c"], 2),
        ("search=srv", vec!["002 /srv/c"], 1),
        ("search=-etc&agents_list=002", vec!["002 /srv/c"], 1),
        ("q=path~etc&offset=2&limit=5", vec!["002 /etc/b"], 3),
    ] {
        let answer = world.ok(&format!("/states/fim-files?{query}"), &reader).await;
        assert_eq!(paths(&answer), wanted, "{query}");
        assert_eq!(answer["data"]["total_affected_items"], total, "{query}");
    }
    let chosen = world.ok("/states/fim-files?select=agent.id,document.file&limit=1", &reader).await;
    let item = chosen["data"]["affected_items"][0].as_object().unwrap();
    assert_eq!(item.keys().collect::<Vec<_>>(), ["agent", "document"]);
    // The fields of documents are defined by their agents.
    let nothing = world.ok("/states/fim-files?select=id,document.nosuch&limit=1", &reader).await;
    let item = nothing["data"]["affected_items"][0].as_object().unwrap();
    assert_eq!(item.keys().collect::<Vec<_>>(), ["id"]);
    for (bad, code) in
        [("sort=body", 1403), ("q=body=1", 1408), ("q=path=a;", 1407), ("select=x", 1724)]
    {
        let answer = world.get(&format!("/states/fim-files?{bad}"), &reader).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]),
            (StatusCode::BAD_REQUEST, &json!(code))
        );
    }
    let own = world.ok("/states/fim-files", &token).await;
    assert_eq!(paths(&own), ["001 /etc/a"], "002 is not theirs to see");
    let named = world.ok("/states/fim-files?agents_list=001,002", &token).await;
    assert_eq!((paths(&named), codes(&named)), (vec!["001 /etc/a".to_owned()], vec![4000]));
    let missing = world.ok("/states/fim-files?agents_list=900", &reader).await;
    assert_eq!(codes(&missing), [1701]);
    // Only local programs write documents for this number.
    world.session(99, vec![upsert("/opt/d", &observed(0o644, 1), 1)]).await;
    let local = world.ok("/states/fim-files?agents_list=099,900", &reader).await;
    assert_eq!((paths(&local), codes(&local)), (vec!["099 /opt/d".to_owned()], vec![1701]));
}

/// Sends requests while other work is in progress; their answers are not checked.
async fn ask_on(world: &World, token: &str) {
    for _ in 0..10 {
        world.get("/agents", token).await;
    }
}

/// Cached permissions are never used for another user, and a change applies to the next request,
/// even while other requests run.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cached_permissions_are_per_user_and_dropped_on_change() {
    let world = world();
    let token = narrow(&world).await;
    let admin = world.admin().await;
    let ids = async |token: &str| column(&world.ok("/agents?select=id", token).await, "id");
    // Interleave the requests of two users with different permissions.
    for _ in 0..20 {
        let (own, all) = tokio::join!(ids(&token), ids(&admin));
        assert_eq!((own.len(), all.len()), (1, 4));
    }
    for query in ["", "?status=active", "?limit=1", "?offset=5"] {
        let list = world.ok(&format!("/agents{query}"), &token).await;
        assert_eq!(list["data"]["total_affected_items"], 1, "{query}");
    }
    let before = world.registry.access_counts();
    ids(&token).await;
    let after = world.registry.access_counts();
    assert_eq!(after.misses, before.misses, "it was kept");
    assert!(after.hits > before.hits);
    let resources = |agent: &str| Policy {
        id: 101,
        name: "b".into(),
        actions: vec!["agent:read".into()],
        resources: vec![format!("agent:id:{agent}")],
        allow: true,
    };
    for agent in ["002", "003", "001", "002"] {
        let body = json!({"policy": {"actions": resources(agent).actions,
            "resources": resources(agent).resources, "effect": "allow"}});
        let bearer = format!("Bearer {admin}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let path = "/security/policies/101";
        let (changed, ()) = tokio::join!(
            world.send("PUT", path, &headers, body.to_string()),
            ask_on(&world, &token)
        );
        assert_eq!(changed.json()["error"], 0, "{}", changed.json());
        assert_eq!(world.get("/agents", &token).await.status, StatusCode::UNAUTHORIZED);
        world.clock.advance(std::time::Duration::from_secs(2));
        let fresh = world.login("narrow", NARROW).await;
        assert_eq!(ids(&fresh).await, [agent]);
    }
}

fn package(name: &str, version: &str, vendor: Option<&str>) -> Write {
    let body = PackageDocument::new(PackageBody {
        name: name.into(),
        version: version.into(),
        architecture: "amd64".into(),
        kind: "deb".into(),
        vendor: vendor.map(Into::into),
        ..PackageBody::default()
    });
    let dataset = Dataset::new(Dataset::INVENTORY_PACKAGES);
    Write::Upsert { dataset, id: body.package.key(), version: 1, body: body.to_json() }
}

#[tokio::test]
async fn packages_are_filtered_by_their_own_fields() {
    let world = world();
    let openssl = package("openssl", "3.0.2-1", Some("Debian OpenSSL Team"));
    world.session(1, vec![openssl, package("zlib", "1.3", None)]).await;
    world.session(2, vec![package("openssl", "3.5.0-2", None)]).await;
    let reader = world.reader().await;
    for (query, wanted) in [
        ("q=name=openssl", vec!["001 openssl", "002 openssl"]),
        ("q=version=3.0.2-1", vec!["001 openssl"]),
        ("q=name~ssl;version~3.5", vec!["002 openssl"]),
        ("q=vendor~debian", vec!["001 openssl"]),
        ("q=architecture=arm64", vec![]),
        ("sort=-version", vec!["002 openssl", "001 openssl", "001 zlib"]),
    ] {
        let answer = world.ok(&format!("/states/inventory-packages?{query}"), &reader).await;
        let items = answer["data"]["affected_items"].as_array().unwrap();
        let of = |item: &serde_json::Value| {
            let name = item["document"]["package"]["name"].as_str().unwrap();
            format!("{} {name}", item["agent"]["id"].as_str().unwrap())
        };
        assert_eq!(items.iter().map(of).collect::<Vec<_>>(), wanted, "{query}");
    }
    for (dataset, bad, code) in [
        ("inventory-packages", "q=mode=0644", 1408),
        ("inventory-packages", "q=path~ssl", 1408),
        ("inventory-packages", "sort=size", 1403),
        ("fim-files", "q=version=1", 1408),
    ] {
        let answer = world.get(&format!("/states/{dataset}?{bad}"), &reader).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]),
            (StatusCode::BAD_REQUEST, &json!(code)),
            "{dataset} {bad}"
        );
    }
}

#[tokio::test]
async fn group_restart_lists_denied_agents_as_failed() {
    let world = world();
    let policies: [(&[&str], &str, &str); 3] = [
        (&["group:read"], "group:id:web", "allow"),
        (&["agent:read"], "agent:id:001", "allow"),
        (&["agent:restart"], "agent:id:002", "allow"),
    ];
    let token = world.user_with(&policies, "100,101,102").await;
    let path = "/agents/group/web/restart";
    let denied = world.put(path, &token).await.json();
    assert_eq!((&denied["error"], &denied["data"]["affected_items"]), (&json!(1), &json!([])));
    assert_eq!(denied["data"]["failed_items"][0]["id"], json!(["001"]), "{denied}");
    assert_eq!(codes(&denied), [4000]);
    assert_eq!(world.registry.pending_commands(AgentId(1)), []);
}

#[tokio::test]
async fn group_restart_hides_agents_that_the_caller_may_not_read() {
    let world = world();
    let policies: [(&[&str], &str, &str); 2] = [
        (&["group:read"], "group:id:web", "allow"),
        (&["agent:read", "agent:restart"], "agent:id:002", "allow"),
    ];
    let token = world.user_with(&policies, "100,101").await;
    let hidden = world.put("/agents/group/web/restart", &token).await.json();
    assert_eq!((&hidden["error"], &hidden["data"]["failed_items"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn groups_need_group_read_also_in_other_operations() {
    let world = world();
    let policies: [(&[&str], &str, &str); 2] = [
        (&["agent:read", "agent:restart", "agent:modify_group"], "agent:id:*", "allow"),
        (&["group:read", "group:modify_assignments"], "group:id:default", "allow"),
    ];
    let token = world.user_with(&policies, "100,101").await;
    let groups = &world.ok("/overview/agents", &token).await["data"]["groups"];
    assert_eq!((&groups[0]["name"], &groups[1]), (&json!("default"), &json!(null)));
    let headers = [("authorization", &*format!("Bearer {token}"))];
    for (method, path) in [
        ("GET", "/groups/NAME/agents"),
        ("PUT", "/agents/group/NAME/restart"),
        ("PUT", "/agents/999/group/NAME"),
        ("DELETE", "/agents/001/group/NAME"),
        ("PUT", "/agents/group?group_id=NAME&agents_list=001"),
    ] {
        let asked = async |group| {
            let answer = world.send(method, &path.replace("NAME", group), &headers, "").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}");
            answer.json().to_string().replace(group, "NAME")
        };
        assert_eq!(asked("web").await, asked("gone").await, "the answer shows if a group exists");
    }
}

#[tokio::test]
async fn node_is_unknown_in_failures_without_cluster_read() {
    let world = world();
    let (narrow, admin) = (narrow(&world).await, world.admin().await);
    for (token, node) in [(narrow, "unknown-node"), (admin, "node01")] {
        let headers = [("authorization", &*format!("Bearer {token}"))];
        let failed = world.send("GET", "/groups/web/agents?sort=none", &headers, "").await.json();
        assert!(failed["dapi_errors"][node].is_object(), "{failed}");
    }
}

#[tokio::test]
async fn denied_rules_of_a_role_are_refused_or_passed_over() {
    let world = world();
    let link = ["security:read", "security:update", "security:delete"];
    let policies: [(&[&str], &str, &str); 2] =
        [(&link, "role:id:*", "allow"), (&link, "rule:id:1", "allow")];
    let token = world.user_with(&policies, "100,101").await;
    let bearer = [("authorization", &*format!("Bearer {token}"))];
    for (method, rules) in [("POST", "2"), ("DELETE", "2,999"), ("POST", "999")] {
        let path = format!("/security/roles/100/rules?rule_ids={rules}");
        let answer = world.send(method, &path, &bearer, "").await;
        assert_eq!((answer.status, &answer.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
    }
    let admin = [("authorization", &*format!("Bearer {}", world.admin().await))];
    world.send("POST", "/security/roles/100/rules?rule_ids=2", &admin, "").await;
    let path = "/security/roles/100/rules?rule_ids=1,2";
    assert_eq!(codes(&world.send("POST", path, &bearer, "").await.json()), [4000]);
    let path = "/security/roles/100/rules?rule_ids=all";
    let all = world.send("DELETE", path, &bearer, "").await.json();
    assert_eq!((&all["data"]["total_affected_items"], codes(&all)), (&json!(1), vec![]), "{all}");
}
