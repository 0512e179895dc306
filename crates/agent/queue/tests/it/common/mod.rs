//! Helpers for the tests of the queue.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::clock::{Clock, ManualClock};
use env::random::SystemRandom;
use model::document::NoNames;
use model::{
    Baseline as _, Change, ChangeBatch, ChangeKind, CoverageKind, Dataset, EventBody, Fields,
    ItemKey, Kind, Observation, Op, Sink as _,
};
use queue::{Lease, Queue, QueueError, QueueOpenReport, QueueOptions, Skip};

/// 2026-11-21 in microseconds.
pub(crate) const START_US: u64 = 1_795_000_000_000_000;

pub(crate) fn files() -> Dataset {
    Dataset::fim_files()
}

/// Time for which a queue may stay locked by the process that another test starts.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn try_open(
    path: &Path,
    options: &QueueOptions,
    clock: &ManualClock,
) -> Result<(Queue, QueueOpenReport), QueueError> {
    open_unlocked(path, options, &(Arc::new(clock.clone()) as Arc<dyn Clock>))
}

/// Opens a queue that no other test has open, with any clock.
pub(crate) fn open_unlocked(
    path: &Path,
    options: &QueueOptions,
    clock: &Arc<dyn Clock>,
) -> Result<(Queue, QueueOpenReport), QueueError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match Queue::open(path, options.clone(), Arc::clone(clock), Arc::new(SystemRandom)) {
            // A process forked by another test has the lock's descriptor until it calls exec.
            Err(QueueError::Locked { .. }) if Instant::now() < until => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

pub(crate) fn open(path: &Path, clock: &ManualClock) -> (Queue, QueueOpenReport) {
    try_open(path, &QueueOptions::default(), clock).unwrap()
}

pub(crate) fn open_new() -> (tempfile::TempDir, PathBuf, ManualClock, Queue) {
    open_new_with(&QueueOptions::default())
}

pub(crate) fn open_new_with(
    options: &QueueOptions,
) -> (tempfile::TempDir, PathBuf, ManualClock, Queue) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let clock = ManualClock::at(START_US);
    let (queue, report) = try_open(&path, options, &clock).unwrap();
    assert!(report.created && !report.unclean && report.rebuilt.is_none());
    (folder, path, clock, queue)
}

/// Returns an observation whose content is identified by `size`.
pub(crate) fn file(size: u64) -> Observation {
    let mut observation = Observation::empty(Kind::File);
    observation.size = size;
    observation.hashes.sha256 = Some([size as u8; 32]);
    observation
}

pub(crate) fn change(key: &ItemKey, kind: ChangeKind, size: u64) -> Change {
    let (before, after) = match kind {
        ChangeKind::Created => (None, Some(file(size))),
        ChangeKind::Modified => (Some(file(0)), Some(file(size))),
        ChangeKind::Deleted => (Some(file(size)), None),
        ChangeKind::Moved => panic!("a move needs two keys"),
    };
    let key = key.clone();
    Change {
        key,
        kind,
        before,
        after,
        fields: Fields::default(),
        found_at_us: START_US + size,
        from: None,
        seen: None,
        cause: None,
    }
}

/// Returns a put without an event.
pub(crate) fn base(path: &str, size: u64) -> Op {
    Op::Put { key: ItemKey::of_path(path.as_bytes()), observation: file(size), change: None }
}

/// Returns a put with its event.
pub(crate) fn changed(path: &str, size: u64) -> Op {
    let key = ItemKey::of_path(path.as_bytes());
    let change = change(&key, ChangeKind::Modified, size);
    Op::Put { key, observation: file(size), change: Some(Box::new(change)) }
}

pub(crate) fn delete_op(path: &str) -> Op {
    let key = ItemKey::of_path(path.as_bytes());
    let change = change(&key, ChangeKind::Deleted, 1);
    Op::Delete { key, change: Some(Box::new(change)) }
}

pub(crate) fn apply(queue: &Queue, ops: Vec<Op>) {
    let mut batch: ChangeBatch = ops;
    queue.sink(&files(), Arc::new(NoNames)).unwrap().apply(&mut batch).unwrap();
    assert!(batch.is_empty());
}

/// Returns the baseline of a directory as (name, size), sorted.
pub(crate) fn baseline(queue: &Queue, directory: &str) -> Vec<(String, u64)> {
    let mut items = Vec::new();
    let mut baseline = queue.baseline(&files()).unwrap();
    baseline.directory(directory.as_bytes(), &mut items).unwrap();
    let mut found: Vec<_> = items
        .into_iter()
        .map(|item| (String::from_utf8(item.name).unwrap(), item.observation.size))
        .collect();
    found.sort();
    found
}

/// Returns the items of a lease as (path, size), where the size of a deleted item is `None`.
pub(crate) fn paths(lease: &Lease) -> Vec<(String, Option<u64>)> {
    lease
        .items()
        .map(|item| {
            let path = String::from_utf8(item.key.path()).unwrap();
            (path, item.observation().unwrap().map(|observation| observation.size))
        })
        .collect()
}

/// Runs a whole cycle in which everything is accepted; returns what was sent.
pub(crate) fn cycle(queue: &Queue) -> Vec<(String, Option<u64>)> {
    cycle_skipping(queue, &|_| Vec::new())
}

pub(crate) fn cycle_skipping(
    queue: &Queue,
    skip: &dyn Fn(&Lease) -> Vec<Skip>,
) -> Vec<(String, Option<u64>)> {
    let mut sent = Vec::new();
    queue.begin_cycle(&files()).unwrap();
    while let Some(lease) = queue.lease(&files(), 4000).unwrap() {
        sent.extend(paths(&lease));
        let skipped = skip(&lease);
        queue.ack(lease, &skipped).unwrap();
    }
    queue.end_cycle(&files()).unwrap();
    sent
}

/// Copies the database and its log, as a killed process would leave them, to a new directory.
pub(crate) fn crash_image(path: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("agent.db");
    std::fs::copy(path, &copy).unwrap();
    let log = with_suffix(path, "-wal");
    if log.exists() {
        std::fs::copy(log, with_suffix(&copy, "-wal")).unwrap();
    }
    (folder, copy)
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn own(expected: &[(&str, Option<u64>)]) -> Vec<(String, Option<u64>)> {
    expected.iter().map(|(path, size)| ((*path).to_owned(), *size)).collect()
}

/// Adds 2,000 files in 40 directories.
pub(crate) fn add_files(queue: &Queue) {
    apply(queue, (0..2000).map(|n| base(&format!("/d{}/{n:05}", n / 50), n)).collect());
}

/// Overwrites a part of a file.
pub(crate) fn overwrite(path: &Path, from: u64, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(from)).unwrap();
    file.write_all(bytes).unwrap();
}

/// Checks that the database was rebuilt and reports this by one coverage event.
pub(crate) fn assert_rebuilt(queue: &Queue, report: &QueueOpenReport) {
    let rebuilt = report.rebuilt.as_ref().expect("rebuilt");
    assert!(report.created && report.needs_check() && report.items == 0);
    assert!(rebuilt.moved_to.exists());
    let lease = queue.lease_events(10, usize::MAX).unwrap();
    assert_eq!(lease.items.len(), 1);
    assert_eq!(lease.items[0].id, format!("{}-1", report.epoch));
    let event: EventBody = serde_json::from_slice(&lease.items[0].body).unwrap();
    let coverage = event.holdfast.coverage.unwrap();
    assert_eq!(coverage.kind, CoverageKind::DatabaseRebuilt);
    assert!(coverage.detail.contains("agent.db.corrupt-"), "{}", coverage.detail);
    apply(queue, vec![base("/a/1", 1)]);
    assert_eq!(cycle(queue), own(&[("/a/1", Some(1))]));
}

/// Checks that rows were dropped and reported by a coverage event.
pub(crate) fn assert_dropped(queue: &Queue, report: &QueueOpenReport, items: u64, first: &str) {
    let dropped = queue::Dropped { items, first: first.into() };
    assert_eq!((report.dropped.as_ref(), report.rebuilt.as_ref()), (Some(&dropped), None));
    assert!(report.needs_check() && !report.created);
    let lease = queue.lease_events(99, usize::MAX).unwrap();
    let last = lease.items.last().unwrap();
    assert!(last.id.starts_with(&report.epoch), "an id that was never told");
    let event: EventBody = serde_json::from_slice(&last.body).unwrap();
    let coverage = event.holdfast.coverage.unwrap();
    assert_eq!(coverage.kind, CoverageKind::DatabaseRebuilt);
    assert!(coverage.detail.contains(first), "{}", coverage.detail);
}
