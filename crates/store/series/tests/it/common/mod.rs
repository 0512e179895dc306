//! A map of the expected content next to the store, and random operations on both.

pub(crate) mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use env::clock::ManualClock;
use env::files::SimDisk;
use series::{
    Ack, Batch, Direction, END_OF_SERIES, NameKind, NameList, OpenReport, PARTITION_NS, Scan,
    Selector, Series, Snapshot, Store, StoreOptions, TimeRange, Value, Values, Wal, WriteError,
};

/// Seconds in a partition.
pub(crate) const PARTITION_S: i64 = 7200;

/// Names of the series of the tests' rows.
pub(crate) const ROWS: [&str; 6] = [
    "cpu.user|cpu.sys host=a",
    "load host=a",
    "cpu.user|cpu.sys host=b",
    "disk.free|disk.used|disk.io dc=1 host=b",
    // These rows share series with those above.
    "cpu.user host=a",
    "load|cpu.sys host=b",
];
pub(crate) const EVENTS: &str = "!deploy host=a";

/// The content of a series: bits of a float, or an integer as text.
pub(crate) type Samples = BTreeMap<i64, String>;
pub(crate) type Model = BTreeMap<String, Samples>;

pub(crate) fn options(disk: &SimDisk, wal: Wal) -> StoreOptions {
    StoreOptions {
        wal,
        head_bytes_max: 64 << 10,
        segment_bytes: 64 << 10,
        background: false,
        rollups_beside: true,
        files: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::at(4_000_000_000_000_000)),
        ..StoreOptions::default()
    }
}

pub(crate) fn open(disk: &SimDisk, wal: Wal) -> (Store, OpenReport) {
    Store::open(Path::new("/series"), options(disk, wal)).unwrap()
}

pub(crate) fn format_value(value: Value) -> String {
    match value {
        Value::F64(f) => format!("f{:016x}", f.to_bits()),
        Value::I64(i) => format!("i{i}"),
    }
}

/// Returns the names of a metric's series that begin with `prefix`, two at a time.
pub(crate) fn names_of(store: &Store, kind: NameKind, metric: &str, prefix: &str) -> Vec<String> {
    let list = NameList { kind, metric: metric.into() };
    let mut names = Vec::<String>::new();
    loop {
        let after = names.last().cloned().unwrap_or_default();
        let page = store.list(&list, prefix, &after, 2);
        assert!(page.len() <= 2 && page.iter().all(|name| **name > *after));
        if page.is_empty() {
            return names;
        }
        names.extend(page);
    }
}

pub(crate) fn contents(store: &Store) -> Model {
    let snapshot = store.snapshot();
    let mut found = Model::new();
    for series in store.find(&Selector::default()) {
        let samples = read(&snapshot, &series, TimeRange::ALL, Direction::Forward);
        if !samples.is_empty() {
            found.insert(series.name(), samples.into_iter().collect());
        }
    }
    found_where_they_are(store, &snapshot, &found);
    found
}

/// Checks that a search in a partition finds the series that have samples there.
fn found_where_they_are(store: &Store, snapshot: &Snapshot, contents: &Model) {
    let mut partitions: BTreeMap<i64, BTreeSet<&String>> = BTreeMap::new();
    for (name, samples) in contents {
        for time in samples.keys() {
            partitions.entry(time.div_euclid(PARTITION_NS)).or_default().insert(name);
        }
    }
    for (partition, expected) in partitions {
        let from_ns = partition * PARTITION_NS;
        let range = TimeRange { from_ns, to_ns: from_ns + PARTITION_NS };
        let found = store.find_in(snapshot, &Selector::default(), range);
        let found: BTreeSet<String> = found.iter().map(Series::name).collect();
        let missing: Vec<_> = expected.iter().filter(|name| !found.contains(**name)).collect();
        assert!(missing.is_empty(), "{missing:?} in partition {partition}");
    }
}

/// Returns true for a marker of a series' end.
pub(crate) fn is_marker(value: &str) -> bool {
    value == format_value(Value::F64(f64::from_bits(END_OF_SERIES)))
}

/// Returns the samples of a series with its markers. Checks that a scan without them has the rest.
pub(crate) fn read(
    snapshot: &Snapshot,
    series: &Series,
    range: TimeRange,
    direction: Direction,
) -> Vec<(i64, String)> {
    if series.is_events() {
        let events = snapshot.events(series, range, direction).unwrap();
        return events
            .into_iter()
            .map(|e| (e.time_ns, String::from_utf8(e.text).unwrap()))
            .collect();
    }
    let scan = || snapshot.scan(series, range, direction);
    let all = samples_of(scan().with_markers());
    let mut rest = all.clone();
    rest.retain(|(_, value)| !is_marker(value));
    assert_eq!(samples_of(scan()), rest);
    all
}

fn samples_of(scan: Scan) -> Vec<(i64, String)> {
    let mut samples = Vec::new();
    for run in scan {
        let run = run.unwrap();
        assert!(!run.times.is_empty());
        for (i, time) in run.times.iter().enumerate() {
            samples.push((*time, format_value(run.values.get(i).unwrap())));
        }
        assert!(matches!(run.values, Values::F64(_) | Values::I64(_)));
    }
    samples
}

/// A pseudo-random generator with a seed.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn value(&mut self) -> Value {
        match self.below(20) {
            0 => Value::F64(f64::NAN),
            1 => Value::F64(-0.0),
            2 => Value::I64(i64::MAX - self.below(9) as i64),
            3 => Value::F64(self.below(1 << 30) as f64 / 7.0),
            4 => Value::I64(self.below(1000) as i64),
            5 => Value::F64(f64::from_bits(END_OF_SERIES)),
            _ => Value::F64(self.below(10_000) as f64 / 100.0),
        }
    }
}

/// The changes that one batch makes to the model.
pub(crate) type Change = Vec<(String, i64, String)>;

/// Returns a random batch and its changes.
pub(crate) fn batch(store: &Store, draw: &mut Draw, clock_s: &mut i64) -> (Batch, Change) {
    let (mut batch, mut change) = (Batch::new(), Change::new());
    for _ in 0..=draw.below(60) {
        let time_s = match draw.below(10) {
            0 => draw.below(5 * PARTITION_S as u64) as i64,
            1 => *clock_s,
            _ => {
                *clock_s += draw.below(60) as i64;
                *clock_s
            }
        };
        let time =
            time_s * 1_000_000_000 + if draw.below(9) == 0 { draw.below(1000) as i64 } else { 0 };
        let which = draw.below(ROWS.len() as u64 + 1) as usize;
        let Some(name) = ROWS.get(which) else {
            let text = format!("release {}", draw.below(1000));
            batch.push_event(store.row(EVENTS.as_bytes()).unwrap(), time, text.as_bytes()).unwrap();
            change.push((EVENTS.into(), time, text));
            continue;
        };
        let row = store.row(name.as_bytes()).unwrap();
        let values: Vec<Value> = (0..row.columns()).map(|_| draw.value()).collect();
        batch.push_values(row, time, &values).unwrap();
        let (metrics, tags) = name.split_once(' ').unwrap();
        for (metric, value) in metrics.split('|').zip(values) {
            change.push((format!("{metric} {tags}"), time, format_value(value.canonical())));
        }
    }
    (batch, change)
}

pub(crate) fn apply(model: &mut Model, change: &Change) {
    for (name, time, value) in change {
        model.entry(name.clone()).or_default().insert(*time, value.clone());
    }
}

/// Returns the target of a random delete.
pub(crate) fn delete(draw: &mut Draw) -> (Selector, TimeRange) {
    let selector = match draw.below(4) {
        0 => Selector::metric("cpu.user").with("host", "a"),
        1 => Selector::default().with_tag("host", "b"),
        2 => Selector::metric("!deploy"),
        _ => Selector::metric("load"),
    };
    let from_ns = draw.below(5 * PARTITION_S as u64) as i64 * 1_000_000_000;
    (selector, TimeRange { from_ns, to_ns: from_ns + draw.below(9000) as i64 * 1_000_000_000 })
}

pub(crate) fn bury(model: &mut Model, store: &Store, selector: &Selector, range: TimeRange) {
    for series in store.find(selector) {
        if let Some(samples) = model.get_mut(&series.name()) {
            samples.retain(|time, _| !range.contains(*time));
        }
    }
    model.retain(|_, samples| !samples.is_empty());
}

pub(crate) trait WithTag {
    fn with_tag(self, tag: &str, value: &str) -> Self;
}

impl WithTag for Selector {
    fn with_tag(self, tag: &str, value: &str) -> Self {
        self.with(tag, value)
    }
}

pub(crate) fn write(store: &Store, batch: Batch) -> Result<(), WriteError> {
    store.write(batch, Ack::Persisted).map(|_| ())
}
