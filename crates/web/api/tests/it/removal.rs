//! Agents are removed completely or not at all, and only the selected ones.

use crate::common::{self, Answered, World, observed, upsert, world};
use axum::http::StatusCode;
use model::AgentId;
use registry::{Reader, WriteContext};
use serde_json::{Value, json};
use state::DocumentQuery;

async fn send_json(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    body: Option<Value>,
) -> Answered {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    world.send(method, path, &headers, body.map_or(String::new(), |b| b.to_string())).await
}

fn documents(world: &World, agent: u32) -> u64 {
    let query = DocumentQuery::new(AgentId(agent), model::Dataset::fim_files());
    world.state.documents(&Reader::server(), &query).unwrap().total
}

#[tokio::test]
async fn empty_filter_is_refused_and_does_not_select_all() {
    let world = world();
    let admin = world.admin().await;
    let all = "/agents?agents_list=all&status=all&older_than=0s";
    for name in ["group", "q", "name", "ip", "registerIP", "version", "os.name", "manager"] {
        let answer = send_json(&world, "DELETE", &format!("{all}&{name}="), &admin, None).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&format!("'{name}' is empty")), "{detail}");
    }
    for (method, path) in
        [("GET", "/agents?search="), ("GET", "/agents?sort="), ("GET", "/groups?q=")]
    {
        let answer = send_json(&world, method, path, &admin, None).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(world.registry.status_summary().unwrap().total, 3, "nobody went");
}

#[tokio::test]
async fn status_all_overrides_other_statuses() {
    let world = world();
    let admin = world.admin().await;
    for (id, status) in [("002", "all,active"), ("003", "active,all")] {
        let path = format!("/agents?agents_list={id}&status={status}&older_than=0s");
        let removed = send_json(&world, "DELETE", &path, &admin, None).await.json();
        assert_eq!(removed["data"]["affected_items"], json!([id]), "{status}: {removed}");
    }
}

#[tokio::test]
async fn agent_whose_removal_the_journal_refuses_can_be_removed_later() {
    let world = world();
    let admin = world.admin().await;
    world.session(2, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
    let path = "/agents?agents_list=002&status=all&older_than=0s";
    world.commit.close().await.unwrap();
    let refused = send_json(&world, "DELETE", path, &admin, None).await.json();
    assert_eq!(refused["data"]["affected_items"], json!([]));
    assert_eq!(refused["data"]["failed_items"][0]["id"], json!(["002"]));
    assert_eq!(refused["data"]["failed_items"][0]["error"]["code"], 1000);
    assert!(world.registry.agent(AgentId(2)).is_some(), "asking again finds it");
    let log = world.registry.audit_log(&Reader::server(), None, 5).unwrap();
    assert!(log.iter().any(|row| row.action == "agent:delete"), "its certificates are revoked");
    let insert = json!({"name": "new-1", "force": {"enabled": true}});
    let refused = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(world.registry.agent(AgentId(3)).is_some());
}

#[tokio::test]
async fn removing_an_agent_deletes_its_documents() {
    let world = world();
    let admin = world.admin().await;
    for agent in [2, 3] {
        world.session(agent, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
    }
    let path = "/agents?agents_list=002&status=all&older_than=0s";
    let gone = send_json(&world, "DELETE", path, &admin, None).await.json();
    assert_eq!(gone["data"]["affected_items"], json!(["002"]));
    let force = json!({"enabled": true, "disconnected_time": {"enabled": false}});
    let insert = json!({"name": "again", "ip": "any", "id": "003", "force": force});
    let came = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!((came.status, &came.json()["data"]["id"]), (StatusCode::OK, &json!("003")));
    assert_eq!((documents(&world, 2), documents(&world, 3)), (0, 0));
    assert_eq!(world.registry.agent(AgentId(3)).unwrap().name, "again");
    // The number is not free for any other agent.
    let insert = json!({"name": "other", "ip": "any", "id": "002"});
    let refused = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!((refused.status, &refused.json()["error"]), (StatusCode::BAD_REQUEST, &json!(1708)));
}

/// `purge` frees the number; the next agent with it is a different one, in the history as well.
#[tokio::test]
async fn purged_number_may_be_reused_without_its_history() {
    let (by, world) = (&WriteContext::server(), world());
    let admin = world.admin().await;
    let found =
        |path: &str| vec![common::change(path, None, Some(&observed(0o644, 5)), common::NOW_US)];
    for agent in [2, 3] {
        world.session(agent, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
        world.events(agent, found(&format!("/former/{agent}"))).await;
        let rows = format!("load,agent={agent:03} value=1 1700000000000000000\n");
        let lines =
            [("authorization", &*format!("Bearer {admin}")), ("content-type", "text/plain")];
        let written = world.send("POST", "/series/write", &lines, rows).await;
        assert!(written.status.is_success(), "{}", written.status);
    }
    let gone = "/agents?agents_list=002&status=all&older_than=0s";
    assert_eq!(send_json(&world, "DELETE", gone, &admin, None).await.json()["error"], 0);
    let purged = "/agents?agents_list=003&status=all&older_than=0s&purge=true";
    assert_eq!(send_json(&world, "DELETE", purged, &admin, None).await.json()["error"], 0);
    let insert = |id: &str| json!({"name": format!("other-{id}"), "ip": "any", "id": id});
    let refused = send_json(&world, "POST", "/agents/insert", &admin, Some(insert("002"))).await;
    assert_eq!(refused.json()["error"], 1708, "its number stays taken");
    let came = send_json(&world, "POST", "/agents/insert", &admin, Some(insert("003"))).await;
    assert_eq!(came.status, StatusCode::OK, "{}", came.json());
    let again = send_json(&world, "POST", "/agents/insert", &admin, Some(insert("003"))).await;
    assert_eq!(again.json()["error"], 1705, "once");
    let load =
        json!({"select": "load_value", "range": {"from": 0, "to": 1_800_000_000_000_000_000_i64}});
    let load = send_json(&world, "POST", "/series/query", &admin, Some(load)).await;
    let load = String::from_utf8(load.body.clone()).unwrap();
    assert!(load.contains("agent=002") && !load.contains("agent=003"), "{load}");
    world.registry.create_group(by, "secret").unwrap();
    world.registry.set_agent_groups(by, AgentId(3), &["secret".into()]).unwrap();
    // A user who may see the new agent's group does not see the history of the former agent.
    let life = world.registry.agent(AgentId(3)).unwrap().incarnation;
    let record = model::Record::Session(model::SessionRecord {
        agent: AgentId(3),
        incarnation: life,
        received_at_us: common::NOW_US,
        session: "of-the-new-one".into(),
        overlay: model::Overlay { agent_name: "other-003".into(), ..model::Overlay::default() },
        writes: vec![model::Write::Event { id: "n".into(), body: found("/now")[0].to_json() }],
    });
    world.commit.submit(record).await.unwrap();
    let names = |answer: &Value| -> Vec<(String, String)> {
        let items = answer["data"]["affected_items"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        items.iter().map(|i| (text(&i["path"]), text(&i["agent"]["name"]))).collect()
    };
    let pair = |path: &str, name: &str| (path.to_owned(), name.to_owned());
    let all = world.ok("/changes?agents_list=003", &admin).await;
    assert_eq!(names(&all), [pair("/now", "other-003"), pair("/former/3", "agent-3")]);
    let policy = registry::Policy {
        id: 0,
        name: "secret".into(),
        actions: vec!["change:read".into()],
        resources: vec!["agent:group:secret".into()],
        allow: true,
    };
    let change = |change| world.registry.change_security(by, change).unwrap();
    let member = change(registry::SecurityChange::CreatePolicy(policy));
    let owner = change(registry::SecurityChange::CreateRole { name: "secret".into() });
    let (kind, position) = (registry::LinkKind::RolePolicy, None);
    change(registry::SecurityChange::Link { kind, owner, member, position });
    world.registry.create_user(by, "member", "Group-Member-1", false, &["secret"]).unwrap();
    let member = world.login("member", "Group-Member-1").await;
    for path in ["/changes", "/changes?agents_list=003"] {
        let seen = world.ok(path, &member).await;
        assert_eq!(names(&seen), [pair("/now", "other-003")], "{path}");
    }
    let former = all["data"]["affected_items"][1]["id"].as_str().unwrap();
    let one = world.get(&format!("/changes/{former}"), &member).await;
    assert_eq!(one.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn rekeyed_agent_keeps_its_past_and_needs_the_remove_permission() {
    let world = world();
    let admin = world.admin().await;
    let found = common::change("/etc/a", None, Some(&observed(0o644, 5)), common::NOW_US);
    world.session(1, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
    world.events(1, vec![found]).await;
    world
        .registry
        .create_user(&WriteContext::server(), "member", "Group-Member-1", false, &["readonly"])
        .unwrap();
    let member = world.login("member", "Group-Member-1").await;
    let force = json!({"enabled": true, "disconnected_time": {"enabled": false}});
    let insert = json!({"name": "web-1", "ip": "192.0.2.7", "id": "001", "force": force});
    let policy = registry::Policy {
        id: 0,
        name: "creates".into(),
        actions: vec!["agent:create".into()],
        resources: vec!["*:*:*".into()],
        allow: true,
    };
    let change = |change| world.registry.change_security(&WriteContext::server(), change).unwrap();
    let created = change(registry::SecurityChange::CreatePolicy(policy));
    let owner = change(registry::SecurityChange::CreateRole { name: "creates".into() });
    let (kind, position) = (registry::LinkKind::RolePolicy, None);
    change(registry::SecurityChange::Link { kind, owner, member: created, position });
    world
        .registry
        .create_user(&WriteContext::server(), "creator", "Creates-Only-1", false, &["creates"])
        .unwrap();
    let creator = world.login("creator", "Creates-Only-1").await;
    let denied = send_json(&world, "POST", "/agents/insert", &creator, Some(insert.clone())).await;
    assert_eq!(denied.status, StatusCode::FORBIDDEN, "its present key would be worth nothing");
    assert_eq!(world.registry.agent(AgentId(1)).unwrap().status, model::AgentStatus::Active);
    let came = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!((came.status, &came.json()["data"]["id"]), (StatusCode::OK, &json!("001")));
    let agent = world.ok("/agents?agents_list=001", &admin).await;
    let agent = &agent["data"]["affected_items"][0];
    assert_eq!(
        (&agent["status"], &agent["registerIP"]),
        (&json!("never_connected"), &json!("192.0.2.7"))
    );
    assert_eq!(agent["group"], json!(["default", "web"]));
    assert_eq!(documents(&world, 1), 1);
    let seen = world.ok("/changes?agents_list=001", &member).await;
    assert_eq!(seen["data"]["affected_items"][0]["path"], "/etc/a");
    assert_eq!(seen["data"]["affected_items"][0]["agent"]["name"], "web-1");
    // Later reports belong to the same incarnation.
    world.session(1, vec![upsert("/etc/b", &observed(0o644, 5), 1)]).await;
    assert_eq!(documents(&world, 1), 2);
}

#[tokio::test]
async fn agent_with_all_groups_blocks_no_other_from_a_group() {
    let world = world();
    let admin = world.admin().await;
    let names: Vec<String> = (0..128).map(|n| format!("g{n}")).collect();
    for name in &names {
        world.registry.create_group(&WriteContext::server(), name).unwrap();
    }
    world.registry.set_agent_groups(&WriteContext::server(), AgentId(1), &names).unwrap();
    let path = "/agents/group?group_id=web&agents_list=001,002";
    let answer = send_json(&world, "PUT", path, &admin, None).await.json();
    assert_eq!(answer["data"]["affected_items"], json!(["002"]), "{answer}");
    assert_eq!(answer["data"]["failed_items"][0]["error"]["code"], 1737);
    let single =
        send_json(&world, "PUT", &format!("{path}&force_single_group=true"), &admin, None).await;
    assert_eq!(single.json()["data"]["affected_items"], json!(["001", "002"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaving_a_group_keeps_concurrent_joins() {
    let world = world();
    let admin = world.admin().await;
    for name in ["a", "b", "c"] {
        world.registry.create_group(&WriteContext::server(), name).unwrap();
    }
    for _ in 0..40 {
        world
            .registry
            .set_agent_groups(&WriteContext::server(), AgentId(1), &["a".into(), "b".into()])
            .unwrap();
        let (left, joined) = tokio::join!(
            send_json(&world, "DELETE", "/agents/001/group?groups_list=a", &admin, None),
            send_json(&world, "PUT", "/agents/001/group/c", &admin, None)
        );
        assert_eq!((left.status, joined.status), (StatusCode::OK, StatusCode::OK));
        assert_eq!(world.registry.agent(AgentId(1)).unwrap().groups, ["b", "c"]);
    }
}

/// Writes one row of metrics for each of these agents.
async fn loads(world: &World, token: &str, agents: &[u32]) {
    let row = |agent: &u32| format!("load,agent={agent:03} value=1 1700000000000000000\n");
    let rows = agents.iter().map(row).collect::<String>();
    let bearer = format!("Bearer {token}");
    let lines = [("authorization", &*bearer), ("content-type", "text/plain")];
    let written = world.send("POST", "/series/write", &lines, rows).await;
    assert!(written.status.is_success(), "{}", written.status);
}

/// Returns the numbers of agents that have such rows.
async fn loaded(world: &World, token: &str) -> Vec<u32> {
    let load =
        json!({"select": "load_value", "range": {"from": 0, "to": 1_800_000_000_000_000_000_i64}});
    let load = send_json(world, "POST", "/series/query", token, Some(load)).await;
    let load = String::from_utf8(load.body).unwrap();
    (1..10).filter(|agent| load.contains(&format!("agent={agent:03}"))).collect()
}

const PURGE: &str = "/agents?agents_list=002,003&status=all&older_than=0s&purge=true";

fn takes_the_place_of(number: &str, name: &str) -> Value {
    let force = json!({"enabled": true, "disconnected_time": {"enabled": false}});
    json!({"name": name, "ip": "any", "id": number, "force": force})
}

#[tokio::test]
async fn no_agent_is_removed_if_its_metrics_cannot_be_deleted() {
    let mut store = None;
    let world = common::world_with(|options| store = options.series.clone());
    let admin = world.admin().await;
    for agent in [2, 3] {
        world.session(agent, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
    }
    store.unwrap().close().unwrap();
    let insert = takes_the_place_of("003", "other");
    for (method, path, body) in [("DELETE", PURGE, None), ("POST", "/agents/insert", Some(insert))]
    {
        let refused = send_json(&world, method, path, &admin, body).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{method}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("nothing was removed"), "{detail}");
        assert_eq!((documents(&world, 2), documents(&world, 3)), (1, 1), "{method}");
        assert!(world.registry.agent(AgentId(3)).is_some_and(|known| known.name == "new-1"));
    }
    let gone = "/agents?agents_list=002&status=all&older_than=0s";
    let removed = send_json(&world, "DELETE", gone, &admin, None).await.json();
    assert_eq!(removed["data"]["affected_items"], json!(["002"]), "its metrics stay anyway");
}

#[tokio::test]
async fn metrics_of_several_agents_are_removed_by_one_delete() {
    let mut store = None;
    let world = common::world_with(|options| store = options.series.clone());
    let (admin, store) = (world.admin().await, store.unwrap());
    loads(&world, &admin, &[1, 2, 3]).await;
    // One agent has the number and another the name.
    let insert = takes_the_place_of("003", "db-1");
    let came = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!((came.status, &came.json()["data"]["id"]), (StatusCode::OK, &json!("003")));
    assert_eq!((loaded(&world, &admin).await, store.stats().tombstones), (vec![1], 1));
    loads(&world, &admin, &[1, 3]).await;
    let purge = "/agents?agents_list=001,003&status=all&older_than=0s&purge=true";
    let purged = send_json(&world, "DELETE", purge, &admin, None).await.json();
    assert_eq!(purged["data"]["affected_items"], json!(["001", "003"]));
    assert_eq!((loaded(&world, &admin).await, store.stats().tombstones), (vec![], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_deletes_metrics_that_were_in_flight_at_its_start() {
    let world = world();
    let admin = world.admin().await;
    let storing = world.registry.storing_metrics().await;
    let purged = send_json(&world, "DELETE", PURGE, &admin, None);
    let stored = async {
        while world.registry.agent(AgentId(3)).is_some() {
            tokio::task::yield_now().await;
        }
        let insert = json!({"name": "early", "ip": "any", "id": "003"});
        let early = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
        assert_eq!(early.json()["error"], 1708, "its number is not free yet");
        loads(&world, &admin, &[3]).await;
        drop(storing);
    };
    let (purged, ()) = tokio::join!(purged, stored);
    assert_eq!(purged.json()["data"]["affected_items"], json!(["002", "003"]));
    assert_eq!(loaded(&world, &admin).await, [0; 0]);
    let insert = json!({"name": "late", "ip": "any", "id": "003"});
    let late = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!(late.status, StatusCode::OK);
}

#[tokio::test]
async fn number_stays_in_use_if_its_metrics_cannot_be_deleted() {
    let (disk, mut store) = (env::files::SimDisk::new(1), None);
    let world = common::world_with(|options| {
        let files = std::sync::Arc::new(disk.clone());
        let (background, defaults) = (false, series::StoreOptions::default());
        let on_disk = series::StoreOptions { files, background, ..defaults };
        options.series = Some(series::Store::open("/series".as_ref(), on_disk).unwrap().0);
        store = options.series.clone();
    });
    let admin = world.admin().await;
    loads(&world, &admin, &[2, 3]).await;
    let (failure, before) = (env::files::Failure::Io, disk.calls());
    store.unwrap().can_delete().unwrap();
    // The repeated request needs as many calls, so the disk fails during the delete.
    let behind = disk.calls() + (disk.calls() - before);
    disk.fail_from(env::files::Fault { call: behind + 1, failure });
    let purged = send_json(&world, "DELETE", PURGE, &admin, None).await.json();
    assert_eq!(purged["data"]["affected_items"], json!([]), "{purged}");
    assert_eq!(purged["data"]["failed_items"][0]["error"]["code"], 1000);
    assert_eq!(purged["data"]["failed_items"][0]["id"], json!(["002", "003"]));
    assert!(world.registry.agent(AgentId(3)).is_none());
    let insert = json!({"name": "other", "ip": "any", "id": "003"});
    let refused = send_json(&world, "POST", "/agents/insert", &admin, Some(insert)).await;
    assert_eq!(refused.json()["error"], 1708);
}

#[tokio::test]
async fn denied_server_is_denied_like_other_agents() {
    let world = world();
    let policies: [(&[&str], &str, &str); 1] = [(&["agent:delete"], "agent:id:001", "allow")];
    let token = world.user_with(&policies, "100").await;
    let bearer = [("authorization", &*format!("Bearer {token}"))];
    let path = "/agents?agents_list=000,001,002&status=never_connected";
    let answer = world.send("DELETE", path, &bearer, "").await.json();
    let failed = answer["data"]["failed_items"].as_array().unwrap();
    let failed: Vec<_> = failed.iter().map(|item| (&item["error"]["code"], &item["id"])).collect();
    let expected = [(&json!(1731), &json!(["001"])), (&json!(4000), &json!(["000", "002"]))];
    assert_eq!(failed, expected, "{answer}");
}
