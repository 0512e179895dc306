//! Changes by cause: the whole cause of an item, filters, order and collapsed lists.

use crate::common::{NOW_US, World, change, column, observed, world};
use model::{Cause, CauseKind, CausePackage, EventBody};
use serde_json::{Value, json};

fn explained(path: &str, id: &str, package: &str, after_s: u64) -> EventBody {
    let (old, new) = (observed(0o644, 10), observed(0o644, 20));
    let mut event = change(path, Some(&old), Some(&new), NOW_US + after_s * 1_000_000);
    event.holdfast.cause = Some(Cause {
        kind: CauseKind::Package,
        detail: format!("{package} 1.0 was upgraded"),
        id: id.into(),
        tool: "apt".into(),
        package: Some(CausePackage {
            name: package.into(),
            version: "1.1".into(),
            previous_version: "1.0".into(),
        }),
        content_matches: true,
        writer_matches: true,
        attention: false,
    });
    event
}

async fn upgraded() -> (World, String) {
    let world = world();
    let token = world.admin().await;
    let new = observed(0o644, 1);
    let events = vec![
        change("/etc/old", None, Some(&new), NOW_US),
        explained("/usr/a", "apt-1", "bash", 1),
        explained("/usr/b", "apt-1", "dash", 2),
        change("/usr/planted", None, Some(&new), NOW_US + 2_500_000),
        explained("/usr/c", "apt-1", "dash", 3),
    ];
    world.events(1, events).await;
    (world, token)
}

#[tokio::test]
async fn item_has_the_whole_cause() {
    let (world, token) = upgraded().await;
    let page = world.ok("/changes?file=/usr/c", &token).await;
    let item = &page["data"]["affected_items"][0];
    assert_eq!(
        item["cause"],
        json!({
            "kind": "package",
            "detail": "dash 1.0 was upgraded",
            "id": "apt-1",
            "tool": "apt",
            "package": {"name": "dash", "version": "1.1", "previous_version": "1.0"},
            "content_matches": true,
            "writer_matches": true,
        })
    );
    assert!(item.get("collapsed").is_none(), "{item}");
    let page = world.ok("/changes?file=/usr/planted", &token).await;
    assert_eq!(page["data"]["affected_items"][0]["cause"], json!({"kind": "unexplained"}));
}

#[tokio::test]
async fn changes_are_filtered_sorted_and_collapsed_by_cause() {
    let (world, token) = upgraded().await;
    for (query, expected) in [
        ("cause=unexplained", "/usr/planted /etc/old"),
        ("cause=package,deployment", "/usr/c /usr/b /usr/a"),
        ("cause=deployment", ""),
        ("cause_id=apt-1&limit=2", "/usr/c /usr/b"),
        ("cause_id=apt-1&agents_list=002", ""),
        ("sort=unexplained", "/usr/planted /etc/old /usr/c /usr/b /usr/a"),
        ("collapse=cause", "/usr/c /usr/planted /etc/old"),
        ("collapse=cause&sort=unexplained", "/usr/planted /etc/old /usr/c"),
        ("collapse=cause&path=/usr/b", "/usr/b"),
    ] {
        let page = world.ok(&format!("/changes?{query}"), &token).await;
        assert_eq!(column(&page, "path").join(" "), expected, "{query}");
    }
    let page = world.ok("/changes?collapse=cause", &token).await;
    let collapsed: Vec<Value> = page["data"]["affected_items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.get("collapsed").cloned().unwrap_or_default())
        .collect();
    assert_eq!(collapsed, [json!({"changes": 3, "packages": 2}), Value::Null, Value::Null]);
    let mut seen = Vec::new();
    let mut path = "/changes?sort=unexplained&collapse=cause&limit=1".to_owned();
    loop {
        let page = world.ok(&path, &token).await;
        seen.extend(column(&page, "path"));
        let Some(cursor) = page["data"]["next_cursor"].as_str() else { break };
        path = format!("/changes?sort=unexplained&collapse=cause&limit=1&cursor={cursor}");
    }
    assert_eq!(seen, ["/usr/planted", "/etc/old", "/usr/c"]);
}

#[tokio::test]
async fn summary_counts_changes_by_cause() {
    let (world, token) = upgraded().await;
    let summary = world.ok("/agents/summary", &token).await;
    let counts = json!({"deployment": 0, "package": 3, "unexplained": 2});
    assert_eq!(summary["data"]["changes"], counts);
}

#[tokio::test]
async fn transient_files_are_listed_with_their_directory() {
    let world = world();
    let token = world.admin().await;
    let body = json!({
        "@timestamp": "2026-11-21T18:52:02.000000Z",
        "event": {"kind": "event", "category": ["file"], "type": ["info"], "action": "transient"},
        "file": {"path": "/tmp/build"},
        "holdfast": {"transient": {"count": 3, "names": ["a", "b"]}},
    });
    let body = body.to_string().into_bytes();
    world.session(1, vec![model::Write::Event { id: "t-1".into(), body }]).await;
    let page = world.ok("/changes?kind=transient", &token).await;
    let item = &page["data"]["affected_items"][0];
    assert_eq!((&item["kind"], &item["path"]), (&json!("transient"), &json!("/tmp/build")));
    assert_eq!(item["transient"], json!({"count": 3, "names": ["a", "b"]}));
    assert_eq!((&item["before"], &item["after"]), (&Value::Null, &Value::Null));
    let id = item["id"].as_str().unwrap();
    assert_eq!(world.ok(&format!("/changes/{id}"), &token).await["data"], *item);
}
