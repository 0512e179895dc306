//! Logging in and out.

use std::time::Duration;

use crate::common::{self, ADMIN, READER, basic, world};
use axum::body::Body;
use axum::http::StatusCode;
use listener::Source;
use registry::Reader;
use serde_json::json;

const LOGIN: &str = "/security/user/authenticate";

#[tokio::test]
async fn login_returns_a_token_accepted_by_other_operations() {
    let world = world();
    for method in ["POST", "GET"] {
        let header = basic("admin", ADMIN);
        let answer = world.send(method, LOGIN, &[("authorization", &header)], Body::empty()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.json()["error"], 0);
        let token = answer.json()["data"]["token"].as_str().unwrap().to_owned();
        assert_eq!(world.get("/agents", &token).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn token_has_the_documented_claims() {
    use base64::Engine as _;
    let world = world();
    let token = world.reader().await;
    let body = token.split('.').nth(1).unwrap();
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(body).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let now = common::NOW_US / 1_000_000;
    assert_eq!(claims["iss"], "holdfast");
    assert_eq!(claims["aud"], "Holdfast API REST");
    assert_eq!(claims["nbf"], now);
    assert_eq!(claims["exp"], now + 900);
    assert_eq!(claims["sub"], "reader");
    assert_eq!(claims["run_as"], false);
    assert_eq!(claims["rbac_mode"], "white");
    assert_eq!(claims["rbac_roles"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn invalid_credentials_and_tokens_get_documented_errors() {
    let world = world();
    let wrong = json!({"title": "Unauthorized", "detail": "Invalid credentials"});
    for (name, password) in [("admin", "Wrong-Horse-9"), ("nobody", ADMIN), ("' OR 1=1 --", "x")] {
        let answer = world.try_login(name, password).await;
        assert_eq!((answer.status, answer.json()), (StatusCode::UNAUTHORIZED, wrong.clone()));
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let none = world.send("GET", "/agents", &[], Body::empty()).await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
    assert_eq!(none.json()["detail"], "No authorization token provided");
    let good = world.admin().await;
    let mut bad = good.clone();
    let last = bad.pop().unwrap();
    bad.push(if last == 'A' { 'E' } else { 'A' });
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).unwrap());
    for token in [bad.as_str(), unsigned.as_str(), "x", "", &"a.b.c".repeat(4000)] {
        let answer = world.get("/agents", token).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{token}");
        assert_eq!(answer.json()["detail"], "Invalid token");
    }
}

#[tokio::test]
async fn token_expires_after_its_lifetime() {
    let world = world();
    let token = world.admin().await;
    world.clock.advance(Duration::from_secs(899));
    assert_eq!(world.get("/agents", &token).await.status, StatusCode::OK);
    world.clock.advance(Duration::from_secs(1));
    let answer = world.get("/agents", &token).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.json()["detail"], "Token expired");
}

#[tokio::test]
async fn logout_ends_every_token_of_that_user_only() {
    let world = world();
    let (first, second, other) = (world.admin().await, world.admin().await, world.reader().await);
    let header = format!("Bearer {first}");
    let answer = world.send("DELETE", LOGIN, &[("authorization", &header)], Body::empty()).await;
    assert_eq!(answer.status, StatusCode::OK);
    for token in [&first, &second] {
        assert_eq!(world.get("/agents", token).await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(world.get("/agents", &other).await.status, StatusCode::OK);
    // Within the same second: the new token must not be taken for a revoked one.
    let again = world.admin().await;
    assert_eq!(world.get("/agents", &again).await.status, StatusCode::OK);
    assert_eq!(world.get("/agents", &first).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn own_password_change_requires_the_old_password() {
    let world = world();
    let token = world.reader().await;
    let bearer = format!("Bearer {token}");
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/json; charset=utf-8")];
    let path = "/security/users/me/password";
    let change =
        |old: &str, new: &str| json!({"current_password": old, "password": new}).to_string();
    let wrong = world.send("PUT", path, &headers, change("Wrong-1x", "Another-One-8")).await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    let weak = world.send("PUT", path, &headers, change(READER, "short")).await;
    assert_eq!((weak.status, &weak.json()["error"]), (StatusCode::BAD_REQUEST, &json!(5007)));
    let done = world.send("PUT", path, &headers, change(READER, "Another-One-8")).await;
    assert_eq!(done.status, StatusCode::OK);
    assert_eq!(world.get("/agents", &token).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(world.try_login("reader", READER).await.status, StatusCode::UNAUTHORIZED);
    world.login("reader", "Another-One-8").await;
    let log = world.registry.audit_log(&Reader::server(), None, 10).unwrap();
    let row = log.iter().find(|row| row.action == "security.own_password").unwrap();
    assert_eq!(row.user, "reader");
    assert!(!row.detail.contains("Another-One-8") && !row.detail.contains(READER));
}

#[tokio::test]
async fn address_with_too_many_failures_is_blocked_on_login_only() {
    let world = world();
    let token = world.admin().await;
    for _ in 0..50 {
        world.try_login("admin", "Wrong-Horse-9").await;
    }
    let answer = world.try_login("admin", ADMIN).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.json()["error"], 6000);
    assert_eq!(answer.json()["title"], "Permission Denied");
    assert_eq!(world.get("/agents", &token).await.status, StatusCode::OK);
    let header = basic("admin", ADMIN);
    let elsewhere = Some(Source::Tcp("198.51.100.7:1".parse().unwrap()));
    let headers = [("authorization", header.as_str())];
    let other = world.send_from(elsewhere, "POST", LOGIN, &headers, Body::empty()).await;
    assert_eq!(other.status, StatusCode::OK);
}

#[tokio::test]
async fn unix_socket_requests_need_no_token() {
    let world = world();
    let source = Some(Source::Unix { uid: 0 });
    let answer = world.send_from(source, "GET", "/agents", &[], Body::empty()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let headers = [("content-type", "application/json")];
    let made = world.send_from(source, "POST", "/enrolment/tokens", &headers, "{}").await;
    assert_eq!(made.status, StatusCode::OK);
    assert!(made.json()["data"]["token"].as_str().unwrap().starts_with("hf1."));
    assert_eq!(world.registry.audit_log(&Reader::server(), None, 1).unwrap()[0].user, "uid:0");
    let me = world.send_from(source, "GET", "/security/users/me", &[], Body::empty()).await;
    assert_eq!(me.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn login_body_above_64_kib_is_refused() {
    let world = world();
    let path = "/security/user/authenticate/run_as";
    let header = basic("admin", "Wrong-Horse-9");
    let headers = [("authorization", header.as_str()), ("content-type", "application/json")];
    for size in [64 * 1024 + 1, 1024 * 1024] {
        let refused = world.send("POST", path, &headers, " ".repeat(size)).await;
        assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE, "{size}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("65536"), "{detail}");
    }
    let small = world.send("POST", path, &headers, "{}").await;
    assert_eq!(small.status, StatusCode::UNAUTHORIZED);
}
