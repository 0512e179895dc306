//! Retention by age and by size, whatever fails meanwhile: whole partitions go, oldest first, and
//! nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::clock::ManualClock;
use env::files::{Failure, Fault, Files, SimDisk};
use series::{Ack, Batch, Retention, Store, StoreOptions, Wal};
use support::{Model, PARTITION_S, contents, options};

const SECOND: i64 = 1_000_000_000;
const PARTITIONS: i64 = 6;
/// Partitions that are kept.
const KEPT: i64 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Age,
    Size,
}

fn open_on(disk: &SimDisk, by: By, bytes_max: u64) -> Store {
    let clock = ManualClock::at((PARTITIONS * PARTITION_S) as u64 * 1_000_000);
    let retention = match by {
        By::Age => Retention {
            age: Some(Duration::from_secs((KEPT * PARTITION_S) as u64)),
            bytes_max: None,
        },
        By::Size => Retention { age: None, bytes_max: Some(bytes_max) },
    };
    let options = StoreOptions { retention, clock: Arc::new(clock), ..options(disk, Wal::Always) };
    Store::open(Path::new("/series"), options).unwrap().0
}

/// Two series over all partitions, one of which has nothing in those that are kept.
fn filled(disk: &SimDisk) -> (Store, Model, u64) {
    // Written without retention: that refuses old rows.
    let store = open_on(disk, By::Size, u64::MAX);
    for half in 0..2 {
        let mut batch = Batch::new();
        for (host, partitions) in [("a", PARTITIONS), ("old", PARTITIONS - KEPT)] {
            let row = store.row(format!("load host={host}").as_bytes()).unwrap();
            for i in 0..partitions * 4 {
                let time = (i * PARTITION_S / 4 + half * 60) * SECOND;
                batch.push(row, time, &[(i as f64).sin()]).unwrap();
            }
        }
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
    }
    let (model, bytes) = (contents(&store), store.stats().part_bytes);
    store.close().unwrap();
    (open_on(disk, By::Size, u64::MAX), model, bytes)
}

/// A model without partitions below one.
fn without(model: &Model, below: i64) -> Model {
    let mut rest = model.clone();
    for samples in rest.values_mut() {
        samples.retain(|time, _| *time >= below * PARTITION_S * SECOND);
    }
    rest.retain(|_, samples| !samples.is_empty());
    rest
}

/// The calls of retention, and the partitions that it leaves.
fn calls_of_retention(by: By, bytes_max: u64) -> (std::ops::RangeInclusive<u64>, i64) {
    let disk = SimDisk::new(1);
    let (store, model, _) = filled(&disk);
    drop(store);
    let store = open_on(&disk, by, bytes_max);
    let before = disk.calls();
    for _ in 0..3 {
        store.retain().unwrap();
    }
    let calls = before + 1..=disk.calls();
    let found = contents(&store);
    let kept = (0..=PARTITIONS).find(|below| found == without(&model, *below)).unwrap();
    if by == By::Age {
        assert_eq!(kept, PARTITIONS - KEPT);
    } else {
        assert!(kept > 0 && kept < PARTITIONS && store.stats().part_bytes <= bytes_max);
    }
    (calls, kept)
}

#[test]
fn retention_that_is_cut_or_fails_takes_whole_partitions_oldest_first() {
    let bytes_max = filled(&SimDisk::new(1)).2 / 2;
    for by in [By::Age, By::Size] {
        let (calls, kept) = calls_of_retention(by, bytes_max);
        assert!(calls.clone().count() > 6, "nothing to fail");
        for call in calls {
            for failure in [Failure::PowerCut, Failure::Io, Failure::Full] {
                cut(by, bytes_max, kept, Fault { call, failure });
            }
        }
    }
}

fn cut(by: By, bytes_max: u64, kept: i64, fault: Fault) {
    let when = format!("{by:?} {fault:?}");
    let disk = SimDisk::new(1);
    let (store, model, _) = filled(&disk);
    drop(store);
    let store = open_on(&disk, by, bytes_max);
    disk.fail(&[fault]);
    let done: Vec<bool> = (0..3).map(|_| store.retain().is_ok()).collect();
    let is_cut = |found: &Model| (0..=kept).any(|below| *found == without(&model, below));
    if fault.failure != Failure::PowerCut {
        assert!(is_cut(&contents(&store)), "{when}: {done:?}");
        // What follows a failure comes through.
        for _ in 0..4 {
            store.retain().unwrap();
        }
        assert_eq!(contents(&store), without(&model, kept), "{when}: again");
    }
    drop(store);
    for image in [disk.kill(), disk.crash(fault.call), disk.crash(fault.call + 100)] {
        let store = open_on(&image, by, bytes_max);
        assert!(is_cut(&contents(&store)), "{when}: opened");
        store.lose_and_retain();
        assert_eq!(contents(&store), without(&model, kept), "{when}: opened and done");
        store.close().unwrap();
        let files: BTreeSet<String> =
            image.list(Path::new("/series/parts")).unwrap().into_iter().collect();
        let named = open_on(&image, by, bytes_max).stats().parts;
        assert!(files.len() as u64 <= named, "{when}: {files:?}, {named} parts");
    }
}

trait Again {
    fn lose_and_retain(&self);
}

impl Again for Store {
    fn lose_and_retain(&self) {
        for _ in 0..3 {
            self.retain().unwrap();
        }
    }
}
