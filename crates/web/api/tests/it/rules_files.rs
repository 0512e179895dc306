//! Rules files: the list, a single one, writing and deleting, and permissions.

use crate::common::{Answered, World, column, world};
use axum::http::StatusCode;
use registry::WriteContext;
use serde_json::{Value, json};

fn rule(id: u32, title: &str) -> String {
    format!(
        "title: {title}\nid: 00000000-0000-4000-8000-{id:012}\nlogsource:\n  product: linux\n\
         detection:\n  one:\n    file.path: /a\n  condition: one\n"
    )
}

async fn write(world: &World, method: &str, path: &str, token: &str, body: &str) -> Answered {
    let bearer = format!("Bearer {token}");
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    world.send(method, path, &headers, body.to_owned()).await
}

async fn put(world: &World, path: &str, token: &str, body: &str) -> Value {
    let answer = write(world, "PUT", path, token, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn failure(answer: &Value) -> (u64, String) {
    let error = &answer["data"]["failed_items"][0]["error"];
    assert_eq!(answer["error"], 1, "{answer}");
    (error["code"].as_u64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn rules_list_has_the_shipped_files_and_list_parameters() {
    let world = world();
    let token = world.reader().await;
    let all = world.ok("/rules/files", &token).await;
    assert_eq!(all["data"]["total_affected_items"], 10);
    assert_eq!(
        all["data"]["affected_items"][0],
        json!({"filename": "account_database_changed.yml", "relative_dirname": "rules",
               "status": "enabled"})
    );
    let some = "/rules/files?search=cron&select=filename";
    let some = world.ok(some, &token).await;
    assert_eq!(some["data"]["affected_items"], json!([{"filename": "cron_changed.yml"}]));
    let last = world.ok("/rules/files?sort=-filename&limit=1&q=filename~changed", &token).await;
    assert_eq!(column(&last, "filename"), ["systemd_unit_changed.yml"]);
    assert_eq!(last["data"]["total_affected_items"], 8);
    let none = world.ok("/rules/files?status=disabled", &token).await;
    assert_eq!(none["data"]["total_affected_items"], 0);
    let named = world.ok("/rules/files?filename=pam_changed.yml,gone.yml", &token).await;
    assert_eq!(column(&named, "filename"), ["pam_changed.yml"]);
    assert_eq!(named["data"]["failed_items"][0]["error"]["code"], 1415);
    let elsewhere = world.ok("/rules/files?relative_dirname=etc/rules", &token).await;
    assert_eq!(elsewhere["data"]["total_affected_items"], 0);
}

#[tokio::test]
async fn rules_file_is_returned_as_json_or_raw() {
    let world = world();
    let token = world.reader().await;
    let path = "/rules/files/ld_preload_changed.yml";
    let item = world.ok(path, &token).await["data"]["affected_items"][0].clone();
    assert_eq!(
        (&item["level"], &item["detection"]["condition"]),
        (&json!("critical"), &json!("preload"))
    );
    let raw = world.get(&format!("{path}?raw=true"), &token).await;
    assert_eq!(raw.header("content-type"), "application/yaml; charset=utf-8");
    assert!(raw.body.starts_with(b"title: Library preloaded into every program\n"));
    assert_eq!(failure(&world.ok("/rules/files/gone.yml", &token).await).0, 1415);
    for bad in ["..%2Fregistry.db", "..%2Fa.yml", "a.xml", "%2Fetc%2Fpasswd", ".a.yml", "a%00.yml"]
    {
        let answer = world.get(&format!("/rules/files/{bad}"), &token).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad}");
    }
}

#[tokio::test]
async fn rules_file_changes_take_effect_at_once() {
    let world = world();
    let token = world.admin().await;
    let path = "/rules/files/mine.yml";
    let done = put(&world, path, &token, &rule(1, "first")).await;
    assert_eq!(done["message"], "Rule was successfully uploaded");
    assert_eq!(done["data"]["affected_items"], json!(["rules/mine.yml"]));
    let title =
        || async { world.ok(path, &token).await["data"]["affected_items"][0]["title"].clone() };
    assert_eq!(title().await, "first");
    let again = failure(&put(&world, path, &token, &rule(1, "second")).await);
    assert_eq!(again.0, 1905);
    assert_eq!(title().await, "first");
    put(&world, &format!("{path}?overwrite=true"), &token, &rule(1, "second")).await;
    assert_eq!(title().await, "second");
    let same = failure(&put(&world, "/rules/files/other.yml", &token, &rule(1, "x")).await);
    assert_eq!(same.0, 1113);
    assert!(same.1.contains("mine.yml"), "{}", same.1);
    let bad = failure(&put(&world, "/rules/files/bad.yml", &token, "title: x").await);
    assert_eq!(bad.0, 1113);
    assert!(bad.1.contains("id is missing"), "{}", bad.1);
    assert_eq!(failure(&put(&world, "/rules/files/bad.yml", &token, "").await).0, 1112);
    let gone = write(&world, "DELETE", path, &token, "").await.json();
    assert_eq!(gone["message"], "Rule file was successfully deleted");
    assert_eq!(failure(&write(&world, "DELETE", path, &token, "").await.json()).0, 1906);
    assert_eq!(world.ok("/rules/files", &token).await["data"]["total_affected_items"], 10);
    let json = format!("Bearer {token}");
    let headers = [("authorization", json.as_str()), ("content-type", "application/json")];
    let other = world.send("PUT", path, &headers, "{}").await;
    assert_eq!(other.status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn rules_list_contains_only_files_the_role_may_read() {
    let world = world();
    let admin = world.admin().await;
    let post = |path: &'static str, body: &'static str| {
        let bearer = format!("Bearer {admin}");
        let world = &world;
        async move {
            let headers =
                [("authorization", bearer.as_str()), ("content-type", "application/json")];
            let answer = world.send("POST", path, &headers, body).await;
            assert_eq!(answer.json()["error"], 0, "{path}");
        }
    };
    let policy = r#"{"name":"one","policy":{"actions":["rules:read"],"resources":["rule:file:pam_changed.yml"],"effect":"allow"}}"#;
    post("/security/policies", policy).await;
    post("/security/roles", r#"{"name":"some"}"#).await;
    post("/security/roles/100/policies?policy_ids=100,13", "").await;
    world
        .registry
        .create_user(&WriteContext::server(), "some", "Some-Rules-1", false, &["some"])
        .unwrap();
    let token = world.login("some", "Some-Rules-1").await;
    let seen = world.ok("/rules/files", &token).await;
    assert_eq!(column(&seen, "filename"), ["pam_changed.yml"]);
    assert_eq!(seen["data"]["total_failed_items"], 0);
    let named = world.ok("/rules/files?filename=cron_changed.yml,pam_changed.yml", &token).await;
    assert_eq!(named["data"]["failed_items"][0]["error"]["code"], 4000);
    let denied = world.get("/rules/files/cron_changed.yml", &token).await;
    assert_eq!((denied.status, &denied.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
    put(&world, "/rules/files/own.yml", &token, &rule(1, "own")).await;
    let over = "/rules/files/cron_changed.yml?overwrite=true";
    let replaced = write(&world, "PUT", over, &token, &rule(2, "x")).await;
    assert_eq!(replaced.status, StatusCode::FORBIDDEN, "replacing takes rules:delete");
    let deleted = write(&world, "DELETE", "/rules/files/pam_changed.yml", &token, "").await;
    assert_eq!(deleted.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn metrics_count_cache_hits_and_reads() {
    let world = world();
    let token = world.reader().await;
    let value = |text: &str, name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.rsplit(' ').next().unwrap().parse().unwrap_or(0)
    };
    world.ok("/rules/files", &token).await;
    world.ok("/rules/files", &token).await;
    let text = String::from_utf8(world.get("/metrics", &token).await.body).unwrap();
    // Other tests in this process increment the same counters.
    assert!(value(&text, "holdfast_rules_file_reads_total") >= 10, "{text}");
    assert!(value(&text, "holdfast_rules_cache_total{result=\"hit\"}") >= 11, "{text}");
    assert!(value(&text, "holdfast_rules_cache_total{result=\"miss\"}") >= 11, "{text}");
}
