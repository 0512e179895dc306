//! Roll-ups under interruptions and failures at every call: roll-ups that retention creates, merges
//! with late rows and widens to hours, and those that a delete recreates. Every sample counts
//! exactly once, by itself or in its bucket, until its partition is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{PARTITION_S, format_value, options, read};
use env::clock::ManualClock;
use env::files::{Failure, Fault, Files, SimDisk};
use series::{
    Ack, Batch, Direction, Selector, SeriesRetention, Store, StoreOptions, Summary, TimeRange,
    Value, Wal, WriteError,
};

const SECOND: i64 = 1_000_000_000;
const HOUR_S: i64 = 3600;
/// Number of partitions with samples, and the ages at which samples, 5-minute and hourly roll-ups
/// are removed.
const PARTITIONS: i64 = 6;
const RAW: i64 = 1;
const FINE: i64 = 3;
const HOURLY: i64 = 5;
/// The series that is compared in steps finer than hours: only one row has it.
const LOAD: &str = "load host=b";

/// The retention of samples.
#[derive(Clone, Copy)]
enum Keep {
    All,
    Ages,
    Bytes(u64),
}

/// The operation that is interrupted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// Retention by age: one partition is removed, some become 5-minute roll-ups, and some of those
    /// hourly ones.
    Age,
    /// The same for partitions with roll-ups without samples and with late rows.
    Late,
    /// Retention by size.
    Size,
    /// Merges after deletes, of samples with roll-ups and of roll-ups without samples.
    Delete,
}

/// The remaining data of a partition: samples, or summaries in buckets of this width in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Samples,
    /// Buckets and late rows.
    LateBeside(i64),
    Buckets(i64),
    Nothing,
}

/// Samples by series and time: the value, and true if it was written late.
type Given = BTreeMap<String, BTreeMap<i64, (f64, bool)>>;

/// The result of reading one series in one partition.
#[derive(Debug, Default, PartialEq)]
struct Said {
    samples: Vec<(i64, String)>,
    hours: Vec<(i64, Summary)>,
    /// Summaries by 5 minutes of [`LOAD`].
    fine: Vec<(i64, Summary)>,
}

fn partitions(n: i64) -> Duration {
    Duration::from_secs((n * PARTITION_S) as u64)
}

fn opened(disk: &SimDisk, keep: Keep) -> (Store, ManualClock) {
    // Some more minutes make no difference.
    let clock = ManualClock::at((PARTITIONS * PARTITION_S + 600) as u64 * 1_000_000);
    let year = Duration::from_hours(24 * 365);
    let (age, bytes_max, rollup_age, hourly_age) = match keep {
        Keep::All => (None, None, year, year),
        Keep::Ages => (Some(partitions(RAW)), None, partitions(FINE), partitions(HOURLY)),
        Keep::Bytes(max) => (None, Some(max), year, 2 * year),
    };
    let options = StoreOptions {
        retention: SeriesRetention { age, bytes_max },
        rollup_age: Some(rollup_age),
        hourly_age: Some(hourly_age),
        head_bytes_max: 4 << 20,
        rollups_beside: matches!(keep, Keep::All),
        clock: Arc::new(clock.clone()),
        ..options(disk, Wal::Always)
    };
    (Store::open(Path::new("/series"), options).unwrap().0, clock)
}

/// Writes samples of a row at these seconds. The values are distinct integers, so that sums are
/// exact.
fn write(
    store: &Store,
    given: &mut Given,
    name: &str,
    times_s: impl Iterator<Item = i64>,
    late: bool,
) {
    let row = store.row(name.as_bytes()).unwrap();
    let (metrics, tags) = name.split_once(' ').unwrap();
    let mut batch = Batch::new();
    for time_s in times_s {
        let value = |column: usize| {
            (time_s / 10 * 37 % 10_007) as f64 + ((name.len() + column) * 20_000) as f64
        };
        let values: Vec<f64> = (0..metrics.split('|').count()).map(value).collect();
        batch.push(row, time_s * SECOND, &values).unwrap();
        for (metric, value) in metrics.split('|').zip(values) {
            let all = given.entry(format!("{metric} {tags}")).or_default();
            all.insert(time_s * SECOND, (value, late));
        }
    }
    store.write(batch, Ack::Persisted).unwrap();
}

/// Creates two parts in every partition: a row alone, one that shares a series with another, and
/// events.
fn filled() -> (SimDisk, Given) {
    let (disk, mut given) = (SimDisk::new(1), Given::new());
    let (store, _) = opened(&disk, Keep::All);
    let times = |every: i64| {
        // In some partitions 5-minute roll-ups are smaller than the samples, in others larger.
        (0..PARTITIONS).flat_map(move |p| {
            let every = if p % 2 == 0 { every } else { every * 10 };
            (0..PARTITION_S / every).map(move |i| p * PARTITION_S + 7 + i * every)
        })
    };
    write(&store, &mut given, LOAD, times(30), false);
    write(&store, &mut given, "cpu|mem host=a", times(60), false);
    let mut events = Batch::new();
    let log = store.row(b"!log host=a").unwrap();
    for partition in 0..PARTITIONS {
        events.push_event(log, partition * PARTITION_S * SECOND + 5, b"something").unwrap();
    }
    store.write(events, Ack::Persisted).unwrap();
    store.seal().unwrap();
    // Some times are also in the other row: these values are valid.
    write(&store, &mut given, "cpu host=a", times(120), false);
    store.close().unwrap();
    (disk, given)
}

fn range(partition: i64) -> TimeRange {
    let from_ns = partition * PARTITION_S * SECOND;
    TimeRange { from_ns, to_ns: from_ns + PARTITION_S * SECOND }
}

/// Returns the summaries by steps from `from_ns` on.
fn steps(pieces: impl Iterator<Item = Summary>, from_ns: i64, step_s: i64) -> Vec<(i64, Summary)> {
    let mut all: BTreeMap<i64, Summary> = BTreeMap::new();
    for piece in pieces {
        let step = (piece.first_ns - from_ns).div_euclid(step_s * SECOND);
        all.entry(step).and_modify(|all| *all = all.with(&piece)).or_insert(piece);
    }
    all.into_iter().collect()
}

/// Returns the expected content of a partition in the state `left`.
fn expected(given: &Given, partition: i64, left: Left) -> BTreeMap<String, Said> {
    let mut all = BTreeMap::new();
    let within = range(partition);
    let width_s = match left {
        Left::Nothing => return all,
        Left::Samples => 1,
        Left::LateBeside(width_s) | Left::Buckets(width_s) => width_s,
    };
    for (name, samples) in given {
        let here = || samples.range(within.from_ns..within.to_ns).map(|(t, (v, l))| (*t, *v, *l));
        let stays = |late: bool| match left {
            Left::Samples => true,
            Left::LateBeside(_) => late,
            _ => false,
        };
        let stay = || here().filter(|(_, _, late)| stays(*late));
        let gone = here().filter(|(_, _, late)| !stays(*late)).map(|(t, v, _)| Summary::of(t, v));
        let buckets = steps(gone, within.from_ns, width_s).into_iter().map(|(_, some)| some);
        let pieces = buckets.chain(stay().map(|(t, v, _)| Summary::of(t, v)));
        let said = Said {
            samples: stay().map(|(t, v, _)| (t, format_value(Value::F64(v).canonical()))).collect(),
            hours: steps(here().map(|(t, v, _)| Summary::of(t, v)), within.from_ns, HOUR_S),
            fine: if name == LOAD { steps(pieces, within.from_ns, 300) } else { Vec::new() },
        };
        if !said.hours.is_empty() {
            all.insert(name.clone(), said);
        }
    }
    if left == Left::Samples {
        let event = (within.from_ns + 5, "something".to_owned());
        all.insert("!log host=a".into(), Said { samples: vec![event], ..Said::default() });
    }
    all
}

fn found(store: &Store, partition: i64) -> BTreeMap<String, Said> {
    let (snapshot, within, mut all) = (store.snapshot(), range(partition), BTreeMap::new());
    for series in store.find(&Selector::default()) {
        let samples = read(&snapshot, &series, within, Direction::Forward);
        let mut said = Said { samples, ..Said::default() };
        if !series.is_events() {
            said.hours = snapshot.steps(&series, within, HOUR_S * SECOND).unwrap();
            if series.name() == LOAD {
                said.fine = snapshot.steps(&series, within, 300 * SECOND).unwrap();
            }
        }
        if said != Said::default() {
            all.insert(series.name(), said);
        }
    }
    all
}

/// A closed store, the operation on it, and the allowed states of each partition during it, in this
/// order.
struct Case {
    by: By,
    disk: SimDisk,
    given: Given,
    paths: Vec<Vec<Left>>,
    bytes_max: u64,
}

impl Case {
    fn new(by: By) -> Self {
        let (disk, given) = filled();
        let hours = Left::Buckets(HOUR_S);
        let fine = Left::Buckets(300);
        let all = [Left::Samples, fine, hours, Left::Nothing];
        let mut it = Self { by, disk, given, paths: Vec::new(), bytes_max: 0 };
        it.paths = (0..PARTITIONS)
            .map(|partition| match (by, partition) {
                (By::Size, _) => all.to_vec(),
                (By::Age, 0) => vec![Left::Samples, Left::Nothing],
                (By::Age, 1 | 2) => vec![Left::Samples, fine, hours],
                (By::Age, 3 | 4) => vec![Left::Samples, fine],
                (By::Late, 1 | 2) => vec![Left::LateBeside(HOUR_S), hours],
                (By::Late, 3 | 4) => vec![Left::LateBeside(300), fine],
                (By::Delete, 1 | 2) => vec![hours],
                (By::Delete, 3 | 4) => vec![fine],
                (By::Late | By::Delete, 0) => vec![Left::Nothing],
                _ => vec![Left::Samples],
            })
            .collect();
        if by == By::Late || by == By::Delete {
            let (store, _) = opened(&it.disk, Keep::Ages);
            store.retain().unwrap();
            store.close().unwrap();
        }
        let (store, _) = opened(&it.disk, Keep::All);
        match by {
            By::Age => {}
            By::Late => it.write_late(&store),
            By::Size => it.bytes_max = store.stats().part_bytes * 3 / 4,
            By::Delete => it.delete(&store),
        }
        store.close().unwrap();
        it
    }

    /// Writes rows at times between the earlier ones.
    fn write_late(&mut self, store: &Store) {
        let times = || {
            let late = |p: i64| [84, 1884, 1900, 5412].map(|s| p * PARTITION_S + s);
            (1..5).flat_map(late)
        };
        write(store, &mut self.given, LOAD, times(), true);
        write(store, &mut self.given, "cpu host=a", times(), true);
    }

    /// Deletes five minutes of each partition. In an hourly roll-up this removes an hour, of
    /// samples exactly the range.
    fn delete(&mut self, store: &Store) {
        for (partition, path) in (0..).zip(&self.paths) {
            let from_ns = range(partition).from_ns + 600 * SECOND;
            let hit = TimeRange { from_ns, to_ns: from_ns + 300 * SECOND };
            store.delete(&Selector::metric("load"), hit).unwrap();
            store.delete(&Selector::metric("cpu"), hit).unwrap();
            let all = if path[0] == Left::Buckets(HOUR_S) {
                let from_ns = range(partition).from_ns;
                TimeRange { from_ns, to_ns: from_ns + HOUR_S * SECOND }
            } else {
                hit
            };
            for name in [LOAD, "cpu host=a"] {
                self.given.get_mut(name).unwrap().retain(|time, _| !all.contains(*time));
            }
        }
    }

    fn open(&self, disk: &SimDisk) -> (Store, ManualClock) {
        let keep = match self.by {
            By::Age | By::Late => Keep::Ages,
            By::Size => Keep::Bytes(self.bytes_max),
            By::Delete => Keep::All,
        };
        opened(disk, keep)
    }

    fn act(&self, store: &Store) -> Result<(), WriteError> {
        if self.by == By::Delete { store.merge() } else { store.retain() }.map(drop)
    }

    /// Returns the state of each partition. Checks that it is one of the allowed ones, and
    /// complete.
    fn partition_states(&self, store: &Store, when: &str) -> Vec<(i64, Left)> {
        let of = |(partition, path): (i64, &Vec<Left>)| {
            let found = found(store, partition);
            let is = |left: &&Left| expected(&self.given, partition, **left) == found;
            match path.iter().find(is) {
                Some(left) => (partition, *left),
                None => panic!(
                    "{when}: partition {partition} is none of {path:?}: {found:#?} instead of {:#?}",
                    expected(&self.given, partition, path[0])
                ),
            }
        };
        (0..).zip(&self.paths).map(of).collect()
    }

    fn check_done(&self, store: &Store, when: &str) {
        let (found, stats) = (self.partition_states(store, when), store.stats());
        if self.by == By::Size {
            let bytes = stats.part_bytes + stats.rollup_bytes;
            assert!(bytes <= self.bytes_max, "{when}: {bytes} of {}", self.bytes_max);
        } else {
            let last = (0..).zip(&self.paths).map(|(p, path)| (p, *path.last().unwrap()));
            assert_eq!(found, last.collect::<Vec<_>>(), "{when}");
        }
        assert_eq!(stats.tombstones, 0, "{when}");
    }

    /// Lets one call of the operation fail, and checks the state afterwards and after a successful
    /// retry.
    fn fail(&self, fault: Fault, seen: &mut BTreeSet<(i64, Left)>) {
        let when = format!("{:?} {fault:?}", self.by);
        let disk = self.disk.kill();
        let (store, clock) = self.open(&disk);
        disk.fail(&[fault]);
        let _ = self.act(&store);
        let image = if fault.call.is_multiple_of(2) { disk.kill() } else { disk.crash(fault.call) };
        let images = [image, disk.crash(fault.call + 1000)];
        if fault.failure != Failure::PowerCut {
            seen.extend(self.partition_states(&store, &when));
            // A failed partition is retried after a while.
            clock.advance(Duration::from_mins(6));
            self.act(&store).unwrap();
            self.check_done(&store, &format!("{when}: again"));
        }
        for image in images {
            let (store, _) = self.open(&image);
            seen.extend(self.partition_states(&store, &format!("{when}: opened")));
            self.act(&store).unwrap();
            self.check_done(&store, &format!("{when}: opened and done"));
            // The disk has no other files.
            let (files, stats) = (image.list(Path::new("/series/parts")).unwrap(), store.stats());
            assert!(
                files.len() as u64 <= stats.parts + stats.rollups,
                "{when}: {files:?}, {stats:?}"
            );
        }
    }
}

fn every_call(by: By) {
    let case = Case::new(by);
    let disk = case.disk.kill();
    let (store, _) = case.open(&disk);
    let from = disk.calls();
    case.act(&store).unwrap();
    case.check_done(&store, "nothing failed");
    let to = disk.calls();
    assert!(to > from + 30, "{by:?}: nothing to fail");
    let mut seen = BTreeSet::new();
    for call in from + 1..=to {
        let failure = if call.is_multiple_of(2) { Failure::Io } else { Failure::Full };
        for failure in [Failure::PowerCut, failure] {
            case.fail(Fault { call, failure }, &mut seen);
        }
    }
    let lefts: BTreeSet<Left> = seen.iter().map(|(_, left)| *left).collect();
    let all: BTreeSet<Left> = case.paths.iter().flatten().copied().collect();
    let never: Vec<_> = all.difference(&lefts).collect();
    assert!(never.is_empty(), "{by:?}: never found {never:?}");
}

#[test]
fn samples_rolled_up_by_age_count_once_under_any_failure() {
    every_call(By::Age);
}

#[test]
fn late_rows_in_a_roll_up_count_once_under_any_failure() {
    every_call(By::Late);
}

#[test]
fn size_retention_leaves_consistent_partitions_on_any_failure() {
    every_call(By::Size);
}

#[test]
fn roll_ups_rebuilt_by_a_delete_lose_only_the_deleted_samples() {
    every_call(By::Delete);
}
