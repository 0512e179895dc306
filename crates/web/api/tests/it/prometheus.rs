//! Prometheus' API behind ours, as Grafana asks it: name and password with each request, forms with
//! POST and a second try with GET, dashboards of many queries at once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{self, ADMIN, Answered, READER, World, basic, world, world_with};
use axum::body::Body;
use axum::http::StatusCode;
use listener::Source;
use registry::{Reader, WriteContext};
use serde_json::json;

const API: &str = "/series/prometheus/api/v1";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

async fn ask(world: &World, authorization: &str, path: &str) -> Answered {
    let headers = [("authorization", authorization)];
    world.send("GET", &format!("{API}{path}"), &headers, Body::empty()).await
}

/// Asks for `1+1` as Grafana's `Save & test` does.
async fn one_plus_one(world: &World, authorization: &str) -> Answered {
    ask(world, authorization, "/query?query=1%2B1&time=4").await
}

/// Stores a row `cpu_user host=a` with the value 7; returns its time, seconds.
async fn store_load(world: &World) -> u64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    let row = format!("cpu,host=a user=7 {}", now_s * 1_000_000_000);
    let written = world.send("POST", "/series/write", &headers, row).await;
    assert_eq!(written.status, StatusCode::OK, "{}", written.json());
    now_s
}

fn assert_refused(answer: &Answered, status: StatusCode, kind: &str, text: &str) {
    let expected = json!({"status": "error", "errorType": kind, "error": text});
    assert_eq!((answer.status, answer.json()), (status, expected));
    assert_eq!(answer.header("content-type"), "application/json");
}

#[tokio::test]
async fn password_and_token_are_accepted() {
    let world = world();
    let two = json!({"resultType": "scalar", "result": [4, "2"]});
    let token = format!("Bearer {}", world.reader().await);
    for authorization in [basic("admin", ADMIN), basic("reader", READER), token] {
        let answer = one_plus_one(&world, &authorization).await;
        let expected = json!({"status": "success", "data": two});
        assert_eq!((answer.status, answer.json()), (StatusCode::OK, expected));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    let socket = Some(Source::Unix { uid: 0 });
    let path = format!("{API}/status/buildinfo");
    let local = world.send_from(socket, "GET", &path, &[], Body::empty()).await;
    assert_eq!(local.json()["data"]["version"], "3.16.0");
}

#[tokio::test]
async fn query_is_answered_for_a_form_and_for_get() {
    let world = world();
    let seconds = store_load(&world).await;
    let basic = basic("reader", READER);
    let headers = [("authorization", basic.as_str()), FORM];
    let times = format!("query=cpu_user&start={}&end={seconds}&step=60", seconds - 60);
    let path = format!("{API}/query_range");
    let posted = world.send("POST", &path, &headers, times.clone()).await.json();
    let metric = json!({"__name__": "cpu_user", "host": "a"});
    assert_eq!(posted["data"]["result"][0]["metric"], metric, "{posted}");
    assert_eq!(posted["data"]["result"][0]["values"], json!([[seconds, "7"]]));
    assert_eq!(ask(&world, &basic, &format!("/query_range?{times}")).await.json(), posted);
    let values = ask(&world, &basic, "/label/host/values?match[]=cpu_user").await.json();
    assert_eq!(values, json!({"status": "success", "data": ["a"]}));
    let names = world.send("POST", &format!("{API}/labels"), &headers, "match[]=cpu_user").await;
    assert_eq!(names.json()["data"], json!(["__name__", "host"]));
}

#[tokio::test]
async fn wrong_credentials_ask_for_a_password() {
    let world = world();
    for (authorization, text) in [
        (basic("reader", "Wrong-Horse-9"), "Invalid credentials"),
        (basic("nobody", READER), "Invalid credentials"),
        ("Bearer a.b.c".into(), "Invalid token"),
        ("Negotiate x".into(), "No authorization token provided"),
    ] {
        let answer = one_plus_one(&world, &authorization).await;
        assert_refused(&answer, StatusCode::UNAUTHORIZED, "unauthorized", text);
        assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"holdfast\"");
    }
    let none = world.send("GET", &format!("{API}/labels"), &[], Body::empty()).await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
    // Other operations take tokens only.
    let header = basic("reader", READER);
    let headers = [("authorization", header.as_str())];
    let other = world.send("GET", "/agents", &headers, Body::empty()).await;
    assert_eq!(other.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn failed_passwords_block_the_address_as_failed_logins_do() {
    let world = world();
    let right = basic("reader", READER);
    assert_eq!(one_plus_one(&world, &right).await.status, StatusCode::OK);
    for n in 0..50 {
        let name = if n % 2 == 0 { "reader" } else { "admin" };
        let answer = match n {
            0..10 => world.try_login(name, "Wrong-Horse-9").await,
            _ => one_plus_one(&world, &basic(name, "Wrong-Horse-9")).await,
        };
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{n}");
    }
    let blocked = one_plus_one(&world, &right).await;
    assert_eq!((blocked.status, blocked.header("retry-after")), (StatusCode::FORBIDDEN, "300"));
    assert_eq!(blocked.json()["errorType"], "forbidden");
    assert_eq!(world.try_login("reader", READER).await.json()["error"], 6000);
    let elsewhere = Some(Source::Tcp("198.51.100.7:1".parse().unwrap()));
    let (path, headers) = (format!("{API}/labels"), [("authorization", right.as_str())]);
    let other = world.send_from(elsewhere, "GET", &path, &headers, Body::empty()).await;
    assert_eq!(other.status, StatusCode::OK);
}

#[tokio::test]
async fn caller_without_the_right_is_refused() {
    let world = world();
    let token = world.user_with(&[(&["agent:read"], "agent:id:*", "allow")], "100").await;
    for authorization in [basic("narrow", common::NARROW), format!("Bearer {token}")] {
        let answer = one_plus_one(&world, &authorization).await;
        let text = "Permission denied: Resource type: *:*";
        assert_refused(&answer, StatusCode::FORBIDDEN, "forbidden", text);
    }
}

#[tokio::test]
async fn remembered_password_follows_changes_of_the_user() {
    let world = world();
    let context = WriteContext::server();
    let old = basic("reader", READER);
    assert_eq!(one_plus_one(&world, &old).await.status, StatusCode::OK);
    world.registry.set_password(&context, "reader", "Another-One-8").unwrap();
    assert_eq!(one_plus_one(&world, &old).await.status, StatusCode::UNAUTHORIZED);
    let new = basic("reader", "Another-One-8");
    assert_eq!(one_plus_one(&world, &new).await.status, StatusCode::OK);
    // Without its role the user is known and may nothing.
    let reader = world.registry.user(&Reader::server(), "reader").unwrap().unwrap();
    let bearer = format!("Bearer {}", world.admin().await);
    let path = format!("/security/users/{}/roles?role_ids=all", reader.id);
    let headers = [("authorization", bearer.as_str())];
    let left = world.send("DELETE", &path, &headers, Body::empty()).await;
    assert_eq!(left.status, StatusCode::OK, "{}", left.json());
    assert_eq!(one_plus_one(&world, &new).await.status, StatusCode::FORBIDDEN);
    world.registry.delete_user(&context, "reader").unwrap();
    assert_eq!(one_plus_one(&world, &new).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn known_callers_count_by_user_and_others_by_address() {
    let world = world_with(|options| options.requests_per_minute_max = 20);
    let (right, wrong) = (basic("reader", READER), basic("reader", "Wrong-Horse-9"));
    let token = format!("Bearer {}", world.reader().await);
    for _ in 0..400 {
        assert_eq!(ask(&world, &right, "/status/buildinfo").await.status, StatusCode::OK);
        assert_eq!(ask(&world, &token, "/status/buildinfo").await.status, StatusCode::OK);
    }
    // The login counted by address, too.
    for n in 0..19 {
        let refused = one_plus_one(&world, &wrong).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{n}");
    }
    let late = one_plus_one(&world, &wrong).await;
    assert_eq!((late.status, late.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "61"));
    assert_eq!(late.json()["errorType"], "too_many_requests");
    // Refused, too: an answer would confirm a correct guess.
    assert_eq!(one_plus_one(&world, &right).await.status, StatusCode::TOO_MANY_REQUESTS);
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(one_plus_one(&world, &right).await.status, StatusCode::OK);
}

#[tokio::test]
async fn user_is_refused_beyond_6000_requests_a_minute() {
    let world = world();
    let (right, other) = (basic("reader", READER), basic("admin", ADMIN));
    for _ in 0..api::limits::REQUESTS_PER_MINUTE_USER_MAX {
        assert_eq!(ask(&world, &right, "/alerts").await.status, StatusCode::OK);
    }
    let refused = ask(&world, &right, "/alerts").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&world, &other, "/alerts").await.status, StatusCode::OK);
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(ask(&world, &right, "/alerts").await.status, StatusCode::OK);
}

#[tokio::test]
async fn dashboard_of_forty_panels_is_answered_at_once() {
    let world = std::sync::Arc::new(world());
    let panels: Vec<_> = (0..40)
        .map(|_| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move { one_plus_one(&world, &basic("reader", READER)).await.status })
        })
        .collect();
    for panel in panels {
        assert_eq!(panel.await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test]
async fn errors_have_the_form_of_prometheus() {
    let world = world();
    let right = basic("reader", READER);
    for path in ["/nothing", "/admin/tsdb/snapshot", "/write"] {
        let answer = ask(&world, &right, path).await;
        let text = "no such operation of Prometheus' API";
        assert_refused(&answer, StatusCode::NOT_FOUND, "not_found", text);
    }
    let bad = ask(&world, &right, "/query?query=a%7B").await;
    assert_eq!(bad.json()["errorType"], "bad_data");
    let headers = [("authorization", right.as_str()), FORM];
    let large = vec![b'a'; api::limits::PROMETHEUS_BODY_BYTES_MAX + 1];
    let large = world.send("POST", &format!("{API}/query"), &headers, large).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(large.json()["status"], "error");
    let without = world_with(|options| options.series = None);
    let none = one_plus_one(&without, &right).await;
    let text = "this server runs without a series store";
    assert_refused(&none, StatusCode::SERVICE_UNAVAILABLE, "unavailable", text);
}

#[tokio::test]
async fn requests_time_limit_does_not_end_queries() {
    let world = world_with(|options| options.request_timeout_ms = 1);
    let query = "sum_over_time(vector(1)%5B100s:1s%5D)";
    let path = format!("{API}/query_range?start=0&end=1000&step=1&query={query}");
    let socket = Some(Source::Unix { uid: 0 });
    let answer = world.send_from(socket, "GET", &path, &[], Body::empty()).await;
    assert_eq!(answer.json()["status"], "success");
}

#[tokio::test]
async fn catalogue_names_the_operations_under_their_right() {
    let world = world();
    let actions = world.ok("/security/actions", &world.admin().await).await;
    let listed = actions.to_string();
    assert!(listed.contains("GET /series/prometheus/api/v1/{operation}"), "{listed}");
}
