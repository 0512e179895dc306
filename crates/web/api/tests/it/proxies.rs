//! Behind a reverse proxy, the client's address is taken from the proxy and from no other source.

use crate::common::{ADMIN, Answered, World, basic, world, world_with};
use axum::body::Body;
use axum::http::StatusCode;
use listener::Source;
use serde_json::json;

const LOGIN: &str = "/security/user/authenticate?raw=true";

/// Sends a request from this peer, with this `X-Forwarded-For` unless it is empty.
async fn send_from_peer(
    world: &World,
    peer: &str,
    named: &str,
    path: &str,
    login: Option<&str>,
) -> Answered {
    let basic = login.map(|password| basic("admin", password));
    let mut headers = Vec::new();
    if !named.is_empty() {
        headers.push(("x-forwarded-for", named));
    }
    if let Some(basic) = &basic {
        headers.push(("authorization", basic.as_str()));
    }
    let source = peer.parse().map(Source::Tcp).ok();
    let method = if path == LOGIN { "POST" } else { "GET" };
    world.send_from(source, method, path, &headers, Body::empty()).await
}

fn behind_a_proxy(each_max: u32) -> World {
    world_with(|options| {
        options.trusted_proxies =
            vec!["127.0.0.1".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        options.requests_per_minute_max = each_max;
    })
}

const PROXY: &str = "127.0.0.1:7";

#[tokio::test]
async fn failed_logins_through_a_proxy_block_only_that_client() {
    let world = behind_a_proxy(0);
    for _ in 0..50 {
        let refused =
            send_from_peer(&world, PROXY, "203.0.113.9", LOGIN, Some("Wrong-Horse-9")).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    }
    // Addresses before the one that the proxy appended were written by the client.
    for named in ["203.0.113.9", "198.51.100.7, 203.0.113.9", "127.0.0.1,203.0.113.9"] {
        let blocked = send_from_peer(&world, PROXY, named, LOGIN, Some(ADMIN)).await;
        assert_eq!(
            (blocked.status, &blocked.json()["error"]),
            (StatusCode::FORBIDDEN, &json!(6000))
        );
    }
    for named in ["198.51.100.7", "203.0.113.9, 198.51.100.7", ""] {
        let fine = send_from_peer(&world, PROXY, named, LOGIN, Some(ADMIN)).await;
        assert_eq!(fine.status, StatusCode::OK, "{named}");
    }
}

#[tokio::test]
async fn proxied_client_is_counted_and_never_local() {
    let world = behind_a_proxy(3);
    let metrics =
        async |peer: &str, named: &str| send_from_peer(&world, peer, named, "/metrics", None).await;
    // The header may be missing: some proxies omit it when the client asks for that.
    for named in ["", "203.0.113.9", "127.0.0.1:7", "127.0.0.1, 2001:db8::7"] {
        assert_eq!(metrics(PROXY, named).await.status, StatusCode::UNAUTHORIZED, "{named}");
    }
    assert_eq!(metrics("203.0.113.8:1", "127.0.0.1").await.status, StatusCode::UNAUTHORIZED);
    for _ in 0..2 {
        metrics(PROXY, "203.0.113.9").await;
    }
    let eager = metrics(PROXY, "198.51.100.7, 203.0.113.9").await;
    assert_eq!(eager.status, StatusCode::TOO_MANY_REQUESTS);
    let other = metrics("[2001:db8::7]:7", "198.51.100.7").await;
    assert_eq!(other.status, StatusCode::UNAUTHORIZED, "another one has their own");
    let spoilt = metrics(PROXY, "198.51.100.7, somebody").await;
    assert_eq!(spoilt.status, StatusCode::BAD_REQUEST, "nobody is known to have asked");
}

#[tokio::test]
async fn x_forwarded_for_of_an_unknown_proxy_is_ignored() {
    let world = world();
    for _ in 0..50 {
        send_from_peer(&world, "203.0.113.9:1", "198.51.100.7", LOGIN, Some("Wrong-Horse-9")).await;
    }
    let blocked = send_from_peer(&world, "203.0.113.9:1", "198.51.100.8", LOGIN, Some(ADMIN)).await;
    assert_eq!(blocked.status, StatusCode::FORBIDDEN);
    let named = send_from_peer(&world, "198.51.100.7:1", "", LOGIN, Some(ADMIN)).await;
    assert_eq!(named.status, StatusCode::OK);
    let local = send_from_peer(&world, PROXY, "nonsense", "/metrics", None).await;
    assert_eq!(local.status, StatusCode::OK, "the header says nothing");
}
