//! `OpenTSDB`'s data points over HTTP.

use std::io::Read as _;
use std::net::SocketAddr;

use flate2::read::GzEncoder;
use serde_json::{Value, json};

use crate::common::{post, serve, store};

const GOOD: &str = r#"{"metric": "m", "timestamp": 7, "value": 1, "tags": {"host": "a"}}"#;
const BAD: &str = r#"{"metric": "m", "timestamp": 8, "value": "much", "tags": {"host": "a"}}"#;

/// Returns status and body of an answer.
fn parts(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() })
}

async fn put(address: SocketAddr, query: &str, body: &str) -> (u16, Value) {
    let kind = "Content-Type: application/json\r\n";
    parts(&post(address, &format!("/api/put{query}"), kind, body.as_bytes()).await)
}

/// Returns the stored rows as CSV with raw times.
async fn rows(address: SocketAddr) -> String {
    let query = br#"{"select": "m", "range": {"from": 0, "to": "now"},
        "output": {"format": "csv", "timestamp": "raw"}}"#;
    let answer = post(address, "/api/query", "", query).await;
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn put_of_one_or_many_data_points_is_answered_204() {
    let (_folder, store) = store();
    let address = serve(store).await;
    assert_eq!(put(address, "", GOOD).await, (204, Value::Null));
    let many = format!("[{GOOD}, {}]", GOOD.replace('7', "1427040405123"));
    assert_eq!(put(address, "", &many).await, (204, Value::Null));
    assert_eq!(rows(address).await, "m host=a,7000000000,1\nm host=a,1427040405123000000,1\n");
    let all = json!({"failed": 0, "success": 2});
    assert_eq!(put(address, "?summary", &many).await, (200, all));
    let all = json!({"errors": [], "failed": 0, "success": 2});
    assert_eq!(put(address, "?sync&details=true", &many).await, (200, all));
}

#[tokio::test]
async fn put_with_bad_data_points_stores_the_others() {
    let (_folder, store) = store();
    let address = serve(store).await;
    let mixed = format!("[{BAD}, {GOOD}]");
    let (status, told) = put(address, "", &mixed).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!(400)));
    assert_eq!(told["error"]["message"], "1 data points refused, 1 stored");
    assert_eq!(rows(address).await, "m host=a,7000000000,1\n");
    let counts = json!({"failed": 1, "success": 1});
    assert_eq!(put(address, "?summary", &mixed).await, (400, counts));
    let bad: Value = serde_json::from_str(BAD).unwrap();
    let errors = json!([{"datapoint": bad, "error": "no value; write a number"}]);
    let details = json!({"errors": errors, "failed": 1, "success": 1});
    assert_eq!(put(address, "?details&summary", &mixed).await, (400, details));
}

#[tokio::test]
async fn put_of_a_broken_body_stores_nothing() {
    let (_folder, store) = store();
    let address = serve(store).await;
    for body in ["", "[]", "put m 7 1 host=a\n", &format!("[{GOOD}, {{")] {
        let (status, told) = put(address, "?details", body).await;
        assert_eq!(status, 400, "{body}");
        assert!(told["error"]["message"].as_str().unwrap().starts_with("body: "), "{told}");
    }
    assert_eq!(rows(address).await, "");
}

#[tokio::test]
async fn put_takes_gzip_and_no_other_coding() {
    let (_folder, store) = store();
    let address = serve(store).await;
    let mut packed = Vec::new();
    GzEncoder::new(GOOD.as_bytes(), flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
    let send = async |coding: &str| {
        let coding = format!("Content-Encoding: {coding}\r\n");
        post(address, "/api/put", &coding, &packed).await
    };
    assert!(send("snappy").await.starts_with("HTTP/1.0 415"));
    assert_eq!(rows(address).await, "");
    assert_eq!(parts(&send("gzip").await), (204, Value::Null));
    assert_eq!(rows(address).await, "m host=a,7000000000,1\n");
}
