//! Power cuts and failures at every call that changes the disk: everything acknowledged survives,
//! and nothing appears that was never written.

use std::sync::Arc;

use crate::common::{
    self, Change, Draw, Model, apply, batch, bury, contents, delete, open, options, write,
};
use env::clock::SystemClock;
use env::files::{Failure, Fault, Files, SimDisk};
use series::{Ack, Selector, Store, StoreOptions, TimeRange, Wal};

/// The result of a run: the model of the acknowledged operations, and the interrupted operation.
struct Left {
    acknowledged: Model,
    /// The model including the interrupted operation.
    with_last: Model,
}

/// Runs the operations of a seed until the power cut.
fn operate(disk: &SimDisk, seed: u64, steps: u64) -> Left {
    let mut draw = Draw(seed);
    let mut left = Left { acknowledged: Model::new(), with_last: Model::new() };
    let Ok((store, _)) = Store::open(std::path::Path::new("/series"), options(disk, Wal::Always))
    else {
        return left;
    };
    let mut clock_s = 1000;
    for _ in 0..steps {
        let before = left.acknowledged.clone();
        let done = match draw.below(9) {
            0 => store.seal().map(|_| ()),
            1 => store.merge().map(|_| ()),
            2 => {
                let (selector, range) = delete(&mut draw);
                bury(&mut left.with_last, &store, &selector, range);
                store.delete(&selector, range).map(|_| ())
            }
            _ => {
                let (it, change): (_, Change) = batch(&store, &mut draw, &mut clock_s);
                apply(&mut left.with_last, &change);
                write(&store, it)
            }
        };
        left.acknowledged = if done.is_ok() { left.with_last.clone() } else { before };
        if done.is_err() {
            return left;
        }
    }
    let _ = store.close();
    left
}

/// Returns the steps per run and the number of runs. `HOLDFAST_CRASHES` sets the minimum number of
/// power cuts.
fn workload() -> (u64, u64) {
    let asked = std::env::var("HOLDFAST_CRASHES").ok().and_then(|n| n.parse::<u64>().ok());
    asked.map_or((7, 2), |crashes| (14, 1 + crashes / 150))
}

#[test]
fn acknowledged_writes_survive_a_power_cut_at_every_call() {
    let (steps, seeds) = workload();
    let mut seals = 0;
    // One disk keeps the order of all renames, the other only the order within each folder.
    let disk = |seed: u64| {
        let disk = SimDisk::new(seed);
        if seed.is_multiple_of(2) {
            disk.scatter_names();
        }
        disk
    };
    for seed in 1..=seeds {
        let whole = disk(seed);
        operate(&whole, seed, steps);
        seals += whole.list("/series/parts".as_ref()).unwrap().len();
        for call in 1..=whole.calls() {
            let disk = disk(seed);
            disk.fail(&[Fault { call, failure: Failure::PowerCut }]);
            let left = operate(&disk, seed, steps);
            let image = disk.crash(seed ^ call);
            let (store, _) = open(&image, Wal::Always);
            let found = contents(&store);
            assert!(
                found == left.acknowledged || found == left.with_last,
                "seed {seed} call {call}: {:?}",
                store.stats()
            );
            go_on(store, &image, &found);
        }
    }
    assert!(seals > 0, "nothing was sealed");
}

/// Checks that a recovered store accepts writes, and has all of them after the next open.
fn go_on(store: Store, disk: &SimDisk, found: &Model) {
    let (mut model, mut draw, mut clock_s) = (found.clone(), Draw(7), 2000);
    let (it, change) = batch(&store, &mut draw, &mut clock_s);
    write(&store, it).unwrap();
    apply(&mut model, &change);
    same(&contents(&store), &model, "written");
    store.seal().unwrap();
    same(&contents(&store), &model, "sealed");
    drop(store);
    same(&contents(&open(disk, Wal::Always).0), &model, "opened again");
}

#[test]
fn failed_call_loses_no_acknowledged_write_and_run_continues() {
    let (steps, seeds) = workload();
    let mut refused = 0;
    for seed in 1..=seeds {
        let whole = SimDisk::new(seed);
        operate(&whole, seed, steps);
        for call in 1..=whole.calls() {
            for failure in [Failure::Io, Failure::Full, Failure::Short] {
                refused += fail(seed, steps, Fault { call, failure });
            }
        }
    }
    assert!(refused > 20, "{refused} operations were refused");
}

/// Runs operations with a failure from one call on, followed by a kill or a power cut. Returns the
/// number of failed operations.
fn fail(seed: u64, steps: u64, fault: Fault) -> u32 {
    let disk = SimDisk::new(seed);
    disk.fail(&[fault]);
    let opened = Store::open(std::path::Path::new("/series"), options(&disk, Wal::Always));
    let Ok((store, _)) = opened else {
        let (store, _) = open(&disk.kill(), Wal::Always);
        assert_eq!(contents(&store), Model::new(), "seed {seed} {fault:?}");
        return 1;
    };
    let (mut draw, mut clock_s, mut refused) = (Draw(seed), 1000, 0);
    // These are the possible contents: whether a failed operation survives is unknown.
    let mut may_be = vec![Model::new()];
    for _ in 0..steps {
        let before = may_be.clone();
        let done = match draw.below(9) {
            0 => store.seal().map(|_| ()),
            1 => store.merge().map(|_| ()),
            2 => {
                let (selector, range) = delete(&mut draw);
                for m in &mut may_be {
                    bury(m, &store, &selector, range);
                }
                store.delete(&selector, range).map(|_| ())
            }
            _ => {
                let (it, change): (_, Change) = batch(&store, &mut draw, &mut clock_s);
                for m in &mut may_be {
                    apply(m, &change);
                }
                write(&store, it)
            }
        };
        if done.is_err() {
            refused += 1;
            may_be = before.into_iter().chain(may_be).collect();
            may_be.dedup();
        }
        // In memory a failed operation is never visible.
        let found = contents(&store);
        if found != may_be[0] {
            same(&found, &may_be[0], &format!("seed {seed} {fault:?} in memory"));
        }
    }
    for image in [disk.kill(), disk.crash(seed ^ fault.call)] {
        let found = contents(&open(&image, Wal::Always).0);
        if may_be.iter().all(|m| *m != found) {
            same(&found, &may_be[0], &format!("seed {seed} {fault:?}"));
            panic!("seed {seed} {fault:?}: found none of {} states", may_be.len());
        }
    }
    refused
}

#[test]
fn unawaited_batches_are_persisted_in_the_background() {
    let interval = Wal::Interval(std::time::Duration::from_millis(20));
    for (wal, ack) in [(Wal::Always, Ack::Flushed), (interval, Ack::Persisted)] {
        let disk = SimDisk::new(1);
        let background = StoreOptions {
            background: true,
            clock: Arc::new(SystemClock::new()),
            ..options(&disk, wal)
        };
        let (store, _) = Store::open("/series".as_ref(), background).unwrap();
        let (mut model, mut draw, mut clock_s) = (Model::new(), Draw(1), 1000);
        for _ in 0..3 {
            let (it, change) = batch(&store, &mut draw, &mut clock_s);
            drop(store.submit(it, ack).unwrap());
            apply(&mut model, &change);
        }
        // If this never ends, the test runner times out.
        while store.stats().batches < 3
            || store.stats().log.is_none_or(|log| log.persisted_position < log.last_position)
        {
            std::thread::yield_now();
        }
        for seed in 0..9 {
            let (store, _) = open(&disk.crash(seed), Wal::Always);
            same(&contents(&store), &model, &format!("{wal:?} {seed}"));
        }
    }
}

#[test]
fn crash_test_detects_lost_flushes() {
    let lost = (1..20u64).any(|seed| {
        let disk = SimDisk::new(seed);
        disk.ignore_flushes(true, true);
        let left = operate(&disk, seed, 10);
        let opened =
            Store::open(std::path::Path::new("/series"), options(&disk.crash(seed), Wal::Always));
        opened.map_or(true, |(store, _)| contents(&store) != left.acknowledged)
    });
    assert!(lost, "a disk without flushes lost nothing: the test cannot fail");
}

#[test]
fn full_disk_rejects_writes_and_allows_reads() {
    let disk = SimDisk::new(3);
    let (store, _) = open(&disk, Wal::Always);
    let (mut model, mut draw, mut clock_s) = (Model::new(), Draw(3), 1000);
    let mut refused = false;
    disk.set_capacity(Some(200 << 10));
    for _ in 0..2000 {
        let (it, change) = batch(&store, &mut draw, &mut clock_s);
        match write(&store, it) {
            Ok(()) => apply(&mut model, &change),
            Err(e) => {
                assert!(matches!(e, series::WriteError::Full(_)), "{e}");
                refused = true;
                break;
            }
        }
    }
    assert!(refused);
    assert_eq!(contents(&store), model);
    disk.set_capacity(None);
    let (it, change) = batch(&store, &mut draw, &mut clock_s);
    write(&store, it).unwrap();
    apply(&mut model, &change);
    store.seal().unwrap();
    assert_eq!(contents(&store), model);
}

#[test]
fn killed_store_is_readable_on_a_full_disk() {
    let disk = SimDisk::new(3);
    let (store, _) = open(&disk, Wal::Always);
    let (mut model, mut draw, mut clock_s) = (Model::new(), Draw(3), 1000);
    for number in 0..40 {
        let (it, change) = batch(&store, &mut draw, &mut clock_s);
        write(&store, it).unwrap();
        apply(&mut model, &change);
        if number == 20 {
            store.seal().unwrap();
        }
    }
    let image = disk.kill();
    image.set_capacity(Some(0));
    let (store, _) = open(&image, Wal::Always);
    assert_eq!(contents(&store), model);
    image.set_capacity(None);
    let (it, change) = batch(&store, &mut draw, &mut clock_s);
    write(&store, it).unwrap();
    apply(&mut model, &change);
    assert_eq!(contents(&open(&image.kill(), Wal::Always).0), model);
}

#[test]
fn closed_store_is_read_only_while_the_disk_is_full() {
    for wal in [Wal::Always, Wal::Off] {
        let disk = SimDisk::new(3);
        let (store, _) = open(&disk, wal);
        let (mut model, mut draw, mut clock_s) = (Model::new(), Draw(3), 1000);
        for _ in 0..20 {
            let (it, change) = batch(&store, &mut draw, &mut clock_s);
            write(&store, it).unwrap();
            apply(&mut model, &change);
        }
        store.close().unwrap();
        disk.set_capacity(Some(0));
        let (store, report) = open(&disk, wal);
        assert!(report.clean, "{report:?}");
        let refused = |store: &Store, draw: &mut Draw, clock_s: &mut i64| {
            let (it, _) = batch(store, draw, clock_s);
            let e = write(store, it).unwrap_err();
            assert!(matches!(e, series::WriteError::Full(_)), "{wal:?}: {e}");
            let deleted = store.delete(&Selector::metric("load"), TimeRange::ALL);
            assert!(matches!(deleted, Err(series::WriteError::Full(_))), "{wal:?}: {deleted:?}");
        };
        refused(&store, &mut draw, &mut clock_s);
        same(&contents(&store), &model, "read without room");
        // Nothing was written: the store is closed cleanly, and the next open finds it so.
        store.close().unwrap();
        let (store, report) = open(&disk, wal);
        assert!(report.clean, "{report:?}");
        refused(&store, &mut draw, &mut clock_s);
        disk.set_capacity(None);
        let (it, change) = batch(&store, &mut draw, &mut clock_s);
        write(&store, it).unwrap();
        apply(&mut model, &change);
        same(&contents(&store), &model, "written");
        let (killed, report) = open(&disk.kill(), Wal::Always);
        assert!(!report.clean, "{report:?}");
        if wal == Wal::Always {
            same(&contents(&killed), &model, "killed");
        }
        store.close().unwrap();
        same(&contents(&open(&disk, wal).0), &model, "closed");
    }
}

/// Compares with the model and reports only the differences.
fn same(found: &Model, model: &Model, when: &str) {
    for name in found.keys().chain(model.keys()) {
        let (found, model) = (found.get(name), model.get(name));
        let keys = found.into_iter().chain(model).flat_map(|s| s.keys());
        for time in keys {
            let of = |s: Option<&common::Samples>| s.and_then(|s| s.get(time)).cloned();
            assert_eq!(of(found), of(model), "{when}: {name} at {time}");
        }
    }
}
