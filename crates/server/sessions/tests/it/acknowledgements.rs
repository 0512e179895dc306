//! Tests what an answer of 200 promises, and the other answers.

use crate::common::{self, Agent, FILES, Server, document, event, removal};
use link::{Mode, Payload, SessionValue};
use model::{AgentId, Dataset};
use registry::Reader;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_session_changes_nothing() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let session = agent.delta(vec![
        document("a", 5, 'a'),
        document("b", 6, 'b'),
        removal("c", 7),
        event("e-1"),
    ]);
    let bytes = link::encode(&session);
    assert_eq!(agent.named("/stateful", "fim-1", bytes.clone()).await.status, 200);
    let before = (server.documents(agent.id), server.state.counts(&Reader::server()).unwrap());
    let again = agent.named("/stateful", "fim-1", bytes).await;
    assert_eq!(again.status, 200, "{}", again.text());
    let after = (server.documents(agent.id), server.state.counts(&Reader::server()).unwrap());
    let key = |d: &[state::StoredDocument]| -> Vec<_> {
        d.iter().map(|d| (d.id.clone(), d.version, d.body.clone())).collect()
    };
    assert_eq!(key(&before.0), key(&after.0));
    assert_eq!(before.1, after.1);
    assert_eq!(server.counter("sync.sessions.committed"), 1);
    assert_eq!(server.counter("sync.sessions.unchanged"), 1);
    assert_eq!(server.counter("sync.sessions.replayed"), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_versions_are_skipped_and_reported_by_index() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    assert_eq!(agent.send(&agent.delta(vec![document("a", 10, 'a')])).await.status, 200);
    // A value without an id comes first, so that indexes of values and writes differ.
    let session = agent.delta(vec![document("", 1, 'x'), removal("a", 9), document("b", 1, 'b')]);
    let answered = agent.send(&session).await;
    assert_eq!(answered.status, 200);
    let skipped = answered.json()["skipped"].clone();
    assert_eq!(
        skipped,
        serde_json::json!([
            {"index": 0, "id": "", "reason": "id", "version": 0},
            {"index": 1, "id": "a", "reason": "stale", "version": 10},
        ])
    );
    let ids: Vec<_> = server.documents(agent.id).into_iter().map(|d| d.id).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(agent.send(&agent.delta(vec![removal("a", 11)])).await.status, 200);
    let answered = agent.send(&agent.delta(vec![document("a", 10, 'a')])).await;
    assert_eq!(answered.json()["skipped"][0]["version"], 11, "the removal is remembered");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_without_valid_values_is_a_noop() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    let vulnerability =
        SessionValue { index: "wazuh-states-vulnerabilities".into(), ..document("a", 1, 'a') };
    let broken = SessionValue { data: b"[1]".to_vec(), ..document("b", 1, 'b') };
    let answered = agent.send(&agent.delta(vec![vulnerability, broken])).await;
    assert_eq!(answered.status, 200);
    let json = answered.json();
    assert_eq!((json["status"].as_str(), json["noop"].as_bool()), (Some("ok"), Some(true)));
    let reasons: Vec<_> =
        json["skipped"].as_array().unwrap().iter().map(|s| s["reason"].clone()).collect();
    assert_eq!(reasons, ["index", "json"]);
    assert_eq!(server.counter("sync.values.skipped"), 2);
    assert_eq!(server.counter("sync.sessions.committed"), 0);
    server.stop().await;
}

/// Senders of the contract get its fields alone. The same values are left out.
#[tokio::test(flavor = "multi_thread")]
async fn sender_without_instance_gets_the_contracts_answer() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let broken = SessionValue { data: b"[1]".to_vec(), ..document("b", 1, 'b') };
    let answered = agent.send(&agent.delta(vec![document("a", 1, 'a'), broken.clone()])).await;
    assert_eq!(answered.json(), serde_json::json!({"status": "ok"}));
    assert_eq!(server.counter("sync.values.skipped"), 1);
    let answered = agent.send(&agent.delta(vec![broken])).await;
    assert_eq!(answered.json(), serde_json::json!({"status": "ok", "noop": true}));
    let answered = agent.send(&agent.check("0")).await;
    assert_eq!(answered.status, 409);
    assert_eq!(answered.json(), serde_json::json!({"status": "checksum_mismatch"}));
    server.stop().await;
}

/// Senders of the contract count the changes of each document, from 1 again if it is recreated.
#[tokio::test(flavor = "multi_thread")]
async fn recreated_document_of_the_contract_is_accepted() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    for value in [document("a", 7, 'a'), removal("a", 3), document("a", 1, 'b')] {
        assert_eq!(agent.send(&agent.delta(vec![value])).await.status, 200);
    }
    let versions = |server: &Server| -> Vec<_> {
        server.documents(agent.id).iter().map(|d| (d.id.clone(), d.version)).collect()
    };
    assert_eq!(versions(&server), [("a".to_owned(), 1)]);
    assert_eq!(server.counter("sync.values.skipped"), 0);
    // A late update of a stored document is stale for every sender.
    agent.send(&agent.delta(vec![document("a", 4, 'c')])).await;
    agent.send(&agent.delta(vec![document("a", 2, 'b')])).await;
    assert_eq!(versions(&server), [("a".to_owned(), 4)]);
    // The journal alone gives the same documents.
    let Server { handle, commit, state, registry, folder } = server;
    handle.shutdown().await;
    commit.close().await.unwrap();
    registry.close().unwrap();
    drop((commit, state, registry));
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(file));
    }
    let server = Server::open(folder, |_| {});
    assert_eq!(versions(&server), [("a".to_owned(), 4)]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_returns_200_or_checksum_mismatch() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    let nothing = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
    assert_eq!(agent.send(&agent.check(nothing)).await.status, 200);
    let values = vec![document("a", 1, 'a'), document("b", 2, 'b')];
    assert_eq!(
        agent.named("/stateful", "s-1", link::encode(&agent.delta(values))).await.status,
        200
    );
    let ours = server.state.checksum(&Reader::server(), agent.id, &Dataset::fim_files()).unwrap();
    assert_eq!(agent.send(&agent.check(&ours)).await.status, 200);
    assert_eq!(agent.send(&agent.check(&ours.to_uppercase())).await.status, 200);
    let answered = agent.send(&agent.check(nothing)).await;
    assert_eq!(answered.status, 409);
    let json = answered.json();
    assert_eq!(json["status"], "checksum_mismatch");
    assert_eq!(
        (&json["session"], &json["store"]),
        (&"s-1".into(), &server.state.store_id().into())
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_one_agent_are_applied_in_order() {
    let server = Server::start();
    let agent = std::sync::Arc::new(server.enroll("web").await);
    // Without versions the last write wins, so the order is visible.
    for round in 0..20u32 {
        let doc = |digit| SessionValue { version: 0, ..document("a", 0, digit) };
        let (first, second) = (agent.delta(vec![doc('1')]), agent.delta(vec![doc('2')]));
        assert_eq!(agent.send(&first).await.status, 200, "{round}");
        assert_eq!(agent.send(&second).await.status, 200, "{round}");
        let stored = server.documents(agent.id);
        assert!(stored[0].checksum.starts_with("22"), "{round}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn started_session_completes_when_its_sender_disconnects() {
    use tokio::io::AsyncWriteExt as _;
    let server = Server::start();
    let agent = server.enroll("web").await;
    let values = (0..3000).map(|n| document(&format!("f{n}"), 1, 'a')).collect();
    let body = link::encode(&agent.delta(values));
    let mut stream = server.connect(Some(agent.identity())).await;
    let head = format!(
        "POST /stateful HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    server
        .until("all are in", |s| s.state.counts(&Reader::server()).unwrap().documents.len() == 1)
        .await;
    let counts = server.state.agent_counts(&Reader::server(), agent.id).unwrap();
    assert_eq!(counts.documents, [(Dataset::fim_files(), 3000, counts.documents[0].2)]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_a_running_session() {
    use tokio::io::AsyncWriteExt as _;
    let server = Server::start();
    let agent = server.enroll("web").await;
    let body = link::encode(&agent.delta(vec![document("a", 1, 'a')]));
    let (begin, end) = body.split_at(body.len() / 2);
    let mut stream = server.connect(Some(agent.identity())).await;
    let head = format!(
        "POST /stateful HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), begin].concat()).await.unwrap();
    stream.flush().await.unwrap();
    server.until_arrived(begin.len()).await;
    let Server { handle, state, .. } = server;
    let stopping = tokio::spawn(handle.shutdown());
    stream.write_all(end).await.unwrap();
    let answer = common::read_answer(stream).await;
    assert_eq!(answer.status, 200);
    stopping.await.unwrap();
    assert_eq!(state.agent_counts(&Reader::server(), agent.id).unwrap().documents.len(), 1);
}

async fn ten_versions(agent: Agent) -> AgentId {
    for v in 1..=10u64 {
        let values = (0..50).map(|i| document(&format!("f{i}"), v, 'a')).collect();
        assert_eq!(agent.send(&agent.delta(values)).await.status, 200);
    }
    agent.id
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_agents_store_only_their_own_documents() {
    let server = std::sync::Arc::new(Server::start());
    let mut tasks = Vec::new();
    for n in 0..8 {
        let agent = server.enroll(&format!("agent-{n}")).await;
        tasks.push(tokio::spawn(ten_versions(agent)));
    }
    for task in tasks {
        let id = task.await.unwrap();
        let stored = server.documents(id);
        assert_eq!(stored.len(), 50);
        assert!(stored.iter().all(|d| d.version == 10 && d.agent == id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clean_session_empties_an_index_and_keeps_events() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    let values = vec![document("a", 1, 'a'), event("e-1")];
    assert_eq!(agent.send(&agent.delta(values)).await.status, 200);
    let mut clean = agent.delta(Vec::new());
    clean.payload = Payload::Cleans(vec!["holdfast-events".into(), FILES.into()]);
    let answered = agent.send(&clean).await;
    assert_eq!(answered.status, 200);
    assert_eq!(answered.json()["skipped"][0]["reason"], "index");
    assert!(server.documents(agent.id).is_empty());
    assert_eq!(server.state.counts(&Reader::server()).unwrap().events, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_group_sessions_are_accepted() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    for mode in [Mode::MetadataDelta, Mode::MetadataCheck, Mode::GroupDelta, Mode::GroupCheck] {
        let mut session = agent.delta(Vec::new());
        session.start.mode = mode;
        session.payload = Payload::None;
        let answered = agent.send(&session).await;
        assert_eq!((answered.status, &answered.json()["status"]), (200, &"ok".into()), "{mode:?}");
        session.payload = Payload::Cleans(vec![FILES.into()]);
        assert_eq!(agent.send(&session).await.status, 400, "{mode:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_session_raises_versions_of_the_datasets_it_names() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let describe = |id, mode, version, index: &[&str]| {
        let mut session = common::delta(id, Vec::new());
        session.payload = Payload::None;
        session.start.mode = mode;
        session.start.global_version = version;
        session.start.index = index.iter().map(ToString::to_string).collect();
        session
    };
    let packages = "wazuh-states-inventory-packages";
    for id in [agent.id, AgentId(4711)] {
        let send = async |session| {
            let answer = server.local_session(id, &session).await;
            assert_eq!(answer.status, 200, "{}", answer.head);
            let stored = server.documents(id);
            (answer.json()["noop"] == true, stored.first().map_or(0, |d| d.described_version))
        };
        send(common::delta(id, vec![document("a", 5, 'a')])).await;
        assert!(!send(describe(id, Mode::MetadataDelta, 7, &[packages])).await.0);
        let raised = send(describe(id, Mode::MetadataDelta, 8, &[packages, FILES, "other"])).await;
        assert_eq!(raised, (false, 8), "{id}");
        assert_eq!(send(describe(id, Mode::GroupDelta, 6, &[FILES])).await.1, 8, "{id}");
        assert_eq!(send(describe(id, Mode::GroupCheck, 9, &[FILES])).await.1, 8, "{id}");
        assert_eq!(send(describe(id, Mode::GroupDelta, 9, &[])).await.1, 8, "{id}");
        for mode in [Mode::MetadataDelta, Mode::MetadataCheck, Mode::GroupDelta, Mode::GroupCheck] {
            let forbidden = describe(id, mode, 99, &["not-a-state-index", "holdfast-events"]);
            assert_eq!(send(forbidden).await, (true, 8), "{id} {mode:?}");
        }
        assert_eq!(server.documents(id)[0].version, 5);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_sessions_survive_a_server_restart() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let values = vec![document("a", 1, 'a'), event("e-1")];
    let bytes = link::encode(&agent.delta(values));
    assert_eq!(agent.named("/stateful", "s-9", bytes).await.status, 200);
    let store = server.state.store_id();
    let server = server.again().await;
    assert_eq!(server.state.store_id(), store);
    let agent = server.agent(agent.id, agent.certificate.clone(), agent.key.clone());
    let answer: link::ControlAnswer =
        agent.json("/control", &link::ControlRequest::default()).await;
    assert_eq!(answer.last_session.as_deref(), Some("s-9"));
    assert_eq!(server.documents(agent.id).len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_on_damaged_store_gets_500() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(agent.send(&agent.delta(vec![document("a", 1, 'a')])).await.status, 200);
    let file = rusqlite::Connection::open(server.folder.path().join("state.db")).unwrap();
    file.execute_batch("ALTER TABLE document RENAME TO elsewhere").unwrap();
    let answered = agent.send(&agent.check("aa")).await;
    assert_eq!((answered.status, answered.error().as_str()), (500, "internal"));
    let answered = agent.send(&agent.delta(vec![document("b", 2, 'b')])).await;
    assert_eq!((answered.status, answered.error().as_str()), (500, "internal"));
    server.handle.shutdown().await;
}
