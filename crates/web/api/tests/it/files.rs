//! Files of an agent, and documents over all agents.

use crate::common::{NOW_US, World, column, golden_json, observed, upsert, world};
use model::{Dataset, Kind, Write};
use serde_json::json;

async fn filled() -> (World, String) {
    let world = world();
    let token = world.admin().await;
    let mut big = observed(0o4755, 9_000);
    big.hashes.md5 = Some([0x11; 16]);
    big.hashes.sha256 = Some([0xcd; 32]);
    let mut link = observed(0o777, 4);
    link.kind = Kind::Symlink;
    link.hashes = model::Hashes::default();
    link.target = Some(b"/etc/passwd".to_vec());
    let mut directory = observed(0o755, 0);
    directory.kind = Kind::Directory;
    directory.hashes = model::Hashes::default();
    let mut secret = observed(0o600, 12);
    secret.error = Some(model::ObserveError::Os(13));
    secret.hashes = model::Hashes::default();
    let writes = vec![
        upsert("/etc/passwd", &observed(0o644, 1_432), NOW_US + 1),
        upsert("/usr/bin/su", &big, NOW_US + 2),
        upsert("/etc/link", &link, NOW_US + 3),
        upsert("/etc", &directory, NOW_US + 4),
        upsert("/root/100%_sure", &secret, NOW_US + 5),
    ];
    world.session(1, writes).await;
    world.session(2, vec![upsert("/etc/passwd", &observed(0o600, 7), NOW_US + 9)]).await;
    (world, token)
}

#[tokio::test]
async fn file_items_have_the_documented_shape() {
    let (world, token) = filled().await;
    golden_json("syscheck", &world.ok("/syscheck/001", &token).await);
}

#[tokio::test]
async fn filter_and_sort_parameters_are_applied() {
    let (world, token) = filled().await;
    let sha = "cd".repeat(32);
    let md5 = "11".repeat(16);
    let files = async |query: &str| {
        let answer = world.ok(&format!("/syscheck/001?{query}"), &token).await;
        let files = column(&answer, "file");
        assert_eq!(answer["data"]["total_affected_items"], files.len(), "{query}");
        files.join(" ")
    };
    for (query, expected) in [
        ("", "/etc /etc/link /etc/passwd /root/100%_sure /usr/bin/su"),
        ("file=/etc/passwd", "/etc/passwd"),
        ("file=/etc/pass", ""),
        ("path=/etc/", "/etc/link /etc/passwd"),
        ("path=/root/100%25_", "/root/100%_sure"),
        ("path=%25", ""),
        ("path=/etc_", ""),
        ("type=symlink", "/etc/link"),
        ("type=dir", "/etc"),
        ("type=registry_key", ""),
        ("arch=%5Bx64%5D", ""),
        (&format!("sha256={sha}"), "/usr/bin/su"),
        (&format!("sha256={}", sha.to_uppercase()), "/usr/bin/su"),
        (&format!("hash={md5}"), "/usr/bin/su"),
        (&format!("md5={sha}"), ""),
        ("search=PASS", "/etc/passwd"),
        ("search=%25_", "/root/100%_sure"),
        ("search=-etc", "/root/100%_sure /usr/bin/su"),
        ("sort=-size&type=file", "/usr/bin/su /etc/passwd /root/100%_sure"),
        ("sort=-file", "/usr/bin/su /root/100%_sure /etc/passwd /etc/link /etc"),
        ("sort=date&type=file", "/etc/passwd /usr/bin/su /root/100%_sure"),
        ("search=%27%20OR%201%3D1%20--", ""),
        ("q=size>1000;type=file", "/etc/passwd /usr/bin/su"),
        ("q=file~passwd,type=dir", "/etc /etc/passwd"),
        ("q=mtime<1d", ""),
        ("q=mode=4755;inode=131090", "/usr/bin/su"),
    ] {
        assert_eq!(files(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn files_have_the_number_of_their_changes() {
    let (world, token) = filled().await;
    let changed = |size, version| vec![upsert("/etc/passwd", &observed(0o644, size), version)];
    world.session(1, changed(1_433, NOW_US + 11)).await;
    world.session(1, changed(1_434, NOW_US + 12)).await;
    let path = "/syscheck/001?select=file,changes&type=file";
    let most = world.ok(&format!("{path}&sort=-changes&limit=1"), &token).await;
    assert_eq!(most["data"]["affected_items"], json!([{"file": "/etc/passwd", "changes": 2}]));
    let never = world.ok(&format!("{path}&q=changes<1"), &token).await;
    assert_eq!(column(&never, "file"), ["/root/100%_sure", "/usr/bin/su"]);
}

#[tokio::test]
async fn paging_select_and_distinct_apply_to_file_lists() {
    let (world, token) = filled().await;
    let page = world.ok("/syscheck/001?limit=2&offset=1&select=file,size", &token).await;
    assert_eq!(
        page["data"]["affected_items"],
        json!([{"file": "/etc/link", "size": 4}, {"file": "/etc/passwd", "size": 1432}])
    );
    assert_eq!(page["data"]["total_affected_items"], 5);
    let types = world.ok("/syscheck/001?select=type&distinct=true&sort=type", &token).await;
    assert_eq!(column(&types, "type"), ["dir", "file", "symlink"]);
    assert_eq!(types["data"]["total_affected_items"], 3);
    // The list is sorted by a field that is not selected.
    let sorted = "/syscheck/001?select=file&distinct=true&sort=-size&type=file";
    let sorted = world.ok(sorted, &token).await;
    assert_eq!(column(&sorted, "file"), ["/usr/bin/su", "/etc/passwd", "/root/100%_sure"]);
    assert_eq!(sorted["data"]["affected_items"][0], json!({"file": "/usr/bin/su"}));
    let summary = world.ok("/syscheck/001?summary=true&file=/etc/passwd", &token).await;
    assert_eq!(
        summary["data"]["affected_items"],
        json!([{"file": "/etc/passwd", "mtime": "2026-09-21T14:13:20Z", "date": "2026-11-21T18:52:02Z"}])
    );
    let none = world.ok("/syscheck/003", &token).await;
    assert_eq!(
        (&none["error"], &none["message"]),
        (&json!(0), &json!("No FIM information was returned"))
    );
}

#[tokio::test]
async fn documents_of_an_unregistered_agent_include_its_description() {
    let (world, token) = filled().await;
    let overlay = model::Overlay {
        agent_name: "foreign".into(),
        groups: vec!["edge".into()],
        hostname: "box".into(),
        cluster: "holdfast".into(),
        ..model::Overlay::default()
    };
    let record = model::Record::Session(model::SessionRecord {
        agent: model::AgentId(4711),
        incarnation: model::Incarnation(0),
        received_at_us: 1,
        session: "local-1".into(),
        overlay,
        writes: vec![upsert("/etc/foreign", &observed(0o644, 7), 1)],
    });
    world.commit.submit(record).await.unwrap();
    let answer = world.ok("/states/fim-files?search=foreign", &token).await;
    let item = &answer["data"]["affected_items"][0];
    assert_eq!(item["agent"], json!({"id": "4711", "name": "foreign"}));
    let agent = json!({
        "id": "4711", "name": "foreign", "groups": ["edge"], "host": {"hostname": "box"},
    });
    assert_eq!(item["document"]["wazuh"], json!({"agent": agent, "cluster": {"name": "holdfast"}}));
    assert_eq!(item["document"]["file"]["size"], 7);
}

#[tokio::test]
async fn document_version_is_at_least_that_of_the_agents_metadata() {
    let (world, token) = filled().await;
    let files = Dataset::fim_files();
    world.session(1, vec![upsert("/etc/fresh", &observed(0o644, 7), u64::from(u32::MAX))]).await;
    let version = async |path: &str| {
        let answer = world.ok(&format!("/states/fim-files?q=path={path}"), &token).await;
        let item = &answer["data"]["affected_items"][0];
        (item["version"].as_u64(), item["document"]["state"]["document_version"].as_u64())
    };
    let before = version("/etc/fresh").await;
    assert_eq!(before.0, before.1);
    let metadata = before.0.unwrap() + 1;
    world.session(1, vec![Write::RaiseVersion { dataset: files.clone(), version: metadata }]).await;
    assert_eq!(version("/etc/fresh").await, (before.0, Some(metadata)));
    world.session(1, vec![upsert("/etc/fresh", &observed(0o600, 7), metadata + 1)]).await;
    assert_eq!(version("/etc/fresh").await, (Some(metadata + 1), Some(metadata + 1)));
    world.session(1, vec![foreign("bare", &json!({"file": {"path": "/bare"}}))]).await;
    assert_eq!(version("/bare").await.1, Some(metadata));
}

#[tokio::test]
async fn dataset_search_covers_all_agents() {
    let (world, token) = filled().await;
    let answer = world.ok("/states/fim-files?search=passwd", &token).await;
    let agents: Vec<_> = answer["data"]["affected_items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["agent"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(agents, ["web-1", "db-1"]);
    assert_eq!(answer["data"]["affected_items"][1]["document"]["file"]["size"], 7);
    let shown = &answer["data"]["affected_items"][0]["document"]["wazuh"];
    assert_eq!((&shown["agent"]["id"], &shown["agent"]["name"]), (&json!("001"), &json!("web-1")));
    assert_eq!(shown["agent"]["host"]["os"]["platform"], "debian");
    assert_eq!(shown["cluster"]["name"], world.registry.options().cluster_name.as_str());
    // The page crosses the boundary between two agents.
    let page = world.ok("/states/fim-files?offset=4&limit=2", &token).await;
    let ids: Vec<_> = page["data"]["affected_items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| {
            (i["agent"]["id"].as_str().unwrap(), i["document"]["file"]["path"].as_str().unwrap())
        })
        .collect();
    assert_eq!(ids, [("001", "/usr/bin/su"), ("002", "/etc/passwd")]);
    assert_eq!(page["data"]["total_affected_items"], 6);
    let one = world.ok("/states/fim-files?agents_list=002", &token).await;
    assert_eq!(one["data"]["total_affected_items"], 1);
    assert_eq!(
        world.ok("/states/inventory-packages", &token).await["data"]["total_affected_items"],
        0
    );
}

/// A document as another sender may store it; our agents' documents have every field.
fn foreign(id: &str, body: &serde_json::Value) -> Write {
    let (dataset, body) = (Dataset::fim_files(), body.to_string().into_bytes());
    Write::Upsert { dataset, id: id.into(), version: NOW_US + 1, body }
}

#[tokio::test]
async fn documents_of_another_shape_are_listed_with_what_can_be_read() {
    let world = world();
    let token = world.admin().await;
    let odd = [
        json!({"file": {"path": "/b", "size": [1], "uid": 7, "mode": "0644", "mtime": "never"}}),
        json!({"file": "text", "state": 7, "checksum": []}),
        json!({"file": {"path": 9, "size": 12, "hash": {"md5": "ab", "sha1": 1}}}),
        json!({}),
    ];
    let ids = ["b".repeat(40), "c".repeat(40), "d".repeat(40), "e".repeat(40)];
    let mut writes = vec![upsert("/etc/passwd", &observed(0o644, 5), NOW_US)];
    writes.extend(ids.iter().zip(&odd).map(|(id, body)| foreign(id, body)));
    world.session(1, writes).await;
    let all = world.ok("/syscheck/001", &token).await;
    let mut files = column(&all, "file");
    files.sort();
    let mut expected = vec!["/b".to_owned(), "/etc/passwd".into()];
    expected.extend([ids[1].clone(), "9".into(), ids[3].clone()]);
    expected.sort();
    assert_eq!(files, expected);
    let items = all["data"]["affected_items"].as_array().unwrap();
    let of = |file: &str| items.iter().find(|item| item["file"] == file).unwrap();
    assert_eq!(
        (of("/b")["uid"].clone(), of("/b")["perm"].clone()),
        (json!("7"), json!("rw-r--r--"))
    );
    assert!(of("/b").get("size").is_none(), "a size that is no number");
    assert_eq!(of("9")["size"], 12);
    assert_eq!(of(&ids[3])["perm"], "");
    for query in ["distinct=true", "sort=-size", "select=file,size", "summary=true", "limit=2"] {
        world.ok(&format!("/syscheck/001?{query}"), &token).await;
    }
    world.ok("/states/fim-files", &token).await;
}
