//! Submits that fail at a limit, and submits that succeed afterwards.

use std::sync::Arc;

use env::files::{Failure, Fault, SimDisk};
use journal::Options;
use rusqlite::Connection;
use state::{ChangeQuery, EventKind, Reader};

use super::{DataFolder, event_ids, eventually, one, open, session};
use crate::{CommitError, CommitOptions, DiskState, DiskThresholds};

/// Takes the state's write lock on another connection, so that the applier has to wait.
fn lock_state(place: &DataFolder) -> Connection {
    let db = Connection::open(place.state()).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submit_is_rejected_while_in_flight_bytes_exceed_the_limit() {
    let place = DataFolder::new();
    let open = place
        .try_open(CommitOptions { in_flight_bytes_max: 1, ..CommitOptions::default() })
        .unwrap();
    let held = lock_state(&place);
    let commit = open.commit.clone();
    let first = tokio::spawn(async move { commit.submit(one("first")).await });
    eventually("a record in flight", || open.commit.stats().in_flight_bytes > 0);
    let refused = open.commit.submit(one("second")).await.unwrap_err();
    assert!(matches!(refused, CommitError::Full(_)), "{refused}");
    held.execute_batch("ROLLBACK").unwrap();
    first.await.unwrap().unwrap();
    open.commit.submit(one("second")).await.unwrap();
    assert_eq!(open.commit.stats().refused, 1);
    assert_eq!(event_ids(&open.state), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_state_rejects_submits_and_applies_them_later() {
    let place = DataFolder::new();
    let open = place.open();
    let held = lock_state(&place);
    let refused = open.commit.submit(one("first")).await.unwrap_err();
    assert!(matches!(refused, CommitError::Full(_)), "{refused}");
    let refused = open.commit.submit(one("second")).await.unwrap_err();
    assert!(matches!(refused, CommitError::Full(_)), "{refused}");
    held.execute_batch("ROLLBACK").unwrap();
    eventually("the record applied", || open.state.applied().unwrap().0 == 1);
    eventually("room again", || open.commit.submit_blocking_for_test("third"));
    assert_eq!(event_ids(&open.state), ["first", "third"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_state_rejects_waiting_submits_then_recovers() {
    let place = DataFolder::new();
    // With one record per transaction, the others wait behind the one that finds the disk full.
    let open =
        place.try_open(CommitOptions { batch_records_max: 1, ..CommitOptions::default() }).unwrap();
    let held = lock_state(&place);
    let submits: Vec<_> = (0..5)
        .map(|n| {
            let commit = open.commit.clone();
            tokio::spawn(async move { commit.submit(one(&n.to_string())).await })
        })
        .collect();
    for submit in submits {
        let refused = submit.await.unwrap().unwrap_err();
        assert!(matches!(refused, CommitError::Full(_)), "{refused}");
    }
    assert_eq!(open.commit.stats().in_flight_bytes, 0);
    held.execute_batch("ROLLBACK").unwrap();
    eventually("room again", || open.commit.submit_blocking_for_test("late"));
    open.commit.close().await.unwrap();
}

impl crate::Commit {
    /// Returns true if a submit from a separate thread is accepted.
    fn submit_blocking_for_test(self: &Arc<Self>, name: &str) -> bool {
        let (commit, record) = (Arc::clone(self), one(name));
        std::thread::spawn(move || commit.submit_blocking(record).is_ok()).join().unwrap()
    }
}

#[tokio::test]
async fn oversized_record_is_rejected_and_others_are_accepted() {
    let place = DataFolder::new();
    let options = CommitOptions { record_bytes_max: 1_000, ..CommitOptions::default() };
    let open = place.try_open(options).unwrap();
    let large = session(1, &"x".repeat(2_000), vec![]);
    let error = open.commit.submit(large).await.unwrap_err();
    assert!(matches!(error, CommitError::TooLarge { limit: 1_000, .. }), "{error}");
    open.commit.submit(one("small")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submit_is_rejected_below_the_critical_disk_threshold() {
    let place = DataFolder::new();
    let options = CommitOptions {
        folders: vec![place.dir.clone()],
        disk: DiskThresholds { low_bytes: u64::MAX, critical_bytes: u64::MAX },
        ..CommitOptions::default()
    };
    let open = place.try_open(options).unwrap();
    let commit = open.commit.clone();
    eventually("refusal", || commit.available().is_err());
    let refused = open.commit.submit(one("a")).await.unwrap_err();
    let named = |why: &str| {
        why.contains(&place.dir.display().to_string()) && why.ends_with("bytes are free")
    };
    assert!(matches!(&refused, CommitError::Full(why) if named(why)), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submits_are_rejected_while_a_watched_folder_is_missing() {
    let place = DataFolder::new();
    let folder = place.dir.join("watched");
    std::fs::create_dir(&folder).unwrap();
    let options = CommitOptions { folders: vec![folder.clone()], ..CommitOptions::default() };
    let open = place.try_open(options).unwrap();
    // This waits until the disk was checked at least once.
    open.commit.submit(one("a")).await.unwrap();
    let away = place.dir.join("away");
    std::fs::rename(&folder, &away).unwrap();
    eventually("refusal", || open.commit.available().is_err());
    let refused = open.commit.submit(one("b")).await.unwrap_err();
    assert!(matches!(&refused, CommitError::Full(why) if why.contains("is gone")), "{refused}");
    std::fs::create_dir(&folder).unwrap();
    assert!(!crate::keeper::watch_folders(&open.commit.shared), "another one is in its place");
    std::fs::remove_dir(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    eventually("records again", || open.commit.available().is_ok());
    open.commit.submit(one("b")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_disk_threshold_records_a_coverage_event() {
    let place = DataFolder::new();
    let options = CommitOptions {
        folders: vec![place.dir.clone()],
        disk: DiskThresholds { low_bytes: u64::MAX, critical_bytes: 0 },
        ..CommitOptions::default()
    };
    let open = place.try_open(options).unwrap();
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..ChangeQuery::default() };
    eventually("the event", || {
        !open.state.changes(&Reader::server(), &query).unwrap().items.is_empty()
    });
    let items = open.state.changes(&Reader::server(), &query).unwrap().items;
    assert!(String::from_utf8_lossy(&items[0].body).contains("disk_low"));
    open.commit.submit(one("a")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_disk_records_events_at_start_and_end() {
    let place = DataFolder::new();
    let open = place.open();
    let (shared, sender) = (open.commit.shared.clone(), open.commit.sender.clone());
    let folder = place.dir.clone();
    tokio::task::spawn_blocking(move || {
        let mut low_since = None;
        for state in
            [DiskState::Critical(1), DiskState::Low(2), DiskState::Low(2), DiskState::Fine(3)]
        {
            let disk = crate::keeper::WatchedDisk { folder: &folder, state };
            crate::keeper::judge(&shared, &mut low_since, Some(&sender), &disk);
        }
        assert_eq!(low_since, None);
    })
    .await
    .unwrap();
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..ChangeQuery::default() };
    let mut items = open.state.changes(&Reader::server(), &query).unwrap().items;
    items.sort_by_key(|item| item.number);
    let bodies: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(&item.body)).collect();
    assert_eq!(bodies.len(), 2, "{bodies:?}");
    assert!(bodies[0].contains("1 bytes are free"), "{bodies:?}");
    assert!(bodies[1].contains("3 bytes are free again"), "{bodies:?}");
    open.commit.submit(one("a")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_journal_flush_poisons_all_later_submits() {
    let place = DataFolder::new();
    let disk = SimDisk::new(7);
    let options = Options { files: Arc::new(disk.clone()), ..super::small_segments() };
    let open = open(&place.journal(), &place.state(), options, CommitOptions::default()).unwrap();
    open.commit.submit(one("a")).await.unwrap();
    open.commit.available().unwrap();
    disk.fail_from(Fault { call: disk.calls() + 1, failure: Failure::Io });
    let error = open.commit.submit(one("b")).await.unwrap_err();
    assert!(matches!(error, CommitError::Poisoned(_)), "{error}");
    let error = open.commit.submit(one("c")).await.unwrap_err();
    assert!(matches!(error, CommitError::Poisoned(_)), "{error}");
    let error = open.commit.available().unwrap_err();
    assert!(matches!(error, CommitError::Poisoned(_)), "{error}");
    assert_eq!(event_ids(&open.state), ["a"]);
}
