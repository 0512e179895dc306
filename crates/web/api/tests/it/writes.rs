//! Adding, moving and removing agents and groups as clients of the 4.x API do; commands; further
//! lists; answers without envelopes for local callers.

use crate::common::{World, column, observed, upsert, world};
use axum::body::Body;
use axum::http::StatusCode;
use listener::Source;
use model::AgentId;
use serde_json::{Value, json};

async fn call(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("authorization", bearer.as_str())];
    let body = match body {
        Some(body) => {
            headers.push(("content-type", "application/json"));
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    let answered = world.send(method, path, &headers, body).await;
    (answered.status, serde_json::from_slice(&answered.body).unwrap_or(Value::Null))
}

fn failed(answer: &Value) -> Vec<(u64, String)> {
    let mut list = Vec::new();
    for item in answer["data"]["failed_items"].as_array().unwrap() {
        for id in item["id"].as_array().unwrap() {
            list.push((item["error"]["code"].as_u64().unwrap(), id.as_str().unwrap().to_owned()));
        }
    }
    list
}

#[tokio::test]
async fn agent_is_added_with_a_key_and_removed() {
    let world = world();
    let token = world.admin().await;
    let new = json!({"name": "added", "ip": "192.0.2.77"});
    let (status, answer) = call(&world, "POST", "/agents", &token, Some(new.clone())).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let id = answer["data"]["id"].as_str().unwrap().to_owned();
    assert_eq!(id, "004");
    let listed = world.ok("/agents?agents_list=004", &token).await;
    assert_eq!(listed["data"]["affected_items"][0]["registerIP"], "192.0.2.77");
    let key = world.ok("/agents/004/key", &token).await;
    assert_eq!(key["data"]["affected_items"][0]["key"], answer["data"]["key"]);
    let (_, again) = call(&world, "POST", "/agents", &token, Some(new)).await;
    assert_eq!(again["error"], 1705, "{again}");
    let server = world.registry.agent(AgentId::SERVER).unwrap().name;
    for name in ["ADDED", "000", &server] {
        let (status, refused) =
            call(&world, "POST", "/agents", &token, Some(json!({"name": name}))).await;
        assert_eq!((status, &refused["error"]), (StatusCode::BAD_REQUEST, &json!(1705)), "{name}");
    }

    let path = "/agents?agents_list=004,001,009&status=never_connected&older_than=0s";
    let (status, gone) = call(&world, "DELETE", path, &token, None).await;
    assert_eq!(status, StatusCode::OK, "{gone}");
    assert_eq!(gone["data"]["affected_items"], json!(["004"]));
    assert_eq!(failed(&gone), [(1701, "009".into()), (1731, "001".into())]);
    assert!(world.registry.agent(AgentId(4)).is_none());
    let total = &world.ok("/agents/summary/status", &token).await["data"]["connection"]["total"];
    assert_eq!(*total, 3);
}

#[tokio::test]
async fn insert_replaces_an_agent_only_under_the_force_rules() {
    let world = world();
    let token = world.admin().await;
    let key = "k".repeat(64);
    let mut new = json!({"name": "db-1", "id": "020", "key": key});
    let insert = "/agents/insert";
    let (_, answer) = call(&world, "POST", insert, &token, Some(new.clone())).await;
    assert_eq!(answer["error"], 1705, "{answer}");
    new["force"] = json!({"enabled": true, "disconnected_time": {"enabled": true, "value": "1h"},
        "after_registration_time": "1h"});
    let (_, answer) = call(&world, "POST", insert, &token, Some(new.clone())).await;
    assert_eq!(answer["error"], 1705, "it went silent just now: {answer}");
    new["force"]["disconnected_time"]["enabled"] = json!(false);
    let (status, answer) = call(&world, "POST", insert, &token, Some(new)).await;
    assert_eq!((status, &answer["data"]["id"]), (StatusCode::OK, &json!("020")), "{answer}");
    assert!(world.registry.agent(AgentId(2)).is_none(), "it made room");
    let short = json!({"name": "short", "key": "abc"});
    let (_, answer) = call(&world, "POST", insert, &token, Some(short)).await;
    assert_eq!(answer["error"], 1709);
}

#[tokio::test]
async fn groups_are_created_joined_configured_and_deleted() {
    let world = world();
    let token = world.admin().await;
    let (status, made) =
        call(&world, "POST", "/groups", &token, Some(json!({"group_id": "edge"}))).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    let (_, again) =
        call(&world, "POST", "/groups", &token, Some(json!({"group_id": "edge"}))).await;
    assert_eq!(again["error"], 1711);
    for (name, code) in [("a b", 1722), ("..", 1713)] {
        let (_, bad) =
            call(&world, "POST", "/groups", &token, Some(json!({"group_id": name}))).await;
        assert_eq!(bad["error"], code, "{name}");
    }
    let (status, _) = call(&world, "PUT", "/agents/001/group/edge", &token, None).await;
    assert_eq!(status, StatusCode::OK);
    let path = "/agents/group?group_id=edge&agents_list=002,003,099";
    let (_, many) = call(&world, "PUT", path, &token, None).await;
    assert_eq!(many["data"]["affected_items"], json!(["002", "003"]));
    assert_eq!(failed(&many), [(1701, "099".into())]);
    let members = world.ok("/groups/edge/agents?select=id", &token).await;
    assert_eq!(column(&members, "id"), ["001", "002", "003"]);

    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/xml")];
    let config = "<agent_config><syscheck><frequency>60</frequency></syscheck></agent_config>";
    let put = world.send("PUT", "/groups/edge/configuration", &headers, config).await;
    assert_eq!(put.status, StatusCode::OK, "{}", String::from_utf8_lossy(&put.body));
    let empty = world.send("PUT", "/groups/edge/configuration", &headers, "").await;
    assert_eq!((empty.status, &empty.json()["error"]), (StatusCode::BAD_REQUEST, &json!(1912)));
    let read = world.get("/groups/edge/files/agent.conf?raw=true", &token).await;
    assert_eq!(read.body, config.as_bytes(), "the configuration stays");
    let list = world.ok("/groups?q=name=edge;count=3", &token).await;
    assert_eq!(list["data"]["affected_items"][0]["configSum"].as_str().unwrap().len(), 32);

    let (_, left) = call(&world, "DELETE", "/agents/003/group/default", &token, None).await;
    assert!(left["message"].as_str().unwrap().contains("removed"), "{left}");
    let (_, only) =
        call(&world, "DELETE", "/groups?groups_list=edge,default,no", &token, None).await;
    assert_eq!(only["data"]["affected_items"], json!(["edge"]));
    assert_eq!(failed(&only), [(1710, "no".into()), (1712, "default".into())]);
    assert_eq!(world.registry.agent(AgentId(3)).unwrap().groups, ["default"], "never none");
    let (_, stays) = call(&world, "DELETE", "/agents/003/group/default", &token, None).await;
    assert_eq!(stays["error"], 1745);
}

#[tokio::test]
async fn commands_to_group_and_node_reach_active_agents() {
    let world = world();
    let token = world.admin().await;
    for (path, wanted) in [
        ("/agents/group/web/restart", json!(["001"])),
        ("/agents/group/default/restart", json!(["001"])),
        ("/agents/node/node01/restart", json!(["001"])),
        ("/agents/reconnect", json!(["001"])),
        ("/agents/restart", json!(["001"])),
    ] {
        let (status, answer) = call(&world, "PUT", path, &token, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        assert_eq!(answer["data"]["affected_items"], wanted, "{path}");
        assert!(answer["data"]["command"].as_u64().is_some());
    }
    let (_, other) = call(&world, "PUT", "/agents/node/elsewhere/restart", &token, None).await;
    assert_eq!(other["error"], 3022);
    let (_, none) = call(&world, "PUT", "/agents/group/none/restart", &token, None).await;
    assert_eq!(none["error"], 1710);
    let pending = world.registry.pending_commands(AgentId(1));
    let kinds: Vec<registry::CommandKind> = pending.iter().map(|command| command.kind).collect();
    // A repeated command is merged into the pending one until an agent has answered it.
    assert_eq!(kinds, [registry::CommandKind::Restart, registry::CommandKind::Reconnect]);
}

#[tokio::test]
async fn agent_lists_show_distinct_outdated_and_ungrouped() {
    let world = world();
    let token = world.admin().await;
    let stats = world.ok("/agents/stats/distinct?fields=os.platform,status&q=id>0", &token).await;
    let items = stats["data"]["affected_items"].as_array().unwrap();
    let debian = json!({"os": {"platform": "debian"}, "status": "active", "count": 1});
    assert!(items.contains(&debian), "{items:?}");
    assert_eq!(stats["data"]["total_affected_items"], 3);
    let lone = world.ok("/agents/no_group", &token).await;
    assert_eq!(lone["data"]["total_affected_items"], 0);
    assert_eq!(world.get("/agents/outdated?q=id>0;", &token).await.json()["error"], 1407);
    for (path, wanted) in [
        ("/agents?q=os.major=12;id>0", vec!["001"]),
        ("/agents?q=os.minor=4;id>0", vec!["001"]),
        ("/agents?q=status_code=3", vec!["002"]),
        ("/agents?q=manager=server-host;node_name=node01;id>0", vec!["001", "002", "003"]),
        ("/agents?q=manager=other", vec![]),
        ("/agents?q=group_config_status~not", vec!["003"]),
        ("/agents?select=id&status=active&q=id>0", vec!["001"]),
    ] {
        assert_eq!(column(&world.ok(path, &token).await, "id"), wanted, "{path}");
    }
}

#[tokio::test]
async fn large_file_list_is_streamed_completely() {
    let world = world();
    let token = world.admin().await;
    let file = observed(0o644, 5);
    for part in 0..5 {
        let writes = (0..500).map(|n| upsert(&format!("/srv/{part}/{n:04}"), &file, 1)).collect();
        world.session(1, writes).await;
    }
    let answer = world.ok("/syscheck/001?limit=100000", &token).await;
    assert_eq!(answer["data"]["total_affected_items"], 2_500);
    let files = column(&answer, "file");
    assert_eq!(files.len(), 2_500);
    assert!(files.is_sorted(), "by path, each once");
    let some = world.ok("/syscheck/001?limit=2001&offset=100&select=file", &token).await;
    assert_eq!(column(&some, "file"), files[100..2_101]);
    assert_eq!(some["error"], 0);
}

#[tokio::test]
async fn local_routes_answer_without_envelopes() {
    let world = world();
    let local = Some(Source::Unix { uid: 0 });
    let get =
        async |path: &str| world.send_from(local, "GET", path, &[], Body::empty()).await.json();
    assert_eq!(get("/v1/agents/ids").await, json!([1, 2, 3]));
    assert_eq!(get("/v1/agents/ids/groups/web").await, json!([1]));
    assert_eq!(get("/v1/agents/1/groups").await, json!(["default", "web"]));
    assert_eq!(get("/v1/agents/ids/groups").await["data"]["2"], json!(["default"]));
    let json = [("content-type", "application/json")];
    let post = async |path: &str, body: &'static str| {
        world.send_from(local, "POST", path, &json, body).await.json()
    };
    assert_eq!(post("/v1/agents/summary", "[1,2]").await["agents_by_status"]["active"], 1);
    let info = post("/v1/agents/restartinfo", r#"{"ids":[1],"negate":false}"#).await;
    assert_eq!(info["items"], json!([{"id": 1, "version": "Holdfast v0.1.0"}]));
    // Another program reports states of agents; the report on an unknown agent is ignored.
    let told = r#"{"syncreq":[{"id":3,"version":"v9","os_platform":"rocky","labels":[],
        "connection_status":"pending"}],"syncreq_keepalive":[2,900],
        "syncreq_status":[{"id":1,"connection_status":"disconnected","status_code":3}]}"#;
    assert_eq!(post("/v1/agents/sync", told).await, json!({}));
    let now = [1, 2, 3].map(|id| world.registry.agent(AgentId(id)).unwrap());
    assert_eq!(
        now.each_ref().map(|agent| agent.status.name()),
        ["disconnected", "active", "pending"]
    );
    assert_eq!(now[2].version.as_deref(), Some("v9"));
    // Failures are sent as one line of text.
    for (method, path, body) in [
        ("GET", "/v1/agents/x/groups", ""),
        ("GET", "/v1/agents/ids?nonsense=1", ""),
        ("POST", "/v1/agents/restartinfo", "{"),
        ("POST", "/v1/agents/sync", r#"{"syncreq_status":[{"id":1,"connection_status":"x"}]}"#),
    ] {
        let answer = world.send_from(local, method, path, &json, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8", "{path}");
    }
}

#[tokio::test]
async fn server_describes_itself_in_cluster_format() {
    let world = world();
    let token = world.admin().await;
    assert_eq!(world.ok("/cluster/status", &token).await["data"]["running"], "no");
    let nodes = world.ok("/cluster/nodes?q=type=master", &token).await;
    assert_eq!(nodes["data"]["affected_items"][0]["name"], "node01");
    let health = world.ok("/cluster/healthcheck", &token).await;
    assert_eq!(health["data"]["affected_items"][0]["info"]["n_active_agents"], 1);
    for path in [
        "/manager/status",
        "/cluster/node01/status",
        "/manager/info",
        "/manager/logs",
        "/manager/logs/summary",
        "/manager/configuration?section=agents",
        "/cluster/local/info",
    ] {
        assert_eq!(world.ok(path, &token).await["error"], 0, "{path}");
    }
    let other = world.get("/cluster/node02/info", &token).await;
    assert_eq!(other.json()["error"], 3022);
}

#[tokio::test]
async fn decisions_are_refused_while_the_data_folder_is_gone() {
    let world = world();
    let token = world.admin().await;
    let auth = format!("Bearer {token}");
    let headers = [("authorization", &*auth), ("content-type", "application/json")];
    let (file, aside) =
        (world.folder.path().join("registry.db"), world.folder.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    let user = r#"{"username":"joe-doe","password":"New-Password-1"}"#;
    let rule = r#"{"name":"r","rule":{"FIND":{"a":"b"}}}"#;
    for (method, path, body) in [
        ("POST", "/security/users", user),
        ("POST", "/security/roles", r#"{"name":"auditor"}"#),
        ("POST", "/security/rules", rule),
        ("PUT", "/security/config", r#"{"auth_token_exp_timeout":500}"#),
        ("POST", "/groups", r#"{"group_id":"db"}"#),
        ("POST", "/agents", r#"{"name":"new-2"}"#),
        ("PUT", "/agents/002/group/web", ""),
        ("DELETE", "/agents?agents_list=003&status=all&older_than=0s", ""),
    ] {
        let answer = world.send(method, path, &headers, body).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", answer.json());
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains("registry.db: the file is gone"), "{path}: {detail}");
    }
    world.ok("/agents", &token).await;
    std::fs::rename(&aside, &file).unwrap();
    let back = world.send("POST", "/security/roles", &headers, r#"{"name":"auditor"}"#).await;
    assert_eq!(back.status, StatusCode::OK, "{}", back.json());
}
