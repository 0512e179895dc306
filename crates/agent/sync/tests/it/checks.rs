//! Checks: differences are found and repaired, and nothing else is sent.

use std::fs;
use std::time::Duration;

use crate::common::{Agent, Finds, Server, copy, file, files, packages, planted, put_back, torn};
use model::{ItemKey, Op};
use state::Reader;
use sync::{CheckReport, Compared, SurplusPolicy};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn check_of_equal_sides_costs_one_small_session() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 150);
    agent.cycle().await;
    let before = server.proxy.passed();
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!(report, CheckReport { documents: 150, matched: true, ..CheckReport::default() });
    let after = server.proxy.passed();
    assert!(after.0 - before.0 < 4_000, "{} bytes", after.0 - before.0);
    let empty = server.agent("db").await;
    assert!(empty.syncer.check(&files()).await.unwrap().matched);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_repairs_only_missing_different_and_surplus_documents() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 200);
    agent.cycle().await;
    let untouched = server.version(&agent, "/etc/f100");
    let meddling = vec![
        torn("/etc/f3"),
        torn("/etc/f4"),
        planted("/etc/f5", 9_999, 0),
        planted("/etc/not-there", 1, 0),
        planted("/var/not-there", 1, 0),
    ];
    server.meddle(&agent, meddling).await;
    assert_ne!(server.stored_checksums(&agent), agent.expected());
    // A pending change is not a difference.
    agent.write("/etc/f6", 60);
    agent.remove("/etc/f7");
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!((report.matched, report.resent, report.removed), (false, 3, 2));
    let cycle = agent.cycle().await;
    assert_eq!((cycle.documents, cycle.skipped), (5, 0));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.version(&agent, "/etc/f100"), untouched);
    assert!(agent.syncer.check(&files()).await.unwrap().matched);
}

/// Returns the number of documents (`HOLDFAST_DOCUMENTS`); the bytes hardly depend on it.
fn documents() -> u64 {
    std::env::var("HOLDFAST_DOCUMENTS").map_or(10_000, |n| n.parse().unwrap())
}

/// Removes this number of documents from the server, and repairs that while a reader is active.
/// Returns the bytes on the wire and the round trips, including the handshake of a new connection.
async fn repaired(lost: u64) -> (u64, u64) {
    let documents = documents();
    let server = Server::start().await;
    let mut agent = server.agent_of("web", 4 * 1024 * 1024).await;
    agent.base("/etc", documents);
    agent.cycle().await;
    // The ids are digests of paths, so they are scattered.
    let torn = (0..lost).map(|n| torn(&format!("/etc/f{}", 7 + n * 97 % documents))).collect();
    server.meddle(&agent, torn).await;
    let held = || server.state().agent_counts(&Reader::server(), agent.id).unwrap();
    let held = || held().documents.iter().map(|(_, n, _)| *n).sum::<u64>();
    assert_eq!(held(), documents - lost);
    server.cut_connections();
    let before = (server.proxy.passed(), server.requests());
    let repairing = async {
        let report = loop {
            // A request may use the connection that was just cut.
            match agent.syncer.check(&files()).await {
                Err(error) if error.is_transient() => {}
                report => break report.unwrap(),
            }
        };
        assert_eq!((report.documents, report.resent, report.removed), (documents, lost, 0));
        assert_eq!(agent.cycle().await.documents, lost);
    };
    let reading = async {
        loop {
            assert!(held() >= documents - lost, "a reader sees fewer");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = repairing => {}
        () = reading => {}
    }
    let after = (server.proxy.passed(), server.requests());
    let bytes = after.0.0 - before.0.0 + after.0.1 - before.0.1;
    println!(
        "{lost} of {documents} documents missing: {bytes} bytes, {} trips",
        after.1 - before.1
    );
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    (bytes, after.1 - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_missing_document_is_repaired_in_few_bytes_and_requests() {
    let (bytes, trips) = repaired(1).await;
    assert!(bytes <= 64 * 1024, "{bytes} bytes");
    assert!(trips <= 6, "{trips} round trips");
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_missing_documents_are_repaired_in_few_requests() {
    let (bytes, trips) = repaired(100).await;
    assert!(bytes <= 2 * 1024 * 1024, "{bytes} bytes");
    assert!(trips <= 12, "{trips} round trips");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_ranges_is_fully_resent_and_loses_only_surplus() {
    let mut server = Server::start().await;
    server.restart(|options| options.contract_only = true).await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 120);
    agent.cycle().await;
    server.meddle(&agent, vec![torn("/etc/f3"), planted("/etc/f5", 9_999, 0)]).await;
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!((report.matched, report.resent), (false, 120));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert!(agent.syncer.check(&files()).await.unwrap().matched);
    server.meddle(&agent, vec![planted("/var/not-there", 1, 0)]).await;
    let kept = agent.syncer.check_part(&files(), SurplusPolicy::Keep).await.unwrap();
    assert_eq!(kept.report.resent, 120);
    assert_eq!(server.stored_checksums(&agent).len(), 121);
    agent.syncer.check(&files()).await.unwrap();
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_ranges_is_not_cleared_while_items_are_pending() {
    let mut server = Server::start().await;
    server.restart(|options| options.contract_only = true).await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 20);
    agent.cycle().await;
    server.meddle(&agent, vec![planted("/var/not-there", 1, 0)]).await;
    agent.write("/etc/f1", 77);
    agent.syncer.set_check_due(Some("the test asks for it"));
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!((report.put_off, report.resent, report.removed), (true, 0, 0));
    assert_eq!(server.stored_checksums(&agent).len(), 21);
    assert!(agent.syncer.check_due().is_some());
    agent.repair().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

/// Changes found while everything is sent again must not make the agent empty an older server.
#[tokio::test(flavor = "multi_thread")]
async fn change_during_full_resend_prevents_clearing_the_server() {
    let mut server = Server::start().await;
    server.restart(|options| options.contract_only = true).await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 60);
    agent.cycle().await;
    server.meddle(&agent, vec![planted("/var/not-there", 1, 0)]).await;
    let key = ItemKey::of_path(b"/etc/new");
    let new = Op::Put { key, observation: file(1), change: None };
    agent.speak_through(Finds::after(60, &agent, new));
    let compared = agent.syncer.check_part(&files(), SurplusPolicy::Remove).await;
    let Compared { report, store } = compared.unwrap();
    assert_eq!((report.put_off, report.resent), (false, 60), "all was told again");
    assert!(report.unsure && store.is_none(), "whether it agrees is not known: it stays due");
    let planted = ItemKey::of_path(b"/var/not-there").document_id();
    assert!(server.stored_checksums(&agent).contains_key(&planted), "it was emptied");
}

/// The server's limits have become stricter, and no heartbeat has reported that yet.
#[tokio::test(flavor = "multi_thread")]
async fn repair_rejected_as_too_large_is_split() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 3);
    agent.cycle().await;
    let surplus = (0..300).map(|n| planted(&format!("/var/{n}"), n, 0)).collect();
    server.meddle(&agent, surplus).await;
    server.restart(|options| options.limits.session_bytes_max = 8_000).await;
    assert_eq!(agent.syncer.check(&files()).await.unwrap().removed, 300);
    assert!(server.counter("sync.requests.total.413") > 0);
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn surplus_is_removed_only_after_everything_was_scanned() {
    let server = Server::start().await;
    let agent = server.agent("web").await;
    agent.cycle().await;
    server.meddle(&agent, vec![planted("/var/not-there", 1, 0)]).await;
    let unsure = agent.syncer.check_part(&files(), SurplusPolicy::RemoveUnlessAll).await.unwrap();
    assert!(unsure.report.put_off && unsure.store.is_none());
    let sure = agent.syncer.check_part(&files(), SurplusPolicy::Remove).await.unwrap();
    assert_eq!((sure.report.put_off, sure.report.removed), (false, 1));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

/// Thousands of equal checksums would break paging by checksum.
#[tokio::test(flavor = "multi_thread")]
async fn check_matches_with_thousands_of_equal_checksums() {
    let server = Server::start().await;
    let agent = server.agent("web").await;
    let json = br#"{"checksum":{"hash":{"sha1":"00112233445566778899aabbccddeeff00112233"}}}"#;
    for n in 0..1_200 {
        agent.queue.put_document(&packages(), format!("package-{n}").as_bytes(), json).unwrap();
    }
    agent.syncer.cycle(&packages()).await.unwrap();
    let report = agent.syncer.check(&packages()).await.unwrap();
    assert_eq!((report.documents, report.matched), (1_200, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_respects_announced_server_limits() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 3);
    agent.cycle().await;
    let surplus = (0..300).map(|n| planted(&format!("/var/{n}"), n, 0)).collect();
    server.meddle(&agent, surplus).await;
    server
        .restart(|options| {
            options.limits.session_values_max = 50;
            options.limits.session_bytes_max = 8_000;
        })
        .await;
    agent.beat().await;
    assert_eq!(agent.syncer.check(&files()).await.unwrap().removed, 300);
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn new_server_store_is_sent_everything_again() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 120);
    agent.write("/etc/new", 5);
    agent.cycle().await;
    server.stop().await;
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(server.folder.path().join(name));
    }
    fs::remove_dir_all(server.folder.path().join("journal")).unwrap();
    server.resume(|_| {});
    agent.beat().await;
    assert!(agent.syncer.check_due().is_some());
    // The check stays due after a restart, although the new store is known.
    let agent = agent.restart();
    assert!(agent.syncer.check_due().is_some());
    assert_eq!(agent.repair().await.resent, 121);
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    // No check is due after the repair.
    let agent = agent.restart();
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_restored_from_an_old_backup_converges_to_the_agent() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 100);
    agent.cycle().await;
    server.stop().await;
    let backup = copy(server.folder.path());
    server.resume(|_| {});
    agent.write("/etc/f1", 1_001);
    agent.write("/etc/later", 1);
    agent.remove("/etc/f2");
    agent.cycle().await;
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);

    server.stop().await;
    put_back(backup.path(), server.folder.path());
    server.resume(|_| {});
    assert_ne!(server.stored_checksums(&agent), agent.expected());
    agent.beat().await;
    let report = agent.repair().await;
    assert_eq!((report.resent, report.removed), (2, 1));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_server_without_differences_is_settled_by_check() {
    let mut server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 10);
    agent.cycle().await;
    server.stop().await;
    let backup = copy(server.folder.path());
    server.resume(|_| {});
    agent.write("/etc/short", 1);
    agent.cycle().await;
    agent.remove("/etc/short");
    agent.cycle().await;
    server.stop().await;
    put_back(backup.path(), server.folder.path());
    server.resume(|_| {});
    agent.beat().await;
    assert!(agent.repair().await.matched);
    // Nothing was sent, so the server still reports the old session. No check is due anyway.
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
    let agent = agent.restart();
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_database_missing_its_last_cycle_converges() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 50);
    agent.write("/etc/f0", 500);
    agent.cycle().await;
    let mut earlier = None;
    let mut agent = agent.restart_after(|folder| earlier = Some(copy(folder)));
    let then = agent.disk.clone();
    agent.write("/etc/f1", 501);
    agent.write("/etc/f2", 502);
    agent.write("/etc/lost", 1);
    agent.remove("/etc/f3");
    agent.cycle().await;

    let mut agent = agent.restart_after(|folder| put_back(earlier.unwrap().path(), folder));
    // Some files on the disk are in the old state, some in the reported one, and some in a new one.
    // The scan finds those that differ from the restored database.
    agent.disk = then;
    agent.write("/etc/f1", 501);
    agent.remove("/etc/f4");
    agent.beat().await;
    agent.repair().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert!(agent.syncer.check(&files()).await.unwrap().matched);
}

/// Returns an agent with `count` files whose database lost the acknowledgement of `/etc/lost` and
/// has found the file again.
async fn found_anew(server: &Server, count: u64) -> Agent {
    let mut agent = server.agent("web").await;
    agent.base("/etc", count);
    agent.cycle().await;
    let mut earlier = None;
    let mut agent = agent.restart_after(|folder| earlier = Some(copy(folder)));
    agent.write("/etc/lost", 1);
    agent.cycle().await;
    let mut agent = agent.restart_after(|folder| put_back(earlier.unwrap().path(), folder));
    agent.beat().await;
    agent.cycle().await;
    agent.found("/etc/lost", Some(1), false);
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_is_sent_for_item_that_was_pending_at_the_check() {
    let server = Server::start().await;
    let mut agent = found_anew(&server, 50).await;
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!((report.resent, report.removed), (0, 0));
    agent.remove("/etc/lost");
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn item_deleted_during_the_check_is_removed_as_surplus() {
    let server = Server::start().await;
    let mut agent = found_anew(&server, 2_000).await;
    agent.disk.remove("/etc/lost");
    let gone = Op::Delete { key: ItemKey::of_path(b"/etc/lost"), change: None };
    // Each document is made once for its sum, then those in the same range as the lost one again.
    agent.speak_through(Finds::after(2_000, &agent, gone));
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!((report.resent, report.removed), (0, 1));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

/// The database was copied while it was in use, like a disk image.
#[tokio::test(flavor = "multi_thread")]
async fn events_after_restoring_a_live_copy_have_unique_ids() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.write("/etc/f0", 500);
    agent.cycle().await;
    let earlier = copy(agent.folder.path());
    events_after_put_back(&server, agent, &earlier).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_after_restoring_a_clean_copy_have_unique_ids() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.write("/etc/f0", 500);
    agent.cycle().await;
    let mut earlier = None;
    let agent = agent.restart_after(|folder| earlier = Some(copy(folder)));
    events_after_put_back(&server, agent, &earlier.unwrap()).await;
}

async fn events_after_put_back(server: &Server, mut agent: Agent, earlier: &TempDir) {
    agent.write("/etc/f1", 501);
    agent.write("/etc/f2", 502);
    agent.cycle().await;
    let known = server.history(&agent).len();
    let mut agent = agent.restart_after(|folder| put_back(earlier.path(), folder));
    agent.write("/etc/f3", 503);
    agent.write("/etc/f4", 504);
    agent.cycle().await;
    // Two changes, and the gap of the restored database.
    assert_eq!(server.history(&agent).len(), known + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_agent_database_does_not_empty_server() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 20);
    agent.cycle().await;
    let mut agent = agent.restart_after(|folder| {
        for name in ["agent.db", "agent.db-wal", "agent.db-shm"] {
            let _ = fs::remove_file(folder.join(name));
        }
    });
    agent.beat().await;
    assert!(agent.syncer.check_due().is_some(), "the server knows sessions that this one does not");
    agent.cycle().await;
    let report = agent.syncer.check(&files()).await.unwrap();
    assert_eq!((report.matched, report.removed), (false, 0));
    agent.syncer.set_check_due(None);
    assert!(agent.syncer.check_due().is_some(), "still to be made");
    assert_eq!(server.stored_checksums(&agent).len(), 20);
    // The first scan finds one changed and one deleted file.
    agent.disk.clear();
    agent.base("/etc", 19);
    agent.write("/etc/f0", 77);
    let report = agent.repair().await;
    assert_eq!((report.resent, report.removed), (0, 1));
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_check_stays_due_after_clean_restart() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 5);
    agent.cycle().await;
    agent.syncer.set_check_due(Some("the test asks for it"));
    let agent = agent.restart();
    assert!(agent.repair().await.matched);
    assert_eq!(agent.restart().syncer.check_due(), None);
}
