//! No input makes the server fail.

use crate::common::{NOW_US, change, described, observed, upsert, world_with};
use axum::body::Body;
use serde_json::Value;

const VALUES: &[&str] = &[
    "",
    "%00",
    "%27%20OR%20%271%27%3D%271",
    "%27%3B%20DROP%20TABLE%20agent%3B%20--",
    "%25%25__%5C",
    "-",
    "-1",
    "18446744073709551616",
    "9223372036854775807",
    "1,2,,3",
    "(((((",
    "name%3D%22",
    "status%3Dactive%3B",
    "%F0%9F%98%80%E2%80%AE",
    "%FF%FE",
    "..%2F..%2Fetc%2Fpasswd",
    "%7B%22%24ne%22%3A1%7D",
    "9999-12-31T23:59:59Z",
    "1969-12-31T23:59:59Z",
    "99999999999999999d",
    "true",
    "null",
];

/// Returns every operation with every hostile value in each of its parameters.
fn requests() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&api::openapi_json()).unwrap();
    let mut list = Vec::new();
    for (method, path, _) in described() {
        // The login takes other credentials than a token; see the authentication tests.
        if path.starts_with("/security/user/") || method == "DELETE" {
            continue;
        }
        let operation = &document["paths"][&path][method.to_lowercase()];
        let names = operation["parameters"].as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(|p| p["name"].as_str().unwrap()).collect();
        let pairs = names.iter().flat_map(|name| VALUES.iter().map(move |value| (name, value)));
        list.extend(pairs.map(|(name, value)| (method.clone(), with(&path, name, value))));
    }
    list
}

/// Returns a path with one parameter set, and its other parameters set to existing objects.
fn with(path: &str, name: &str, value: &str) -> String {
    let marker = format!("{{{name}}}");
    let query = if path.contains(&marker) { String::new() } else { format!("?{name}={value}") };
    let path = path
        .replace(&marker, value)
        .replace("{agent_id}", "001")
        .replace("{command_id}", "1")
        .replace("{dataset}", "fim-files")
        .replace("{id}", "001-1-1");
    format!("{path}{query}")
}

#[tokio::test]
async fn hostile_parameter_values_cause_no_server_error() {
    let world = world_with(|options| {
        options.requests_per_minute_max = 0;
        options.requests_per_minute_all_max = 0;
    });
    let token = world.admin().await;
    world.session(1, vec![upsert("/etc/a", &observed(0o644, 1), NOW_US)]).await;
    world.events(1, vec![change("/etc/a", None, Some(&observed(0o644, 1)), NOW_US)]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let requests = requests();
    assert!(requests.len() > 1_000, "only {} requests", requests.len());
    for (method, url) in requests {
        let answer = world.send(&method, &url, &headers, Body::empty()).await;
        assert!(answer.status.as_u16() < 500, "{method} {url}: {}", answer.status);
    }
    // Some values are valid names, for which agents are created; none of them removes one.
    let before = world.ok("/agents?agents_list=000,001,002,003", &token).await;
    assert_eq!(before["data"]["total_affected_items"], 4);
}

#[tokio::test]
async fn hostile_bodies_cause_no_server_error() {
    let world = world_with(|options| {
        options.requests_per_minute_max = 0;
        options.requests_per_minute_all_max = 0;
    });
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    for (method, path) in [("POST", "/enrolment/tokens"), ("PUT", "/security/users/me/password")] {
        for body in [
            "",
            "null",
            "[]",
            "{}",
            "\"x\"",
            "{\"uses\":-1}",
            "{\"uses\":4294967296}",
            "{\"uses\":0}",
            "{\"ttl_s\":18446744073709551615}",
            "{\"ttl_s\":0}",
            "{\"groups\":[\"' OR 1=1 --\"]}",
            "{\"groups\":{}}",
            "{\"password\":1}",
            "\u{0}",
            "{\"current_password\":\"\",\"password\":\"\"}",
        ] {
            let answer = world.send(method, path, &headers, body).await;
            assert!(answer.status.as_u16() < 500, "{method} {path} {body}: {}", answer.status);
        }
        let deep = "[".repeat(100_000);
        let answer = world.send(method, path, &headers, deep).await;
        assert_eq!(answer.status.as_u16(), 400, "{method} {path}");
    }
}
