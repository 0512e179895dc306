//! Files that the operating system cannot read: only their partitions are skipped, and after a day
//! of errors they count as lost.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::reads::Reads;
use crate::common::{PARTITION_S, options};
use env::clock::ManualClock;
use env::files::{Files, SimDisk};
use series::{Ack, Batch, Selector, SeriesRetention, Store, StoreOptions, TimeRange, Wal};

const SECOND: i64 = 1_000_000_000;

/// Creates a store whose samples are removed after two partitions, and whose 5-minute roll-ups are
/// kept.
fn rolling(disk: &SimDisk, clock: &ManualClock, reads: &Reads) -> Store {
    let partition = Duration::from_secs(PARTITION_S as u64);
    let options = StoreOptions {
        retention: SeriesRetention { age: Some(2 * partition), bytes_max: None },
        rollup_age: Some(1000 * partition),
        rollups_beside: false,
        clock: Arc::new(clock.clone()),
        files: Arc::new(reads.clone()),
        ..options(disk, Wal::Always)
    };
    Store::open(Path::new("/series"), options).unwrap().0
}

/// Creates a part with `samples` samples of one series in a partition, a second apart.
fn part(store: &Store, partition: i64, from: i64, samples: i64) {
    let row = store.row(b"load host=a").unwrap();
    let mut batch = Batch::new();
    for i in from..from + samples {
        batch.push(row, (partition * PARTITION_S + i) * SECOND, &[(i as f64).sin()]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
}

/// Returns the number of unreadable partitions in a manifest that has none or ends with their count.
fn unreadable_partitions(disk: &SimDisk) -> u32 {
    let manifest = disk.content(Path::new("/series/manifest")).unwrap();
    let count = manifest.len() - 8;
    u32::from_le_bytes(manifest[count..count + 4].try_into().unwrap())
}

#[test]
fn unreadable_partition_is_dropped_after_a_day_of_retries() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let reads = Reads::of(&disk);
    let store = rolling(&disk, &clock, &reads);
    (0..3).for_each(|partition| part(&store, partition, 0, 10));
    let oldest = disk.list(Path::new("/series/parts")).unwrap().remove(0);
    reads.fail(Some(&oldest));
    clock.advance(Duration::from_secs(6 * PARTITION_S as u64));
    let mut hours = 0;
    while store.stats().parts > 0 {
        let refused = (0..10).filter(|_| {
            clock.advance(Duration::from_mins(6));
            store.retain().is_err()
        });
        hours += i64::from(refused.count() > 0);
        assert!(hours < 30, "{:?}", store.stats());
    }
    assert!(hours > 20, "it went after {hours} hours of refusals");
    assert_eq!(store.stats().rollups, 2);
}

#[test]
fn refusal_time_accumulates_at_any_retry_interval() {
    for (between, tries) in [(Duration::from_mins(90), 17), (Duration::from_hours(30), 13)] {
        let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
        let reads = Reads::of(&disk);
        let store = rolling(&disk, &clock, &reads);
        part(&store, 0, 0, 10);
        clock.advance(Duration::from_secs(6 * PARTITION_S as u64));
        reads.fail(Some("part-"));
        for number in 1..=tries {
            assert!(store.retain().is_err(), "{between:?}: try {number}");
            clock.advance(between);
        }
        store.retain().unwrap();
        assert_eq!(store.stats().parts, 0, "{between:?}");
    }
}

#[test]
fn successful_merge_clears_the_refusals() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let reads = Reads::of(&disk);
    let store = rolling(&disk, &clock, &reads);
    part(&store, 0, 0, 10);
    part(&store, 0, 10, 10);
    clock.advance(Duration::from_secs(PARTITION_S as u64 * 3 / 2));
    reads.fail(Some("part-"));
    for _ in 0..3 {
        assert!(store.merge().is_err());
        clock.advance(Duration::from_mins(6));
    }
    reads.fail(None);
    store.merge().unwrap();
    assert_eq!(store.stats().parts, 1);
    store.close().unwrap();
    assert_eq!(unreadable_partitions(&disk), 0);
}

/// Creates roll-ups of three partitions whose samples were removed by age, and samples of three
/// more; then opens the store with a size limit that is a byte too small.
fn crowded(disk: &SimDisk, reads: &Reads) -> Store {
    let clock = ManualClock::at(0);
    let open = |age, bytes_max| {
        let options = StoreOptions {
            retention: SeriesRetention { age, bytes_max },
            rollup_age: Some(Duration::from_hours(24 * 365)),
            rollups_beside: false,
            clock: Arc::new(clock.clone()),
            files: Arc::new(reads.clone()),
            ..options(disk, Wal::Always)
        };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let partition = Duration::from_secs(PARTITION_S as u64);
    let store = open(Some(partition), None);
    (0..3).for_each(|p| part(&store, p, 0, 200));
    clock.advance(5 * partition);
    store.retain().unwrap();
    (5..8).for_each(|p| part(&store, p, 0, 2000));
    let stats = store.stats();
    assert_eq!((stats.parts, stats.rollups), (3, 3));
    store.close().unwrap();
    open(None, Some(stats.part_bytes + stats.rollup_bytes - 1))
}

#[test]
fn brief_read_errors_remove_no_roll_ups_by_size() {
    let disk = SimDisk::new(1);
    let reads = Reads::of(&disk);
    let store = crowded(&disk, &reads);
    reads.fail(Some("part-"));
    assert!(store.retain().is_err());
    reads.fail(None);
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (3, 3));
}

#[test]
fn refusal_time_accumulates_across_restarts() {
    let (mut disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let mut reads = Reads::of(&disk);
    let mut store = rolling(&disk, &clock, &reads);
    (0..3).for_each(|partition| part(&store, partition, 0, 10));
    let oldest = disk.list(Path::new("/series/parts")).unwrap().remove(0);
    reads.fail(Some(&oldest));
    clock.advance(Duration::from_secs(6 * PARTITION_S as u64));
    let mut hours = 0;
    while store.stats().parts > 0 {
        hours += 1;
        assert!(hours < 30, "{:?}", store.stats());
        for _ in 0..10 {
            clock.advance(Duration::from_mins(6));
            // The attempt fails, or the partition is skipped.
            let _ = store.retain();
        }
        if hours % 5 != 0 {
            continue;
        }
        disk = if hours % 10 == 0 { disk.kill() } else { disk };
        drop(store);
        // A long time without attempts does not count as refused.
        clock.advance(Duration::from_hours(20));
        reads = Reads::of(&disk);
        reads.fail(Some(&oldest));
        store = rolling(&disk, &clock, &reads);
    }
    assert!(hours > 20, "it went after {hours} hours of refusals");
    assert_eq!(store.stats().rollups, 2);
    store.close().unwrap();
    // The manifest no longer names the partition.
    assert_eq!(unreadable_partitions(&disk), 0);
}

#[test]
fn partition_with_damage_found_by_a_merge_expires_normally() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let store = rolling(&disk, &clock, &Reads::of(&disk));
    part(&store, 0, 0, 200);
    let first = disk.list(Path::new("/series/parts")).unwrap().remove(0);
    part(&store, 0, 200, 200);
    disk.flip(&Path::new("/series/parts").join(first), 500, 2);
    clock.advance(Duration::from_secs(PARTITION_S as u64 * 3 / 2));
    assert!(store.merge().is_err());
    clock.advance(Duration::from_secs(2 * PARTITION_S as u64));
    store.retain().unwrap();
    assert_eq!(store.stats().parts, 0);
}

#[test]
fn damaged_part_does_not_mask_a_read_error_of_another() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let reads = Reads::of(&disk);
    let store = rolling(&disk, &clock, &reads);
    (0..2).for_each(|i| part(&store, 0, 200 * i, 200));
    let names = disk.list(Path::new("/series/parts")).unwrap();
    disk.flip(&Path::new("/series/parts").join(&names[0]), 500, 2);
    clock.advance(Duration::from_secs(4 * PARTITION_S as u64));
    // Their indexes are cached, the chunks are not.
    let series = store.find(&Selector::metric("load")).remove(0);
    store.snapshot().summary(&series, TimeRange::ALL).unwrap();
    reads.fail(Some(&names[1]));
    assert!(store.retain().is_err());
    assert_eq!(store.stats().parts, 2);
}
