use std::sync::Arc;

use env::clock::ManualClock;
use env::random::SystemRandom;
use model::document::NoNames;
use model::{Kind, Observation, Op, Sink as _};
use rusqlite::StatementStatus;

use super::*;
use crate::directory::{BLOCK_ROWS, BLOCK_ROWS_MAX};
use crate::{Queue, QueueOptions};

/// Number of items of one directory.
const ITEMS: u64 = 30 * BLOCK_ROWS;
/// Most steps of SQLite's virtual machine for a row that is skipped.
const STEPS_PER_ROW: u64 = 6;

fn open(folder: &std::path::Path) -> Queue {
    let clock = Arc::new(ManualClock::at(1_795_000_000_000_000));
    let path = folder.join("agent.db");
    Queue::open(&path, QueueOptions::default(), clock, Arc::new(SystemRandom)).unwrap().0
}

fn put_files(queue: &Queue, numbers: impl Iterator<Item = u64>, size: u64) {
    let mut observation = Observation::empty(Kind::File);
    observation.size = size;
    let op = |n: u64| Op::Put {
        key: ItemKey::new(&b"/flat"[..], format!("{n:08}").into_bytes()),
        observation: observation.clone(),
        change: None,
    };
    let mut sink = queue.scan_sink(&Dataset::fim_files(), Arc::new(NoNames)).unwrap();
    sink.apply(&mut numbers.map(op).collect()).unwrap();
    sink.flush().unwrap();
}

/// Sends everything; returns the number of items.
fn cycle(queue: &Queue) -> usize {
    let files = Dataset::fim_files();
    queue.begin_cycle(&files).unwrap();
    let mut told = 0;
    while let Some(lease) = queue.lease(&files, usize::MAX).unwrap() {
        told += lease.items().len();
        queue.ack(lease, &[]).unwrap();
    }
    queue.end_cycle(&files).unwrap();
    told
}

/// Returns the steps of SQLite's virtual machine in leases since the last call.
fn steps(queue: &Queue) -> i32 {
    let steps =
        |conn: &Connection| Ok(conn.prepare_cached(PENDING)?.reset_status(StatementStatus::VmStep));
    queue.inner().read(steps).unwrap()
}

/// Returns the steps for sending three items that are far apart.
fn steps_of_few(queue: &Queue, size: u64) -> i32 {
    put_files(queue, [7, ITEMS / 2, ITEMS - 1].into_iter(), size);
    let status = queue.status().unwrap();
    assert_eq!(status.datasets.first().map(|files| files.pending), Some(3));
    steps(queue);
    assert_eq!(cycle(queue), 3);
    steps(queue)
}

#[test]
fn lease_of_few_pending_items_does_not_scan_a_large_directory() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(folder.path());
    put_files(&queue, 0..ITEMS, 1);
    assert_eq!(cycle(&queue) as u64, ITEMS);
    // Three blocks are read, and one of them again by the lease that finds nothing left. Without
    // blocks it would be thirty, twice.
    let most = 4 * (BLOCK_ROWS_MAX * STEPS_PER_ROW) as i32;
    let few = steps_of_few(&queue, 2);
    assert!(few < most, "divided as they came: {few} steps");
    queue.close().unwrap();
    let few = steps_of_few(&open(folder.path()), 3);
    assert!(few < most, "as loaded: {few} steps");
}
