//! Damage affects only the data that it hit: other parts, the head, other series and events are
//! read and returned with the error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::reads::Reads;
use crate::common::{PARTITION_S, open, options};
use env::files::{Files, SimDisk};
use series::{
    Ack, Batch, Direction, Selector, Series, Snapshot, Store, StoreOptions, TimeRange, Wal,
};

const SECOND: i64 = 1_000_000_000;
/// Number of rows of each source, ten seconds apart.
const ROWS: i64 = 50;

/// Writes rows of two series and events from `from` on, all in the first partition.
fn rows(store: &Store, from: i64) {
    let mut batch = Batch::new();
    for host in ["a", "b"] {
        let row = store.row(format!("load host={host}").as_bytes()).unwrap();
        for i in from..from + ROWS {
            batch.push(row, i * 10 * SECOND, &[(i as f64).sin()]).unwrap();
        }
    }
    let log = store.row(b"!log host=a").unwrap();
    for i in from..from + ROWS {
        batch.push_event(log, i * 10 * SECOND, format!("event {i}").as_bytes()).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
}

/// Creates two parts of one partition and rows in the head. A bit of the first part is flipped.
fn damaged(byte: usize) -> (Store, usize) {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    for part in 0..2 {
        rows(&store, part * ROWS);
        store.seal().unwrap();
    }
    rows(&store, 2 * ROWS);
    drop(store);
    let name = disk.list("/series/parts".as_ref()).unwrap().remove(0);
    let path = PathBuf::from("/series/parts").join(name);
    let size = disk.content(&path).unwrap().len();
    if byte < size {
        disk.flip(&path, byte, 2);
    }
    (open(&disk, Wal::Always).0, size)
}

/// Returns the number of readable samples or events of a series, and true if an error came with
/// them.
fn found(snapshot: &Snapshot, series: &Series, direction: Direction) -> (i64, bool) {
    if series.is_events() {
        return match snapshot.events(series, TimeRange::ALL, direction) {
            Ok(events) => (events.len() as i64, false),
            Err(torn) => (torn.found.len() as i64, true),
        };
    }
    let (mut samples, mut torn) = (0, false);
    for run in snapshot.scan(series, TimeRange::ALL, direction) {
        match run {
            Ok(run) => samples += run.times.len() as i64,
            Err(_) => torn = true,
        }
    }
    (samples, torn)
}

/// Does the same with summaries.
fn summed(snapshot: &Snapshot, series: &Series) -> [(i64, bool); 2] {
    let count = |s: Option<series::Summary>| s.map_or(0, |s| s.count as i64);
    let all = match snapshot.summary(series, TimeRange::ALL) {
        Ok(all) => (count(all), false),
        Err(torn) => (count(torn.found), true),
    };
    let range = TimeRange { from_ns: 0, to_ns: i64::MAX };
    let sum = |steps: &[(i64, series::Summary)]| steps.iter().map(|(_, s)| s.count as i64).sum();
    let steps = match snapshot.steps(series, range, 7 * SECOND) {
        Ok(steps) => (sum(&steps), false),
        Err(torn) => (sum(&torn.found), true),
    };
    [all, steps]
}

#[test]
fn flipped_bit_does_not_hide_healthy_samples() {
    let (_, size) = damaged(usize::MAX);
    let mut hit = 0;
    for byte in 0..size {
        let (store, _) = damaged(byte);
        let snapshot = store.snapshot();
        let mut torn = 0;
        for series in store.find(&Selector::default()) {
            for direction in [Direction::Forward, Direction::Backward] {
                let (samples, error) = found(&snapshot, &series, direction);
                // Either everything is read, or an error and at least the other part and the head.
                let whole = samples == 3 * ROWS && !error;
                let rest = samples == 2 * ROWS && error;
                assert!(whole || rest, "byte {byte}: {} {samples} {error}", series.name());
                torn += u32::from(error);
            }
            if series.is_events() {
                let scan = snapshot.scan_events(&series, TimeRange::ALL, Direction::Forward);
                let errors = scan.filter(Result::is_err).count() as u32;
                assert!(errors <= 1, "byte {byte}: one damage is told {errors} times");
                continue;
            }
            for (samples, error) in summed(&snapshot, &series) {
                let rest = samples == 2 * ROWS && error;
                assert!(rest || (samples == 3 * ROWS && !error), "byte {byte}: {samples} {error}");
            }
        }
        hit += u32::from(torn > 0);
        // In so small a part the index and its blocks are shared by all series; chunks are not.
        assert!(matches!(torn, 0 | 2 | 6), "byte {byte}: {torn}");
    }
    assert!(hit as usize > size / 2, "{hit} of {size} bytes hit anything");
}

#[test]
fn missing_part_does_not_hide_healthy_parts() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    for part in 0..3 {
        rows(&store, part * ROWS);
        store.seal().unwrap();
    }
    rows(&store, 3 * ROWS);
    drop(store);
    let name = disk.list("/series/parts".as_ref()).unwrap().remove(1);
    disk.remove(&PathBuf::from("/series/parts").join(name)).unwrap();
    let (store, _) = open(&disk, Wal::Always);
    let snapshot = store.snapshot();
    for series in store.find(&Selector::default()) {
        assert_eq!(found(&snapshot, &series, Direction::Forward), (3 * ROWS, true));
    }
    // New rows can still be written and sealed.
    rows(&store, 4 * ROWS);
    store.seal().unwrap();
    let series = store.find(&Selector::metric("load")).remove(0);
    assert_eq!(found(&store.snapshot(), &series, Direction::Backward), (4 * ROWS, true));
}

#[test]
fn damaged_index_block_affects_only_its_rows() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    let mut batch = Batch::new();
    for host in 0..2000 {
        let row = store.row(format!("load host={host:04}").as_bytes()).unwrap();
        batch.push(row, SECOND, &[f64::from(host) / 7.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    let index = store.stats().index_bytes as usize;
    drop(store);
    let name = disk.list("/series/parts".as_ref()).unwrap().remove(0);
    let path = PathBuf::from("/series/parts").join(name);
    let size = disk.content(&path).unwrap().len();
    disk.flip(&path, size - index / 2, 2);
    let (store, _) = open(&disk, Wal::Always);
    let snapshot = store.snapshot();
    let all = store.find(&Selector::default());
    let torn = all.iter().filter(|s| snapshot.summary(s, TimeRange::ALL).is_err()).count();
    assert!((1..200).contains(&torn), "{torn} series hit");
}

#[test]
fn event_scan_returns_an_error_while_reads_fail() {
    let disk = SimDisk::new(1);
    let reads = Reads::of(&disk);
    let options = StoreOptions {
        head_bytes_max: 64 << 20,
        segment_bytes: 16 << 20,
        files: Arc::new(reads.clone()),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let log = store.row(b"!log host=a").unwrap();
    let mut batch = Batch::new();
    for i in 0..3000 {
        batch.push_event(log, i * SECOND, format!("event {i}").as_bytes()).unwrap();
    }
    let other = store.row(b"load host=a").unwrap();
    for partition in 0..1000 {
        batch.push(other, partition * PARTITION_S * SECOND, &[1.5]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    let snapshot = store.snapshot();
    let of = |metric| store.find(&Selector::metric(metric)).remove(0);
    let mut scan = snapshot.scan_events(&of("!log"), TimeRange::ALL, Direction::Forward);
    assert!(scan.next().unwrap().is_ok());
    // Reads parts until the first one is dropped from the cache.
    snapshot.summary(&of("load"), TimeRange::ALL).unwrap().unwrap();
    reads.fail(Some("part-"));
    assert!(scan.next().unwrap().is_err());
}

#[test]
fn damaged_header_of_a_shared_part_file_is_reported_once() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    let row = store.row(b"load host=a").unwrap();
    let mut batch = Batch::new();
    (0..20).for_each(|i| batch.push(row, i * PARTITION_S * SECOND, &[1.0]).unwrap());
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    assert_eq!(store.stats().parts, 20);
    store.close().unwrap();
    let names = disk.list("/series/parts".as_ref()).unwrap();
    disk.flip(&PathBuf::from("/series/parts").join(&names[0]), 9, 2);
    let files: Arc<dyn Files> = Arc::new(disk);
    let damage = series::verify(Path::new("/series"), &files).unwrap();
    let of_header = damage.iter().filter(|line| line.contains("header")).count();
    assert_eq!(of_header, 1, "{damage:?}");
}
