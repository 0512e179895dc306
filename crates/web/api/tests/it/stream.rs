//! Changes as they arrive, over the event stream.

use std::time::Duration;

use crate::common::{self, NOW_US, World, change, observed, world};
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use listener::Source;
use model::{AgentId, Coverage, CoverageKind};
use registry::{LinkKind, Reader, SecurityChange, WriteContext};
use tower::ServiceExt as _;

/// Maximum time that any awaited event may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// Reads, for a bounded time, until a piece contains `wanted`.
async fn read(body: &mut Body, wanted: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(wanted) {
            let frame = body.frame().await.expect("the stream ended").unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("nothing came");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_reader_misses_no_late_event() {
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
    // This change was detected long before the events already read, and is reported after them.
    world.events(2, vec![change("/etc/late", None, Some(&file), NOW_US - 1_000_000_000)]).await;
    let text = read(&mut open(Some("1")).await, "/etc/late").await;
    assert!(text.starts_with("id: 2\n") && !text.contains("/etc/now"), "{text}");
}

/// Opens a stream of a logged-in user.
async fn stream(world: &World, token: &str, query: &str) -> (u16, Body) {
    let mut request = Request::get(format!("/events/stream?{query}")).body(Body::empty()).unwrap();
    let bearer = format!("Bearer {token}");
    request.headers_mut().insert("authorization", bearer.parse().unwrap());
    request.extensions_mut().insert(Source::Tcp("192.0.2.9:4000".parse().unwrap()));
    let response = world.router.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.into_body())
}

/// Reads until the stream ends by itself.
async fn rest(body: Body) -> String {
    let end = tokio::time::timeout(PATIENCE, body.collect());
    let bytes = end.await.expect("the stream goes on").unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_ends_when_its_token_becomes_invalid() {
    let world = world();
    let file = observed(0o644, 5);
    for ended in ["logout", "password", "config", "keys", "time"] {
        let token = world.reader().await;
        let (_, mut body) = stream(&world, &token, "").await;
        read(&mut body, ": at ").await;
        match ended {
            "logout" => {
                let user = world.registry.user(&Reader::server(), "reader").unwrap().unwrap().id;
                let target = registry::RevocationTarget::User(user);
                world.registry.revoke_tokens(&WriteContext::server(), target).unwrap();
            }
            "password" => world
                .registry
                .set_password(&WriteContext::server(), "reader", common::READER)
                .unwrap(),
            "config" => world.registry.set_security_config(&WriteContext::server(), None).unwrap(),
            "keys" => drop(world.registry.replace_token_keys(&WriteContext::server()).unwrap()),
            _ => world.clock.advance(Duration::from_mins(20)),
        }
        let path = format!("/etc/{ended}");
        world.events(1, vec![change(&path, None, Some(&file), NOW_US)]).await;
        let text = rest(body).await;
        assert!(!text.contains(&path), "{ended}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_backlog_arrives_in_order_and_in_pieces() {
    let world = world();
    let admin = world.admin().await;
    let file = observed(0o644, 5);
    let mut told = 0;
    for session in 0..10 {
        let paths = (0..200).map(|n| format!("/srv/{session}/{n}-{}", "x".repeat(500)));
        // The changes are detected in the opposite order of their arrival.
        let found = |n: u64| NOW_US - session * 1_000 - n;
        let bodies: Vec<_> =
            (0..).zip(paths).map(|(n, path)| change(&path, None, Some(&file), found(n))).collect();
        told += bodies.len();
        world.events(1 + (session % 3) as u32, bodies).await;
    }
    let (status, mut body) = stream(&world, &admin, "since=5").await;
    assert_eq!(status, 200);
    let (mut text, mut longest) = (String::new(), 0);
    while !text.contains(&format!("id: {told}\n")) {
        let frame = body.frame().await.unwrap().unwrap();
        let piece = std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        longest = longest.max(piece.len());
        text.push_str(piece);
    }
    let ids: Vec<usize> =
        text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (6..=told).collect::<Vec<_>>());
    assert!(longest < 320 * 1024 && text.len() > 4 * longest, "{longest} of {}", text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_limit_per_user_leaves_streams_for_others() {
    let world = world();
    let (reader, admin) = (world.reader().await, world.admin().await);
    let mut open = Vec::new();
    for _ in 0..8 {
        let (status, body) = stream(&world, &reader, "").await;
        assert_eq!(status, 200);
        open.push(body);
    }
    assert_eq!(stream(&world, &reader, "").await.0, 503);
    assert_eq!(stream(&world, &admin, "").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_shows_gaps_and_removed_agents_only_in_scope() {
    let world = world();
    let policy = |name: &str, action: &str, resource: &str, allow| registry::Policy {
        id: 0,
        name: name.into(),
        actions: vec![action.into()],
        resources: vec![resource.into()],
        allow,
    };
    let change_security =
        |change| world.registry.change_security(&WriteContext::server(), change).unwrap();
    let role = change_security(SecurityChange::CreateRole { name: "some".into() });
    for policy in [
        policy("all", "change:read", "agent:id:*", true),
        policy("but", "change:read", "agent:group:web", false),
    ] {
        let member = change_security(SecurityChange::CreatePolicy(policy));
        let kind = LinkKind::RolePolicy;
        change_security(SecurityChange::Link { kind, owner: role, member, position: None });
    }
    world
        .registry
        .create_user(&WriteContext::server(), "some", "Some-Stream-1", false, &["some"])
        .unwrap();
    let token = world.login("some", "Some-Stream-1").await;
    let file = observed(0o644, 5);
    world.events(2, vec![change("/srv/first", None, Some(&file), NOW_US)]).await;
    world.events(1, vec![change("/srv/hidden", None, Some(&file), NOW_US)]).await;
    let lives = world.registry.revoke_agents(&WriteContext::server(), &[AgentId(1)]).unwrap();
    world.registry.remove_agents(&WriteContext::server(), &lives).unwrap();
    let gap = Coverage {
        kind: CoverageKind::AgentDown,
        path: String::new(),
        from_us: NOW_US - 5,
        to_us: NOW_US,
        found: None,
        lasting: None,
        detail: "a gap".into(),
    };
    world.events(2, vec![common::gap(gap)]).await;
    world.events(2, vec![change("/srv/seen", None, Some(&file), NOW_US)]).await;
    world.events(2, vec![change("/srv/last", None, Some(&file), NOW_US)]).await;
    let (status, mut body) = stream(&world, &token, "since=1").await;
    assert_eq!(status, 200);
    let text = read(&mut body, "/srv/last").await;
    assert!(text.contains("/srv/seen"), "{text}");
    assert!(!text.contains("/srv/hidden") && !text.contains("a gap"), "{text}");
}
