//! What a delete costs, and when its space comes back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::clock::ManualClock;
use env::files::{Files, SimDisk};
use series::{Ack, Batch, Selector, Store, StoreOptions, TimeRange, Wal};
use support::{contents, open, options};

const SECOND: i64 = 1_000_000_000;

/// A row every ten seconds of some hours.
fn hours(store: &Store, from: i64, to: i64) {
    let (row, mut batch) = (store.row(b"load host=a").unwrap(), Batch::new());
    for i in from * 360..to * 360 {
        batch.push(row, i * 10 * SECOND, &[i as f64]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
}

#[test]
fn a_delete_writes_nothing_anew_that_has_none_of_the_series() {
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
    // Of what was passed over the files go, too, when its samples do.
    store.delete(&Selector::default(), TimeRange::ALL).unwrap();
    store.seal().unwrap();
    store.merge().unwrap();
    assert_eq!(disk.list(Path::new("/series/parts")).unwrap(), Vec::<String>::new());
}

#[test]
fn a_delete_of_a_store_that_nobody_writes_to_is_sealed_and_takes_its_samples() {
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
    // The store looks each second; the test's runner ends what never comes.
    while store.stats().tombstones > 0 || store.stats().part_samples > 0 {
        std::thread::yield_now();
    }
}
