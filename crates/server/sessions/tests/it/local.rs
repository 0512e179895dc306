//! The unix socket: allowed users, the agents they may act for, and the requests only it accepts.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use crate::common::{self, Agent, Server, delta, document, event};
use link::Session;
use model::{AgentId, ReportKind};
use registry::{Reader, WriteContext};
use sessions::{Sessions, SessionsError, SessionsOptions};

#[tokio::test(flavor = "multi_thread")]
async fn local_caller_may_act_for_any_agent() {
    let server = Server::start();
    let mode = std::fs::metadata(server.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let agent = server.enroll("web").await;
    for id in [agent.id, AgentId(4711)] {
        let answer = server.local_session(id, &delta(id, vec![document("a", 1, 'a')])).await;
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert_eq!(answer.json()["status"], "ok");
        assert_eq!(server.documents(id).len(), 1);
    }
    let other = delta(AgentId(4711), vec![document("a", 1, 'a')]);
    assert_eq!(server.local_session(agent.id, &other).await.status, 403);
    let of_server = delta(AgentId::SERVER, vec![document("a", 1, 'a')]);
    assert_eq!(server.local_session(AgentId::SERVER, &of_server).await.status, 403);
    let banner = server.local("GET / HTTP/1.1\r\n", b"").await;
    assert_eq!((banner.status, &banner.json()["status"]), (200, &"ok".into()));
    let head = "POST /stateful HTTP/1.1\r\nContent-Length: 0\r\n";
    let refused = server.local(head, b"").await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &400.into()), "no agent named");
    let head = "POST /stateful HTTP/1.1\r\nX-Wazuh-Agent-Id: web\r\nContent-Length: 0\r\n";
    assert_eq!(server.local(head, b"").await.status, 400, "not a number");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_of_a_disallowed_uid_is_refused_on_every_route() {
    let server = Server::with(|o| o.allowed_uids = vec![4_000_000]);
    for head in ["GET / HTTP/1.1\r\n", "DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: 1\r\n"] {
        let answer = server.local(head, b"").await;
        assert_eq!(answer.status, 403);
        assert_eq!(answer.json()["error"], "user_not_allowed");
    }
    assert_eq!(server.counter("sync.local.refused"), 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_deletes_documents_and_certificate_but_keeps_events() {
    let server = Server::start();
    for (n, head) in [
        "DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: ",
        "POST /agents/delete HTTP/1.1\r\nContent-Length: 0\r\nX-Wazuh-Agent-Id: ",
    ]
    .into_iter()
    .enumerate()
    {
        let agent = server.enroll(&format!("agent-{n}")).await;
        let session = agent.delta(vec![document("a", 1, 'a'), event("e-1")]);
        assert_eq!(agent.send(&session).await.status, 200);
        assert_eq!(agent.post("/stats", b"{}".to_vec()).await.status, 200);
        let head = format!("{head}{}\r\n", agent.id);
        let answer = server.local(&head, b"").await;
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert!(server.documents(agent.id).is_empty());
        assert_eq!(server.state.agent_counts(&Reader::server(), agent.id).unwrap().events, 1);
        assert!(server.registry.agent(agent.id).is_none());
        assert_eq!(server.report(agent.id, ReportKind::Stats), None);
        let answered = agent.send(&session).await;
        assert_eq!(answered.status, 401, "{}", answered.text());
        assert!(server.documents(agent.id).is_empty());
        let again = server.local(&head, b"").await;
        assert_eq!((again.status, again.json()["noop"].as_bool()), (200, Some(true)));
    }
    let head = "DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: 000\r\n";
    assert_eq!(server.local(head, b"").await.status, 403);
    server.stop().await;
}

async fn send(agent: &Agent, session: Session) -> u16 {
    agent.send(&session).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_removal_deletes_documents_of_queued_sessions() {
    let server = Server::start();
    for round in 0..10 {
        let agent = server.enroll(&format!("web-{round}")).await;
        let id = format!("x-wazuh-agent-id: {}\r\n", agent.id);
        let sessions = (0..3).map(|n| {
            let values = (0..50).map(|v| document(&format!("{n}-{v}"), 1, 'a')).collect();
            let session = agent.delta(values);
            send(&agent, session)
        });
        let head = format!("DELETE /agents HTTP/1.1\r\n{id}");
        let removal = server.local(&head, b"");
        let (taken, removed) = tokio::join!(futures_of(sessions), removal);
        assert_eq!(removed.status, 200);
        assert!(taken.iter().all(|s| [200, 401].contains(s)), "{taken:?}");
        assert!(server.documents(agent.id).is_empty(), "{taken:?}");
        assert_eq!(agent.send(&agent.delta(vec![document("late", 9, 'z')])).await.status, 401);
        assert!(server.documents(agent.id).is_empty());
    }
    server.stop().await;
}

/// Awaits all futures concurrently.
async fn futures_of(all: impl Iterator<Item = impl Future<Output = u16>>) -> Vec<u16> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done = vec![0; all.len()];
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for (future, done) in all.iter_mut().zip(&mut done).filter(|(_, done)| **done == 0) {
            match future.as_mut().poll(cx) {
                std::task::Poll::Ready(status) => *done = status,
                std::task::Poll::Pending => waiting = true,
            }
        }
        if waiting { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn unregistered_agent_can_be_removed_and_return() {
    let server = Server::start();
    let id = AgentId(4711);
    let session = delta(id, vec![document("a", 1, 'a'), event("e-1")]);
    for _ in 0..2 {
        assert_eq!(server.local_session(id, &session).await.status, 200);
        assert_eq!(server.documents(id).len(), 1);
        let head = "DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: 4711\r\n";
        assert_eq!(server.local(head, b"").await.status, 200);
        assert!(server.documents(id).is_empty());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn non_agent_route_is_passed_to_the_local_router() {
    let other = axum::Router::new()
        .route("/hello", axum::routing::get(|| async { "hello" }))
        .route("/agents", axum::routing::delete(|| async { "a list of agents" }));
    let server = Server::with(|o| o.local = Some(other));
    let answer = server.local("GET /hello HTTP/1.1\r\n", b"").await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"hello"[..]));
    let answer = server.local("DELETE /agents?agents_list=001 HTTP/1.1\r\n", b"").await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"a list of agents"[..]));
    assert_eq!(server.local("GET /none HTTP/1.1\r\n", b"").await.status, 404);
    let answer = server.local("GET /stateful HTTP/1.1\r\n", b"").await;
    assert_eq!((answer.status, answer.has("allow: post")), (405, true), "{}", answer.head);
    let remote = common::client(server.tls(None)).get(server.url("/hello")).send().await.unwrap();
    assert_eq!(remote.status(), 404, "over TLS there are the agents' routes only");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_caller_without_operator_uid_is_denied_operator_routes() {
    let other = axum::Router::new()
        .route("/hello", axum::routing::get(|| async { "hello" }))
        .route("/agents", axum::routing::delete(|| async { "a list of agents" }));
    let server = Server::with(|o| {
        o.local = Some(other);
        o.operator_uids.clear();
    });
    for head in ["GET /hello HTTP/1.1\r\n", "DELETE /agents?agents_list=001 HTTP/1.1\r\n"] {
        let answer = server.local(head, b"").await;
        assert_eq!((answer.status, &answer.json()["error"]), (403, &"operators_only".into()));
    }
    let session = delta(AgentId(4711), vec![document("a", 1, 'a')]);
    assert_eq!(server.local_session(AgentId(4711), &session).await.status, 200);
    server.stop().await;
}

/// Covers each kind of removal: over the agents' socket, by the API, and by a replacing agent.
#[tokio::test(flavor = "multi_thread")]
async fn removed_agent_leaves_no_lease_or_report() {
    let server = Server::start();
    for name in ["by-socket", "by-registry", "replaced"] {
        let agent = server.enroll(name).await;
        for route in ["/stats", "/config"] {
            let asked = agent.http.post(server.url(route)).body("{}");
            let asked = asked.header(link::HEADER_INSTANCE, "aa.bb.cc.10000");
            assert_eq!(asked.send().await.unwrap().status(), 200);
        }
        let kept = |server: &Server| {
            let reports =
                [ReportKind::Stats, ReportKind::Config].map(|k| server.report(agent.id, k));
            (server.counter("sync.seats"), reports.iter().flatten().count())
        };
        assert_eq!(kept(&server), (1, 2), "{name}");
        match name {
            "by-socket" => {
                let head = format!("DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: {}\r\n", agent.id);
                assert_eq!(server.local(&head, b"").await.status, 200);
            }
            "by-registry" => drop(
                server.registry.remove_agent(&WriteContext::server(), agent.id).unwrap().unwrap(),
            ),
            _ => {
                let force =
                    registry::ForceRules { enabled: true, disconnected_s: None, registered_s: 0 };
                let request = registry::AgentEnrolment { name: name.into(), ..Default::default() };
                let new =
                    registry::InsertAgent { request, force: Some(force), ..Default::default() };
                server
                    .registry
                    .insert_agent(&WriteContext::server(), &new, &mut |_| Ok(()))
                    .unwrap();
            }
        }
        assert_eq!(kept(&server), (0, 0), "{name}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_report_is_stored_and_metrics_are_served() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(agent.post("/stats", b"{\"a\":1}".to_vec()).await.status, 200);
    assert_eq!(agent.post("/stats", b"{\"a\":2}".to_vec()).await.status, 200);
    assert_eq!(agent.post("/config", b"[]".to_vec()).await.status, 400);
    let stats = server.report(agent.id, ReportKind::Stats);
    assert_eq!(stats.as_deref(), Some(&b"{\"a\":2}"[..]));
    assert_eq!(server.report(agent.id, ReportKind::Config), None);
    let most = model::limits::DOCUMENT_BYTES_MAX;
    let large = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8)).into_bytes();
    // Segments of the journal have 1 MiB here.
    let fits = large(most - 8_192);
    assert_eq!(agent.post("/config", fits.clone()).await.status, 200);
    let refused = agent.post("/config", large(most + 1)).await;
    assert_eq!((refused.status, refused.error()), (413, "too_large".into()));
    let head = "POST /stats HTTP/1.1\r\nX-Wazuh-Agent-Id: 000\r\nContent-Length: 2\r\n";
    assert_eq!(server.local(head, b"{}").await.status, 403);
    let server = server.again().await;
    assert_eq!(server.report(agent.id, ReportKind::Stats), stats, "kept over a restart");
    assert_eq!(server.report(agent.id, ReportKind::Config), Some(fits));
    let agent = server.agent(agent.id, agent.certificate.clone(), agent.key.clone());
    for _ in 0..3 {
        assert_eq!(agent.post("/stats", b"{}".to_vec()).await.status, 200);
    }
    let json = server.local("GET /metrics HTTP/1.1\r\n", b"").await.json();
    assert_eq!(json["name"], "holdfast");
    let ok = json["metrics"].as_array().unwrap().iter();
    let ok = ok.clone().find(|m| m["name"] == "sync.requests.total.200").unwrap();
    assert!(ok["value"].as_u64().unwrap() >= 3);
    server.stop().await;

    let server = Server::with(|o| o.metrics = Some(Arc::new(|| "holdfast_up 1\n".to_owned())));
    let json = server.local("GET /metrics HTTP/1.1\r\n", b"").await.json();
    assert_eq!(json["name"], "holdfast");
    assert!(json["metrics"].as_array().unwrap().iter().any(|m| m["name"] == "sync.bulk.flushes"));
    let answer = server.local("GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n", b"").await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"holdfast_up 1\n"[..]));
    assert!(answer.has("content-type: text/plain"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_in_transit_is_not_stored_after_its_agent_is_removed() {
    use tokio::io::AsyncWriteExt as _;
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(agent.post("/config", b"{}".to_vec()).await.status, 200);
    let mut stream = server.connect(Some(agent.identity())).await;
    let head = "POST /stats HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body once it knows the sender.
    let mut asked = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.registry.remove_agent(&WriteContext::server(), agent.id).unwrap();
    assert_eq!(server.report(agent.id, ReportKind::Config), None);
    stream.write_all(b"{\"a\":1}").await.unwrap();
    let mut answer = [0; 128];
    let n = tokio::io::AsyncReadExt::read(&mut stream, &mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..n]).into_owned();
    assert!(answer.contains("HTTP/1.1 401"), "{answer}");
    assert_eq!(server.report(agent.id, ReportKind::Stats), None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_is_replaced_only_if_no_server_is_listening_on_it() {
    let server = Server::start();
    let start = |path: &std::path::Path| {
        let options = SessionsOptions { unix: Some(path.to_owned()), ..Default::default() };
        let (commit, state) = (Arc::clone(&server.commit), Arc::clone(&server.state));
        Sessions::start(options, commit, state, server.registry.clone())
    };
    let path = server.socket();
    assert!(matches!(start(&path), Err(SessionsError::SocketInUse { .. })));
    let file = server.folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(start(&file), Err(SessionsError::NotASocket { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let left = server.folder.path().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    assert!(left.exists());
    let second = start(&left).unwrap();
    second.shutdown().await;
    assert!(!left.exists(), "removed when stopped");
    let nowhere = SessionsOptions::default();
    let (commit, state) = (Arc::clone(&server.commit), Arc::clone(&server.state));
    let result = Sessions::start(nowhere, commit, state, server.registry.clone());
    assert!(matches!(result, Err(SessionsError::NoListener)));
    server.stop().await;
}
