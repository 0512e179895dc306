//! Results and counts of lists: searches over every column, `!=` on missing values, distinct values,
//! repeated numbers, and caching of digests.

use crate::common::{self, World, column, observed, upsert, world};
use axum::http::StatusCode;
use model::AgentId;
use registry::{CommandKind, WriteContext};
use serde_json::{Value, json};

const NARROW: &str = "Narrow-View-1";
const HOURLY: &str =
    "<agent_config><syscheck><frequency>3600</frequency></syscheck></agent_config>";

/// Returns the numbers of the agents in `/agents`, except 000.
async fn found(world: &World, token: &str, query: &str) -> Vec<String> {
    let answer = world.ok(&format!("/agents?{query}"), token).await;
    let mut ids = column(&answer, "id");
    ids.retain(|id| id != "000");
    ids
}

async fn configure(world: &World, token: &str, group: &str, text: &str) {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/xml")];
    let path = format!("/groups/{group}/configuration");
    let put = world.send("PUT", &path, &headers, text.to_owned()).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.json());
}

#[tokio::test]
async fn repeated_list_parameters_are_joined() {
    let world = world();
    let token = world.admin().await;
    for (query, expected) in [
        ("agents_list=001&agents_list=003", "001 003"),
        ("agents_list=001,002&agents_list=002", "001 002"),
        ("agents_list=001&agents_list=001", "001"),
        ("status=active&status=never_connected&sort=id", "001 003"),
        ("status=Active,NEVER_connected&sort=id", "001 003"),
        // Of other parameters the last value counts.
        ("name=nothing&name=web-1&select=name", "001"),
    ] {
        assert_eq!(found(&world, &token, query).await.join(" "), expected, "{query}");
    }
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let path = "/agents?agents_list=001&agents_list=003&status=all&older_than=0s";
    let twice =
        world.send("DELETE", &format!("{path}&older_than=7d"), &headers, String::new()).await;
    assert_eq!(twice.status, StatusCode::BAD_REQUEST);
    assert!(twice.json()["detail"].as_str().unwrap().contains("'older_than' is given twice"));
    let all = "/agents?agents_list=001&agents_list=all&status=all&older_than=0s";
    assert_eq!(
        world.send("DELETE", all, &headers, String::new()).await.status,
        StatusCode::BAD_REQUEST
    );
    let removed = world.send("DELETE", path, &headers, String::new()).await;
    assert_eq!(removed.json()["data"]["affected_items"], json!(["001", "003"]));
}

#[tokio::test]
async fn search_matches_every_column_in_its_printed_form() {
    let world = world();
    let token = world.admin().await;
    let shown = world.ok("/agents?agents_list=001", &token).await;
    let kept = shown["data"]["affected_items"][0]["lastKeepAlive"].as_str().unwrap().to_owned();
    let kept = kept.split('+').next().unwrap().to_owned();
    for (query, expected) in [
        ("search=server-HOST", "001 002 003"),
        ("search=-server-host", ""),
        ("search=node01", "001 002 003"),
        ("search=-node01&status=active", ""),
        ("search=not%20synced", "003"),
        ("search=-not%20synced", "001 002"),
        ("search=NOT%20SYNCED&q=id>0", "003"),
        ("search=2026-11-20T18", "001 002 003"),
        ("search=-2026-11-20t18", ""),
        (&format!("search={kept}"), "001 002"),
        ("search=1999-", ""),
    ] {
        assert_eq!(found(&world, &token, query).await.join(" "), expected, "{query}");
    }
    // The configuration that an agent runs, by its checksum.
    configure(&world, &token, "web", HOURLY).await;
    let sum = world.registry.wanted_config(AgentId(1)).unwrap().as_ref().to_owned();
    assert_eq!(sum.len(), 32);
    let none = Vec::<String>::new();
    assert_eq!(found(&world, &token, &format!("search={sum}")).await, none);
    world
        .registry
        .config_reported(AgentId(1), registry::ReportedConfig { sum: sum.clone(), problem: None });
    assert_eq!(found(&world, &token, &format!("search={sum}")).await, ["001"]);
    // With a further condition, the database is queried and finds the same.
    assert_eq!(found(&world, &token, &format!("search={sum}&q=id>0")).await, ["001"]);
}

#[tokio::test]
async fn missing_value_does_not_match_not_equal() {
    let world = world();
    let token = world.admin().await;
    for (query, expected) in [
        ("q=os.platform!=windows;id>0", "001 002"),
        ("q=os.platform!=debian;id>0", "002"),
        ("q=version!=x;id>0", "001 002"),
        ("q=lastKeepAlive!=2026-01-01;id>0", "001 002"),
        ("q=os.platform!=null;id>0", "001 002"),
        ("q=os.platform=null;id>0", "003"),
        ("q=os.codename!=x", "001 002"),
        ("q=group!=web;id>0", "002 003"),
        ("q=status!=active;id>0", "002 003"),
    ] {
        assert_eq!(found(&world, &token, query).await.join(" "), expected, "{query}");
    }
    // Lists of files and lists in memory give the same results.
    world.session(1, vec![upsert("/etc/a", &observed(0o644, 5), 1)]).await;
    for (path, expected) in [
        ("/syscheck/001?q=md5!=0", 0),
        ("/syscheck/001?q=sha256!=0", 1),
        ("/states/fim-files?q=md5!=0", 0),
        ("/groups?q=problem!=x", 0),
        ("/groups?q=name!=x", 2),
    ] {
        let answer = world.ok(path, &token).await;
        assert_eq!(answer["data"]["total_affected_items"], expected, "{path}");
    }
}

#[tokio::test]
async fn contains_operator_matches_the_printed_form_of_a_date() {
    let world = world();
    let token = world.admin().await;
    assert_eq!(found(&world, &token, "q=dateAdd~2026-11-20T;id>0").await, ["001", "002", "003"]);
    assert_eq!(found(&world, &token, "q=lastKeepAlive~2026-11-2;id>0").await, ["001", "002"]);
    assert_eq!(found(&world, &token, "q=lastKeepAlive~1999").await, Vec::<String>::new());
}

#[tokio::test]
async fn repeated_agent_numbers_are_reported_once() {
    let world = world();
    let token = world.admin().await;
    let answer = world.ok("/agents?agents_list=099,001,0099,99", &token).await;
    assert_eq!(column(&answer, "id"), ["001"]);
    assert_eq!(answer["data"]["total_failed_items"], 1);
    assert_eq!(answer["data"]["failed_items"][0]["id"], json!(["099"]));
}

#[tokio::test]
async fn distinct_values_of_nested_fields_are_grouped_by_the_database() {
    let world = world();
    let token = world.admin().await;
    let path = "/agents?distinct=true&q=id>0&select=os";
    let whole = world.ok(&format!("{path}&sort=os.name"), &token).await;
    let names: Vec<&Value> = whole["data"]["affected_items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| &i["os"]["name"])
        .collect();
    assert_eq!(names, ["Debian GNU/Linux", "Fedora Linux"], "{whole}");
    assert_eq!(whole["data"]["affected_items"][0]["os"]["major"], "12");
    assert_eq!(whole["data"]["total_affected_items"], 2);
    let mixed = world.ok(&format!("{path},status"), &token).await;
    assert_eq!(mixed["data"]["total_affected_items"], 3, "{mixed}");
    // Two rows are read, not one per agent.
    let rows = |answer: &common::Answered| -> u64 {
        let timing = answer.header("server-timing").to_owned();
        let (_, rows) = timing.split_once("rows;desc=\"").unwrap();
        rows.trim_end_matches('"').parse().unwrap()
    };
    for number in 0..50 {
        let body = json!({"name": format!("more-{number}"), "ip": "any"}).to_string();
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let made = world.send("POST", "/agents", &headers, body).await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.json());
    }
    world.get(path, &token).await;
    let answer = world.get(path, &token).await;
    assert!(rows(&answer) < 20, "{}", answer.header("server-timing"));
}

#[tokio::test]
async fn visible_command_behind_hidden_ones_is_on_the_first_page() {
    let world = world();
    let order = |agents: &[u32]| {
        let agents: Vec<AgentId> = agents.iter().copied().map(AgentId).collect();
        world
            .registry
            .create_command(&WriteContext::server(), CommandKind::Restart, &agents, "admin")
            .unwrap()
    };
    let own = order(&[1]);
    for number in 0..30 {
        // The commands are not merged, because each is for another agent as well.
        order(&[2, 3 + number]);
    }
    let last = order(&[1, 2]);
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let policy =
        json!({"actions": ["agent:read"], "resources": ["agent:id:001"], "effect": "allow"});
    for (path, body) in [
        ("/security/policies", json!({"name": "own", "policy": policy}).to_string()),
        ("/security/roles", json!({"name": "narrow"}).to_string()),
        // 23 is the default policy that permits reading commands.
        ("/security/roles/100/policies?policy_ids=100,23", String::new()),
    ] {
        let made = world.send("POST", path, &headers, body).await;
        assert_eq!(made.json()["error"], 0, "{path}: {}", made.json());
    }
    world
        .registry
        .create_user(&WriteContext::server(), "narrow", NARROW, false, &["narrow"])
        .unwrap();
    let token = world.login("narrow", NARROW).await;
    for (limit, expected) in [(1, vec![last]), (2, vec![last, own]), (20, vec![last, own])] {
        let list = world.ok(&format!("/commands?limit={limit}"), &token).await;
        let items = list["data"]["affected_items"].as_array().unwrap();
        let ids: Vec<u64> = items.iter().map(|item| item["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, expected, "{limit}");
    }
}

#[tokio::test]
async fn group_digests_are_cached_until_a_group_changes() {
    let world = world();
    let token = world.admin().await;
    configure(&world, &token, "web", "<agent_config><syscheck/></agent_config>").await;
    let ask = async |path: &str| {
        let answer = world.get(path, &token).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.json());
        let items = answer.json()["data"]["affected_items"].clone();
        (items, answer.header("server-timing").to_owned())
    };
    let queries = |timing: &str| timing.split(", ").nth(1).unwrap().to_owned();
    let path = "/groups?groups_list=web&hash=sha3_256";
    let (first, _) = ask(path).await;
    assert_eq!(first[0]["configSum"].as_str().unwrap().len(), 64);
    let (again, timing) = ask(path).await;
    assert_eq!(again, first);
    let (_, plain) = ask("/groups?groups_list=web").await;
    assert_eq!(queries(&timing), queries(&plain), "no text of a group is read");
    configure(&world, &token, "web", HOURLY).await;
    let (changed, _) = ask(path).await;
    assert_ne!(changed[0]["configSum"], first[0]["configSum"]);
    assert_ne!(changed[0]["mergedSum"], first[0]["mergedSum"]);
    for (name, digits) in [("sha3_224", 56), ("sha3_256", 64), ("sha3_384", 96), ("sha3_512", 128)]
    {
        let (files, _) = ask(&format!("/groups/web/files?hash={name}")).await;
        assert_eq!(files[0]["hash"].as_str().unwrap().len(), digits, "{name}");
    }
}
