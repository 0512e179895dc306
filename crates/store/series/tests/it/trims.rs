//! A log that is trimmed and whose segments are reused, interrupted or failing at every call of a
//! seal and of the batches after it: nothing acknowledged is lost, and the old content of the
//! segments does not reappear.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{Model, PARTITION_S, contents, options};
use env::files::{Failure, Fault, SimDisk};
use series::{Ack, Batch, OpenReport, Selector, Store, StoreOptions, TimeRange, Wal, WriteError};

const SECOND: i64 = 1_000_000_000;
/// Number of rows in each batch that write the same times.
const SAME: i64 = 400;
/// Number of batches before the first failing call, with a seal after every tenth one, and number
/// of batches before and after the seal in which calls fail.
const BEFORE: i64 = 34;
const AROUND: (i64, i64) = (4, 12);
/// The sample of this batch is deleted while its record is in the log.
const DELETED: i64 = 3;

fn open(disk: &SimDisk) -> (Store, OpenReport) {
    let options = StoreOptions {
        segment_bytes: 16 << 10,
        head_bytes_max: 4 << 20,
        ..options(disk, Wal::Always)
    };
    Store::open(Path::new("/series"), options).unwrap()
}

/// Returns the value that a batch writes at the times that all batches write to: a full-precision
/// float, so that a few batches fill a segment.
fn same(number: i64, i: i64) -> f64 {
    ((number * SAME + i) as f64).sin()
}

/// Writes one sample at a distinct time, one of a row that is new every third time, and the same
/// times as all earlier batches. In two partitions.
fn write(store: &Store, number: i64) -> Result<(), WriteError> {
    let mut batch = Batch::new();
    let own = store.row(b"own host=a").unwrap();
    batch.push(own, number * 60 * SECOND, &[number as f64]).unwrap();
    let new = store.row(format!("new host={}", number / 3).as_bytes()).unwrap();
    batch.push(new, number * SECOND, &[number as f64]).unwrap();
    let row = store.row(b"same host=a").unwrap();
    for i in 0..SAME {
        batch.push(row, i * PARTITION_S / 200 * SECOND, &[same(number, i)]).unwrap();
    }
    store.write(batch, Ack::Persisted).map(drop)
}

/// The batches that were acknowledged, and those that may have survived.
#[derive(Clone, Default)]
struct Writes {
    acknowledged: BTreeSet<i64>,
    tried: BTreeSet<i64>,
}

impl Writes {
    fn write(&mut self, store: &Store, number: i64) {
        self.tried.insert(number);
        if write(store, number).is_ok() {
            self.acknowledged.insert(number);
        }
    }

    /// Checks that `found` is the result of some of those batches, in their order, with all
    /// acknowledged ones among them. Returns these batches.
    fn check(&self, found: &Model, when: &str) -> BTreeSet<i64> {
        let whole = |values: &BTreeMap<i64, String>| -> BTreeSet<i64> {
            let bits = |text: &String| u64::from_str_radix(text.strip_prefix('f').unwrap(), 16);
            let number = |text| f64::from_bits(bits(text).unwrap()) as i64;
            values.values().map(number).collect()
        };
        let news = found.iter().filter(|(name, _)| name.starts_with("new "));
        let there: BTreeSet<i64> = news.flat_map(|(_, values)| whole(values)).collect();
        let missing: Vec<_> = self.acknowledged.difference(&there).collect();
        assert!(missing.is_empty(), "{when}: acknowledged and gone: {missing:?}");
        assert!(there.is_subset(&self.tried), "{when}: {there:?} of {:?}", self.tried);
        let mut own = there.clone();
        own.remove(&DELETED);
        assert_eq!(whole(&found["own host=a"]), own, "{when}");
        let last = *there.last().unwrap();
        let expected = (0..SAME).map(|i| format!("f{:016x}", same(last, i).to_bits()));
        let values: Vec<&String> = found["same host=a"].values().collect();
        assert!(
            values.into_iter().cloned().eq(expected),
            "{when}: not what batch {last} wrote last"
        );
        there
    }
}

/// Creates a store that was sealed, and its log trimmed, several times.
fn trimmed(disk: &SimDisk) -> (Store, Writes) {
    let ((store, _), mut told) = (open(disk), Writes::default());
    for number in 0..BEFORE {
        told.write(&store, number);
        if number == DELETED {
            let range =
                TimeRange { from_ns: number * 60 * SECOND, to_ns: number * 60 * SECOND + 1 };
            store.delete(&Selector::metric("own"), range).unwrap();
        }
        if number % 10 == 9 {
            store.seal().unwrap();
        }
    }
    (store, told)
}

/// Makes a seal with batches before and after it.
fn act(store: &Store, told: &mut Writes) {
    (BEFORE..BEFORE + AROUND.0).for_each(|number| told.write(store, number));
    let _ = store.seal();
    let from = BEFORE + AROUND.0;
    (from..from + AROUND.1).for_each(|number| told.write(store, number));
}

/// Returns the first and the last call of that. Segments are trimmed and reused in it.
fn calls() -> (u64, u64) {
    let disk = SimDisk::new(1);
    let (store, mut told) = trimmed(&disk);
    let (from, before) = (disk.calls() + 1, store.stats().log.unwrap());
    act(&store, &mut told);
    assert_eq!(told.acknowledged, told.tried);
    told.check(&contents(&store), "nothing failed");
    let after = store.stats().log.unwrap();
    assert!(after.first_position > before.first_position, "nothing was trimmed: {after:?}");
    assert!(
        after.segments_recycled > before.segments_recycled + 1,
        "nothing is used again: {after:?}"
    );
    (from, disk.calls())
}

/// Checks that the store opens with its content, accepts more batches and a seal in the existing
/// segments, and opens with all of it again.
fn go_on(image: &SimDisk, told: &Writes, when: &str) {
    let mut told = told.clone();
    let (store, report) = open(image);
    told.acknowledged = told.check(&contents(&store), &format!("{when}: opened"));
    assert!(report.replayed_batches <= told.tried.len() as u64, "{when}: {report:?}");
    for number in 100..108 {
        told.write(&store, number);
        if number == 104 {
            store.seal().unwrap();
        }
    }
    assert_eq!(told.acknowledged.last(), Some(&107), "{when}");
    let (store, again) = open(&image.crash(7));
    told.check(&contents(&store), &format!("{when}: opened again"));
    assert_eq!(again.replayed_batches, 3, "{when}");
}

#[test]
fn power_cut_in_a_trimming_seal_or_later_batches_loses_nothing() {
    let (from, to) = calls();
    for call in from..=to {
        let disk = SimDisk::new(1);
        let (store, mut told) = trimmed(&disk);
        disk.fail(&[Fault { call, failure: Failure::PowerCut }]);
        act(&store, &mut told);
        for image in [disk.crash(call), disk.crash(call + 1000)] {
            go_on(&image, &told, &format!("call {call} of {from} to {to} was cut"));
        }
    }
}

#[test]
fn failure_in_a_trimming_seal_or_later_batches_loses_nothing() {
    let (from, to) = calls();
    let mut refused = 0;
    for call in from..=to {
        let disk = SimDisk::new(1);
        let (store, mut told) = trimmed(&disk);
        let failure = [Failure::Io, Failure::Full, Failure::Short][call as usize % 3];
        disk.fail(&[Fault { call, failure }]);
        act(&store, &mut told);
        let when = format!("call {call} of {from} to {to}, {failure:?}");
        // In memory there is no uncertainty.
        let sure = Writes { tried: told.acknowledged.clone(), ..told.clone() };
        sure.check(&contents(&store), &when);
        refused += told.tried.len() - told.acknowledged.len();
        for image in [disk.kill(), disk.crash(call)] {
            go_on(&image, &told, &when);
        }
    }
    assert!(refused > 0, "nothing was refused");
}
