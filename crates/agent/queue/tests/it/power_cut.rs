//! Power cuts on a block device that loses unflushed writes. With `power`, everything acknowledged
//! is stored afterwards. With `process`, the last changes may be missing, but never earlier ones.
//! The database opens without being rebuilt, and in the end the server equals the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, changed, delete_op, file, files};
use device::{Device, Fs, PowerCut, available};
use env::clock::{Clock, SystemClock};
use env::random::{Random as _, SeededRandom};
use model::document::NoNames;
use model::{Baseline as _, ItemKey, Op, Sink as _, SkipReason};
use queue::{Queue, QueueDurability, QueueError, QueueOpenReport, QueueOptions, Skip, Transaction};

const DEVICE_BYTES: u64 = 64 << 20;
/// Number of files that are written repeatedly.
const FILES: u64 = 23;
/// Changes of one batch.
const BATCH: u64 = 5;
/// Longest wait for a writer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// Returns the number of power cuts in each mode.
fn cuts() -> u64 {
    std::env::var("HOLDFAST_CRASHES").ok().and_then(|n| n.parse().ok()).map_or(4, |n: u64| {
        // In other tests this number counts images in memory. Here each cut mounts a file system.
        (n / 100).clamp(4, 2000)
    })
}

/// The server's documents: version and size by path.
type Server = BTreeMap<String, (u64, u64)>;

/// Returns change number `n`: it writes a file with the size `n`, and every seventh change deletes
/// one.
fn op(n: u64) -> (String, Op) {
    let path = format!("/d{}/{:03}", n % 3, n % FILES);
    let op = if n % 7 == 3 { delete_op(&path) } else { changed(&path, n) };
    (path, op)
}

/// Returns the files after the first `count` changes.
fn disk(count: u64) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    for n in 1..=count {
        let (path, op) = op(n);
        match op {
            Op::Delete { .. } => files.remove(&path),
            _ => files.insert(path, n),
        };
    }
    files
}

fn open(path: &Path, options: &QueueOptions) -> (Queue, QueueOpenReport) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    common::open_unlocked(path, options, &clock).unwrap()
}

/// Writes batches, with occasional cycles, until a write fails after the power cut.
fn write(queue: &Queue, from: u64, acknowledged: &AtomicU64, server: &mut Server) {
    let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
    let mut next = from;
    loop {
        let mut batch = (next..next + BATCH).map(|n| op(n).1).collect();
        if sink.apply(&mut batch).is_err() {
            return;
        }
        next += BATCH;
        acknowledged.store(next - 1, Ordering::SeqCst);
        if next.is_multiple_of(4) && run_cycle(queue, server).is_err() {
            return;
        }
    }
}

/// Runs a cycle with a server that keeps the newest version of each document.
fn run_cycle(queue: &Queue, server: &mut Server) -> Result<(), QueueError> {
    queue.begin_cycle(&files())?;
    while let Some(lease) = queue.lease(&files(), 4000)? {
        let mut skipped = Vec::new();
        for (index, (item, (path, size))) in lease.items().zip(common::paths(&lease)).enumerate() {
            let held = server.get(&path).map_or(0, |held| held.0);
            if held > item.seen {
                skipped.push(Skip { index, reason: SkipReason::Stale, version: held });
                continue;
            }
            // Size 0 marks the server's tombstone of a deleted document.
            server.insert(path, (item.seen, size.unwrap_or(0)));
        }
        queue.ack(lease, &skipped)?;
    }
    queue.end_cycle(&files())
}

/// Returns the queue's baseline as sizes by path.
fn baseline_sizes(queue: &Queue) -> BTreeMap<String, u64> {
    let mut baseline = queue.baseline(&files()).unwrap();
    let mut found = BTreeMap::new();
    let mut items = Vec::new();
    for directory in baseline.directories_below(b"/").unwrap() {
        baseline.directory(&directory, &mut items).unwrap();
        for item in &items {
            let key = ItemKey::new(directory.clone(), item.name.clone());
            found.insert(String::from_utf8(key.path()).unwrap(), item.observation.size);
        }
    }
    found
}

/// The restart scan: makes the baseline equal to the disk.
fn rescan(queue: &Queue, disk: &BTreeMap<String, u64>) {
    let held = baseline_sizes(queue);
    let mut ops: Vec<Op> = Vec::new();
    for path in held.keys().filter(|path| !disk.contains_key(*path)) {
        ops.push(delete_op(path));
    }
    for (path, size) in disk.iter().filter(|(path, size)| held.get(*path) != Some(*size)) {
        let key = ItemKey::of_path(path.as_bytes());
        ops.push(Op::Put { key, observation: file(*size), change: None });
    }
    queue.sink(&files(), Arc::new(NoNames)).unwrap().apply(&mut ops).unwrap();
}

/// The check after an unclean end: removes surplus documents from the server, then sends
/// everything.
fn settle(
    queue: &Queue,
    report: &QueueOpenReport,
    server: &mut Server,
    disk: &BTreeMap<String, u64>,
) {
    assert!(report.needs_check(), "an unclean end went unnoticed");
    rescan(queue, disk);
    // Two cycles: the second one sends documents again that were newer on the server.
    run_cycle(queue, server).unwrap();
    run_cycle(queue, server).unwrap();
    server.retain(|path, held| held.1 == 0 || disk.contains_key(path));
    let documents: BTreeMap<_, _> =
        server.iter().filter(|(_, held)| held.1 > 0).map(|(p, held)| (p.clone(), held.1)).collect();
    assert_eq!(&documents, disk, "server and disk differ");
}

fn survive(options: &QueueOptions) {
    if device::or_skip(available(Fs::Ext4)).is_none() {
        return;
    }
    let mut device = Device::new(DEVICE_BYTES).unwrap();
    let path = device.mount(Fs::Ext4).unwrap().join("agent.db");
    let random = SeededRandom::new(options.durability as u64 + 3);
    let single = options.transaction == Transaction::PerEvent;
    let (mut written, mut lost, mut server) = (0, 0, Server::new());
    drop(open(&path, options).0.close());
    for cut in 0..cuts() {
        let (queue, _) = open(&path, options);
        let acknowledged = AtomicU64::new(written);
        let goal = written + 40 + random.next_u64().unwrap() % 400;
        std::thread::scope(|scope| {
            let (queue, acknowledged, server) = (&queue, &acknowledged, &mut server);
            scope.spawn(move || write(queue, written + 1, acknowledged, server));
            let deadline = Instant::now() + PATIENCE;
            while acknowledged.load(Ordering::SeqCst) < goal {
                assert!(Instant::now() < deadline, "no progress");
                std::thread::yield_now();
            }
            let kind = if cut % 2 == 0 { PowerCut::ALL } else { PowerCut::subset(cut) };
            device.power_cut(&kind).unwrap();
            // A writer that flushes nothing could continue in memory; closing the queue ends it.
            let _ = queue.close();
        });
        drop(queue);
        device.remount().unwrap();
        let (queue, report) = open(&path, options);
        assert_eq!(report.rebuilt, None, "cut {cut}");
        assert_eq!(queue::verify(&path).unwrap().problems, Vec::<String>::new());
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        let found = baseline_sizes(&queue);
        // The state must be that after a committed transaction.
        let last = (0..=acknowledged + BATCH)
            .rev()
            .find(|n| (n % BATCH == 0 || single) && disk(*n) == found)
            .expect("a state that never was");
        if options.durability == QueueDurability::Power {
            assert!(last >= acknowledged, "{last} of {acknowledged} acknowledged changes");
        }
        lost += acknowledged.saturating_sub(last);
        written = (acknowledged + BATCH).div_ceil(BATCH) * BATCH;
        settle(&queue, &report, &mut server, &disk(written));
        queue.close().unwrap();
    }
    println!("{:?}, {:?}: {lost} of {written} lost", options.durability, options.transaction);
}

#[test]
fn power_mode_keeps_everything_acknowledged() {
    survive(&QueueOptions { durability: QueueDurability::Power, ..small() });
}

#[test]
fn power_mode_keeps_everything_acknowledged_with_a_window() {
    let window = Duration::from_millis(2);
    survive(&QueueOptions { durability: QueueDurability::Power, window, ..small() });
}

#[test]
fn process_mode_is_consistent_after_power_cuts() {
    survive(&small());
}

#[test]
fn per_event_process_mode_is_consistent_after_power_cuts() {
    survive(&QueueOptions { transaction: Transaction::PerEvent, ..small() });
}

/// A small log, so that cuts hit checkpoints too.
fn small() -> QueueOptions {
    QueueOptions { wal_autocheckpoint_pages: Some(20), ..QueueOptions::default() }
}
