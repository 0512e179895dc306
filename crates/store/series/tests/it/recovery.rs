//! Seals and trims that are interrupted, fail, or run concurrently with writes: nothing
//! acknowledged is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Model, PARTITION_S, contents, open, options};
use env::clock::SystemClock;
use env::files::{Access, Failure, Fault, Files, SimDisk};
use series::{Ack, Batch, Selector, Store, StoreOptions, TimeRange, Wal};

const SECOND: i64 = 1_000_000_000;
/// Number of groups of batches written during seals, and of batches in each.
const GROUPS: i64 = 12;
const GROUP: i64 = 200;

/// Writes rows of two series over five partitions as one batch.
fn spread(store: &Store, number: i64) {
    let mut batch = Batch::new();
    for host in ["a", "b"] {
        let row = store.row(format!("load host={host}").as_bytes()).unwrap();
        for i in 0..50i64 {
            let time = (i * PARTITION_S / 10 + number) * SECOND;
            batch.push(row, time, &[(i + number) as f64]).unwrap();
        }
    }
    store.write(batch, Ack::Persisted).unwrap();
}

/// Creates a store with rows in the head. Returns it, the model and the number of calls so far.
fn before_a_seal(disk: &SimDisk) -> (Store, Model, u64) {
    let (store, _) = open(disk, Wal::Always);
    spread(&store, 0);
    store.seal().unwrap();
    spread(&store, 1);
    let model = contents(&store);
    (store, model, disk.calls())
}

/// Returns the range of calls of one seal.
fn calls_of_a_seal() -> std::ops::RangeInclusive<u64> {
    let disk = SimDisk::new(1);
    let (store, _, before) = before_a_seal(&disk);
    assert_eq!(store.seal().unwrap().parts, 5);
    before + 1..=disk.calls()
}

#[test]
fn interrupted_seal_over_several_partitions_loses_nothing() {
    for call in calls_of_a_seal() {
        for after in 0..3 {
            let disk = SimDisk::new(1);
            let (store, model, _) = before_a_seal(&disk);
            disk.fail(&[Fault { call, failure: Failure::PowerCut }]);
            assert!(store.seal().is_err() || call == *calls_of_a_seal().end());
            let image = disk.crash(call * 7 + after);
            assert_eq!(contents(&open(&image, Wal::Always).0), model, "call {call}");
        }
    }
}

#[test]
fn interrupted_seal_with_shared_files_loses_nothing() {
    // There are more partitions than files.
    let prepared = |disk: &SimDisk| {
        let (store, _) = open(disk, Wal::Always);
        let mut batch = Batch::new();
        for host in ["a", "b"] {
            let row = store.row(format!("load host={host}").as_bytes()).unwrap();
            for i in (0..70i64).rev() {
                batch.push(row, i * PARTITION_S * SECOND + 7, &[i as f64]).unwrap();
            }
        }
        store.write(batch, Ack::Persisted).unwrap();
        let model = contents(&store);
        (store, model, disk.calls())
    };
    let disk = SimDisk::new(1);
    let (store, model, before) = prepared(&disk);
    assert_eq!(store.seal().unwrap().parts, 70);
    assert_eq!(contents(&store), model);
    let files = disk.list(Path::new("/series/parts")).unwrap().len();
    assert!(files <= 32, "{files} files");
    for call in before + 1..=disk.calls() {
        let disk = SimDisk::new(1);
        let (store, model, _) = prepared(&disk);
        disk.fail(&[Fault { call, failure: Failure::PowerCut }]);
        let _ = store.seal();
        let (store, _) = open(&disk.crash(call), Wal::Always);
        assert_eq!(contents(&store), model, "call {call}");
        store.seal().unwrap();
        store.merge().unwrap();
        assert_eq!(contents(&store), model, "call {call} sealed");
    }
}

#[test]
fn failed_seal_loses_nothing_after_a_kill_crash_or_retry() {
    for call in calls_of_a_seal() {
        for failure in [Failure::Io, Failure::Full] {
            let disk = SimDisk::new(1);
            let (store, model, _) = before_a_seal(&disk);
            disk.fail(&[Fault { call, failure }]);
            let failed = store.seal().is_err();
            assert_eq!(contents(&store), model, "call {call} {failure:?}");
            for image in [disk.kill(), disk.crash(call)] {
                assert_eq!(
                    contents(&open(&image, Wal::Always).0),
                    model,
                    "call {call} {failure:?}"
                );
            }
            if failed && failure == Failure::Full {
                store.seal().unwrap();
                let image = disk.crash(call);
                assert_eq!(contents(&open(&image, Wal::Always).0), model, "call {call} again");
            }
        }
    }
}

#[test]
fn failed_seal_then_power_cut_in_the_next_loses_nothing() {
    let named = |store: &Store, name: &str| {
        let row = store.row(format!("a-name-that-is-long host={name}").as_bytes()).unwrap();
        let mut batch = Batch::new();
        batch.push(row, SECOND, &[1.0]).unwrap();
        store.write(batch, Ack::Persisted).unwrap();
    };
    for failed in calls_of_a_seal() {
        for cut in 0.. {
            let disk = SimDisk::new(1);
            let (store, _, before) = before_a_seal(&disk);
            let begun = failed - before;
            named(&store, "new-before");
            let from = disk.calls();
            let fault = |call, failure| Fault { call: from + call, failure };
            disk.fail(&[fault(begun, Failure::Full)]);
            let first = store.seal().is_ok();
            named(&store, "new-after");
            let model = contents(&store);
            let second = disk.calls() - from;
            disk.fail(&[fault(second + 1 + cut, Failure::PowerCut)]);
            let done = store.seal().is_ok();
            let found = contents(&open(&disk.crash(cut), Wal::Always).0);
            assert_eq!(found, model, "call {begun} failed: {first}, then call {cut} was cut");
            if done {
                break;
            }
        }
    }
}

#[test]
fn log_without_its_first_segment_is_rejected_with_its_path() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    (0..300).for_each(|number| spread(&store, number));
    let image = disk.kill();
    let log = Path::new("/series/log");
    let segments: Vec<String> = image.list(log).unwrap();
    assert!(segments.len() > 2, "{segments:?}");
    image.remove(&log.join(&segments[0])).unwrap();
    let refused = Store::open(Path::new("/series"), options(&image, Wal::Always));
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("/series/log") && refused.contains("begins at record"), "{refused}");
    let files: Arc<dyn Files> = Arc::new(image);
    let told = series::verify(Path::new("/series"), &files).unwrap();
    assert!(told.len() == 1 && refused.starts_with(&told[0]), "{told:?}: {refused}");
}

#[test]
fn log_without_its_last_segments_is_reported_by_verify() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    (0..300).for_each(|number| spread(&store, number));
    store.seal().unwrap();
    let image = disk.kill();
    let log = Path::new("/series/log");
    let segments = image.list(log).unwrap();
    let last = segments.iter().rfind(|name| name.starts_with("segment-")).unwrap();
    image.remove(&log.join(last)).unwrap();
    assert!(Store::open(Path::new("/series"), options(&image, Wal::Always)).is_err());
    let files: Arc<dyn Files> = Arc::new(image);
    let found = series::verify(Path::new("/series"), &files).unwrap();
    assert!(found.len() == 1 && found[0].contains("the log ends at record"), "{found:?}");
}

#[test]
fn missing_log_is_an_error_unless_parts_hold_all_of_it() {
    let files = |disk: &SimDisk| -> Arc<dyn Files> { Arc::new(disk.clone()) };
    let verified = |disk: &SimDisk| series::verify(Path::new("/series"), &files(disk)).unwrap();
    let log = Path::new("/series/log");
    let without_log = |disk: &SimDisk| {
        for name in disk.list(log).unwrap() {
            disk.remove(&log.join(name)).unwrap();
        }
    };
    for wal in [Wal::Always, Wal::Off] {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, Wal::Always);
        (0..9).for_each(|number| spread(&store, number));
        let model = contents(&store);
        store.seal().unwrap();
        let killed = disk.kill();
        store.close().unwrap();
        without_log(&disk);
        assert_eq!(verified(&disk), Vec::<String>::new(), "{wal:?}");
        let (store, _) = open(&disk, wal);
        assert_eq!(contents(&store), model, "{wal:?}");
        assert_eq!(contents(&open(&disk.kill(), Wal::Always).0), model, "{wal:?}: killed at once");
        spread(&store, 10);
        let model = contents(&store);
        if wal == Wal::Always {
            let image = disk.kill();
            assert_eq!(verified(&image), Vec::<String>::new());
            assert_eq!(contents(&open(&image, wal).0), model, "killed after it was acknowledged");
        }
        drop(store);
        assert_eq!(contents(&open(&disk, Wal::Always).0), model, "{wal:?}");

        without_log(&killed);
        let told = verified(&killed);
        assert!(told.len() == 1 && told[0].contains("the log ends at record"), "{told:?}");
        let refused = Store::open(Path::new("/series"), options(&killed, Wal::Always)).is_err();
        assert!(refused, "{wal:?}");
        // Without a log, no record is expected: the store opens with the content of its parts.
        open(&killed, Wal::Off).0.close().unwrap();
        assert_eq!(verified(&killed), Vec::<String>::new(), "{wal:?}");
    }
}

#[test]
fn log_damaged_after_a_clean_close_is_set_aside() {
    let log = Path::new("/series/log");
    let whole = SimDisk::new(1);
    let (store, _) = open(&whole, Wal::Always);
    (0..9).for_each(|number| spread(&store, number));
    let model = contents(&store);
    store.close().unwrap();
    let segments = whole.list(log).unwrap();
    let segment = segments.iter().find(|name| name.starts_with("segment-")).unwrap();
    for (byte, wal) in [(20, Wal::Always), (20, Wal::Off), (5000, Wal::Always)] {
        let disk = whole.kill();
        disk.flip(&log.join(segment), byte, 2);
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let told = series::verify(Path::new("/series"), &files).unwrap();
        assert!(told.len() == 1 && told[0].contains("opening sets it aside"), "{byte}: {told:?}");
        let (store, _) = open(&disk, wal);
        assert_eq!(contents(&store), model, "{byte} {wal:?}");
        let names = disk.list(log).unwrap();
        assert!(names.contains(&format!("damaged-{segment}")), "{byte}: {names:?}");
        spread(&store, 10);
        store.seal().unwrap();
        let model = contents(&store);
        let image = disk.kill();
        assert_eq!(contents(&open(&image, Wal::Always).0), model, "{byte} {wal:?}");
        // After a kill the files that were set aside are kept; after a clean close they are
        // removed.
        let aside = |disk: &SimDisk| {
            disk.list(log).unwrap().iter().filter(|name| name.starts_with("damaged-")).count()
        };
        assert_eq!(aside(&image), 1, "{byte} {wal:?}");
        store.close().unwrap();
        let (store, _) = open(&disk, wal);
        assert_eq!((contents(&store), aside(&disk)), (model, 0), "{byte} {wal:?}");
    }
}

#[test]
fn set_aside_log_that_cannot_be_removed_does_not_block_open() {
    let log = Path::new("/series/log");
    let whole = SimDisk::new(1);
    let (store, _) = open(&whole, Wal::Always);
    spread(&store, 0);
    let model = contents(&store);
    store.close().unwrap();
    let aside = log.join("damaged-segment-0000000000000001");
    whole.open(&aside, Access::CREATE).unwrap();
    let is_there = |disk: &SimDisk| disk.content(&aside).is_some();
    let calls = {
        let disk = whole.kill();
        let opened = open(&disk, Wal::Always);
        assert!(!is_there(&disk), "{:?}", opened.1);
        disk.calls()
    };
    let mut stayed = 0;
    for call in 1..=calls {
        let disk = whole.kill();
        disk.fail(&[Fault { call, failure: Failure::Io }]);
        let Ok((store, _)) = Store::open(Path::new("/series"), options(&disk, Wal::Always)) else {
            continue;
        };
        assert_eq!(contents(&store), model, "call {call}");
        stayed += u32::from(is_there(&disk));
        store.close().unwrap();
        drop(open(&disk, Wal::Always));
        assert!(!is_there(&disk), "call {call}: it goes the next time");
    }
    assert_eq!(stayed, 1, "of {calls} calls one removes it");
}

#[test]
fn merged_parts_are_deleted_only_after_manifest_is_persisted() {
    let merged = |failing: Option<u64>| {
        let disk = SimDisk::new(1);
        disk.scatter_names();
        let (store, _) = open(&disk, Wal::Always);
        for number in 0..4 {
            spread(&store, number);
            store.seal().unwrap();
        }
        let (model, before) = (contents(&store), disk.calls());
        // All calls from that one on fail, and earlier writes survive: this simulates a kill.
        let fault = |call| Fault { call: before + call, failure: Failure::PowerCut };
        disk.fail(&failing.map(fault).into_iter().collect::<Vec<_>>());
        assert_eq!(store.merge().is_err(), failing.is_some(), "call {failing:?}");
        (disk.kill(), model, disk.calls() - before)
    };
    let (_, _, calls) = merged(None);
    for call in 1..=calls {
        let (killed, model, _) = merged(Some(call));
        let (store, report) = open(&killed, Wal::Always);
        for seed in 0..30 {
            let found = contents(&open(&killed.crash(seed), Wal::Always).0);
            assert!(found == model, "call {call} seed {seed}: {report:?}");
        }
        drop(store);
    }
}

#[test]
fn failed_write_is_not_replayed_without_its_row_name() {
    let mut passed_over = 0;
    for call in 1..=5 {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, Wal::Always);
        spread(&store, 0);
        store.seal().unwrap();
        store.delete(&Selector::metric("load").with("host", "b"), TimeRange::ALL).unwrap();
        store.seal().unwrap();
        let never = store.row(b"never host=a").unwrap();
        let mut batch = Batch::new();
        batch.push(never, SECOND, &[1.0]).unwrap();
        // After one of these failed calls the data is written, though it may not be persisted.
        disk.fail(&[Fault { call: disk.calls() + call, failure: Failure::Io }]);
        if store.write(batch, Ack::Persisted).is_ok() {
            assert!(call > 2, "nothing failed");
            break;
        }
        let model = contents(&store);
        for _ in 0..4 {
            store.merge().unwrap();
        }
        assert_eq!(store.stats().rows, 1, "a row without samples is still there");
        let (store, report) = open(&disk.kill(), Wal::Always);
        assert_eq!((contents(&store), report.replayed_samples), (model, 0), "call {call}");
        assert_eq!(store.stats().rows_active, 0, "call {call}");
        passed_over += report.passed_over_batches;
    }
    assert_eq!(passed_over, 2, "batches that are passed over are counted");
}

#[test]
fn trimming_row_definitions_keeps_their_names() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    spread(&store, 0);
    store.seal().unwrap();
    let first = store.stats().log.unwrap();
    // This trims the segment with the definitions.
    for number in 1..400 {
        spread(&store, number);
        if number % 40 == 0 {
            store.seal().unwrap();
        }
    }
    let late = store.row(b"late host=c").unwrap();
    let mut batch = Batch::new();
    batch.push(late, SECOND, &[1.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    let log = journal::verify_with(&disk, Path::new("/series/log")).unwrap();
    assert!(log.first_position > 1, "nothing was trimmed: {first:?}");
    let model = contents(&store);
    let (store, report) = open(&disk.crash(3), Wal::Always);
    assert_eq!((report.rows, contents(&store)), (3, model));
}

#[test]
fn batches_logged_before_a_seal_and_applied_after_it_are_kept() {
    let disk = SimDisk::new(5);
    let background = StoreOptions {
        background: true,
        clock: Arc::new(SystemClock::new()),
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/series"), background).unwrap();
    let (done, seals) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let sealer = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                seals.fetch_add(u64::from(store.seal().unwrap().parts > 0), Ordering::AcqRel);
            }
        });
        let writers: Vec<_> = (0..3)
            .map(|w| (w, store.clone(), &disk, &seals))
            .map(|(w, store, disk, seals)| {
                scope.spawn(move || rows_around_seals(&store, disk, w, seals))
            })
            .collect();
        let written: Vec<_> =
            writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        sealer.join().unwrap();
        for writer in written {
            writer.unwrap();
        }
    });
    for image in [disk.kill(), disk.crash(9)] {
        let (store, _) = open(&image, Wal::Always);
        let snapshot = store.snapshot();
        let found = store.find(&Selector::metric("load"));
        assert_eq!(found.len(), 3);
        for series in found {
            let all = snapshot.summary(&series, TimeRange::ALL).unwrap().unwrap();
            let rows = GROUPS * GROUP;
            assert_eq!((all.count as i64, all.max), (rows, (rows - 1) as f64), "{}", series.name());
        }
    }
}

/// Writes groups of rows that are logged together and applied one by one while seals run.
fn rows_around_seals(store: &Store, disk: &SimDisk, writer: i64, seals: &AtomicU64) {
    let row = store.row(format!("load writer={writer}").as_bytes()).unwrap();
    for group in 0..GROUPS {
        let before = seals.load(Ordering::Acquire);
        let tickets: Vec<_> = (group * GROUP..(group + 1) * GROUP)
            .map(|number| {
                let mut batch = Batch::new();
                batch.push(row, number * 10 * SECOND, &[number as f64]).unwrap();
                store.submit(batch, Ack::Persisted).unwrap()
            })
            .collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        while seals.load(Ordering::Acquire) == before {
            std::thread::yield_now();
        }
        let (store, _) = open(&disk.kill(), Wal::Always);
        let series = store.find(&Selector::metric("load").with("writer", &writer.to_string()));
        let all = store.snapshot().summary(&series[0], TimeRange::ALL).unwrap().unwrap();
        assert_eq!(all.count as i64, (group + 1) * GROUP, "writer {writer}: acknowledged");
    }
}
