//! The server's configuration file, and the format of groups' configurations.

use std::sync::Arc;

use crate::common::{TestFile, World, world, world_with};
use api::ConfigFile as _;
use axum::http::StatusCode;
use serde_json::{Value, json};

async fn put(world: &World, path: &str, kind: &str, body: &'static [u8]) -> (StatusCode, Value) {
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
    let answer = world.send("PUT", path, &headers, body).await;
    (answer.status, answer.json())
}

const OCTETS: &str = "application/octet-stream";

#[tokio::test]
async fn new_file_is_checked_stored_and_lists_restart_settings() {
    let file = Arc::new(TestFile::default());
    let shared = Arc::clone(&file);
    let world = world_with(move |options| options.config = Some(shared));
    let admin = world.admin().await;
    for base in ["/manager", "/cluster/node01"] {
        let path = format!("{base}/configuration");
        file.store("old").unwrap();
        // Body, expected error code, content of the file afterwards.
        let table: [(&[u8], Option<u16>, &str); 4] = [
            (b"bad", Some(1125), "old"),
            (b"\xff\xfe", Some(1125), "old"),
            (b"", Some(1125), "old"),
            (b"new", None, "new"),
        ];
        for (body, code, then) in table {
            let (status, answer) = put(&world, &path, OCTETS, body).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            let failed = answer["data"]["failed_items"][0]["error"]["code"].as_u64();
            assert_eq!(failed, code.map(u64::from), "{path}: {answer}");
            assert_eq!(file.read().unwrap(), then, "{path}");
            let waiting = code.map_or_else(|| json!(["api.text"]), |_| Value::Null);
            assert_eq!(answer["data"]["restart_needed"], waiting, "{path}");
        }
        let (status, _) = put(&world, &path, "application/json", b"new").await;
        assert_eq!(status, StatusCode::NOT_ACCEPTABLE);
        let whole = world.ok(&path, &admin).await;
        let item = &whole["data"]["affected_items"][0];
        assert_eq!(
            (&item["api"]["text"], &item["cluster"]["node_name"]),
            (&json!("new"), &json!("node01"))
        );
        let one = world.ok(&format!("{path}?section=api&field=text"), &admin).await;
        assert_eq!(one["data"]["affected_items"], json!([{"api": {"text": "new"}}]));
        let raw = world.get(&format!("{path}?raw=true"), &admin).await;
        assert_eq!(raw.body, b"new");
    }
    for path in ["/manager/configuration/validation", "/cluster/configuration/validation"] {
        file.store("fine").unwrap();
        let item = &world.ok(path, &admin).await["data"]["affected_items"][0];
        assert_eq!(*item, json!({"name": "node01", "status": "OK"}), "{path}");
        file.store("bad").unwrap();
        let item = &world.ok(path, &admin).await["data"]["affected_items"][0];
        assert_eq!((&item["status"], &item["details"]), (&json!("KO"), &json!(["line 1: bad"])));
    }
    let (status, answer) = put(&world, "/cluster/other/configuration", OCTETS, b"new").await;
    assert_eq!((status, &answer["error"]), (StatusCode::BAD_REQUEST, &json!(3022)));
}

#[tokio::test]
async fn configuration_without_a_file_is_reported() {
    let (status, answer) = put(&world(), "/manager/configuration", OCTETS, b"new").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["data"]["failed_items"][0]["error"]["code"], 1006, "{answer}");
}

#[tokio::test]
async fn group_configuration_is_listed_by_block() {
    let world = world();
    let admin = world.admin().await;
    let xml =
        b"<agent_config os=\"Linux\"><syscheck><directories>/etc,/srv</directories></syscheck>
        </agent_config><agent_config><syscheck><frequency>60</frequency></syscheck></agent_config>";
    let (status, answer) = put(&world, "/groups/web/configuration", "application/xml", xml).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let first = json!({"filters": {"os": "Linux"}, "config": {"syscheck": {
        "directories": [{"path": "/etc"}, {"path": "/srv"}],
    }}});
    let second = json!({"filters": {}, "config": {"syscheck": {"frequency": "60"}}});
    for (query, wanted) in [
        ("configuration", vec![&first, &second]),
        ("configuration?offset=1", vec![&second]),
        ("configuration?limit=1", vec![&first]),
        ("files/agent.conf", vec![&first, &second]),
    ] {
        let answer = world.ok(&format!("/groups/web/{query}"), &admin).await;
        assert_eq!(answer["data"]["affected_items"], json!(wanted), "{query}");
        assert_eq!(answer["data"]["total_affected_items"], 2, "{query}");
    }
    let raw = world.get("/groups/web/files/agent.conf?raw=true", &admin).await;
    assert_eq!(raw.body, xml);
}
