//! Scans over chunks that overlap in time use little memory, and return the latest values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::reads::Reads;
use crate::common::{Draw, open, options};
use env::files::SimDisk;
use series::{
    Ack, Batch, Direction, PARTITION_NS, Selector, Series, Snapshot, Store, StoreOptions, Summary,
    TimeRange, Wal,
};

const NAME: &str = "cpu host=a";
/// Samples of a window, and the maximum number in memory: a window is cut at eight times as many,
/// and then a chunk of 1,024 may be added.
const WINDOW: usize = 1024;
const WINDOW_MAX: usize = 9 * WINDOW + 1024;

type Samples = BTreeMap<i64, f64>;

/// Writes samples at these times, each with a distinct value.
fn write(store: &Store, expected: &mut Samples, times: &[i64]) {
    let row = store.row(NAME.as_bytes()).unwrap();
    for some in times.chunks(1000) {
        let mut batch = Batch::new();
        for time in some {
            let value = expected.len() as f64 + 0.5 * f64::from(expected.contains_key(time));
            expected.insert(*time, value);
            batch.push(row, *time, &[value]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
    }
}

fn scanned(snapshot: &Snapshot, series: &Series, range: TimeRange, way: Direction) -> Vec<i64> {
    let mut bits = Vec::new();
    for run in snapshot.scan(series, range, way).with_rows(WINDOW) {
        let run = run.unwrap();
        assert!(run.times.len() <= WINDOW_MAX, "{} samples at once", run.times.len());
        let values = run.values.to_f64();
        bits.extend(run.times.iter().zip(&*values).flat_map(|(t, v)| [*t, v.to_bits() as i64]));
    }
    bits
}

/// Checks the samples in a range, in both directions, and their summary.
fn check(store: &Store, expected: &Samples, range: TimeRange) {
    let series = store.find(&Selector::metric("cpu")).remove(0);
    let snapshot = store.snapshot();
    let inside: Vec<(i64, f64)> =
        expected.range(range.from_ns..range.to_ns).map(|(t, v)| (*t, *v)).collect();
    let bits = |(t, v): &(i64, f64)| [*t, v.to_bits() as i64];
    let forward: Vec<i64> = inside.iter().flat_map(bits).collect();
    assert_eq!(scanned(&snapshot, &series, range, Direction::Forward), forward);
    let backward: Vec<i64> = inside.iter().rev().flat_map(bits).collect();
    assert_eq!(scanned(&snapshot, &series, range, Direction::Backward), backward);
    let ends = |s: Summary| (s.count, s.sum, s.min, s.max, s.first_ns, s.last_ns);
    let summary = snapshot.summary(&series, range).unwrap().map(ends);
    let each = inside.iter().map(|(t, v)| Summary::of(*t, *v));
    assert_eq!(summary, each.reduce(|all, some| all.with(&some)).map(ends));
}

fn ranges(expected: &Samples) -> [TimeRange; 3] {
    let (first, last) = (*expected.keys().next().unwrap(), *expected.keys().next_back().unwrap());
    let third = (last - first) / 3;
    let middle = TimeRange { from_ns: first + third, to_ns: last - third };
    [TimeRange { from_ns: first, to_ns: last + 1 }, middle, TimeRange { to_ns: last, ..middle }]
}

#[test]
fn fully_overlapping_parts_are_read_window_by_window() {
    let (store, _) = open(&SimDisk::new(1), Wal::Off);
    let mut expected = Samples::new();
    let apart = PARTITION_NS / 20_000;
    for part in 0..7 {
        // Each part covers two partitions. Every third time of a part is also in the previous one.
        let times: Vec<i64> = (0..5000).map(|i| (i * 8 + (part + i % 3) % 8) * apart).collect();
        write(&store, &mut expected, &times);
        store.seal().unwrap();
    }
    assert!(store.stats().parts >= 14, "{:?}", store.stats());
    for range in ranges(&expected) {
        check(&store, &expected, range);
    }
}

#[test]
fn unordered_rows_are_read_by_window_from_head_and_parts() {
    let (store, _) = open(&SimDisk::new(1), Wal::Off);
    let (mut expected, mut draw) = (Samples::new(), Draw(7));
    let times: Vec<i64> = (0..150_000).map(|_| draw.below(120_000) as i64 * 1000).collect();
    write(&store, &mut expected, &times);
    for range in ranges(&expected) {
        check(&store, &expected, range);
    }
    store.seal().unwrap();
    // The same times are written again, newest first, after the seal.
    let again: Vec<i64> = expected.keys().rev().copied().step_by(2).collect();
    write(&store, &mut expected, &again);
    for range in ranges(&expected) {
        check(&store, &expected, range);
    }
}

#[test]
fn unordered_parts_are_read_once_not_once_per_window() {
    const PARTS: u64 = 100;
    let disk = SimDisk::new(1);
    let reads = Reads::of(&disk);
    let options = StoreOptions { files: Arc::new(reads.clone()), ..options(&disk, Wal::Off) };
    let (store, _) = Store::open("/series".as_ref(), options).unwrap();
    let (mut expected, mut draw) = (Samples::new(), Draw(7));
    for _ in 0..PARTS {
        let times: Vec<i64> = (0..1000).map(|_| draw.below(7_000_000) as i64 * 1_000_000).collect();
        write(&store, &mut expected, &times);
        store.seal().unwrap();
    }
    let series = store.find(&Selector::metric("cpu")).remove(0);
    let snapshot = store.snapshot();
    for way in [Direction::Forward, Direction::Backward] {
        let before = reads.count();
        let found = scanned(&snapshot, &series, TimeRange::ALL, way);
        assert_eq!(found.len(), 2 * expected.len());
        let read = reads.count() - before;
        assert!(read <= 6 * PARTS, "{read} reads of {PARTS} chunks");
    }
    check(&store, &expected, ranges(&expected)[1]);
}

#[test]
fn deleted_samples_stay_hidden_and_later_writes_are_visible() {
    let (store, _) = open(&SimDisk::new(1), Wal::Off);
    let mut expected = Samples::new();
    let all: Vec<i64> = (0..20_000).map(|i| i * 1000).collect();
    write(&store, &mut expected, &all);
    store.seal().unwrap();
    write(&store, &mut expected, &all.iter().map(|t| t + 500).collect::<Vec<i64>>());
    let range = TimeRange { from_ns: 3_000_000, to_ns: 17_000_000 };
    store.delete(&Selector::metric("cpu"), range).unwrap();
    expected.retain(|time, _| !range.contains(*time));
    write(&store, &mut expected, &all.iter().rev().step_by(5).copied().collect::<Vec<i64>>());
    for range in ranges(&expected) {
        check(&store, &expected, range);
    }
}
