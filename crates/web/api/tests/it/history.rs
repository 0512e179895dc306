//! Changes and gaps of all agents.

use crate::common::{NOW_US, World, change, column, gap, golden_json, observed, world};
use model::{
    AgentId, AgentReport, Coverage, CoverageKind, CoverageState, Incarnation, Record, ReportKind,
    WatchReport, WatchedRoot,
};
use serde_json::{Value, json};

async fn filled() -> (World, String) {
    let world = world();
    let token = world.admin().await;
    let (old, new) = (observed(0o644, 10), observed(0o600, 20));
    let events = vec![
        change("/etc/a", None, Some(&old), NOW_US + 1_000_000),
        change("/etc/a", Some(&old), Some(&new), NOW_US + 2_000_000),
        change("/srv/100%_x", None, Some(&old), NOW_US + 3_000_000),
        change("/srv/100abx", None, Some(&old), NOW_US + 4_000_000),
        change("/etc/a", Some(&new), None, NOW_US + 5_000_000),
    ];
    world.events(1, events).await;
    let down = Coverage {
        kind: CoverageKind::AgentDown,
        path: "/etc".into(),
        from_us: NOW_US,
        to_us: NOW_US + 6_000_000,
        found: Some(2),
        lasting: None,
        detail: "not running".into(),
    };
    let events = vec![change("/etc/b", None, Some(&old), NOW_US + 2_500_000), gap(down)];
    world.events(2, events).await;
    (world, token)
}

#[tokio::test]
async fn changes_and_gaps_have_the_documented_shapes() {
    let (world, token) = filled().await;
    golden_json("changes", &world.ok("/changes?path=/etc/a", &token).await);
    golden_json("coverage", &world.ok("/coverage", &token).await);
}

#[tokio::test]
async fn history_filters_return_matches_newest_first() {
    let (world, token) = filled().await;
    let paths = async |query: &str| {
        column(&world.ok(&format!("/changes?{query}"), &token).await, "path").join(" ")
    };
    for (query, expected) in [
        ("", "/etc/a /srv/100abx /srv/100%_x /etc/b /etc/a /etc/a"),
        ("agents_list=002", "/etc/b"),
        ("agents_list=001,002&path=/etc", "/etc/a /etc/b /etc/a /etc/a"),
        ("agents_list=777", ""),
        ("group=web", "/etc/a /srv/100abx /srv/100%_x /etc/a /etc/a"),
        ("group=web&agents_list=002", ""),
        ("group=none", ""),
        ("os=debian", "/etc/a /srv/100abx /srv/100%_x /etc/a /etc/a"),
        ("os=debian&group=none", ""),
        ("os=solaris", ""),
        ("path=/srv/100%25_", "/srv/100%_x"),
        ("path=%25", ""),
        ("path=/etc_", ""),
        ("path=%27%20OR%201%3D1%20--", ""),
        ("file=/etc/a&kind=created", "/etc/a"),
        ("file=/etc", ""),
        ("kind=deleted,modified", "/etc/a /etc/a"),
        ("from=2026-11-21T18:52:06Z", "/etc/a /srv/100abx"),
        ("to=2026-11-21T18:52:04Z", "/etc/a"),
        ("from=2026-11-21T19:52:04%2B01:00&to=2026-11-21T18:52:05Z", "/etc/b /etc/a"),
    ] {
        assert_eq!(paths(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn before_and_after_match_the_kind_of_change() {
    let (world, token) = filled().await;
    let answer = world.ok("/changes?file=/etc/a", &token).await;
    let items = answer["data"]["affected_items"].as_array().unwrap();
    let sizes = |item: &Value| (item["before"]["size"].clone(), item["after"]["size"].clone());
    assert_eq!(sizes(&items[0]), (json!(20), Value::Null), "deleted");
    assert_eq!(sizes(&items[1]), (json!(10), json!(20)), "modified");
    assert_eq!(sizes(&items[2]), (Value::Null, json!(10)), "created");
    assert_eq!(items[1]["changed_fields"], json!(["size", "mode"]));
    for item in items {
        let id = item["id"].as_str().unwrap();
        assert_eq!(world.ok(&format!("/changes/{id}"), &token).await["data"], *item);
    }
}

#[tokio::test]
async fn history_pages_are_stable_while_events_arrive() {
    let (world, token) = filled().await;
    let whole = column(&world.ok("/changes", &token).await, "id");
    let mut seen = Vec::new();
    let mut path = "/changes?limit=2".to_owned();
    for round in 0..10u64 {
        let page = world.ok(&path, &token).await;
        seen.extend(column(&page, "id"));
        // Add a newer event, and one as old as those already read: neither may appear or shift a
        // page.
        let o = observed(0o644, round);
        let newer = change("/tmp/new", None, Some(&o), NOW_US + 60_000_000 + round);
        world.events(1, vec![newer]).await;
        match page["data"]["next_cursor"].as_str() {
            Some(cursor) => path = format!("/changes?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, whole);
}

#[tokio::test]
async fn history_can_be_limited_to_new_events() {
    let (world, token) = filled().await;
    let page = world.ok("/changes?limit=1", &token).await;
    let newest = page["data"]["newest"].as_u64().unwrap();
    let nothing = world.ok(&format!("/changes?since={newest}"), &token).await;
    assert_eq!(nothing["data"]["affected_items"], json!([]));
    let late = change("/late", None, Some(&observed(0o644, 1)), NOW_US);
    world.events(2, vec![late]).await;
    let fresh = world.ok(&format!("/changes?since={newest}"), &token).await;
    assert_eq!(column(&fresh, "path"), ["/late"]);
}

#[tokio::test]
async fn coverage_state_lists_the_roots_of_each_agent() {
    let world = world();
    let token = world.admin().await;
    assert_eq!(world.ok("/coverage/state", &token).await["data"]["total_affected_items"], 0);
    let root = |path: &str, state, reason: &str| WatchedRoot {
        root: path.into(),
        path: path.into(),
        file_system: "ext4".into(),
        state,
        method: "fanotify, file system".into(),
        reason: reason.into(),
        remedy: String::new(),
    };
    let report = |roots| WatchReport {
        scan_interval_s: 3600,
        next_scan_s: 1_790_000_000,
        attribution: true,
        roots,
        ..WatchReport::default()
    };
    let (etc, srv) =
        (root("/etc", CoverageState::Realtime, ""), root("/srv", CoverageState::Gap, "missing"));
    world.registry.watched(AgentId(1), report(vec![etc.clone(), srv]));
    world.registry.watched(AgentId(2), report(vec![etc]));
    golden_json("coverage-state", &world.ok("/coverage/state?agents_list=001", &token).await);
    for (query, agents) in [
        ("", vec!["001", "002"]),
        ("state=realtime", vec!["001", "002"]),
        ("state=gap", vec!["001"]),
        ("state=scan", vec![]),
        ("offset=1", vec!["002"]),
        ("agents_list=002,003", vec!["002"]),
    ] {
        let answer = world.ok(&format!("/coverage/state?{query}"), &token).await;
        let items = answer["data"]["affected_items"].as_array().unwrap();
        let found: Vec<&str> = items.iter().filter_map(|i| i["agent"]["id"].as_str()).collect();
        assert_eq!(found, agents, "{query}");
    }
    let refused = world.get("/coverage/state?state=none", &token).await;
    assert_eq!(refused.status.as_u16(), 400);
}

#[tokio::test]
async fn malformed_change_ids_are_not_found() {
    let (world, token) = filled().await;
    for bad in ["x", "001", "001-5f", "001-5f-2a-1", "x-1-1", "1-g-1", "1--1", "'%20OR%201=1%20--"]
    {
        let answer = world.get(&format!("/changes/{bad}"), &token).await;
        assert_eq!(answer.status.as_u16(), 404, "{bad}");
    }
}

#[tokio::test]
async fn last_report_of_an_agent_is_returned() {
    let world = world();
    let token = world.admin().await;
    let incarnation = world.registry.agent(AgentId(1)).unwrap().incarnation;
    for (agent, incarnation) in [(AgentId(1), incarnation), (AgentId(4711), Incarnation(0))] {
        let (kind, body) = (ReportKind::Stats, b"{\"a\":1}".to_vec());
        let report = AgentReport { agent, incarnation, at_us: NOW_US, kind, body };
        world.commit.submit(Record::Report(report)).await.unwrap();
    }
    let stats = world.ok("/agents/001/reports/stats", &token).await;
    let item = &stats["data"]["affected_items"][0];
    assert_eq!((&item["agent"]["name"], &item["report"]), (&json!("web-1"), &json!({"a": 1})));
    assert_eq!(item["received"], model::timestamp::micros(NOW_US));
    let config = world.ok("/agents/001/reports/config", &token).await;
    assert_eq!((&config["error"], &config["data"]["total_affected_items"]), (&json!(0), &json!(0)));
    let local = world.ok("/agents/4711/reports/stats", &token).await;
    assert_eq!(local["data"]["affected_items"][0]["agent"], json!({"id": "4711", "name": ""}));
    let missing = world.ok("/agents/4712/reports/stats", &token).await;
    assert_eq!(missing["data"]["failed_items"][0]["error"]["code"], 1701);
    assert_eq!(world.get("/agents/001/reports/other", &token).await.status, 400);
}
