//! Bodies that arrive slowly: what they cost, and which of them are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Agent, Server, document, read_answer};
use link::Session;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

const MIB: usize = 1 << 20;

/// Returns a session whose message has at least this many bytes.
fn session_of(agent: &Agent, id: &str, bytes: usize) -> Session {
    let mut value = document(id, 1, 'a');
    let text = "x".repeat(bytes);
    value.data = format!("{{\"file\":{{\"path\":\"/{id}\"}},\"text\":\"{text}\"}}").into_bytes();
    agent.delta(vec![value])
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_slow_bodies_do_not_block_other_agents() {
    let server = Server::start();
    let mut slow = Vec::new();
    for n in 0..5 {
        slow.push(server.enroll(&format!("slow-{n}")).await);
    }
    // Together they announce 256 MiB.
    let lengths = [[20 * MIB; 12].as_slice(), &[2 * MIB; 8]].concat();
    let mut held = Vec::new();
    for (n, length) in lengths.into_iter().enumerate() {
        held.push(server.begin_body("/stateful", &slow[n % 5], length, &[0; 1000]).await);
    }
    server.until_arrived(20 * 1000).await;
    let fleet = [server.enroll("web-1").await, server.enroll("web-2").await];
    for agent in &fleet {
        for (id, bytes) in [("small", 10), ("large", 900_000)] {
            let answered = agent.send(&session_of(agent, id, bytes)).await;
            assert_eq!(answered.status, 200, "{}", answered.text());
        }
    }
    drop(held);
    server.until_arrived(0).await;
    server.stop().await;
}

/// Sends sessions of one agent and returns the times until they were answered.
async fn sends(agent: Arc<Agent>, name: &'static str, rounds: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for n in 0..rounds {
        let bytes = if n % 2 == 0 { 1_000 } else { 100_000 };
        let session = session_of(&agent, &format!("{name}-{n}"), bytes);
        let begun = Instant::now();
        let answered = agent.send(&session).await;
        times.push(begun.elapsed());
        assert_eq!(answered.status, 200, "{}", answered.text());
    }
    times
}

/// Sends sessions of all agents at once. Returns the 99th percentile of the times.
async fn fleet(agents: &[Arc<Agent>], name: &'static str, rounds: usize) -> Duration {
    let mut tasks = JoinSet::new();
    for agent in agents {
        tasks.spawn(sends(Arc::clone(agent), name, rounds));
    }
    let mut times = tasks.join_all().await.concat();
    times.sort();
    times[times.len() * 99 / 100]
}

/// Begins a large body again each time that it was refused as late.
async fn stalls(server: Arc<Server>, agent: Arc<Agent>) {
    let begin = vec![0; 100_000];
    loop {
        read_answer(server.begin_body("/stateful", &agent, 20 * MIB, &begin).await).await;
    }
}

/// Prints the fleet's times without and with slow bodies. `HOLDFAST_SOAK` sends more sessions.
#[tokio::test(flavor = "multi_thread")]
async fn fleet_is_answered_while_slow_bodies_come_and_go() {
    let server = Server::with(|o| o.timeouts.body = Duration::from_secs(3));
    let mut agents = Vec::new();
    for n in 0..15 {
        agents.push(Arc::new(server.enroll(&format!("agent-{n}")).await));
    }
    let server = Arc::new(server);
    let (slow, others) = agents.split_at(5);
    let soak: usize = std::env::var("HOLDFAST_SOAK").map_or(0, |n| n.parse().unwrap());
    let rounds = 4 + 500 * soak;
    let alone = fleet(others, "alone", rounds).await;
    let mut senders = JoinSet::new();
    for agent in slow.iter().cycle().take(20) {
        senders.spawn(stalls(Arc::clone(&server), Arc::clone(agent)));
    }
    server.until_arrived(20 * 100_000).await;
    let slowed = fleet(others, "next-to-slow-bodies", rounds).await;
    eprintln!("99th percentile: {alone:?} alone, {slowed:?} next to slow bodies");
    senders.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn youngest_incomplete_body_gets_503_and_the_oldest_200() {
    let server = Server::with(|o| o.limits.in_flight_bytes_max = 750_000);
    let (old, young) = (server.enroll("old").await, server.enroll("young").await);
    let session = link::encode(&session_of(&old, "a", 200_000));
    let (begin, end) = session.split_at(100_000);
    let mut oldest = server.begin_body("/stateful", &old, session.len(), begin).await;
    server.until_arrived(100_000).await;
    let youngest = server.begin_body("/stateful", &young, 190_000, &vec![0; 180_000]).await;
    server.until_arrived(280_000).await;
    oldest.write_all(end).await.unwrap();
    let answer = read_answer(youngest).await;
    assert_eq!(answer.status, 503, "{}", answer.head);
    assert!(answer.has("retry-after: ") && answer.has("connection: close"), "{}", answer.head);
    assert!(server.counter("sync.pipeline.shed.total") == 1);
    server.until("the oldest is stored", |s| s.documents(old.id).len() == 1).await;
    drop(oldest);
    server.until_arrived(0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_bodies_pass_while_large_ones_spend_the_budget() {
    let server = Server::with(|o| o.limits.in_flight_bytes_max = 500_000);
    let (slow, other) = (server.enroll("slow").await, server.enroll("other").await);
    let held = server.begin_body("/stateful", &slow, 250_000, &vec![0; 199_000]).await;
    server.until_arrived(199_000).await;
    let large = session_of(&other, "large", 100_000);
    let answered = other.send(&large).await;
    assert_eq!((answered.status, answered.retry_after), (503, true), "{}", answered.text());
    for n in 0..20 {
        let small = session_of(&other, &format!("small-{n}"), 60_000);
        assert_eq!(other.send(&small).await.status, 200);
        assert_eq!(other.post("/stats", b"{}".to_vec()).await.status, 200);
    }
    drop(held);
    server.until_arrived(0).await;
    assert_eq!(other.send(&large).await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_above_its_share_loses_its_youngest_body() {
    let server = Server::with(|o| o.limits.agent_share_bytes_max = 300_000);
    let (greedy, other) = (server.enroll("greedy").await, server.enroll("other").await);
    let session = link::encode(&session_of(&greedy, "a", 200_000));
    let (begin, end) = session.split_at(150_000);
    let mut first = server.begin_body("/stateful", &greedy, session.len(), begin).await;
    server.until_arrived(150_000).await;
    let second = server.begin_body("/stateful", &greedy, 180_000, &vec![0; 170_000]).await;
    let answer = read_answer(second).await;
    assert_eq!(answer.status, 503);
    assert!(answer.json()["detail"].as_str().unwrap().contains("this sender"));
    assert_eq!(other.send(&session_of(&other, "b", 250_000)).await.status, 200);
    first.write_all(end).await.unwrap();
    server.until("the first is stored", |s| s.documents(greedy.id).len() == 1).await;
    server.stop().await;
}

/// Agents send smaller sessions after a 408, which would not help here.
#[tokio::test(flavor = "multi_thread")]
async fn body_that_waits_for_the_budget_gets_503_not_408() {
    let server = Server::start();
    let (reader, other) = (server.enroll("reader").await, server.enroll("other").await);
    let server = server
        .again_with(|o| {
            o.limits.in_flight_bytes_max = 40 * MIB;
            o.timeouts.body = Duration::from_secs(5);
            o.timeouts.unread = Duration::from_hours(1);
        })
        .await;
    let left_out = |n: u32| {
        let id = format!("{n:0500}");
        link::SessionValue { data: b"no document".to_vec(), ..document(&id, 1, 'a') }
    };
    let session = link::encode(&reader.delta((0..24_000).map(left_out).collect()));
    let reader = reader.with_instance();
    let unread = server.begin_body("/stateful", &reader, session.len(), &session).await;
    server.until("it is answered", |s| s.counter("sync.requests.total.200") == 1).await;
    assert!(server.counter("sync.inflight.bytes") > 10 * MIB as u64, "the answer is not read");
    let begin = vec![0; 13 * MIB];
    let waiting = server.begin_body("/stateful", &other, 14 * MIB, &begin).await;
    let answer = read_answer(waiting).await;
    assert_eq!(answer.status, 503, "{}", answer.head);
    drop(unread);
    server.stop().await;
}
