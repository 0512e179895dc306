//! Agents: the list, the counters, commands.

use crate::common::{self, column, golden_json, world};
use axum::http::StatusCode;
use model::AgentId;
use registry::{CommandOutcome, OutcomeState, Reader};
use serde_json::json;

#[tokio::test]
async fn lists_and_counters_have_the_documented_shapes() {
    let world = world();
    let token = world.admin().await;
    let list = world.ok("/agents?limit=2&offset=1", &token).await;
    golden_json("agents", &list);
    golden_json("agents_summary", &world.ok("/agents/summary", &token).await);
    golden_json("agents_summary_status", &world.ok("/agents/summary/status", &token).await);
    golden_json("agents_summary_os", &world.ok("/agents/summary/os", &token).await);
    golden_json("overview_agents", &world.ok("/overview/agents", &token).await);
}

#[tokio::test]
async fn agents_summary_needs_seven_queries() {
    let world = world();
    let token = world.admin().await;
    // The first request writes pending reports of agents before it reads.
    world.get("/agents/summary", &token).await;
    let answer = world.get("/agents/summary", &token).await;
    assert!(answer.header("server-timing").contains("queries;desc=\"7\""));
    let status = world.get("/agents/summary/status", &token).await;
    assert!(status.header("server-timing").contains("queries;desc=\"0\""), "kept in memory");
    assert_eq!(
        answer.json()["data"],
        json!({
            "status": {"active": 1, "disconnected": 1, "never_connected": 1, "pending": 0},
            "groups": {"default": 3, "web": 1},
            "os": {"debian": 1, "fedora": 1},
            "changes": {"unexplained": 0, "package": 0, "deployment": 0},
            "silent": {"agents": 0, "names": []},
        })
    );
    let some = world.ok("/agents/summary?agents_list=001,003,999,000", &token).await;
    assert_eq!(
        some["data"],
        json!({
            "status": {"active": 1, "disconnected": 0, "never_connected": 1, "pending": 0},
            "groups": {"default": 2, "web": 1},
            "os": {"debian": 1},
            "silent": {"agents": 0, "names": []},
        })
    );
}

#[tokio::test]
async fn filter_and_sort_parameters_are_applied() {
    let world = world();
    let token = world.admin().await;
    let names = async |query: &str| {
        let answer = world.ok(&format!("/agents?{query}"), &token).await;
        let names = column(&answer, "name");
        names.into_iter().filter(|name| name.ends_with("-1")).collect::<Vec<_>>().join(" ")
    };
    for (query, expected) in [
        ("sort=name", "db-1 new-1 web-1"),
        ("sort=-id", "new-1 db-1 web-1"),
        ("status=active", "web-1"),
        ("status=active,disconnected", "web-1 db-1"),
        ("name=WEB-1", "web-1"),
        ("group=web", "web-1"),
        ("group=all", "web-1 db-1 new-1"),
        ("os.platform=fedora", "db-1"),
        ("os.name=Debian%20GNU%2FLinux", "web-1"),
        ("os.version=12.4", "web-1"),
        ("ip=10.0.0.2", "db-1"),
        ("search=fedora", "db-1"),
        ("search=-fedora&status=active,disconnected", "web-1"),
        ("version=Holdfast%20v0.1.0&os.platform=debian", "web-1"),
        ("agents_list=003,001", "web-1 new-1"),
        ("group_config_status=not%20synced", "new-1"),
        ("manager=elsewhere", ""),
        ("node_name=node01&status=active", "web-1"),
        ("older_than=1h", "new-1"),
        ("q=status=active", "web-1"),
        ("q=status!=active;os.platform=fedora", "db-1"),
        ("q=(name=web-1,name~NEW)", "web-1 new-1"),
        ("q=group=web", "web-1"),
        ("q=os.version>39", "db-1"),
        ("q=lastKeepAlive<1d;name~-1", "web-1 db-1"),
        ("q=dateAdd<2026-11-21;dateAdd>2d", ""),
        ("q=dateAdd>1h;name~new", "new-1"),
        ("q=name=%27%20OR%201%3D1%20--%27", ""),
    ] {
        assert_eq!(names(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn hostile_filter_values_are_treated_as_data() {
    let world = world();
    let token = world.admin().await;
    let all = world.ok("/agents", &token).await["data"]["total_affected_items"].clone();
    for value in [
        "%27%20OR%20%271%27%3D%271",
        "x%27%3B%20DROP%20TABLE%20agent%3B%20--",
        "%25",
        "_______",
        "%00",
        "%22%22",
        "a%5C%27",
        "%F0%9F%98%80",
    ] {
        // Rejected if the parameter has a format; otherwise treated as a plain value.
        let quote = if value.contains("%22") { "'" } else { "%22" };
        let fields = ["name", "ip", "group", "os.name", "os.platform", "version", "registerIP"];
        let plain = fields.map(|field| format!("{field}={value}"));
        let asked = fields.map(|field| format!("q={field}={quote}{value}{quote}"));
        for query in plain.into_iter().chain(asked) {
            let answer = world.get(&format!("/agents?{query}"), &token).await;
            let taken = answer.status == StatusCode::OK;
            assert!(taken || !query.starts_with("q="), "{query}: {}", answer.json());
            assert!(taken || answer.status == StatusCode::BAD_REQUEST, "{query}");
            assert!(!taken || answer.json()["data"]["total_affected_items"] == 0, "{query}");
        }
        let answer = world.get(&format!("/agents?search={value}"), &token).await;
        assert!([StatusCode::OK, StatusCode::BAD_REQUEST].contains(&answer.status), "{value}");
    }
    assert_eq!(world.ok("/agents", &token).await["data"]["total_affected_items"], all);
}

#[tokio::test]
async fn select_and_distinct_reduce_agent_items() {
    let world = world();
    let token = world.admin().await;
    let answer = world.ok("/agents?agents_list=001&select=os.platform,name", &token).await;
    assert_eq!(
        answer["data"]["affected_items"],
        json!([{"id": "001", "name": "web-1", "os": {"platform": "debian"}}])
    );
    let answer = world.ok("/agents?agents_list=001,002&select=version&distinct=true", &token).await;
    assert_eq!(answer["data"]["affected_items"], json!([{"version": "Holdfast v0.1.0"}]));
    assert_eq!(answer["data"]["total_affected_items"], 1);
}

#[tokio::test]
async fn missing_agent_is_reported_with_the_existing_ones() {
    let world = world();
    let token = world.admin().await;
    let some = world.ok("/agents?agents_list=001,60000", &token).await;
    assert_eq!(some["error"], 2);
    assert_eq!(some["data"]["failed_items"][0]["error"]["code"], 1701);
    assert_eq!(some["data"]["failed_items"][0]["id"], json!(["60000"]));
    let none = world.ok("/agents?agents_list=60000", &token).await;
    assert_eq!(none["error"], 1);
    assert_eq!(none["message"], "No agent information was returned");
}

#[tokio::test]
async fn command_is_durable_and_tracked_to_its_outcome() {
    let world = world();
    let token = world.admin().await;
    let answer = world.put("/syscheck?agents_list=000,001,002,999", &token).await;
    assert_eq!(answer.status, StatusCode::OK);
    let body = answer.json();
    assert_eq!(body["error"], 2);
    assert_eq!(body["data"]["affected_items"], json!(["001"]));
    let failed: Vec<(u64, String)> = body["data"]["failed_items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["error"]["code"].as_u64().unwrap(), f["id"][0].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(failed, [(1701, "999".into()), (1703, "000".into()), (1707, "002".into())]);
    let id = body["data"]["command"].as_u64().unwrap();
    let path = format!("/commands/{id}");
    assert_eq!(world.ok(&path, &token).await["data"]["command"]["counts"]["total"], 1);
    let handed = world.registry.pending_commands(AgentId(1));
    assert_eq!(handed.iter().map(|c| c.id).collect::<Vec<_>>(), [id]);
    let outcome = CommandOutcome { state: OutcomeState::Acknowledged, detail: "3 changes".into() };
    assert!(world.registry.command_outcome(AgentId(1), id, &outcome));
    world.registry.flush().unwrap();
    let one = world.ok(&path, &token).await;
    assert_eq!(one["data"]["command"]["kind"], "rescan");
    assert_eq!(one["data"]["command"]["user"], "admin");
    assert_eq!(one["data"]["outcomes"][0]["state"], "acknowledged");
    assert_eq!(one["data"]["outcomes"][0]["detail"], "3 changes");
    let log = world.registry.audit_log(&Reader::server(), None, 10).unwrap();
    assert!(log.iter().any(|row| row.action == "syscheck:run" && row.user == "admin"));
}

#[tokio::test]
async fn restart_of_all_agents_covers_only_active_ones() {
    let world = world();
    let token = world.admin().await;
    let body = world.put("/agents/restart", &token).await.json();
    assert_eq!(body["data"]["affected_items"], json!(["001"]));
    assert_eq!(body["message"], "Restart command was sent to all agents");
    world.registry.goodbye(AgentId(1));
    let body = world.put("/agents/restart", &token).await.json();
    assert_eq!((&body["error"], &body["data"]["total_affected_items"]), (&json!(0), &json!(0)));
    assert_eq!(body["message"], "Restart command was not sent to any agent");
    let one = world.put("/agents/001/restart", &token).await.json();
    assert_eq!(
        (&one["error"], &one["data"]["failed_items"][0]["error"]["code"]),
        (&json!(1), &json!(1707))
    );
}

#[tokio::test]
async fn null_in_q_matches_missing_dates_and_texts() {
    let world = world();
    let token = world.admin().await;
    let ids = async |query: &str| {
        column(&world.ok(&format!("/agents?select=id&q={query}"), &token).await, "id").join(" ")
    };
    for (query, expected) in [
        ("lastKeepAlive=null", "003"),
        ("lastKeepAlive!=null;id!=000", "001 002"),
        ("disconnection_time=null;id!=000", "001 003"),
        ("disconnection_time!=null", "002"),
        ("dateAdd=null", ""),
        ("os.platform=null;id!=000", "003"),
        ("os.platform!=null;id!=000", "001 002"),
        ("group!=null", "001 002 003"),
    ] {
        assert_eq!(ids(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn distinct_returns_values_as_lists_show_them() {
    let world = world();
    let token = world.admin().await;
    let distinct = async |query: &str| {
        let answer = world.ok(&format!("/agents?distinct=true&{query}"), &token).await;
        (answer["data"]["affected_items"].clone(), answer["data"]["total_affected_items"].clone())
    };
    let q = "q=id!=000";
    let group = json!([{"group": ["default"]}, {"group": ["default", "web"]}]);
    assert_eq!(distinct(&format!("select=group&{q}")).await, (group, json!(2)));
    let platforms = json!([{"os": {"platform": "debian"}}, {"os": {"platform": "fedora"}}]);
    assert_eq!(
        distinct(&format!("select=os.platform&sort=os.platform&{q}")).await,
        (platforms.clone(), json!(2)),
        "an agent without one is none"
    );
    let second = json!([platforms[1]]);
    let page = format!("select=os.platform&sort=os.platform&{q}&offset=1&limit=1");
    assert_eq!(distinct(&page).await, (second, json!(2)));
    assert_eq!(distinct(&format!("select=ip&{q}")).await.1, 3, "two addresses and any");
    assert_eq!(distinct(&format!("select=status_code&{q}")).await.0[0]["status_code"], 0);
    let dates = json!([{"dateAdd": "2026-11-20T18:52:02+00:00"}]);
    assert_eq!(distinct(&format!("select=dateAdd&{q}")).await, (dates, json!(1)));
    assert_eq!(distinct("select=node_name").await.0, json!([{"node_name": "node01"}]));
    assert_eq!(distinct("").await.1, 4, "each agent differs from the others");
    let stats =
        world.ok("/agents/stats/distinct?fields=dateAdd,lastKeepAlive&limit=1", &token).await;
    let first = &stats["data"]["affected_items"][0];
    for field in ["dateAdd", "lastKeepAlive"] {
        let text = first[field].as_str().unwrap();
        assert!(text == "N/A" || text.ends_with("+00:00"), "{field}: {text}");
    }
}

#[tokio::test]
async fn statements_of_authentication_and_failures_are_counted() {
    let world = world();
    let token = world.admin().await;
    let queries = async |path: &str| {
        let answer = world.get(path, &token).await;
        let told = answer.header("server-timing").to_owned();
        let count = told.split("queries;desc=\"").nth(1).and_then(|rest| rest.split('"').next());
        (answer.status, count.unwrap().parse::<u32>().unwrap())
    };
    // The first request reads the user with one statement; the next one finds it cached.
    assert_eq!(queries("/agents/summary/status").await, (StatusCode::OK, 1));
    assert_eq!(queries("/agents/summary/status").await, (StatusCode::OK, 0));
    let (status, count) = queries("/commands/7").await;
    assert_eq!((status, count), (StatusCode::NOT_FOUND, 1));
    // The statements of a login, before and after the hash, run on threads of its own.
    let rows = |answer: &common::Answered| {
        let told = answer.header("server-timing").to_owned();
        let part = |name: &str| told.split(name).nth(1)?.split('"').next()?.parse::<u32>().ok();
        (part("queries;desc=\"").unwrap(), part("rows;desc=\"").unwrap())
    };
    let fine = world.try_login("admin", common::ADMIN).await;
    assert_eq!(fine.status, StatusCode::OK);
    let (asked, given) = rows(&fine);
    assert!(asked >= 2 && given >= 2, "{asked} {given}");
    let wrong = world.try_login("admin", "Wrong-Horse-9").await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(rows(&wrong).0 >= 1);
}
