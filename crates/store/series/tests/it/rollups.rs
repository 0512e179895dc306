//! Roll-ups agree with the samples, under late rows, deletes and retention, and remain when the
//! samples are removed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::reads::Reads;
use crate::common::{
    Draw, Model, PARTITION_S, Samples, apply, batch, bury, delete, is_marker, options, read,
};
use env::clock::ManualClock;
use env::files::{Files, SimDisk};
use series::{
    Ack, Batch, Direction, Selector, SeriesRetention, Store, StoreOptions, Summary, TimeRange, Wal,
    WriteError,
};

const SECOND: i64 = 1_000_000_000;
const PARTITION_NS: i64 = PARTITION_S * SECOND;
const RAW: i64 = 8;
const FINE: i64 = 10;
const HOURLY: i64 = 12;

fn partitions(n: i64) -> Duration {
    Duration::from_secs((n * PARTITION_S) as u64)
}

fn opened(disk: &SimDisk, clock: &ManualClock, rollups_beside: bool) -> Store {
    let options = StoreOptions {
        retention: SeriesRetention { age: Some(partitions(RAW)), bytes_max: None },
        rollup_age: Some(partitions(FINE)),
        hourly_age: Some(partitions(HOURLY)),
        rollups_beside,
        clock: Arc::new(clock.clone()),
        ..options(disk, Wal::Always)
    };
    Store::open(Path::new("/series"), options).unwrap().0
}

fn float(text: &str) -> f64 {
    match text.split_at(1) {
        ("f", bits) => f64::from_bits(u64::from_str_radix(bits, 16).unwrap()),
        (_, integer) => integer.parse::<i64>().unwrap() as f64,
    }
}

/// Samples of removed partitions, by name and start of the bucket.
type Rolled = BTreeMap<String, BTreeMap<i64, Samples>>;

/// Puts samples into buckets of `step_s` seconds.
fn rebucket(samples: Samples, step_s: impl Fn(i64) -> i64, into: &mut BTreeMap<i64, Samples>) {
    // A roll-up has no markers of a series' end.
    for (time, value) in samples.into_iter().filter(|(_, value)| !is_marker(value)) {
        let width = step_s(time) * SECOND;
        into.entry(time.div_euclid(width) * width).or_default().insert(time, value);
    }
}

#[derive(Default)]
struct Expected {
    raw: Model,
    rolled: Rolled,
}

impl Expected {
    /// Applies one round of retention.
    fn retain(&mut self, now_ns: i64) {
        let gone = |time: i64, age: i64| {
            (time.div_euclid(PARTITION_NS) + 1) * PARTITION_NS <= now_ns - age * PARTITION_NS
        };
        for (name, samples) in &mut self.raw {
            let (old, kept): (Samples, Samples) =
                std::mem::take(samples).into_iter().partition(|(t, _)| gone(*t, RAW));
            *samples = kept;
            if !name.starts_with('!') {
                rebucket(old, |_| 300, self.rolled.entry(name.clone()).or_default());
            }
        }
        self.raw.retain(|_, samples| !samples.is_empty());
        for buckets in self.rolled.values_mut() {
            let kept = std::mem::take(buckets).into_values().flatten();
            let kept = kept.filter(|(t, _)| !gone(*t, HOURLY)).collect();
            rebucket(kept, |t| if gone(t, FINE) { 3600 } else { 300 }, buckets);
        }
    }

    /// Applies a delete, which removes whole buckets.
    fn bury(&mut self, store: &Store, selector: &Selector, range: TimeRange) {
        bury(&mut self.raw, store, selector, range);
        for series in store.find(selector) {
            let Some(buckets) = self.rolled.get_mut(&series.name()) else { continue };
            buckets.retain(|_, samples| {
                let (first, last) = (samples.keys().next(), samples.keys().next_back());
                !(range.from_ns <= *last.unwrap() && *first.unwrap() < range.to_ns)
            });
        }
    }

    fn samples(&self, name: &str) -> Vec<(i64, f64)> {
        let rolled = self.rolled.get(name).into_iter().flat_map(BTreeMap::values).flatten();
        let raw = self.raw.get(name).into_iter().flatten();
        let all = rolled.chain(raw).filter(|(_, value)| !is_marker(value));
        let mut all: Vec<_> = all.map(|(t, v)| (*t, float(v))).collect();
        all.sort_by_key(|(t, _)| *t);
        all
    }
}

fn summary(samples: &[(i64, f64)]) -> Option<Summary> {
    let mut all: Option<Summary> = None;
    for (time, value) in samples {
        let one = Summary::of(*time, *value);
        match &mut all {
            Some(all) => all.add(&one),
            None => all = Some(one),
        }
    }
    all
}

/// Compares all fields bit by bit, except for the sum, which may differ by rounding.
fn same(found: &Summary, expected: &Summary, when: &str) {
    let exact = |s: &Summary| {
        let bits = [s.min, s.max, s.first, s.last].map(f64::to_bits);
        (s.count, bits, s.first_ns, s.last_ns)
    };
    assert_eq!(exact(found), exact(expected), "{when}");
    if !found.min.is_nan() {
        assert_eq!((found.min_ns, found.max_ns), (expected.min_ns, expected.max_ns), "{when}");
    }
    let scale = expected.sum.abs().max(found.max.abs()).max(found.min.abs()).max(1.0);
    let near = (found.sum - expected.sum).abs() <= scale * 1e-9;
    assert!(
        near || found.sum.is_nan() == expected.sum.is_nan() && !found.sum.is_finite(),
        "{when}"
    );
}

fn check(store: &Store, expected: &Expected, draw: &mut Draw, when: &str) {
    let snapshot = store.snapshot();
    for series in store.find(&Selector::default()) {
        let raw = read(&snapshot, &series, TimeRange::ALL, Direction::Forward);
        let model = expected.raw.get(&series.name()).into_iter().flatten();
        let model: Vec<(i64, String)> = model.map(|(t, v)| (*t, v.clone())).collect();
        assert_eq!(raw, model, "{when}: samples of {}", series.name());
        if series.is_events() {
            continue;
        }
        let when = format!("{when}: {}", series.name());
        let step_s = [60, 300, 600, 3600, 7200, 86_400][draw.below(6) as usize];
        let first = draw.below(20) as i64 * 3600 * SECOND;
        let last = first + draw.below(24) as i64 * 3600 * SECOND;
        let range = TimeRange { from_ns: first, to_ns: last };
        let samples = expected.samples(&series.name());
        let inside: Vec<_> = samples.into_iter().filter(|(t, _)| range.contains(*t)).collect();
        let found = snapshot.summary(&series, range).unwrap();
        assert_eq!(found.is_some(), !inside.is_empty(), "{when}");
        if let Some(found) = found {
            let seen = store.find_in(&snapshot, &Selector::default(), range);
            assert!(seen.iter().any(|s| s.name() == series.name()), "{when}");
            same(&found, &summary(&inside).unwrap(), &when);
        }
        // Roll-ups contain no steps finer than their buckets.
        if step_s >= 3600 || expected.rolled.values().all(BTreeMap::is_empty) {
            steps(
                &snapshot.steps(&series, range, step_s * SECOND).unwrap(),
                &inside,
                first,
                step_s,
                &when,
            );
        }
    }
}

fn steps(found: &[(i64, Summary)], samples: &[(i64, f64)], from: i64, step_s: i64, when: &str) {
    let mut expected: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for (time, value) in samples {
        expected
            .entry((time - from).div_euclid(step_s * SECOND))
            .or_default()
            .push((*time, *value));
    }
    let (a, b): (Vec<i64>, Vec<i64>) =
        (found.iter().map(|(i, _)| *i).collect(), expected.keys().copied().collect());
    assert_eq!(a, b, "{when} by {step_s} s");
    for ((_, found), samples) in found.iter().zip(expected.values()) {
        same(found, &summary(samples).unwrap(), &format!("{when} by {step_s} s"));
    }
}

fn run(seed: u64, steps: u64) -> (u64, bool) {
    let (disk, mut draw) = (SimDisk::new(seed), Draw(seed));
    let clock = ManualClock::at((7 * PARTITION_S as u64) * 1_000_000);
    let mut now_s = 7 * PARTITION_S;
    // Roll-ups are created next to the samples, or only when those are removed.
    let beside = !seed.is_multiple_of(4);
    let mut store = opened(&disk, &clock, beside);
    let (mut expected, mut clock_s, mut rollups) = (Expected::default(), 1000, 0);
    let mut alone = false;
    for step in 0..steps {
        match draw.below(12) {
            0 | 1 => drop(store.seal().unwrap()),
            2 | 3 => drop(store.merge().unwrap()),
            4 => {
                let (selector, range) = delete(&mut draw);
                store.delete(&selector, range).unwrap();
                expected.bury(&store, &selector, range);
            }
            5 => {
                store.close().unwrap();
                store = opened(&disk, &clock, beside);
            }
            6 if step > steps / 2 => {
                let more = draw.below(PARTITION_S as u64 * 2);
                clock.advance(Duration::from_secs(more));
                now_s += more as i64;
                store.seal().unwrap();
                store.retain().unwrap();
                expected.retain(now_s * SECOND);
            }
            _ => {
                let (it, change) = batch(&store, &mut draw, &mut clock_s);
                match store.write(it, Ack::Persisted) {
                    Ok(_) => apply(&mut expected.raw, &change),
                    Err(WriteError::TooOld { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        }
        rollups = rollups.max(store.stats().rollups);
        alone |= expected.rolled.values().any(|b| !b.is_empty());
        check(&store, &expected, &mut draw, &format!("seed {seed} step {step}"));
    }
    (rollups, alone)
}

#[test]
fn roll_ups_match_the_samples_and_outlive_them() {
    let soak = std::env::var("HOLDFAST_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1u64);
    let (mut rollups, mut alone) = (0, 0);
    for seed in 0..20 * soak {
        let (some, was) = run(seed, 50);
        rollups += some;
        alone += u64::from(was);
    }
    assert!(rollups > 20 && alone > 5, "nothing was tried: {rollups} {alone}");
}

#[test]
fn roll_ups_without_samples_survive_an_open_by_a_tool() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(1_000_000));
    let store = opened(&disk, &clock, false);
    write(&store, (0..720).map(|i| i * 10));
    clock.advance(partitions(RAW + 2));
    store.retain().unwrap();
    let rolled = store.stats().rollups;
    assert_eq!((rolled, store.stats().part_samples), (1, 0));
    store.close().unwrap();
    clock.advance(partitions(1000));
    let kept = options(&disk, Wal::Always).keeping_all();
    let kept = StoreOptions { clock: Arc::new(clock.clone()), ..kept };
    let (store, _) = Store::open(Path::new("/series"), kept).unwrap();
    store.retain().unwrap();
    assert_eq!(store.stats().rollups, rolled);
    store.close().unwrap();
    // Its own options define the retention.
    let store = opened(&disk, &clock, false);
    store.retain().unwrap();
    assert_eq!(store.stats().rollups, 0);
}

#[test]
fn deleting_all_samples_removes_the_roll_up() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(8 * PARTITION_S as u64 * 1_000_000));
    let store = opened(&disk, &clock, true);
    let row = store.row(b"load host=a").unwrap();
    let mut it = Batch::new();
    for i in 0..720 {
        it.push(row, i * 10 * SECOND, &[i as f64]).unwrap();
    }
    store.write(it, Ack::Persisted).unwrap();
    store.seal().unwrap();
    store.merge().unwrap();
    assert_eq!(store.stats().rollups, 1);
    store.delete(&Selector::metric("load"), TimeRange::ALL).unwrap();
    store.seal().unwrap();
    store.merge().unwrap();
    let stats = store.stats();
    assert_eq!((stats.rollups, stats.parts, stats.tombstones), (0, 0, 0));
}

#[test]
fn store_without_retention_keeps_roll_ups_of_dropped_samples() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let store = opened(&disk, &clock, false);
    for partition in 0..3 {
        write(&store, (0..720).map(|i| partition * PARTITION_S + i * 10));
    }
    clock.advance(partitions(FINE + 2));
    store.retain().unwrap();
    store.close().unwrap();
    // Tools open the store like this.
    let bare = |retention| {
        let options = StoreOptions { retention, clock: Arc::new(clock.clone()), ..tool(&disk) };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let store = bare(SeriesRetention::default());
    store.retain().unwrap();
    let series = store.find(&Selector::metric("load")).remove(0);
    let all = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
    assert_eq!((all.count, store.stats().rollups), (3 * 720, 3));
    store.close().unwrap();
    // Without an age limit of their own, roll-ups are removed with the samples.
    let store = bare(SeriesRetention { age: Some(partitions(RAW)), bytes_max: None });
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (0, 0));
}

/// Returns the options of a tool that opens a store with defaults.
fn tool(disk: &SimDisk) -> StoreOptions {
    StoreOptions { background: false, files: Arc::new(disk.clone()), ..StoreOptions::default() }
}

#[test]
fn brief_read_error_keeps_the_roll_up() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let reads = Reads::of(&disk);
    let options = StoreOptions {
        retention: SeriesRetention { age: Some(partitions(RAW)), bytes_max: None },
        rollup_age: Some(partitions(HOURLY)),
        rollups_beside: false,
        clock: Arc::new(clock.clone()),
        files: Arc::new(reads.clone()),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let mut it = Batch::new();
    for host in ["a", "b"] {
        let row = store.row(format!("load host={host}").as_bytes()).unwrap();
        for i in 0..720 {
            it.push(row, i * 10 * SECOND, &[i as f64]).unwrap();
        }
    }
    store.write(it, Ack::Persisted).unwrap();
    store.seal().unwrap();
    clock.advance(partitions(RAW + 1));
    let count = |store: &Store| -> Vec<u64> {
        let all = store.find(&Selector::metric("load"));
        let of = |s| store.snapshot().summary(s, TimeRange::ALL).unwrap().unwrap().count;
        all.iter().map(of).collect()
    };
    // The first failure is at the removal of the samples, the second at the recreation of the
    // roll-up after a delete.
    reads.fail(Some("part-"));
    assert!(store.retain().is_err());
    reads.fail(None);
    clock.advance(Duration::from_mins(6));
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (0, 1));
    assert_eq!(count(&store), [720, 720]);
    let range = TimeRange { from_ns: 0, to_ns: 300 * SECOND };
    store.delete(&Selector::metric("load").with("host", "a"), range).unwrap();
    store.seal().unwrap();
    reads.fail(Some("part-"));
    assert!(store.merge().is_err());
    reads.fail(None);
    assert_eq!(count(&store), [690, 720]);
    clock.advance(Duration::from_mins(6));
    store.merge().unwrap();
    assert_eq!((count(&store), store.stats().tombstones), (vec![690, 720], 0));
}

#[test]
fn unreadable_partitions_do_not_block_retention_of_others() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let reads = Reads::of(&disk);
    let options = StoreOptions {
        retention: SeriesRetention { age: Some(partitions(RAW)), bytes_max: None },
        rollup_age: Some(partitions(10 * HOURLY)),
        rollups_beside: false,
        clock: Arc::new(clock.clone()),
        files: Arc::new(reads.clone()),
        ..options(&disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let row = store.row(b"load host=a").unwrap();
    for partition in 0..17 {
        let mut it = Batch::new();
        it.push(row, partition * PARTITION_NS, &[1.0]).unwrap();
        store.write(it, Ack::Persisted).unwrap();
        store.seal().unwrap();
    }
    clock.advance(partitions(RAW + 17));
    // These are the first fifteen parts.
    reads.fail(Some("part-000000000000000"));
    assert!(store.retain().is_err());
    assert_eq!((store.stats().parts, store.stats().rollups), (15, 2));
    store.retain().unwrap();
    reads.fail(None);
    clock.advance(Duration::from_mins(6));
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (0, 17));
}

/// Writes samples of one series at these seconds as a part.
fn write(store: &Store, times_s: impl Iterator<Item = i64>) {
    let row = store.row(b"load host=a").unwrap();
    let mut it = Batch::new();
    times_s.for_each(|t| it.push(row, t * SECOND, &[(t as f64).sin()]).unwrap());
    store.write(it, Ack::Persisted).unwrap();
    store.seal().unwrap();
}

#[test]
fn late_samples_are_added_to_the_hourly_bucket() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let year = Duration::from_hours(24 * 365);
    let opened = |age, bytes_max, rollup_age| {
        let options = StoreOptions {
            retention: SeriesRetention { age, bytes_max },
            rollup_age,
            hourly_age: Some(year),
            rollups_beside: false,
            clock: Arc::new(clock.clone()),
            ..options(&disk, Wal::Always)
        };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let store = opened(Some(partitions(1)), None, None);
    write(&store, (0..720).map(|i| i * 10));
    clock.advance(partitions(3));
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (0, 1));
    store.close().unwrap();
    // From now on retention by size keeps 5-minute roll-ups. The limit is exceeded slightly.
    let store = opened(None, None, Some(year));
    write(&store, (0..720).map(|i| 3 * PARTITION_S + i * 10));
    write(&store, [1925].into_iter());
    let bytes = store.stats().part_bytes + store.stats().rollup_bytes;
    store.close().unwrap();
    let store = opened(None, Some(bytes - 1), Some(year));
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (1, 1));
    let series = store.find(&Selector::metric("load")).remove(0);
    let range = TimeRange { from_ns: 0, to_ns: PARTITION_NS };
    let steps = store.snapshot().steps(&series, range, 300 * SECOND).unwrap();
    let counts: Vec<(i64, u64)> = steps.iter().map(|(step, some)| (*step, some.count)).collect();
    assert_eq!(counts, [(0, 361), (12, 360)]);
}

#[test]
fn damaged_late_part_does_not_remove_roll_ups_of_others() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(0));
    let opened = |age, bytes_max| {
        let options = StoreOptions {
            retention: SeriesRetention { age, bytes_max },
            rollup_age: Some(partitions(1000)),
            rollups_beside: false,
            clock: Arc::new(clock.clone()),
            ..options(&disk, Wal::Always)
        };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let store = opened(Some(partitions(1)), None);
    write(&store, (0..720).map(|i| i * 10));
    clock.advance(partitions(3));
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (0, 1));
    store.close().unwrap();
    let store = opened(None, None);
    write(&store, (0..720).map(|i| 3 * PARTITION_S + i * 10));
    write(&store, [1925].into_iter());
    let bytes = store.stats().part_bytes + store.stats().rollup_bytes;
    store.close().unwrap();
    let late = disk.list(Path::new("/series/parts")).unwrap().pop().unwrap();
    let path = Path::new("/series/parts").join(late);
    // With a damaged end of its index, none of its rows is found.
    disk.flip(&path, disk.content(&path).unwrap().len() - 1, 2);
    let store = opened(None, Some(bytes - 1));
    store.retain().unwrap();
    assert_eq!((store.stats().parts, store.stats().rollups), (1, 1));
    let series = store.find(&Selector::metric("load")).remove(0);
    let range = TimeRange { from_ns: 0, to_ns: PARTITION_NS };
    let all = store.snapshot().summary(&series, range).unwrap().unwrap();
    assert_eq!(all.count, 720);
}
