//! Random operations compared with a map.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{
    Draw, Model, PARTITION_S, apply, batch, bury, contents, delete, is_marker, open, options, read,
    write,
};
use env::files::SimDisk;
use series::{Direction, Extreme, Selector, SeriesRetention, Store, StoreOptions, TimeRange, Wal};

const SECOND: i64 = 1_000_000_000;

fn soak() -> u64 {
    std::env::var("HOLDFAST_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Runs random steps with a store. Panics if store and model differ.
fn run(seed: u64, steps: u64) {
    let disk = SimDisk::new(seed);
    let mut draw = Draw(seed);
    let wals = [Wal::Always, Wal::Off, Wal::Interval(std::time::Duration::from_millis(50))];
    let (mut store, _) = open(&disk, wals[draw.below(3) as usize]);
    let (mut model, mut clock_s) = (Model::new(), 1000);
    for step in 0..steps {
        match draw.below(14) {
            0 => {
                store.seal().unwrap();
            }
            1 => {
                store.merge().unwrap();
            }
            2 => {
                let (selector, range) = delete(&mut draw);
                store.delete(&selector, range).unwrap();
                bury(&mut model, &store, &selector, range);
            }
            3 => {
                store.close().unwrap();
                let report;
                (store, report) = open(&disk, wals[draw.below(3) as usize]);
                assert!(report.clean && report.replayed_samples == 0, "seed {seed} step {step}");
            }
            4 => {
                // A delete is followed by rows in the same range.
                let (selector, range) = delete(&mut draw);
                store.delete(&selector, range).unwrap();
                bury(&mut model, &store, &selector, range);
                let mut from_s = range.from_ns / SECOND;
                let (batch, change) = batch(&store, &mut draw, &mut from_s);
                write(&store, batch).unwrap();
                apply(&mut model, &change);
            }
            5 if step % 4 == 0 => {
                store.close().unwrap();
                store = by_size(&disk, wals[draw.below(3) as usize], &mut model, &mut draw);
            }
            _ => {
                let (batch, change) = batch(&store, &mut draw, &mut clock_s);
                write(&store, batch).unwrap();
                apply(&mut model, &change);
            }
        }
        assert_eq!(contents(&store), model, "seed {seed} step {step}");
        compare_random_range(&store, &model, &mut draw);
    }
}

/// Applies retention by size: removes the oldest partitions until the rest fits. Returns the store,
/// reopened without retention.
fn by_size(disk: &SimDisk, wal: Wal, model: &mut Model, draw: &mut Draw) -> Store {
    let bytes_max = 4000 + draw.below(20_000);
    let retention = SeriesRetention { bytes_max: Some(bytes_max), ..SeriesRetention::default() };
    let options = StoreOptions { retention, ..options(disk, wal) };
    let (store, _) = Store::open(Path::new("/series"), options).unwrap();
    let bytes = |store: &Store| store.stats().part_bytes + store.stats().rollup_bytes;
    let before = bytes(&store);
    let removed = store.retain().unwrap().bytes_removed;
    assert!(bytes(&store) <= bytes_max, "{} of {bytes_max}", bytes(&store));
    assert_eq!(before - removed, bytes(&store));
    assert!((removed == 0) == (before <= bytes_max), "{removed} of {before} for {bytes_max}");
    let found = contents(&store);
    let first = found.values().flat_map(|s| s.keys()).min().copied().unwrap_or(i64::MAX);
    let first = first.div_euclid(PARTITION_S * SECOND).saturating_mul(PARTITION_S * SECOND);
    for samples in model.values_mut() {
        samples.retain(|time, _| *time >= first);
    }
    model.retain(|_, samples| !samples.is_empty());
    store.close().unwrap();
    open(disk, wal).0
}

/// Compares a random range of a random series in a random direction.
fn compare_random_range(store: &Store, model: &Model, draw: &mut Draw) {
    let all = store.find(&Selector::default());
    let Some(series) = all.get(draw.below(all.len().max(1) as u64) as usize) else { return };
    let from_ns = draw.below(36_000) as i64 * 1_000_000_000;
    let range = TimeRange { from_ns, to_ns: from_ns + draw.below(20_000) as i64 * 1_000_000_000 };
    let expected: Vec<(i64, String)> = model
        .get(&series.name())
        .into_iter()
        .flatten()
        .filter(|(t, _)| range.contains(**t))
        .map(|(t, v)| (*t, v.clone()))
        .collect();
    let snapshot = store.snapshot();
    assert_eq!(read(&snapshot, series, range, Direction::Forward), expected);
    let mut backward = read(&snapshot, series, range, Direction::Backward);
    backward.reverse();
    assert_eq!(backward, expected);
    if series.is_events() {
        return;
    }
    let expected: Vec<_> = expected.into_iter().filter(|(_, value)| !is_marker(value)).collect();
    let count: u64 = snapshot.summary(series, range).unwrap().map_or(0, |s| s.count);
    assert_eq!(count, expected.len() as u64);
    let steps = snapshot.steps(series, range, 600_000_000_000).unwrap();
    assert_eq!(steps.iter().map(|(_, s)| s.count).sum::<u64>(), count);
    let last = |s: &series::Summary| s.last_ns;
    assert_eq!(steps.last().map(|(_, s)| last(s)), expected.last().map(|(t, _)| *t));
    extremes(&snapshot, &all, range);
}

/// Checks the extremes of all series together against their summaries.
fn extremes(snapshot: &series::Snapshot, all: &[series::Series], range: TimeRange) {
    let step_ns = 600_000_000_000;
    let mut expected: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    let (mut smallest, mut largest) = (BTreeMap::new(), BTreeMap::new());
    for series in all.iter().filter(|s| !s.is_events()) {
        for (step, s) in snapshot.steps(series, range, step_ns).unwrap() {
            let all = expected.entry(step).or_insert((f64::NAN, f64::NAN));
            *all = (all.0.min(s.min), all.1.max(s.max));
        }
        let into = &mut smallest;
        snapshot.extremes(series, range, step_ns, Extreme::Smallest, into).unwrap();
        snapshot.extremes(series, range, step_ns, Extreme::Largest, &mut largest).unwrap();
    }
    let steps = |of: &BTreeMap<i64, series::Summary>| of.keys().copied().collect::<Vec<i64>>();
    assert_eq!(steps(&smallest), expected.keys().copied().collect::<Vec<i64>>());
    assert_eq!(steps(&largest), steps(&smallest));
    for (step, (min, max)) in expected {
        let same = |a: f64, b: f64| (a.is_nan() && b.is_nan()) || (a - b).abs() <= 0.0;
        let (a, b) = (smallest[&step].min, largest[&step].max);
        assert!(same(a, min) && same(b, max), "step {step}: {a} {b} instead of {min} {max}");
    }
}

#[test]
fn queries_return_what_was_written() {
    for seed in 0..10 * soak() {
        run(seed, 60);
    }
}

#[test]
fn chunk_summaries_equal_the_summaries_of_their_samples() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    let row = store.row(b"load host=a").unwrap();
    let mut it = series::Batch::new();
    for i in 0..3000i64 {
        it.push(row, i * 10_000_000_000, &[((i * 37) % 1000) as f64 / 10.0]).unwrap();
    }
    write(&store, it).unwrap();
    let series = store.find(&Selector::metric("load")).remove(0);
    let before = store.snapshot();
    let from_head = before.summary(&series, TimeRange::ALL).unwrap().unwrap();
    store.seal().unwrap();
    let from_parts = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
    assert!((from_head.sum - from_parts.sum).abs() < 1e-6);
    let plain = |mut s: series::Summary| {
        s.sum = 0.0;
        s
    };
    assert_eq!(plain(from_head), plain(from_parts));
    assert_eq!(before.summary(&series, TimeRange::ALL).unwrap().unwrap().count, 3000);
}
