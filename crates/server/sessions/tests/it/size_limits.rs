//! Limits, damaged input, and the statuses that report them.

use std::time::Duration;

use crate::common::{self, Agent, Server, document, exchange, read_answer};
use registry::WriteContext;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Bytes that arrive of a body that stalls.
const BEGIN: [u8; 100] = [0; 100];

/// Sends a request of whose body only [`BEGIN`] arrives.
async fn stalled(server: &Server, agent: &Agent, length: usize) -> TlsStream<TcpStream> {
    server.begin_body("/stateful", agent, length, &BEGIN).await
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_session_buffer_gets_400_and_stores_nothing() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let good = link::encode(&agent.delta(vec![document("a", 1, 'a')]));
    let mut bad: Vec<Vec<u8>> =
        vec![b"x".to_vec(), b"garbage".to_vec(), vec![0; 4096], vec![0xff; 70_000]];
    bad.extend((1..good.len() - 8).step_by(37).map(|n| good[..n].to_vec()));
    for body in bad {
        let n = body.len();
        let answered = agent.post("/stateful", body).await;
        assert_eq!((answered.status, answered.error().as_str()), (400, "invalid_message"), "{n}");
    }
    assert!(server.documents(agent.id).is_empty());
    assert_eq!(agent.post("/stateful", good).await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn body_of_100_mb_gets_413_before_it_is_sent() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let stream = stalled(&server, &agent, 100_000_000).await;
    let (mut from, mut to) = tokio::io::split(stream);
    let sending = tokio::spawn(async move {
        let chunk = vec![0; 64 * 1024];
        let mut sent = 0usize;
        while sent < 100_000_000 && to.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        sent
    });
    let mut head = vec![0; 1024];
    let n = from.read(&mut head).await.unwrap();
    assert!(head[..n].starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&head[..n]));
    let mut rest = Vec::new();
    let _ = from.read_to_end(&mut rest).await;
    let sent = sending.await.unwrap();
    assert!(sent < 50_000_000, "the server let {sent} bytes come");
    assert_eq!(server.counter("sync.inflight.bytes"), 0);
    // An ordinary client also gets the answer and not a broken connection.
    let answered = agent.post("/stateful", vec![0; 20 * 1024 * 1024 + 1]).await;
    assert_eq!((answered.status, answered.error().as_str()), (413, "too_large"));
    assert_eq!(agent.post("/control", vec![b' '; 70_000]).await.status, 413);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_with_too_many_values_gets_413() {
    let server = Server::with(|o| o.limits.session_values_max = 3);
    let agent = server.enroll("web").await;
    let values = |n: u64| (0..n).map(|i| document(&format!("f{i}"), 1, 'a')).collect();
    assert_eq!(agent.send(&agent.delta(values(3))).await.status, 200);
    assert_eq!(agent.send(&agent.delta(values(4))).await.status, 413);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_agent_cannot_use_the_whole_request_quota() {
    let server = Server::with(|o| o.limits.agent_requests_max = 2);
    let (greedy, other) = (server.enroll("greedy").await, server.enroll("other").await);
    let first = stalled(&server, &greedy, 1000).await;
    let second = stalled(&server, &greedy, 1000).await;
    server.until_arrived(2 * BEGIN.len()).await;
    let answered = greedy.send(&greedy.delta(vec![document("a", 1, 'a')])).await;
    assert_eq!((answered.status, answered.retry_after), (503, true));
    assert_eq!(other.send(&other.delta(vec![document("a", 1, 'a')])).await.status, 200);
    drop((first, second));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_one_agent_cannot_use_the_whole_quota() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) =
        series::Store::open(&folder.path().join("s"), series::StoreOptions::default()).unwrap();
    let server = Server::with(|o| {
        o.limits.agent_requests_max = 2;
        o.series = Some(store.clone());
    });
    let (greedy, other) = (server.enroll("greedy").await, server.enroll("other").await);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(server.begin_body("/series", &greedy, 4_000, &BEGIN).await);
    }
    server.until_arrived(2 * BEGIN.len()).await;
    server.until("two are refused", |s| s.counter("sync.requests.total.503") == 2).await;
    assert_eq!(other.send(&other.delta(vec![document("a", 1, 'a')])).await.status, 200);
    drop(held);
    server.stop().await;
    store.close().unwrap();
}

/// Sends a request whose answer is not read.
async fn asks(server: &Server, agent: &Agent, route: &str, body: &[u8]) -> TlsStream<TcpStream> {
    server.begin_body(route, agent, body.len(), body).await
}

/// Checks that the answer to this request counts while it is not read, and that its connection
/// ends. Returns the restarted server and its agent.
async fn an_unread_answer_counts(
    server: Server,
    agent: Agent,
    route: &str,
    body: &[u8],
) -> (Server, Agent) {
    let server = server.again_with(|o| o.timeouts.unread = Duration::from_hours(1)).await;
    let stream = asks(&server, &agent, route, body).await;
    server.until("it is answered", |s| s.counter("sync.requests.total.200") == 1).await;
    assert!(server.counter("sync.inflight.bytes") > 0, "what is not read is still there");
    drop(stream);
    server.until("its share is back", |s| s.counter("sync.inflight.bytes") == 0).await;
    let server = server.again_with(|o| o.timeouts.unread = Duration::from_millis(300)).await;
    let stream = asks(&server, &agent, route, body).await;
    server.until("it is answered", |s| s.counter("sync.requests.total.200") == 1).await;
    server.until("the connection ends", |s| s.counter("sync.connections") == 0).await;
    assert_eq!(server.counter("sync.inflight.bytes"), 0);
    drop(stream);
    let server = server.again().await;
    let agent = server.agent(agent.id, agent.certificate, agent.key);
    (server, agent)
}

/// The answer is larger than the kernel's buffer of a connection.
#[tokio::test(flavor = "multi_thread")]
async fn unread_answer_counts_towards_quota_and_ends_its_connection() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    for n in 0..16 {
        let mut value = document(&format!("f{n}"), 1, 'a');
        let text =
            format!("{{\"file\":{{\"path\":\"/f{n}\"}},\"text\":\"{}\"}}", "x".repeat(900_000));
        value.data = text.into_bytes();
        assert_eq!(agent.send(&agent.delta(vec![value])).await.status, 200);
    }
    let asked = link::DigestRequest {
        index: common::FILES.into(),
        ranges: vec![String::new()],
        split: 0,
        bodies: true,
    };
    let body = serde_json::to_vec(&asked).unwrap();
    let (server, agent) = an_unread_answer_counts(server, agent, "/digest", &body).await;
    // An answer that is read arrives complete.
    let answer: link::DigestAnswer = agent.json("/digest", &asked).await;
    assert_eq!(answer.items.len(), 16);
    server.stop().await;
}

/// The answer lists skipped values, which takes megabytes if a whole session is skipped.
#[tokio::test(flavor = "multi_thread")]
async fn unread_session_answer_counts_towards_quota() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    let left_out = |n: u32| {
        let id = format!("{n:0500}");
        link::SessionValue { data: b"no document".to_vec(), ..document(&id, 1, 'a') }
    };
    let session = link::encode(&agent.delta((0..24_000).map(left_out).collect()));
    let (server, agent) = an_unread_answer_counts(server, agent, "/stateful", &session).await;
    let answer = agent.with_instance().post("/stateful", session).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["skipped"].as_array().unwrap().len(), 24_000);
    server.stop().await;
}

/// The answer in JSON may be larger than the reserved size. It is sent anyway, because it is in
/// memory already and a repeated request would fail in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn range_answer_larger_than_its_reservation_is_sent() {
    let server = Server::with(|o| o.limits.in_flight_bytes_max = 17 * 1024 * 1024);
    let agent = server.enroll("web").await;
    for n in 0..16 {
        let mut value = document(&format!("f{n}"), 1, 'a');
        let text = "\\\"".repeat(450_000);
        let json = format!("{{\"file\":{{\"path\":\"/f{n}\"}},\"text\":\"{text}\"}}");
        value.data = json.into_bytes();
        assert_eq!(agent.send(&agent.delta(vec![value])).await.status, 200);
    }
    let asked = link::DigestRequest {
        index: common::FILES.into(),
        ranges: vec![String::new()],
        split: 0,
        bodies: true,
    };
    let answer: link::DigestAnswer = agent.json("/digest", &asked).await;
    assert_eq!(answer.items.len(), 16);
    server.until("its share is back", |s| s.counter("sync.inflight.bytes") == 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn group_config_counts_towards_byte_and_agent_request_limits() {
    let server = Server::with(|o| {
        o.limits.in_flight_bytes_max = 50_000;
        o.limits.agent_requests_max = 2;
    });
    let text = format!("[[watch]]\npath = \"/srv/{}\"\n", "a".repeat(200));
    server.registry.set_group_config(&WriteContext::server(), "default", &text).unwrap();
    let (greedy, other) = (server.enroll("greedy").await, server.enroll("other").await);
    let ask = async |agent: &Agent| {
        let answer = agent.http.get(server.url("/configuration")).send().await.unwrap();
        let retry = answer.headers().contains_key("retry-after");
        (answer.status().as_u16(), retry, answer.text().await.unwrap())
    };
    let held = [stalled(&server, &greedy, 1000).await, stalled(&server, &greedy, 1000).await];
    server.until_arrived(2 * BEGIN.len()).await;
    let refused = ask(&greedy).await;
    assert_eq!((refused.0, refused.1), (503, true), "{}", refused.2);
    assert_eq!(ask(&other).await.0, 200);
    drop(held);
    server.until_arrived(0).await;
    let held = server.begin_body("/stateful", &greedy, 70_000, &vec![0; 19_960]).await;
    server.until_arrived(19_960).await;
    let refused = ask(&other).await;
    assert_eq!((refused.0, refused.1), (503, true), "{}", refused.2);
    drop(held);
    server.until_arrived(0).await;
    let (status, _, answer) = ask(&other).await;
    let answer: link::json::ConfigAnswer = serde_json::from_str(&answer).unwrap();
    assert_eq!(status, 200);
    assert!(answer.text.contains(&"a".repeat(200)) && !answer.sum.is_empty());
    server.until("nothing is left", |s| s.counter("sync.inflight.bytes") == 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_over_the_limit_gets_503() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let server = server.again_with(|o| o.limits.connections_max = 1).await;
    let held = stalled(&server, &agent, 1000).await;
    server.until_arrived(BEGIN.len()).await;
    let answer = exchange(server.connect(None).await, "GET / HTTP/1.1\r\n", b"").await;
    assert_eq!(answer.status, 503);
    assert!(answer.has("retry-after: "));
    drop(held);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_header_is_cut_off_and_an_idle_connection_is_not() {
    let server = Server::with(|o| o.timeouts.header = Duration::from_millis(100));
    let mut idle = server.connect(None).await;
    let ask = async |stream: &mut TlsStream<TcpStream>| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 1024];
        let n = stream.read(&mut answer).await.unwrap();
        assert!(answer[..n].starts_with(b"HTTP/1.1 200"), "{:?}", &answer[..n]);
    };
    ask(&mut idle).await;
    let mut slow = server.connect(None).await;
    ask(&mut slow).await;
    slow.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    let mut rest = Vec::new();
    let ending = slow.read_to_end(&mut rest);
    let _ = tokio::time::timeout(Duration::from_mins(10), ending).await.expect("it is held open");
    assert!(rest.is_empty(), "{rest:?}");
    ask(&mut idle).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_get_their_specific_status() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let ask = async |head: &str, body: &[u8]| {
        exchange(server.connect(Some(agent.identity())).await, head, body).await
    };
    let chunked =
        ask("POST /stateful HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n")
            .await;
    assert_eq!(chunked.status, 411);
    assert_eq!(ask("POST /stateful HTTP/1.1\r\n", b"").await.status, 411);
    assert_eq!(ask("POST /elsewhere HTTP/1.1\r\nContent-Length: 0\r\n", b"").await.status, 404);
    let get = ask("GET /stateful HTTP/1.1\r\n", b"").await;
    assert_eq!((get.status, get.has("allow: post")), (405, true), "{}", get.head);
    let long = format!("GET /?{} HTTP/1.1\r\n", "a".repeat(2100));
    assert_eq!(ask(&long, b"").await.status, 414);
    let wide = format!("GET / HTTP/1.1\r\nX-A: {}\r\n", "a".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\n{}", "X-A: a\r\n".repeat(80));
    for head in [wide, many] {
        let answer = ask(&head, b"").await;
        assert_eq!(answer.status, 431);
        let json = answer.json();
        assert_eq!((&json["error"], &json["code"]), (&"header_too_large".into(), &431.into()));
    }
    let beyond = format!("GET / HTTP/1.1\r\n{}", "X-A: a\r\n".repeat(300));
    assert_eq!(ask(&beyond, b"").await.status, 431, "answered by the parser, without a body");
    let session = "POST /stateful HTTP/1.1\r\nX-Session-Id: a b\r\nContent-Length: 0\r\n";
    assert_eq!(ask(session, b"").await.status, 400);
    let huge = "POST /stateful HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n";
    assert!([400, 413].contains(&ask(huge, b"").await.status));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_request_body_gets_408() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let server = server.again_with(|o| o.timeouts.body = Duration::from_millis(50)).await;
    let answer = read_answer(stalled(&server, &agent, 1000).await).await;
    assert_eq!(answer.status, 408);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_over_the_time_limit_gets_504() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let server = server.again_with(|o| o.timeouts.response = Duration::from_millis(300)).await;
    let answer = read_answer(stalled(&server, &agent, 1000).await).await;
    assert_eq!(answer.status, 504);
    assert_eq!(server.counter("sync.requests.total.504"), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_after_commit_is_closed_gets_503() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    server.commit.close().await.unwrap();
    let answered = agent.send(&agent.delta(vec![document("a", 1, 'a')])).await;
    assert_eq!((answered.status, answered.retry_after), (503, true), "{}", answered.text());
    server.handle.shutdown().await;
}
