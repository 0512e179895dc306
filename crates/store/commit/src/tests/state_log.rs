//! The state's own log is bounded: while records are applied, replayed and followed, and at a stop.

use std::sync::Arc;
use std::time::Duration;

use journal::{Durability, Journal};
use model::Position;
use state::{StateOptions, StateStore};

use super::{DataFolder, eventually, one, open, small_segments};
use crate::{Commit, CommitOptions};

/// A limit that a few records exceed, bytes.
const LIMIT: u64 = 256 * 1024;
const RECORDS: u64 = 400;

/// Small transactions, so that the records write many times the limit, and no other reason for a
/// checkpoint.
fn only_by_the_log() -> CommitOptions {
    CommitOptions {
        batch_records_max: 10,
        checkpoint_records: u64::MAX,
        checkpoint_bytes: u64::MAX,
        checkpoint_interval: Duration::from_hours(1),
        ..CommitOptions::default()
    }
}

fn small_log() -> StateOptions {
    StateOptions { wal_bytes_max: LIMIT, ..StateOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_log_makes_a_checkpoint_due() {
    let folder = DataFolder::new();
    let (journal, _) = Journal::open(&folder.journal(), small_segments()).unwrap();
    let state = Arc::new(StateStore::open(&folder.state(), small_log()).unwrap());
    let (commit, _) =
        Commit::open(journal, Arc::<StateStore>::clone(&state), only_by_the_log()).unwrap();
    for n in 0..RECORDS {
        commit.submit(one(&n.to_string())).await.unwrap();
    }
    eventually("a checkpoint", || commit.stats().checkpointed > Position(0));
    commit.close().await.unwrap();
}

#[test]
fn catching_up_keeps_the_log_small() {
    let folder = DataFolder::new();
    let (journal, _) = Journal::open(&folder.journal(), small_segments()).unwrap();
    let state = StateStore::open(&folder.state(), small_log()).unwrap();
    let mut largest = 0;
    for n in 0..RECORDS {
        journal.append(&one(&n.to_string()).encode(), Durability::Persist).unwrap();
        crate::catch_up(&journal, &state, &only_by_the_log()).unwrap();
        largest = largest.max(state.log_bytes());
    }
    assert!(largest < 2 * LIMIT, "{largest} bytes");
}

#[tokio::test]
async fn clean_stop_leaves_no_log() {
    let folder = DataFolder::new();
    let opened = open(&folder.journal(), &folder.state(), small_segments(), only_by_the_log());
    let opened = opened.unwrap();
    opened.commit.submit(one("a")).await.unwrap();
    assert!(opened.state.log_bytes() > 0);
    opened.commit.close().await.unwrap();
    assert_eq!(opened.state.log_bytes(), 0);
}
