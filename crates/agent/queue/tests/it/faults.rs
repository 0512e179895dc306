//! Failed writes and flushes of `agent.db`, each in turn: what was acknowledged is there when the
//! disk works again, nothing else appears, and the database is not rebuilt.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{self, START_US, changed, files, try_open};
use device::{Device, FaultyFolder, Fs, available};
use env::clock::ManualClock;
use model::document::NoNames;
use model::{ItemKey, Sink as _};
use queue::{Queue, QueueDurability, QueueError, QueueOpenReport, QueueOptions};

/// Batches of one run.
const BATCHES: u64 = 6;
/// Changes of one batch.
const BATCH: u64 = 3;

/// Returns the distance between two requests that fail in turn: 1 in a soak.
fn step(usual: usize) -> usize {
    if std::env::var_os("HOLDFAST_SOAK").is_some() { 1 } else { usual }
}

/// Returns options with so small a log that it is checkpointed during a run.
fn small(durability: QueueDurability) -> QueueOptions {
    QueueOptions { durability, wal_autocheckpoint_pages: Some(8), ..QueueOptions::default() }
}

/// Changes by number: those that were acknowledged, and those that failed and may be there.
#[derive(Default)]
struct Written {
    acknowledged: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    /// The queue of the last check, if the power is to fail while it is open.
    open: Option<Queue>,
}

fn open(path: &Path, options: &QueueOptions) -> Result<(Queue, QueueOpenReport), QueueError> {
    try_open(path, options, &ManualClock::at(START_US))
}

/// Writes one batch.
fn write(queue: &Queue, batch: u64, written: &mut Written) {
    let numbers = batch * BATCH..(batch + 1) * BATCH;
    let mut ops = numbers.clone().map(|n| changed(&format!("/d{}/{n}", n % 2), n + 1)).collect();
    let applied = queue
        .sink(&files(), Arc::new(NoNames))
        .map_err(|error| error.to_string())
        .and_then(|mut sink| sink.apply(&mut ops).map_err(|error| error.to_string()));
    match applied {
        Ok(_) => written.acknowledged.extend(numbers),
        Err(_) => written.failed.extend(numbers),
    }
}

/// Makes a database with one batch.
fn prepare(path: &Path, options: &QueueOptions) -> Written {
    let mut written = Written::default();
    let (queue, _) = open(path, options).unwrap();
    write(&queue, 0, &mut written);
    queue.close().unwrap();
    written
}

/// Opens the database, writes batches with a cycle between them, and closes it. Any of that may
/// fail.
fn work(path: &Path, options: &QueueOptions, written: &mut Written) {
    let Ok((queue, _)) = open(path, options) else { return };
    for batch in 1..=BATCHES {
        write(&queue, batch, written);
        if batch == BATCHES / 2 {
            let _ = run_cycle(&queue);
        }
    }
    let _ = queue.close();
}

fn run_cycle(queue: &Queue) -> Result<(), QueueError> {
    queue.begin_cycle(&files())?;
    while let Some(lease) = queue.lease(&files(), 4)? {
        queue.ack(lease, &[])?;
    }
    queue.end_cycle(&files())
}

/// Opens the database on a working disk: it has everything acknowledged, and goes on. Leaves the
/// queue open.
fn check(path: &Path, options: &QueueOptions, written: &mut Written) {
    drop(written.open.take());
    let (queue, report) = open(path, options).unwrap();
    assert_eq!((&report.rebuilt, &report.dropped), (&None, &None));
    let found = changes(&queue);
    let lost: Vec<_> = written.acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{lost:?} were acknowledged and are gone");
    let odd: Vec<_> = found.difference(&written.acknowledged).collect();
    assert!(odd.iter().all(|n| written.failed.contains(n)), "{odd:?} were never written");
    write(&queue, BATCHES + 1, written);
    assert!(written.acknowledged.is_subset(&changes(&queue)));
    written.open = Some(queue);
}

fn check_and_close(path: &Path, options: &QueueOptions, written: &mut Written) {
    check(path, options, written);
    written.open.take().unwrap().close().unwrap();
    assert_eq!(queue::verify(path).unwrap().problems, Vec::<String>::new());
}

/// Returns the changes whose event and whose item are there, which are always the same.
fn changes(queue: &Queue) -> BTreeSet<u64> {
    let number = |path: &str| path.rsplit('/').next().unwrap().parse::<u64>().unwrap();
    let events = queue.lease_events(1000, usize::MAX).unwrap();
    let told: BTreeSet<u64> = events
        .items
        .iter()
        .map(|event| {
            let body: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
            number(body["file"]["path"].as_str().unwrap())
        })
        .collect();
    let items: BTreeSet<u64> = ["/d0", "/d1"]
        .iter()
        .flat_map(|directory| common::baseline(queue, directory))
        .map(|(name, size)| {
            let key = ItemKey::of_path(name.as_bytes());
            assert_eq!(String::from_utf8(key.path()).unwrap(), name);
            assert_eq!(name.parse::<u64>().unwrap() + 1, size);
            size - 1
        })
        .collect();
    assert_eq!(told, items, "events and items differ");
    told
}

fn db(folder: &Path) -> PathBuf {
    folder.join("agent.db")
}

fn survive(options: &QueueOptions) {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let work = |folder: &Path, written: &mut Written| work(&db(folder), options, written);
    let check =
        |folder: &Path, written: &mut Written| check_and_close(&db(folder), options, written);
    let runs = folder.fail_each(step(7), |folder| prepare(&db(folder), options), work, check);
    assert!(runs > 20, "{runs} runs");
    let runs = folder.fail_each(step(7), |_| Written::default(), work, check);
    assert!(runs > 20, "{runs} runs of a new database");
}

#[test]
fn process_mode_keeps_acknowledged_changes_over_failed_requests() {
    survive(&small(QueueDurability::Process));
}

#[test]
fn power_mode_keeps_acknowledged_changes_over_failed_requests() {
    survive(&small(QueueDurability::Power));
}

/// A fault of the device reaches the database through ext4: a failed write is answered at the next
/// flush, and the file system may end as read-only. Then the power fails.
#[test]
fn power_mode_keeps_acknowledged_changes_over_device_faults() {
    if device::or_skip(available(Fs::Ext4)).is_none() {
        return;
    }
    let mut device = Device::new(64 << 20).unwrap();
    device.mount(Fs::Ext4).unwrap();
    let options = small(QueueDurability::Power);
    let runs = device.fail_each(
        step(5),
        |folder| prepare(&db(folder), &options),
        |folder, written| work(&db(folder), &options, written),
        |folder, written| check(&db(folder), &options, written),
    );
    assert!(runs > 20, "{runs} runs");
}
