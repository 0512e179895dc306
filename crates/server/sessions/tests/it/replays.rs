//! Tests replays of captured requests, also of removed agents and of local callers.

use crate::common::{Agent, FILES, Server, delta, document, removal};
use link::{Mode, Payload, Session};
use model::{AgentId, Record};
use registry::{Reader, WriteContext};

/// Sends what a client of the contract sends: deletes and cleans without a version.
#[tokio::test(flavor = "multi_thread")]
async fn replayed_request_undoes_no_later_change() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let send = async |id: &str, value| {
        let bytes = link::encode(&agent.delta(vec![value]));
        assert_eq!(agent.named("/stateful", id, bytes.clone()).await.status, 200);
        bytes
    };
    send("fim-1", document("a", 0, 'a')).await;
    let deleted = send("fim-2", removal("a", 0)).await;
    let later = send("fim-3", document("a", 0, 'b')).await;
    let versioned = send("fim-4", removal("v", 5)).await;
    send("fim-5", document("v", 6, 'v')).await;
    let before = server.documents(agent.id);
    assert_eq!(before.len(), 2);
    for (id, bytes) in [("fim-2", deleted), ("fim-4", versioned), ("fim-3", later)] {
        assert_eq!(agent.named("/stateful", id, bytes).await.status, 200);
    }
    assert_eq!(server.documents(agent.id), before);
    assert_eq!(server.counter("sync.sessions.replayed"), 3);
    server.stop().await;
}

/// Sends a session under an id and returns its bytes, so that a test can send them again.
async fn send(agent: &Agent, id: &str, session: &Session) -> Vec<u8> {
    let bytes = link::encode(session);
    let answered = agent.named("/stateful", id, bytes.clone()).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    bytes
}

fn clean(agent: &Agent) -> Session {
    let mut session = agent.delta(Vec::new());
    session.payload = Payload::Cleans(vec![FILES.into()]);
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_requests_neither_restore_nor_delete_documents() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    // A document with a version, removed by a client that sends no version.
    let first = send(&agent, "s-1", &agent.delta(vec![document("a", 5, 'a')])).await;
    send(&agent, "s-2", &agent.delta(vec![removal("a", 0)])).await;
    // The document is removed with its own version.
    let second = send(&agent, "s-3", &agent.delta(vec![document("b", 5, 'b')])).await;
    send(&agent, "s-4", &agent.delta(vec![removal("b", 5)])).await;
    // The index is emptied.
    let third = send(&agent, "s-5", &agent.delta(vec![document("c", 5, 'c')])).await;
    let emptied = send(&agent, "s-6", &clean(&agent)).await;
    send(&agent, "s-7", &agent.delta(vec![document("d", 1, 'd')])).await;
    let before = server.documents(agent.id);
    assert_eq!(before.len(), 1);
    let server = server.again().await;
    let agent = server.agent(agent.id, agent.certificate.clone(), agent.key.clone());
    let agent = agent.with_instance();
    for (id, bytes) in [("s-1", first), ("s-3", second), ("s-5", third), ("s-6", emptied)] {
        let answered = agent.named("/stateful", id, bytes).await;
        assert_eq!(answered.status, 200);
        assert_eq!(answered.json()["session"], "s-7", "{id}");
        assert_eq!(server.documents(agent.id), before, "{id}");
    }
    assert_eq!(server.counter("sync.sessions.replayed"), 4);
    server.stop().await;
}

/// The number of later sessions does not matter, because ids of the contract contain the time of a
/// session.
#[tokio::test(flavor = "multi_thread")]
async fn replay_older_than_many_sessions_is_counted_and_ignored() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let now_us = env::clock::Clock::now_us(&env::clock::SystemClock::new());
    let id = |n: u64| format!("fim-{}", (now_us + n) << 12);
    let removed = send(&agent, &id(0), &agent.delta(vec![removal("a", 0)])).await;
    let emptied = send(&agent, &id(1), &clean(&agent)).await;
    let written = send(&agent, &id(2), &agent.delta(vec![document("a", 0, 'a')])).await;
    for n in 3..50 {
        send(&agent, &id(n), &agent.delta(vec![document("a", 0, 'b')])).await;
    }
    let before = server.documents(agent.id);
    assert_eq!(before.len(), 1);
    let server = server.again().await;
    let agent = server.agent(agent.id, agent.certificate.clone(), agent.key.clone());
    for (n, bytes) in [(0, removed), (1, emptied), (2, written)] {
        let answered = agent.named("/stateful", &id(n), bytes).await;
        assert_eq!((answered.status, answered.error()), (400, "session_outdated".into()));
        assert_eq!(server.documents(agent.id), before, "{n}");
    }
    assert_eq!(server.counter("sync.sessions.outdated"), 3);
    server.stop().await;
}

/// A client may restart the numbering of its sessions with each start.
#[tokio::test(flavor = "multi_thread")]
async fn other_content_under_the_same_id_is_stored() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    for digit in ['a', 'b', 'a', 'c'] {
        send(&agent, "fim-1", &agent.delta(vec![document(&digit.to_string(), 0, digit)])).await;
    }
    let ids: Vec<_> = server.documents(agent.id).into_iter().map(|d| d.id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(server.counter("sync.sessions.replayed"), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_session_gets_the_same_skipped_values() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    send(&agent, "s-1", &agent.delta(vec![document("a", 9, 'a')])).await;
    let session = agent.delta(vec![document("", 1, 'x'), document("a", 4, 'z')]);
    let bytes = send(&agent, "s-2", &session).await;
    let again = agent.named("/stateful", "s-2", bytes).await.json();
    assert_eq!(again["noop"].as_bool(), None, "the session is kept by the server");
    let skipped = again["skipped"].clone();
    let expected = serde_json::json!([
        {"index": 0, "id": "", "reason": "id", "version": 0},
        {"index": 1, "id": "a", "reason": "stale", "version": 9},
    ]);
    assert_eq!(skipped, expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_rejected_by_the_store_is_not_answered_200() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(agent.send(&agent.delta(vec![document("a", 1, 'a')])).await.status, 200);
    // Simulates a removal while a session of the agent is in transit.
    let incarnation = server.registry.agent(agent.id).unwrap().incarnation;
    let removed = Record::AgentRemoved { agent: agent.id, incarnation, at_us: 1 };
    server.commit.submit(removed).await.unwrap();
    let answered = agent.send(&agent.delta(vec![document("b", 1, 'b')])).await;
    assert_eq!(answered.status, 401, "{}", answered.text());
    assert!(server.documents(agent.id).is_empty());
    assert!(server.registry.agent(agent.id).is_none(), "a removal cut short is made up for");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_an_agent_lost_by_the_registry_can_be_removed() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(agent.send(&agent.delta(vec![document("a", 1, 'a')])).await.status, 200);
    // Simulates a registry that was restored alone from a backup.
    server.registry.remove_agent(&WriteContext::server(), agent.id).unwrap();
    let local = delta(agent.id, vec![document("local", 1, 'b')]);
    let refused = server.local_session(agent.id, &local).await;
    assert_eq!((refused.status, &refused.json()["error"]), (403, &"unknown_agent".into()));
    let head = format!("DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: {}\r\n", agent.id);
    assert_eq!(server.local(&head, b"").await.status, 200);
    assert!(server.documents(agent.id).is_empty());
    assert_eq!(server.local_session(agent.id, &local).await.status, 200);
    assert_eq!(server.documents(agent.id).len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_removed_agent_can_be_used_again_by_local_callers() {
    let server = Server::start();
    let first = delta(AgentId(1), vec![document("local", 1, 'a')]);
    assert_eq!(server.local_session(AgentId(1), &first).await.status, 200);
    let agent = server.enroll("web").await;
    assert_eq!(agent.id, AgentId(1), "the first number drawn");
    assert_eq!(agent.send(&agent.delta(vec![document("own", 1, 'a')])).await.status, 200);
    let ids = || server.documents(AgentId(1)).into_iter().map(|d| d.id).collect::<Vec<_>>();
    assert_eq!(ids(), ["own"]);
    let head = "DELETE /agents HTTP/1.1\r\nX-Wazuh-Agent-Id: 1\r\n";
    assert_eq!(server.local(head, b"").await.status, 200);
    assert!(ids().is_empty());
    for n in 0..2 {
        let session = delta(AgentId(1), vec![document(&format!("again-{n}"), 1, 'a')]);
        assert_eq!(server.local_session(AgentId(1), &session).await.status, 200);
    }
    assert_eq!(ids(), ["again-0", "again-1"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_groups_from_a_local_caller_are_kept_by_version() {
    let server = Server::start();
    let id = AgentId(4711);
    let tell = async |mode, version, host: &str| {
        let mut session = delta(id, Vec::new());
        session.payload = Payload::None;
        session.start.mode = mode;
        session.start.global_version = version;
        session.start.hostname = host.into();
        session.start.groups = vec![format!("of-{host}")];
        let answer = server.local_session(id, &session).await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &"ok".into()), "{mode:?}");
        let overlay = server.state.overlay(&Reader::server(), id).unwrap().unwrap();
        assert_eq!(overlay.cluster, "holdfast");
        (overlay.hostname, overlay.groups.concat())
    };
    let is = |host: &str, group: &str| (host.to_owned(), group.to_owned());
    assert_eq!(tell(Mode::MetadataDelta, 5, "a").await, is("a", ""));
    assert_eq!(tell(Mode::GroupDelta, 5, "b").await, is("a", "of-b"));
    assert_eq!(tell(Mode::MetadataDelta, 4, "c").await, is("a", "of-b"), "an older version");
    assert_eq!(tell(Mode::GroupCheck, 5, "d").await, is("a", "of-d"));
    assert_eq!(tell(Mode::MetadataCheck, 6, "e").await, is("e", "of-d"));
    assert_eq!(tell(Mode::MetadataDelta, 5, "f").await, is("f", "of-d"), "a check has no version");
    let session = delta(id, vec![document("a", 1, 'a')]);
    assert_eq!(server.local_session(id, &session).await.status, 200);
    assert_eq!(server.state.overlay(&Reader::server(), id).unwrap().unwrap().hostname, "f");
    // A description of indexes that the server does not have describes nothing.
    let mut foreign = delta(id, Vec::new());
    foreign.payload = Payload::None;
    foreign.start.mode = Mode::MetadataDelta;
    foreign.start.global_version = 99;
    foreign.start.hostname = "g".into();
    foreign.start.index = vec!["not-a-state-index".into()];
    assert_eq!(server.local_session(id, &foreign).await.json()["noop"], true);
    assert_eq!(server.state.overlay(&Reader::server(), id).unwrap().unwrap().hostname, "f");
    server.stop().await;
}
