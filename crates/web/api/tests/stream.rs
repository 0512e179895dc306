//! Changes as they arrive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::time::Duration;

use api::Source;
use axum::body::Body;
use axum::http::Request;
use common::{NOW_US, change, observed, world};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

/// What comes within a bounded time until a piece holds `wanted`.
async fn read(body: &mut Body, wanted: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(wanted) {
            let frame = body.frame().await.expect("the stream ended").unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("nothing came");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_comes_back_misses_nothing_that_was_told_late() {
    let world = world();
    let open = async |last: Option<&str>| {
        let mut request = Request::get("/events/stream").body(Body::empty()).unwrap();
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        request.extensions_mut().insert(Source::Unix { uid: 0 });
        world.router.clone().oneshot(request).await.unwrap().into_body()
    };
    let file = observed(0o644, 5);
    let mut first = open(None).await;
    read(&mut first, ": at 0").await;
    world.events(1, vec![change("/etc/now", None, Some(&file), NOW_US)]).await;
    let text = read(&mut first, "/etc/now").await;
    assert!(text.starts_with("id: 1\nevent: change\ndata: {"), "{text}");
    drop(first);
    // Found long before what was read, told after it.
    world.events(2, vec![change("/etc/late", None, Some(&file), NOW_US - 1_000_000_000)]).await;
    let text = read(&mut open(Some("1")).await, "/etc/late").await;
    assert!(text.starts_with("id: 2\n") && !text.contains("/etc/now"), "{text}");
}
