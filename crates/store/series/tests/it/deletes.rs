//! The cost of a delete, and the time at which its space is released.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{contents, open, options};
use env::clock::ManualClock;
use env::files::{Files, SimDisk};
use series::{Ack, Batch, Selector, Store, StoreOptions, TimeRange, Wal};

const SECOND: i64 = 1_000_000_000;

/// Writes a row every ten seconds for some hours.
fn hours(store: &Store, from: i64, to: i64) {
    let (row, mut batch) = (store.row(b"load host=a").unwrap(), Batch::new());
    for i in from * 360..to * 360 {
        batch.push(row, i * 10 * SECOND, &[i as f64]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
}

#[test]
fn delete_rewrites_no_part_without_the_series() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    hours(&store, 0, 12);
    let rare = store.row(b"rare host=z").unwrap();
    let mut batch = Batch::new();
    batch.push(rare, 5 * 3600 * SECOND, &[1.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    store.merge().unwrap();
    let (before, all) = (store.stats(), contents(&store));
    assert_eq!((before.parts, before.rollups), (6, 6));
    store.delete(&Selector::metric("rare"), TimeRange::ALL).unwrap();
    store.seal().unwrap();
    let outcome = store.merge().unwrap();
    assert_eq!((outcome.parts_before, store.stats().tombstones), (2, 0), "{outcome:?}");
    assert_eq!(contents(&store).len(), all.len() - 1);
    let expected = contents(&store);
    assert_eq!(contents(&open(&disk.kill(), Wal::Always).0), expected);
    // The files of parts that were skipped are removed when all their samples are deleted.
    store.delete(&Selector::default(), TimeRange::ALL).unwrap();
    store.seal().unwrap();
    store.merge().unwrap();
    assert_eq!(disk.list(Path::new("/series/parts")).unwrap(), Vec::<String>::new());
}

#[test]
fn delete_in_an_idle_store_is_sealed_and_removes_its_samples() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(24 * 3600 * 1_000_000));
    let background = StoreOptions {
        background: true,
        clock: Arc::new(clock.clone()),
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/series"), background).unwrap();
    hours(&store, 0, 4);
    store.seal().unwrap();
    store.delete(&Selector::metric("load"), TimeRange::ALL).unwrap();
    clock.advance(Duration::from_hours(1));
    // The store checks once a second. If this never ends, the test runner times out.
    while store.stats().tombstones > 0 || store.stats().part_samples > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn parts_of_a_partition_hit_by_a_delete_are_merged_into_one() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    // In the current partition three parts alone are not worth a merge.
    let now = options(&disk, Wal::Always).clock.now_us() as i64 * 1000;
    let write = |name: &str, from: i64, count: i64| {
        let (row, mut batch) = (store.row(name.as_bytes()).unwrap(), Batch::new());
        let value = |i: i64| (i * i % 977) as f64;
        (0..count).for_each(|i| batch.push(row, now + from + 7 * i, &[value(i)]).unwrap());
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
    };
    (0..3).for_each(|part| write("load host=a", part, 1000));
    let all = store.stats();
    assert_eq!((store.merge().unwrap().parts_before, all.parts), (0, 3));
    let last = TimeRange { from_ns: now + 6000, to_ns: i64::MAX };
    store.delete(&Selector::metric("load"), last).unwrap();
    let expected = contents(&store);
    store.seal().unwrap();
    let outcome = store.merge().unwrap();
    assert_eq!((outcome.parts_before, outcome.parts_after), (3, 1), "{outcome:?}");
    // A part between two that are hit is not rewritten if it is larger than both.
    let before = store.stats().part_bytes;
    write("mem host=a", 0, 30_000);
    let mem = store.stats().part_bytes - before;
    write("load host=a", 6500, 10);
    assert_eq!(store.stats().parts, 3);
    store.delete(&Selector::metric("load"), TimeRange { from_ns: now + 5000, ..last }).unwrap();
    let outcome = {
        store.seal().unwrap();
        store.merge().unwrap()
    };
    assert_eq!((outcome.parts_before, outcome.parts_after), (2, 1), "{outcome:?}");
    assert!(outcome.bytes_written < mem, "{outcome:?} of {mem}");
    let mut expected = expected;
    expected.get_mut("load host=a").unwrap().retain(|time, _| *time < now + 5000);
    let mut found = contents(&store);
    assert_eq!(found.remove("mem host=a").map(|mem| mem.len()), Some(30_000));
    assert_eq!(found, expected);
}
