//! Cycles: everything is reported once, and after a failure it is reported later.

use std::time::Duration;

use crate::common::{Finding, Server, files, packages, planted};
use link::{ControlAction, ControlOutcome};
use model::{Dataset, ItemKey};
use registry::OutcomeState;
use registry::{CommandKind, Reader, WriteContext};
use state::EventKind;
use sync::{CycleReport, SyncError};

/// Longest duration of a cycle on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread")]
async fn cycle_sends_everything_and_the_next_one_nothing() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 200);
    agent.write("/etc/f7", 77);
    agent.write("/etc/new", 8);
    let report = agent.cycle().await;
    assert_eq!((report.documents, report.events, report.skipped), (201, 2, 0));
    assert!(report.sessions > 2, "{report:?}");
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 2);
    assert_eq!((agent.pending(), agent.events()), (0, 0));
    let passed = server.proxy.passed();
    assert_eq!(agent.cycle().await, CycleReport::default());
    assert_eq!(server.proxy.passed(), passed, "nothing to tell, nothing sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_and_events_share_a_session() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    for n in 0..5 {
        agent.write(&format!("/etc/{n}"), n);
    }
    let report = agent.cycle().await;
    assert_eq!((report.sessions, report.documents, report.events), (1, 5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_and_recreations_reach_server() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 10);
    agent.cycle().await;
    agent.remove("/etc/f3");
    agent.remove("/etc/f9");
    let report = agent.cycle().await;
    assert_eq!((report.documents, report.events), (2, 2));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).iter().filter(|e| e.kind == EventKind::Deleted).count(), 2);
    // A file that is created again after its delete.
    agent.write("/etc/f3", 30);
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_after_an_interrupted_cycle_are_sent_by_the_next() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 100);
    agent.beat().await;
    // Cut in the middle of the cycle: the next one continues from there.
    server.proxy.cut_requests_after(40_000);
    agent.failing_cycle().await;
    let told = server.stored_checksums(&agent).len();
    assert!(told > 0 && told < 100, "{told} were told");
    server.stop().await;
    for n in 0..100 {
        agent.write(&format!("/etc/f{n}"), 1_000 + n);
    }
    agent.write("/a-new-folder/x", 1);
    server.resume(|_| {});
    agent.cycle().await;
    assert_eq!((agent.pending(), agent.events()), (0, 0));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_stopped_mid_cycle_receives_the_rest_after_restart() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 300);
    for n in 0..20 {
        agent.write(&format!("/etc/f{n}"), 5_000 + n);
    }
    agent.beat().await;
    server.proxy.cut_requests_after(100_000);
    let error = agent.failing_cycle().await;
    assert!(error.is_transient(), "{error}");
    server.stop().await;
    let error = agent.failing_cycle().await;
    assert!(matches!(error, SyncError::Unreachable { .. }) && error.is_transient(), "{error}");
    server.resume(|_| {});
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 20);
}

/// The connection carries 20 kB in the time that the server allows for a body; all of it is 250 kB.
#[tokio::test(flavor = "multi_thread")]
async fn backlog_is_sent_over_connection_too_slow_for_full_session() {
    let mut server = Server::start().await;
    server.restart(|options| options.timeouts.body = Duration::from_millis(500)).await;
    let mut agent = server.agent_of("web", 1024 * 1024).await;
    agent.beat().await;
    agent.base("/etc", 300);
    server.proxy.slow_down(100_000);
    let mut tries = 0;
    while let Err(error) = agent.syncer.cycle(&files()).await {
        assert!(error.is_transient(), "{error}");
        tries += 1;
        // Only a few are needed, unless the machine stalls repeatedly.
        assert!(tries < 500, "{error}");
    }
    assert!(tries > 0, "it was too slow");
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

/// The connection is cut at different points of requests and answers. A failed cycle leaves
/// everything pending for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn cut_connection_loses_and_duplicates_nothing() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.beat().await;
    let places = [0, 1, 100, 1_000, 3_000, 5_000, 9_000, 20_000];
    let rounds = places.iter().flat_map(|bytes| [(*bytes, false), (bytes / 30, true)]);
    let mut expected = 0;
    for (round, (bytes, answers)) in rounds.enumerate() {
        for n in 0..30 {
            agent.write(&format!("/etc/{answers}-{n}"), 100 * (round as u64 + 1) + n);
        }
        agent.remove(&format!("/etc/{answers}-7"));
        expected += 31;
        if answers {
            server.proxy.cut_answers_after(bytes);
        } else {
            server.proxy.cut_requests_after(bytes);
        }
        let (cuts, connections) = (server.proxy.cuts(), server.proxy.connections());
        let result = agent.syncer.cycle(&Dataset::fim_files()).await;
        let cut = server.proxy.cuts() > cuts;
        let made = server.proxy.connections() - connections;
        // A connection that is opened while the previous one becomes free is not needed: cutting it
        // fails no request.
        let spared = cut && made > 0 && result.is_ok();
        assert!(spared || result.is_err() == cut, "{bytes} {answers}: {result:?}, {made} made");
        server.proxy.take_back();
        agent.cycle().await;
        assert_eq!((agent.pending(), agent.events()), (0, 0));
        assert_eq!(server.stored_checksums(&agent), agent.expected());
        assert_eq!(server.history(&agent).len(), expected);
    }
    assert!(server.proxy.cuts() >= 8, "only {} cuts", server.proxy.cuts());
    // A lost answer does not cause a check.
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_server_error_carries_retry_after_and_loses_nothing() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.beat().await;
    server
        .restart(|options| {
            options.limits.in_flight_bytes_max = 16;
            options.limits.small_in_flight_bytes_max = 16;
            options.limits.retry_after_s = 7;
        })
        .await;
    agent.write("/etc/a", 1);
    let error = agent.failing_cycle().await;
    assert!(matches!(error, SyncError::Busy { status: 503, .. }), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!((agent.pending(), agent.events()), (1, 1));
    server.restart(|_| {}).await;
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_answers_halve_session_size() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.beat().await;
    agent.base("/etc", 100);
    for n in 0..40 {
        agent.write(&format!("/etc/f{n}"), 400 + n);
    }
    server.restart(|options| options.limits.session_bytes_max = 6_000).await;
    let report = agent.cycle().await;
    assert_eq!((report.documents, report.events), (100, 40));
    assert!(report.sessions > 10, "{report:?}");
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 40);
}

/// Returns a package document of about `bytes` bytes.
fn package(name: &str, bytes: usize) -> Vec<u8> {
    let sha1 = ItemKey::of_path(name.as_bytes()).document_id();
    serde_json::to_vec(&serde_json::json!({
        "package": {"name": name, "description": "x".repeat(bytes)},
        "checksum": {"hash": {"sha1": sha1}},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_document_is_set_aside_and_the_others_arrive() {
    let mut server = Server::start().await;
    let agent = server.agent("web").await;
    agent.beat().await;
    for n in 0..30 {
        let name = format!("package-{n:02}");
        let bytes = if n == 11 { 100_000 } else { 1_000 };
        agent.queue.put_document(&packages(), name.as_bytes(), &package(&name, bytes)).unwrap();
    }
    server.restart(|options| options.limits.session_bytes_max = 20_000).await;
    agent.syncer.cycle(&packages()).await.unwrap();
    let ids: Vec<_> = server.documents(agent.id, packages()).into_iter().map(|d| d.id).collect();
    assert_eq!(ids.len(), 29);
    assert!(!ids.contains(&"package-11".into()));
    let history = server.history(&agent);
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].kind, EventKind::Coverage);
    let body = String::from_utf8(history[0].body.clone()).unwrap();
    assert!(body.contains("package-11") && body.contains("too large"), "{body}");
    // It is not sent again, and does not cause a repair.
    let report = agent.syncer.cycle(&packages()).await.unwrap();
    assert_eq!(report, CycleReport::default());
    assert!(agent.syncer.check(&packages()).await.unwrap().matched);
    // It is sent again after its next change.
    agent.queue.put_document(&packages(), b"package-11", &package("package-11", 10)).unwrap();
    agent.syncer.cycle(&packages()).await.unwrap();
    assert_eq!(server.documents(agent.id, packages()).len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_rejecting_every_session_sets_no_document_aside() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.beat().await;
    agent.base("/etc", 5);
    agent.write("/etc/f1", 100);
    server.restart(|options| options.limits.session_bytes_max = 64).await;
    let error = agent.failing_cycle().await;
    assert!(matches!(error, SyncError::Refused { status: 413, .. }), "{error}");
    assert_eq!((agent.pending(), agent.events()), (5, 1));
    server.restart(|_| {}).await;
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_item_is_resent_above_server_version_in_same_cycle() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 3);
    agent.cycle().await;
    let ahead = server.version(&agent, "/etc/f1") + 3_600_000_000;
    server.meddle(&agent, vec![planted("/etc/f1", 99, ahead)]).await;
    agent.write("/etc/f1", 7);
    let report = agent.cycle().await;
    assert_eq!((report.skipped, report.documents), (1, 2), "told again above it");
    assert_eq!(agent.pending(), 0);
    assert!(server.version(&agent, "/etc/f1") > ahead);
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_clock_set_back_keeps_versions_increasing() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 5);
    agent.write("/etc/f0", 50);
    agent.cycle().await;
    let before = server.version(&agent, "/etc/f0");
    let session = server.state().last_session(&Reader::server(), agent.id).unwrap();
    let hour_us = 3_600_000_000;
    agent.clock.jump_to(env::clock::Clock::now_us(&agent.clock) - hour_us);
    let mut agent = agent.restart();
    agent.write("/etc/f0", 51);
    agent.remove("/etc/f4");
    let report = agent.cycle().await;
    assert_eq!((report.documents, report.skipped), (2, 0));
    assert!(server.version(&agent, "/etc/f0") > before);
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    // Numbers of sessions do not go back either.
    let number =
        |id: Option<String>| -> u64 { id.unwrap().rsplit('-').next().unwrap().parse().unwrap() };
    assert!(
        number(server.state().last_session(&Reader::server(), agent.id).unwrap()) > number(session)
    );
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_corrected_backward_does_not_delay_changes() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 5);
    let right = env::clock::Clock::now_us(&agent.clock);
    agent.clock.jump_to(right + 3_600_000_000);
    let mut agent = agent.restart();
    agent.write("/etc/f0", 50);
    agent.cycle().await;
    let before = server.version(&agent, "/etc/f0");
    agent.clock.jump_to(right + 60_000_000);
    // Both the same run and the next one continue.
    for content in [51, 52] {
        agent.write("/etc/f0", content);
        agent.write("/etc/f4", content);
        let report = agent.cycle().await;
        assert_eq!((report.documents, report.skipped), (2, 0));
        assert_eq!(server.stored_checksums(&agent), agent.expected());
        agent = agent.restart();
    }
    assert!(server.version(&agent, "/etc/f0") > before);
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_delivered_once_and_outcomes_are_reported() {
    let server = Server::start().await;
    let agent = server.agent("web").await;
    let startup = agent.syncer.heartbeat(ControlAction::Startup, &[]).await.unwrap();
    assert_eq!((startup.agent.name.as_str(), startup.commands.len()), ("web", 0));
    let id = server
        .registry()
        .create_command(&WriteContext::server(), CommandKind::Rescan, &[agent.id], "admin")
        .unwrap();
    let commands = agent.beat().await.commands;
    assert_eq!(commands.len(), 1);
    assert_eq!((commands[0].id, commands[0].kind.as_str()), (id, "rescan"));
    assert!(agent.beat().await.commands.is_empty(), "in hand, not handed out again");
    let outcome = ControlOutcome { id, outcome: "done".into(), detail: "3 changes".into() };
    agent.syncer.heartbeat(ControlAction::Notify, &[outcome]).await.unwrap();
    let outcomes = server.registry().outcomes(&Reader::server(), id, None, None, 10).unwrap();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].state, OutcomeState::Acknowledged);
    assert_eq!(outcomes[0].detail, "3 changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn cycles_reuse_connections() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.beat().await;
    let before = server.counter("sync.connections.total");
    for n in 0..20 {
        agent.write("/etc/f", n);
        agent.cycle().await;
    }
    // On a busy machine the next request may come before a connection is back in the pool.
    let made = server.counter("sync.connections.total") - before;
    assert!(made <= 5, "{made} connections for 20 cycles");
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_session_is_recognized_as_own_after_a_restart() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 20);
    agent.cycle().await;
    agent.write("/etc/f1", 99);
    let mut after = 500;
    loop {
        server.cut_connections();
        server.proxy.cut_answers_after(after);
        let told = agent.syncer.cycle(&Dataset::fim_files()).await;
        assert!(told.is_err(), "the answer came, {after} bytes");
        if server.stored_checksums(&agent) == agent.expected() {
            break;
        }
        after += 100;
    }
    // The process ends before the server's acknowledgement arrives.
    let agent = agent.restart();
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
    agent.cycle().await;
    let history = server.history(&agent);
    assert_eq!(history.len(), 1, "the change and no gap");
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

/// Items that are found after the cycle's cursor, faster than they are sent, belong to the next
/// cycle. Otherwise items before the cursor would never be sent.
#[tokio::test(flavor = "multi_thread")]
async fn cycle_ends_during_a_scan_that_outpaces_it() {
    let server = Server::start().await;
    let mut agent = server.agent_of("web", 4 * 1024 * 1024).await;
    agent.base("/etc", 60);
    let finding = Finding::start_thread(&agent);
    finding.go();
    let cycle = tokio::time::timeout(PATIENCE, agent.cycle()).await;
    let found = finding.end();
    assert!(cycle.is_ok(), "{found} were found, and it does not end");
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent).len() as u64, 60 + found);
}
