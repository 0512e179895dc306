//! Retention by age and by size under any failure: whole partitions are removed, oldest first, and
//! nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Model, PARTITION_S, contents, options};
use env::clock::ManualClock;
use env::files::{Failure, Fault, Files, SimDisk};
use env::guard::{Acceptance, GuardedClock};
use series::{Ack, Batch, Selector, SeriesRetention, Store, StoreOptions, TimeRange, Wal};

const SECOND: i64 = 1_000_000_000;
const PARTITIONS: i64 = 6;
/// Number of partitions that are kept.
const KEPT: i64 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Age,
    Size,
}

fn open_on(disk: &SimDisk, by: By, bytes_max: u64) -> Store {
    let clock = ManualClock::at((PARTITIONS * PARTITION_S) as u64 * 1_000_000);
    let retention = match by {
        By::Age => SeriesRetention {
            age: Some(Duration::from_secs((KEPT * PARTITION_S) as u64)),
            bytes_max: None,
        },
        By::Size => SeriesRetention { age: None, bytes_max: Some(bytes_max) },
    };
    let options = StoreOptions { retention, clock: Arc::new(clock), ..options(disk, Wal::Always) };
    Store::open(Path::new("/series"), options).unwrap().0
}

/// Writes two series over all partitions. One of them has no samples in those that are kept.
fn filled(disk: &SimDisk) -> (Store, Model, u64) {
    // The store is opened without retention, which would reject old rows.
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

/// Returns the model without the partitions below `below`.
fn without(model: &Model, below: i64) -> Model {
    let mut rest = model.clone();
    for samples in rest.values_mut() {
        samples.retain(|time, _| *time >= below * PARTITION_S * SECOND);
    }
    rest.retain(|_, samples| !samples.is_empty());
    rest
}

/// Returns the range of calls of retention, and the number of partitions that remain.
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
fn interrupted_retention_drops_whole_partitions_oldest_first() {
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
        // After a failure the next attempts succeed.
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

#[test]
fn roll_ups_that_outlive_their_samples_leave_space_for_samples() {
    const BYTES_MAX: u64 = 40_000;
    let disk = SimDisk::new(1);
    let options = StoreOptions {
        retention: SeriesRetention { age: None, bytes_max: Some(BYTES_MAX) },
        rollup_age: Some(Duration::from_hours(24 * 365)),
        clock: Arc::new(ManualClock::at(0)),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let row = store.row(b"load host=a").unwrap();
    let mut stays = 0;
    for partition in 0..60 {
        let mut batch = Batch::new();
        for i in 0..720 {
            let time = (partition * PARTITION_S + i * 10) * SECOND;
            batch.push(row, time, &[(time as f64).sin()]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
        store.retain().unwrap();
        let stats = store.stats();
        assert!(stats.part_bytes + stats.rollup_bytes <= BYTES_MAX, "{partition}: {stats:?}");
        assert!(stats.partitions > 0, "partition {partition} went as soon as it was there");
        stays = stays.max(stats.rollups);
    }
    assert!(stays > 0, "there never was a roll-up");
    let series = store.find(&Selector::metric("load")).remove(0);
    let all = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
    assert_eq!(all.last_ns, (60 * PARTITION_S - 10) * SECOND);
}

#[test]
fn due_seals_run_between_steps_of_a_long_retention() {
    let disk = SimDisk::new(1);
    let clock = ManualClock::at(0);
    let age = Duration::from_secs(PARTITION_S as u64);
    let options = StoreOptions {
        retention: SeriesRetention { age: Some(age), bytes_max: None },
        rollup_age: Some(100 * age),
        clock: Arc::new(clock.clone()),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let row = store.row(b"load host=a").unwrap();
    let write = |partition: i64, rows: i64| {
        let mut batch = Batch::new();
        for i in 0..rows {
            let time = (partition * PARTITION_S + i % PARTITION_S) * SECOND + i;
            batch.push(row, time, &[(time as f64).sin()]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
    };
    (0..3).for_each(|partition| write(partition, 10));
    store.seal().unwrap();
    clock.advance(10 * age);
    // This is more than a head holds.
    (0..30).for_each(|_| write(9, 3000));
    let before = store.stats();
    assert!(before.sealed_position < before.position, "{before:?}");
    store.retain().unwrap();
    let after = store.stats();
    assert_eq!(after.rollups, 3);
    assert_eq!(after.sealed_position, after.position, "{after:?}");
}

#[test]
fn size_retention_widens_roll_ups_to_hours() {
    const BYTES_MAX: u64 = 200_000;
    let disk = SimDisk::new(1);
    let year = Duration::from_hours(24 * 365);
    let options = StoreOptions {
        retention: SeriesRetention { age: None, bytes_max: Some(BYTES_MAX) },
        rollup_age: Some(year),
        hourly_age: Some(10 * year),
        clock: Arc::new(ManualClock::at(0)),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    for partition in 0..60 {
        let mut batch = Batch::new();
        for host in 0..5 {
            let row = store.row(format!("load host={host}").as_bytes()).unwrap();
            for i in 0..720 {
                let time = (partition * PARTITION_S + i * 10) * SECOND;
                batch.push(row, time, &[(time as f64).sin()]).unwrap();
            }
        }
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
        store.retain().unwrap();
        let stats = store.stats();
        assert!(stats.part_bytes + stats.rollup_bytes <= BYTES_MAX, "{partition}: {stats:?}");
        assert!(stats.partitions > 0, "partition {partition} went as soon as it was there");
    }
    let stats = store.stats();
    assert!(stats.rollup_bytes > BYTES_MAX / 4, "nothing was too much: {stats:?}");
    let series = store.find(&Selector::metric("load")).remove(0);
    let all = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
    assert_eq!((all.count, all.first_ns), (60 * 720, 0), "{stats:?}");
}

#[test]
fn size_retention_creates_no_roll_up_larger_than_its_samples() {
    let disk = SimDisk::new(1);
    let open = |bytes_max| {
        let options = StoreOptions {
            retention: SeriesRetention { age: None, bytes_max: Some(bytes_max) },
            rollup_age: Some(Duration::from_hours(24 * 365)),
            rollups_beside: false,
            clock: Arc::new(ManualClock::at(0)),
            ..options(&disk, Wal::Always)
        };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let store = open(u64::MAX);
    for partition in 0..24 {
        let mut batch = Batch::new();
        for host in 0..20 {
            let row = store.row(format!("load host={host}").as_bytes()).unwrap();
            batch.push(row, partition * PARTITION_S * SECOND, &[f64::from(host) / 7.0]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
    }
    let bytes = store.stats().part_bytes;
    store.close().unwrap();
    let store = open(bytes / 2);
    store.retain().unwrap();
    let stats = store.stats();
    assert!(stats.part_bytes + stats.rollup_bytes <= bytes / 2, "{stats:?}");
    assert!(stats.partitions >= 11 && stats.rollups == 0, "{stats:?}");
}

/// Opens a store with a size limit, and roll-ups of 5 minutes and of hours that are kept for years.
fn by_size(disk: &SimDisk, bytes_max: u64, hourly: bool) -> Store {
    let year = Duration::from_hours(24 * 365);
    let options = StoreOptions {
        retention: SeriesRetention { age: None, bytes_max: Some(bytes_max) },
        rollup_age: Some(year),
        hourly_age: Some(2 * year).filter(|_| hourly),
        rollups_beside: false,
        clock: Arc::new(ManualClock::at(0)),
        ..options(disk, Wal::Always)
    };
    Store::open(Path::new("/series"), options).unwrap().0
}

/// Writes rows of twenty hosts in a partition, `step` seconds apart.
fn hosts(store: &Store, partition: i64, step: i64) {
    for host in 0..20 {
        let row = store.row(format!("load host={host}").as_bytes()).unwrap();
        let mut batch = Batch::new();
        for i in 0..PARTITION_S / step {
            let time = (partition * PARTITION_S + i * step) * SECOND;
            batch.push(row, time, &[(time as f64).sin()]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
    }
    store.seal().unwrap();
}

#[test]
fn size_retention_with_a_late_row_keeps_other_roll_ups() {
    let disk = SimDisk::new(1);
    let store = by_size(&disk, u64::MAX, false);
    (0..2).for_each(|partition| hosts(&store, partition, 10));
    let bytes = store.stats().part_bytes;
    store.close().unwrap();
    let store = by_size(&disk, bytes * 2 / 3, false);
    store.retain().unwrap();
    let stats = store.stats();
    assert_eq!((stats.partitions, stats.rollups), (1, 1), "{stats:?}");
    let late = store.row(b"late host=a").unwrap();
    let mut batch = Batch::new();
    batch.push(late, 7 * SECOND, &[1.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    let bytes = store.stats().part_bytes + store.stats().rollup_bytes;
    store.close().unwrap();
    let store = by_size(&disk, bytes - 1, false);
    store.retain().unwrap();
    for series in store.find(&Selector::metric("load")) {
        let all = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
        assert_eq!((all.count, all.first_ns), (2 * 720, 0), "{}", series.name());
    }
}

#[test]
fn size_retention_keeps_hours_if_5_minutes_exceed_samples() {
    let disk = SimDisk::new(1);
    let store = by_size(&disk, u64::MAX, true);
    (0..6).for_each(|partition| hosts(&store, partition, 60));
    let bytes = store.stats().part_bytes;
    store.close().unwrap();
    let store = by_size(&disk, bytes * 2 / 3, true);
    store.retain().unwrap();
    let series = store.find(&Selector::metric("load")).remove(0);
    let all = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
    assert_eq!((all.count, all.first_ns), (6 * 120, 0), "{:?}", store.stats());
}

/// The wall clock jumps ahead by ten years and comes back: no sample is removed, current rows are
/// accepted throughout, and later removals are counted.
#[test]
fn clock_jump_drops_no_samples() {
    let disk = SimDisk::new(1);
    let (store, model, _) = filled(&disk);
    store.close().unwrap();
    let now_us = (KEPT * PARTITION_S) as u64 * 1_000_000;
    let wall = ManualClock::at(now_us);
    let clock = Arc::new(GuardedClock::new(Arc::new(wall.clone()), None));
    let age = Some(Duration::from_secs((PARTITIONS * PARTITION_S) as u64));
    let options = StoreOptions {
        retention: SeriesRetention { age, bytes_max: None },
        clock: clock.clone(),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    for jump_us in [now_us + 10 * 365 * 86_400_000_000, 0] {
        wall.jump_to(jump_us);
        store.retain().unwrap();
        assert_eq!(contents(&store), model);
        assert!(store.oldest_ns() <= 0);
        assert!(store.newest_ns() / 1_000 > now_us as i64, "rows of the right time are taken");
        wall.jump_to(now_us);
        store.retain().unwrap();
    }
    assert_eq!(store.stats().dropped_samples, 0);
    wall.jump_to(now_us + 10 * 365 * 86_400_000_000);
    clock.hold().unwrap();
    assert_eq!(clock.accept(), Acceptance::Released);
    store.retain().unwrap();
    assert!(contents(&store).is_empty());
    let stats = store.stats();
    assert!(stats.dropped_samples > 0 && stats.dropped_bytes > 0, "{stats:?}");
}
