//! A long read transaction: writers continue, the growth of the log is reported, and the log
//! shrinks when the reader ends.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{self, apply, changed, files, open_new_with};
use model::{CoverageKind, EventBody};
use queue::{Queue, QueueOptions};

const CHILD_DB: &str = "QUEUE_READER_DB";
/// Longest duration of a small commit during a read transaction, on a busy machine.
const COMMIT_MAX: Duration = Duration::from_secs(30);

fn small_log() -> QueueOptions {
    QueueOptions {
        wal_autocheckpoint_pages: Some(50),
        journal_size_limit_bytes: 256 * 1024,
        ..QueueOptions::default()
    }
}

/// Returns the duration of the read transaction: a minute in a soak test.
fn stays() -> Duration {
    let soak = std::env::var("HOLDFAST_SOAK").is_ok();
    if soak { Duration::from_mins(1) } else { Duration::from_millis(1500) }
}

fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |m| m.len())
}

fn write(queue: &Queue, round: u64) {
    let ops = (0..200).map(|n| changed(&format!("/d{:02}/{n:03}", n % 20), round * 200 + n));
    let start = Instant::now();
    apply(queue, ops.collect());
    assert!(start.elapsed() < COMMIT_MAX, "a writer waited for a reader");
}

fn reports(queue: &Queue) -> usize {
    let lease = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    lease
        .items
        .iter()
        .map(|event| serde_json::from_slice::<EventBody>(&event.body).unwrap())
        .filter_map(|body| body.holdfast.coverage)
        .filter(|gap| gap.kind == CoverageKind::LimitReached && gap.detail.contains("log"))
        .count()
}

#[test]
fn long_reader_blocks_no_writer_and_large_wal_is_reported_once() {
    let (_folder, path, clock, queue) = open_new_with(&small_log());
    write(&queue, 0);
    let snapshot = queue.snapshot(&files()).unwrap();
    clock.advance(Duration::from_secs(7));
    let until = Instant::now() + stays();
    let mut round = 1;
    while Instant::now() < until || queue.status().unwrap().wal_held_since_us.is_none() {
        write(&queue, round);
        round += 1;
        assert!(round < 1_000_000, "never told");
    }
    let status = queue.status().unwrap();
    assert!(log_bytes(&path) > 256 * 1024);
    assert!(status.wal_held_since_us.is_some());
    assert_eq!(status.oldest_reader_ms, Some(7000));
    assert_eq!(queue::peek(&path).unwrap().wal_held_since_us, status.wal_held_since_us);
    assert_eq!(reports(&queue), 1);
    drop(snapshot);
    let deadline = Instant::now() + Duration::from_mins(1);
    while queue.status().unwrap().wal_held_since_us.is_some() {
        write(&queue, round);
        round += 1;
        assert!(Instant::now() < deadline, "still reported");
    }
    assert!(log_bytes(&path) <= 512 * 1024, "{}", log_bytes(&path));
    assert_eq!(queue.status().unwrap().oldest_reader_ms, None);
    assert_eq!(reports(&queue), 1);
}

#[test]
fn large_wal_without_a_reader_is_not_reported() {
    let (_folder, _, _, queue) = open_new_with(&small_log());
    // One transaction far above the limit.
    apply(&queue, (0..20_000).map(|n| common::base(&format!("/d/{n:05}"), n)).collect());
    for round in 0..20 {
        write(&queue, round);
    }
    assert_eq!((reports(&queue), queue.status().unwrap().wal_held_since_us), (0, None));
}

/// The reader process; not a test. It writes, keeps a read transaction open, and waits to be
/// killed.
#[test]
#[ignore = "started by the test that looks at it"]
fn read_until_killed() {
    let path = std::env::var_os(CHILD_DB).unwrap();
    let clock = env::clock::ManualClock::at(common::START_US);
    let (queue, _) = common::try_open(Path::new(&path), &small_log(), &clock).unwrap();
    write(&queue, 0);
    let _snapshot = queue.snapshot(&files()).unwrap();
    write(&queue, 1);
    println!("\nreading");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn readers_lists_reading_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    assert_eq!(queue::readers(&path).unwrap(), []);
    let mut child = needs::own_process(module_path!(), "read_until_killed")
        .env(CHILD_DB, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "reading"));
    let found = queue::readers(&path).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].pid, child.id() as i32);
    assert!(found[0].pages_behind > 0);
    assert!(matches!(queue::compact(&path), Err(queue::QueueError::Locked { .. })));
    assert_eq!(queue::verify(&path).unwrap().problems, Vec::<String>::new());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(queue::readers(&path).unwrap(), []);
}
