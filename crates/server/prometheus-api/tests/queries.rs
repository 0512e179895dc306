//! Requests to the operations that read queries.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

async fn ask(method: &str, path: &str, form: &'static str) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .unwrap();
    let answer = prometheus_api::routes::<()>().with_state(()).oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    assert_eq!(answer.headers()["content-type"], "application/json");
    let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn query_is_formatted_from_the_query_and_from_a_form() {
    let expected = (200, json!({"status": "success", "data": "sum by (job) (rate(a[5m]))"}));
    let query = "sum(rate(a%5B5m%5D))by(job)";
    assert_eq!(ask("GET", &format!("/format_query?query={query}"), "").await, expected);
    assert_eq!(ask("POST", "/format_query", "query=sum(rate(a%5B5m%5D))by(job)").await, expected);
}

#[tokio::test]
async fn query_is_answered_as_a_tree() {
    let (status, answer) = ask("GET", "/parse_query?query=1%2Btime()", "").await;
    assert_eq!((status, &answer["status"]), (200, &json!("success")));
    assert_eq!(answer["data"]["lhs"], json!({"type": "numberLiteral", "val": "1"}));
    assert_eq!(answer["data"]["rhs"]["func"]["name"], "time");
}

#[tokio::test]
async fn query_that_cannot_be_read_is_bad_data() {
    for (path, text) in [
        (
            "/parse_query?query=a%7B",
            "invalid parameter \"query\": 1:3: parse error: unexpected end of input inside braces",
        ),
        ("/parse_query?query=%22%FF%22", "invalid parameter \"query\": invalid UTF-8 rune"),
        (
            "/format_query",
            "invalid parameter \"query\": unknown position: parse error: no expression found in input",
        ),
    ] {
        let expected = json!({"status": "error", "errorType": "bad_data", "error": text});
        assert_eq!(ask("GET", path, "").await, (400, expected));
    }
}
