//! Limits, errors, retention, verification, concurrent writers, tasks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{PARTITION_S, contents, format_value, names_of, open, options, read};
use env::clock::{ManualClock, SystemClock};
use env::files::{Files, SimDisk};
use series::{
    Ack, Batch, Direction, NameError, NameKind, OPEN_PARTS_MAX, Selector, SeriesOpenError,
    SeriesRetention, Store, StoreOptions, TimeRange, Value, Wal, WriteError,
};

const SECOND: i64 = 1_000_000_000;

fn hours(store: &Store, from: i64, to: i64) {
    let row = store.row(b"load host=a").unwrap();
    let mut batch = Batch::new();
    for i in from * 360..to * 360 {
        batch.push(row, i * 10 * SECOND, &[i as f64 / 4.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
}

fn count(store: &Store) -> u64 {
    let snapshot = store.snapshot();
    let series = store.find(&Selector::metric("load"));
    series
        .iter()
        .filter_map(|s| snapshot.summary(s, TimeRange::ALL).unwrap())
        .map(|s| s.count)
        .sum()
}

#[test]
fn series_above_the_limit_is_rejected_and_known_ones_still_work() {
    let disk = SimDisk::new(1);
    let options = StoreOptions { series_max: 3, ..options(&disk, Wal::Always) };
    let (store, _) = Store::open(Path::new("/s"), options).unwrap();
    store.row(b"a|b host=x").unwrap();
    assert_eq!(store.row(b"a|b host=y").unwrap_err(), NameError::LimitReached { max: 3 });
    store.row(b"a|b   host=x").unwrap();
    store.row(b"c").unwrap();
}

#[test]
fn batches_apply_in_submit_order() {
    let disk = SimDisk::new(1);
    let options = || StoreOptions { background: true, ..options(&disk, Wal::Always) };
    let (store, _) = Store::open(Path::new("/s"), options()).unwrap();
    let row = store.row(b"load host=a").unwrap();
    let mut tickets = Vec::new();
    for i in 0..3000 {
        let mut batch = Batch::new();
        batch.push(row, i / 30 * SECOND, &[i as f64]).unwrap();
        let ack = if i % 3 == 0 { Ack::Persisted } else { Ack::Flushed };
        tickets.push(store.submit(batch, ack).unwrap());
    }
    let done: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap().position).collect();
    assert!(done.is_sorted_by(|a, b| a < b), "a batch was overtaken");
    let last: Vec<String> =
        (1..=100).map(|i| format_value(Value::F64(f64::from(i * 30 - 1)))).collect();
    let stored = |store: &Store| -> Vec<String> {
        contents(store).into_values().flat_map(BTreeMap::into_values).collect()
    };
    assert_eq!(stored(&store), last);
    store.close().unwrap();
    let (store, _) = Store::open(Path::new("/s"), options()).unwrap();
    assert_eq!(stored(&store), last);
}

#[test]
fn groups_and_definitions_larger_than_a_segment_are_split() {
    let disk = SimDisk::new(1);
    let options = StoreOptions {
        background: true,
        clock: Arc::new(SystemClock::new()),
        head_bytes_max: 16 << 20,
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/series"), options).unwrap();
    // The names have 200 KiB in total, in a log with segments of 64 KiB.
    let rows: Vec<_> =
        (0..1000).map(|i| store.row(format!("load host={i:0200}").as_bytes()).unwrap()).collect();
    let batch = |values: usize| {
        let mut batch = Batch::new();
        for (i, row) in rows.iter().cycle().take(values).enumerate() {
            batch.push(*row, i as i64, &[(i as f64).sin()]).unwrap();
        }
        batch
    };
    let sizes: Vec<usize> = (0..100).map(|i| if i == 50 { 40_000 } else { 500 }).collect();
    let tickets: Vec<_> =
        sizes.iter().map(|n| store.submit(batch(*n), Ack::Persisted).unwrap()).collect();
    for (ticket, size) in tickets.into_iter().zip(sizes) {
        let result = ticket.wait();
        let refused = matches!(result, Err(WriteError::TooLarge { .. }));
        assert_eq!(refused, size > 500, "a batch of {size}: {result:?}");
    }
    let (store, _) = open(&disk.kill(), Wal::Always);
    assert_eq!(count(&store), 500);
}

#[test]
fn last_timestamp_is_rejected_and_the_previous_accepted() {
    let (store, _) = open(&SimDisk::new(1), Wal::Always);
    let row = store.row(b"load host=a").unwrap();
    for (time, fits) in [(i64::MAX, false), (i64::MAX - 1, true), (i64::MIN, true)] {
        let mut batch = Batch::new();
        batch.push(row, time, &[1.0]).unwrap();
        assert_eq!(store.write(batch, Ack::Persisted).is_ok(), fits, "{time}");
    }
    store.seal().unwrap();
    assert_eq!(count(&store), 2);
}

#[test]
fn damaged_part_does_not_block_merging_other_partitions() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    for _ in 0..2 {
        hours(&store, 0, 6);
        store.seal().unwrap();
    }
    let name = disk.list(Path::new("/series/parts")).unwrap().remove(0);
    disk.flip(&PathBuf::from("/series/parts").join(name), 60, 3);
    assert!(matches!(store.merge(), Err(WriteError::Corrupt(_))));
    store.merge().unwrap();
    let stats = store.stats();
    assert_eq!((stats.parts, stats.partitions, stats.rollups), (4, 3, 2));
}

#[test]
fn missing_part_does_not_block_merging_other_partitions() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    for _ in 0..2 {
        hours(&store, 0, 6);
        store.seal().unwrap();
    }
    let name = disk.list(Path::new("/series/parts")).unwrap().remove(0);
    disk.remove(&PathBuf::from("/series/parts").join(name)).unwrap();
    assert!(matches!(store.merge(), Err(WriteError::Unread { .. })));
    store.merge().unwrap();
    let stats = store.stats();
    assert_eq!((stats.parts, stats.partitions, stats.rollups), (4, 3, 2));
}

#[test]
fn later_value_of_a_series_in_two_rows_wins_across_merges() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    let (narrow, wide) = (store.row(b"cpu host=a").unwrap(), store.row(b"cpu|mem host=a").unwrap());
    let write = |row, time: i64, values: &[f64]| {
        let mut batch = Batch::new();
        batch.push(row, time * SECOND, values).unwrap();
        store.write(batch, Ack::Persisted).unwrap();
    };
    // Either row is written later, in one head and in two parts, and for a time that was compressed
    // long before.
    write(wide, 10, &[5.0, 1.0]);
    write(narrow, 10, &[7.0]);
    write(narrow, 11, &[7.0]);
    write(wide, 11, &[5.0, 2.0]);
    (20..200).for_each(|time| write(wide, time, &[0.0, 3.0]));
    write(narrow, 21, &[9.0]);
    write(wide, 12, &[5.0, 4.0]);
    write(narrow, 13, &[5.0]);
    let check = |store: &Store, mem: usize| {
        let found = contents(store);
        let float = |v: f64| format!("f{:016x}", v.to_bits());
        for (time, value) in [(10, 7.0), (11, 5.0), (12, 7.0), (13, 5.0), (21, 9.0), (22, 0.0)] {
            assert_eq!(found["cpu host=a"][&(time * SECOND)], float(value), "at {time}");
        }
        assert_eq!(found["mem host=a"][&(10 * SECOND)], float(1.0));
        assert_eq!((found["mem host=a"].len(), found["cpu host=a"].len()), (mem, 184));
    };
    store.seal().unwrap();
    write(narrow, 12, &[7.0]);
    check(&store, 183);
    store.seal().unwrap();
    write(wide, 13, &[5.0, 4.0]);
    check(&store, 184);
    store.seal().unwrap();
    store.merge().unwrap();
    assert_eq!(store.stats().parts, 1);
    check(&store, 184);
    drop(store);
    check(&open(&disk, Wal::Always).0, 184);
}

#[test]
fn open_parts_stay_within_their_limit() {
    let disk = SimDisk::new(1);
    let options = StoreOptions { rollups_beside: false, ..options(&disk, Wal::Off) };
    let (store, _) = Store::open(Path::new("/s"), options).unwrap();
    let row = store.row(b"load host=a").unwrap();
    let mut batch = Batch::new();
    for i in 0..OPEN_PARTS_MAX as i64 + 80 {
        batch.push(row, i * PARTITION_S * SECOND, &[i as f64]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    // This reads the samples. Summaries do not read parts that they do not need.
    let before = contents(&store);
    assert_eq!(store.stats().parts_open, OPEN_PARTS_MAX as u64);
    assert_eq!(contents(&store), before);
}

#[test]
fn rows_of_wrong_shape_or_another_store_are_rejected() {
    let (store, _) = open(&SimDisk::new(1), Wal::Always);
    let row = store.row(b"a|b host=x").unwrap();
    let mut batch = Batch::new();
    assert!(matches!(
        batch.push(row, 0, &[1.0]),
        Err(WriteError::Shape { found: 1, expected: 2, .. })
    ));
    batch.push(row, 0, &[1.0, 2.0]).unwrap();
    let (other, _) = open(&SimDisk::new(2), Wal::Always);
    assert!(matches!(other.write(batch, Ack::Persisted), Err(WriteError::UnknownRow(0))));
    let events = store.row(b"!e host=x").unwrap();
    let mut batch = Batch::new();
    assert!(batch.push(events, 0, &[1.0]).is_err());
    assert!(batch.push_event(row, 0, b"x").is_err());
    assert!(batch.push_event(events, 0, &[b'x'; 5000]).is_err());
}

#[test]
fn catalogue_finds_series_by_metric_tag_and_value() {
    let (store, _) = open(&SimDisk::new(1), Wal::Always);
    for name in ["cpu|mem host=a dc=1", "cpu host=b dc=2", "net host=c"] {
        store.row(name.as_bytes()).unwrap();
    }
    assert_eq!(names_of(&store, NameKind::Metric, "", ""), ["cpu", "mem", "net"]);
    assert_eq!(names_of(&store, NameKind::Metric, "", "c"), ["cpu"]);
    assert_eq!(names_of(&store, NameKind::Tag, "cpu", ""), ["dc", "host"]);
    assert_eq!(names_of(&store, NameKind::Tag, "net", ""), ["host"]);
    assert_eq!(names_of(&store, NameKind::Value("host".into()), "cpu", ""), ["a", "b"]);
    let names = |s: &Selector| store.find(s).iter().map(series::Series::name).collect::<Vec<_>>();
    assert_eq!(names(&Selector::metric("cpu")), ["cpu dc=1 host=a", "cpu dc=2 host=b"]);
    let without_dc =
        Selector { tags: vec![("dc".into(), series::Test::is(""))], ..Selector::default() };
    assert_eq!(names(&without_dc), ["net host=c"]);
    let not_a = series::Test::IsNot(vec!["a".into()]);
    let selector = Selector { metric: series::Test::is("cpu"), tags: vec![("host".into(), not_a)] };
    assert_eq!(names(&selector), ["cpu dc=2 host=b"]);
    assert!(names(&Selector::metric("unknown")).is_empty());
}

#[test]
fn series_shared_by_two_rows_is_found_once() {
    let (store, _) = open(&SimDisk::new(1), Wal::Always);
    let (one, two) = (store.row(b"cpu host=a").unwrap(), store.row(b"cpu|mem host=a").unwrap());
    let mut batch = Batch::new();
    batch.push(one, 10, &[1.0]).unwrap();
    batch.push(two, 20, &[2.0, 3.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    let found = store.find(&Selector::metric("cpu"));
    assert_eq!(found.len(), 1);
    assert_eq!(read(&store.snapshot(), &found[0], TimeRange::ALL, Direction::Forward).len(), 2);
}

#[test]
fn expired_partitions_are_dropped_and_late_rows_rejected() {
    let disk = SimDisk::new(1);
    let clock = ManualClock::at(24 * 3600 * 1_000_000);
    let age = Some(Duration::from_hours(12));
    let options = StoreOptions {
        retention: SeriesRetention { age, ..SeriesRetention::default() },
        clock: Arc::new(clock.clone()),
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/s"), options).unwrap();
    hours(&store, 12, 24);
    store.seal().unwrap();
    assert_eq!(store.stats().partitions, 6);
    clock.advance(Duration::from_hours(4));
    store.retain().unwrap();
    assert_eq!((store.stats().partitions, count(&store)), (4, 8 * 360));
    let row = store.row(b"load host=a").unwrap();
    let mut late = Batch::new();
    late.push(row, 13 * 3600 * SECOND, &[1.0]).unwrap();
    assert!(matches!(store.write(late, Ack::Persisted), Err(WriteError::TooOld { .. })));
    let names = disk.list(Path::new("/s/parts")).unwrap();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn size_retention_drops_oldest_partitions_first() {
    let disk = SimDisk::new(1);
    let retention = SeriesRetention { bytes_max: Some(3000), ..SeriesRetention::default() };
    let options = StoreOptions { retention, ..options(&disk, Wal::Always) };
    let (store, _) = Store::open(Path::new("/s"), options).unwrap();
    hours(&store, 0, 24);
    store.seal().unwrap();
    let before = store.stats();
    assert!(before.part_bytes > 3000);
    store.retain().unwrap();
    let after = store.stats();
    assert!(after.part_bytes <= 3000 && after.partitions > 0, "{after:?}");
    let first = contents(&store).values().flat_map(|s| s.keys()).next().copied();
    assert!(first.unwrap() >= 2 * PARTITION_S * SECOND);
}

#[test]
fn merge_leaves_one_part_and_saves_space() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    for i in 0..6 {
        hours(&store, 0, 1 + i % 2);
        store.seal().unwrap();
    }
    let (before, all) = (store.stats(), contents(&store));
    let snapshot = store.snapshot();
    let outcome = store.merge().unwrap();
    let after = store.stats();
    assert!(outcome.parts_before >= 6 && after.parts == 1, "{outcome:?}");
    assert!(after.part_bytes < before.part_bytes);
    assert_eq!(contents(&store), all);
    assert!(disk.list(Path::new("/series/parts")).unwrap().len() > 1, "a snapshot keeps its files");
    drop(snapshot);
    // These are the part and its roll-up.
    assert_eq!(disk.list(Path::new("/series/parts")).unwrap().len(), 2);
}

#[test]
fn merge_removes_deleted_samples_from_disk() {
    let (store, _) = open(&SimDisk::new(1), Wal::Always);
    hours(&store, 0, 4);
    store.seal().unwrap();
    store.delete(&Selector::default().with("host", "a"), TimeRange::ALL).unwrap();
    assert_eq!(count(&store), 0);
    hours(&store, 1, 2);
    assert_eq!(count(&store), 360, "what is written after a delete stays");
    store.seal().unwrap();
    store.merge().unwrap();
    let stats = store.stats();
    assert_eq!((stats.tombstones, stats.part_samples, count(&store)), (0, 360, 360));
}

#[test]
fn deleted_metric_is_removed_by_merge_and_can_be_rewritten() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    let row = store.row(b"load|user host=a").unwrap();
    let write = |from: i64, to: i64, value: f64| {
        let mut batch = Batch::new();
        for i in from..to {
            batch.push(row, i * 10 * SECOND, &[i as f64 / 4.0, value * (i as f64).sin()]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
    };
    write(0, 700, 1000.0);
    let bytes = store.stats().part_bytes;
    let range = TimeRange { from_ns: 0, to_ns: 600 * 10 * SECOND };
    store.delete(&Selector::metric("user"), range).unwrap();
    let expected = contents(&store);
    assert_eq!((expected["user host=a"].len(), expected["load host=a"].len()), (100, 700));
    store.seal().unwrap();
    store.merge().unwrap();
    let stats = store.stats();
    assert_eq!((stats.tombstones, stats.part_samples, stats.parts), (0, 800, 1));
    assert!(stats.part_bytes < bytes, "{} of {bytes} bytes", stats.part_bytes);
    assert_eq!(contents(&store), expected);
    // These rows follow the delete in the same range. The parts are merged later.
    write(300, 350, 2000.0);
    let expected = contents(&store);
    assert_eq!(expected["user host=a"].len(), 150);
    store.merge().unwrap();
    assert_eq!((store.stats().parts, contents(&store)), (1, expected.clone()));
    let all = store.find(&Selector::metric("user")).remove(0);
    let found = store.snapshot().summary(&all, TimeRange::ALL).unwrap().unwrap();
    assert_eq!((found.count, found.first_ns), (150, 3000 * SECOND));
    drop(store);
    assert_eq!(contents(&open(&disk, Wal::Always).0), expected);
}

#[test]
fn verify_reports_flipped_bits_by_file() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    hours(&store, 0, 8);
    store.close().unwrap();
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    assert_eq!(series::verify(Path::new("/series"), &files).unwrap(), Vec::<String>::new());
    let names = disk.list(Path::new("/series/parts")).unwrap();
    let path = PathBuf::from("/series/parts").join(&names[1]);
    let size = disk.content(&path).unwrap().len();
    for byte in (0..size).step_by(7) {
        disk.flip(&path, byte, 3);
        let found = series::verify(Path::new("/series"), &files).unwrap();
        assert!(found.iter().any(|line| line.contains(&names[1])), "byte {byte}: {found:?}");
        disk.flip(&path, byte, 3);
    }
    disk.flip(&path, 60, 3);
    let (store, _) = open(&disk, Wal::Always);
    let series = store.find(&Selector::metric("load")).remove(0);
    let snapshot = store.snapshot();
    let runs: Vec<_> = snapshot.scan(&series, TimeRange::ALL, Direction::Forward).collect();
    assert_eq!(runs.iter().filter(|r| r.is_err()).count(), 1);
    let good: usize = runs.iter().flatten().map(|r| r.times.len()).sum();
    assert_eq!(good, 3 * 720);
}

#[test]
fn open_rejects_a_damaged_manifest_and_a_locked_store() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    let again = Store::open(Path::new("/series"), options(&disk, Wal::Always));
    assert!(matches!(again, Err(SeriesOpenError::Locked(_))));
    store.close().unwrap();
    disk.flip(Path::new("/series/manifest"), 20, 1);
    let again = Store::open(Path::new("/series"), options(&disk, Wal::Always));
    assert!(matches!(again, Err(SeriesOpenError::Corrupt(_))));
}

#[test]
fn concurrent_writes_survive_a_clean_close() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("series");
    let small = StoreOptions { head_bytes_max: 200 << 10, ..StoreOptions::default() };
    let (store, _) = Store::open(&dir, small.clone()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = store.clone();
            scope.spawn(move || (0..30).for_each(|number| write_many(&store, writer, number)));
        }
    });
    assert_eq!(count(&store), 4 * 30 * 200);
    store.close().unwrap();
    let (store, report) = Store::open(&dir, small).unwrap();
    assert!(report.clean);
    assert_eq!(count(&store), 4 * 30 * 200);
}

#[test]
fn store_rejects_writes_while_its_folder_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, away) = (folder.path().join("series"), folder.path().join("away"));
    let (store, _) = Store::open(&dir, StoreOptions::default()).unwrap();
    write_many(&store, 0, 0);
    let row = store.row(b"load writer=0 host=0").unwrap();
    let write = |time: i64| {
        let mut batch = Batch::new();
        batch.push(row, time * SECOND, &[1.0]).unwrap();
        store.write(batch, Ack::Persisted)
    };
    std::fs::rename(&dir, &away).unwrap();
    // The store checks once a second. If the error never occurs, the test runner times out.
    let refused = (0..).find_map(|n| write(100 + n).err()).unwrap();
    assert!(refused.to_string().contains("is gone"), "{refused}");
    std::fs::rename(&away, &dir).unwrap();
    (0..).find_map(|n| write(1_000_000 + n).ok()).unwrap();
    store.close().unwrap();
}

/// Writes a batch of 50 series with 4 samples each.
fn write_many(store: &Store, writer: i64, number: i64) {
    let mut batch = Batch::new();
    for i in 0..200 {
        let (host, time) = (i / 4, (number * 4 + i % 4) * 10 * SECOND);
        let row = store.row(format!("load writer={writer} host={host}").as_bytes()).unwrap();
        batch.push(row, time, &[i as f64]).unwrap();
    }
    let outcome = store.write(batch, Ack::Persisted).unwrap();
    assert!(outcome.samples == 200 && outcome.position > 0);
}
