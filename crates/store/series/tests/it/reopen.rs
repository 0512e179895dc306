//! Opening the log again after an I/O error, while the store stays open: it accepts rows again,
//! everything acknowledged survives, and the number of attempts is limited.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Change, Draw, Model, apply, batch, contents, options, write};
use env::clock::ManualClock;
use env::files::{Failure, Fault, SimDisk};
use journal::Layout;
use series::{Ack, Batch, Row, SeriesOpenError, Store, StoreOptions, Wal, WriteError};

const MINUTE: Duration = Duration::from_mins(1);

fn open(disk: &SimDisk, clock: &ManualClock) -> Result<Store, SeriesOpenError> {
    open_as(disk, clock, Layout::Packed)
}

fn open_as(disk: &SimDisk, clock: &ManualClock, layout: Layout) -> Result<Store, SeriesOpenError> {
    let clock = Arc::new(clock.clone());
    let options = StoreOptions { clock, layout, ..options(disk, Wal::Always) };
    Store::open(Path::new("/series"), options).map(|(store, _)| store)
}

fn one(row: Row, time_ns: i64) -> Batch {
    let mut batch = Batch::new();
    batch.push(row, time_ns, &[1.5]).unwrap();
    batch
}

fn samples(store: &Store) -> usize {
    contents(store).values().map(common::Samples::len).sum()
}

/// Checks that a kill and a power cut now leave exactly what the store shows.
fn check_images(disk: &SimDisk, store: &Store, context: &str) {
    let expected = contents(store);
    for (name, image) in [("kill", disk.kill()), ("power cut", disk.crash(7))] {
        let found = contents(&common::open(&image, Wal::Always).0);
        assert!(found == expected, "{context}, {name}: {found:?} instead of {expected:?}");
    }
}

/// Runs random writes with one failed call, reopening the log when a write is refused. Returns true if
/// the log failed and was opened again.
fn run_with_fault(seed: u64, layout: Layout, call: u64, failure: Failure) -> bool {
    let (disk, clock) = (SimDisk::new(seed), ManualClock::at(4_000_000_000_000_000));
    disk.fail(&[Fault { call, failure }]);
    let Ok(store) = open_as(&disk, &clock, layout) else { return false };
    let context = format!("seed {seed} {layout:?} call {call} {failure:?}");
    let (mut draw, mut clock_s, mut model) = (Draw(seed), 1000, Model::new());
    let mut reopened = false;
    for step in 0..12 {
        if step % 4 == 3 {
            let _ = store.seal();
            continue;
        }
        let (rows, change): (_, Change) = batch(&store, &mut draw, &mut clock_s);
        match write(&store, rows) {
            Ok(()) => apply(&mut model, &change),
            Err(WriteError::Failed(_)) => {
                assert!(!reopened, "{context}: failed again");
                reopened = store.reopen_log().unwrap();
                assert!(reopened && store.stats().log_failure.is_none(), "{context}");
                check_images(&disk, &store, &context);
            }
            Err(_) => {}
        }
        assert!(contents(&store) == model, "{context}: other rows than the acknowledged ones");
    }
    if reopened {
        check_images(&disk, &store, &context);
        store.close().unwrap();
        let again = contents(&common::open(&disk.crash(seed), Wal::Always).0);
        assert!(again == model, "{context}: after a clean end");
    }
    reopened
}

#[test]
fn store_takes_rows_after_its_failed_log_was_reopened() {
    let mut reopened = 0;
    for (seed, layout) in [(1, Layout::Packed), (2, Layout::Sparse), (3, Layout::Ring)] {
        for failure in [Failure::Io, Failure::Short] {
            for call in 1..100 {
                reopened += u32::from(run_with_fault(seed, layout, call, failure));
            }
        }
    }
    assert!(reopened > 20, "the log was reopened {reopened} times");
}

/// Returns a store whose log failed at a batch that defines a new row, with that row.
fn failed_store(disk: &SimDisk, clock: &ManualClock, sealed: bool) -> (Store, Row) {
    let store = open(disk, clock).unwrap();
    let old = store.row(b"load host=old").unwrap();
    store.write(one(old, 1), Ack::Persisted).unwrap();
    if sealed {
        store.seal().unwrap();
    }
    let new = store.row(b"load host=new").unwrap();
    fail_log(disk, &store, new);
    (store, new)
}

/// Writes to the row, with a failure of one call after the other, until the log has failed.
fn fail_log(disk: &SimDisk, store: &Store, row: Row) {
    let failed = (1..20).any(|call| {
        let call = disk.calls() + call;
        disk.fail(&[Fault { call, failure: Failure::Io }]);
        let refused = store.write(one(row, call as i64), Ack::Persisted);
        disk.clear_faults();
        matches!(refused, Err(WriteError::Failed(_)))
    });
    assert!(failed, "the log does not fail");
}

#[test]
fn row_handles_stay_valid_when_the_log_is_reopened() {
    // If nothing has to be sealed, the new row is in no file after the failure.
    for sealed in [false, true] {
        let (disk, clock) = (SimDisk::new(1), ManualClock::at(4_000_000_000_000_000));
        let (store, row) = failed_store(&disk, &clock, sealed);
        let before = samples(&store);
        assert!(store.reopen_log().unwrap());
        store.write(one(row, 1_000), Ack::Persisted).unwrap();
        assert_eq!(samples(&store), before + 1);
        check_images(&disk, &store, "a row of the failed batch");
    }
}

#[test]
fn fault_while_the_log_is_reopened_loses_nothing() {
    let calls = {
        let (disk, clock) = (SimDisk::new(1), ManualClock::at(4_000_000_000_000_000));
        let (store, _) = failed_store(&disk, &clock, false);
        let before = disk.calls();
        assert!(store.reopen_log().unwrap());
        disk.calls() - before
    };
    assert!(calls > 5, "{calls} calls");
    let mut refused = 0;
    for call in 1..=calls {
        for failure in [Failure::Io, Failure::Full, Failure::PowerCut] {
            let (disk, clock) = (SimDisk::new(1), ManualClock::at(4_000_000_000_000_000));
            let (store, row) = failed_store(&disk, &clock, false);
            let expected = contents(&store);
            disk.fail(&[Fault { call: disk.calls() + call, failure }]);
            let reopened = store.reopen_log();
            refused += u32::from(reopened.is_err());
            // The refused batch may survive until the log was opened again.
            let image = if failure == Failure::PowerCut { disk.crash(call) } else { disk.kill() };
            let found = contents(&common::open(&image, Wal::Always).0);
            for (name, samples) in &expected {
                let kept = samples.iter().all(|(time, value)| found[name].get(time) == Some(value));
                assert!(kept, "call {call} {failure:?}: {found:?} instead of {expected:?}");
            }
            if failure == Failure::PowerCut {
                continue;
            }
            clock.advance(MINUTE);
            let opened = store.reopen_log().unwrap();
            assert!(opened || reopened.is_ok(), "call {call} {failure:?}: {reopened:?}");
            store.write(one(row, 1_000), Ack::Persisted).unwrap();
            check_images(&disk, &store, &format!("call {call} {failure:?}"));
        }
    }
    assert!(refused > 10, "{refused} attempts failed");
}

#[test]
fn fourth_failure_within_an_hour_stays_failed() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(4_000_000_000_000_000));
    let store = open(&disk, &clock).unwrap();
    let row = store.row(b"load host=a").unwrap();
    fail_log(&disk, &store, row);
    assert!(store.reopen_log().unwrap(), "first");
    fail_log(&disk, &store, row);
    assert!(!store.reopen_log().unwrap(), "a minute has to pass");
    assert!(!store.stats().log_failure.unwrap().gave_up);
    for attempt in ["second", "third"] {
        clock.advance(MINUTE);
        assert!(store.reopen_log().unwrap(), "{attempt}");
        store.write(one(row, 3), Ack::Persisted).unwrap();
        fail_log(&disk, &store, row);
    }
    clock.advance(MINUTE);
    assert!(!store.reopen_log().unwrap(), "fourth");
    let failure = store.stats().log_failure.unwrap();
    assert!(failure.gave_up, "{failure:?}");
    let refused = store.write(one(row, 5), Ack::Persisted);
    assert!(matches!(refused, Err(WriteError::Failed(_))), "{refused:?}");
    clock.advance(60 * MINUTE);
    assert!(store.reopen_log().unwrap(), "an hour later");
    store.write(one(row, 5), Ack::Persisted).unwrap();
    assert_eq!(store.stats().log_failure, None);
}

#[test]
fn io_error_before_anything_was_written_does_not_last() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(4_000_000_000_000_000));
    let store = open(&disk, &clock).unwrap();
    let row = store.row(b"load host=a").unwrap();
    // The first write takes a new file for the log: it cannot be opened.
    disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::Io }]);
    let refused = store.write(one(row, 1), Ack::Persisted);
    assert!(matches!(refused, Err(WriteError::Io { .. })), "{refused:?}");
    assert_eq!(store.stats().log_failure, None);
    store.write(one(row, 1), Ack::Persisted).unwrap();
    check_images(&disk, &store, "after a refused write");
}
