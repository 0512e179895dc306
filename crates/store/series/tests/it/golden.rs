//! The bytes on disk match docs/format/series.md: stores of this version and of earlier versions
//! stay readable. `HOLDFAST_BLESS=1` rewrites the files.

use std::path::{Path, PathBuf};

use crate::common::{contents, open, options};
use env::files::{Access, Files, SimDisk};
use series::{Ack, Batch, Selector, Store, TimeRange, Value, Wal};

const FILES: [&str; 4] =
    ["manifest", "catalog", "parts/part-0000000000000001", "parts/part-0000000000000002"];
/// Folders of the golden files of this version and of earlier ones.
const NOW: &str = "v4";
const BEFORE: [&str; 2] = ["v1", "v2"];

fn golden(version: &str, name: &str) -> PathBuf {
    let file = name.replace('/', "-");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version).join(file)
}

/// Writes gauges with an exception, an integer beyond 2^53, an event, two partitions and one
/// delete.
fn store(disk: &SimDisk) -> Store {
    let (store, _) = open(disk, Wal::Off);
    let cpu = store.row(br"cpu.user|cpu.sys host=a\ b dc=1").unwrap();
    let events = store.row(b"!deploy host=a").unwrap();
    let mut batch = Batch::new();
    for i in 0..200i64 {
        let odd = if i == 7 { f64::NAN } else { (i * i % 97) as f64 / 100.0 };
        batch.push(cpu, i * 60_000_000_000, &[odd, i as f64 * 0.1]).unwrap();
    }
    let big = [Value::F64(1.0), Value::I64(i64::MAX)];
    batch.push_values(cpu, 90_000_000_000, &big).unwrap();
    batch.push_event(events, 1_000_000_007, b"release 1.2").unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    let range = TimeRange { from_ns: 0, to_ns: 60_000_000_000 };
    store.delete(&Selector::metric("cpu.sys"), range).unwrap();
    store
}

#[test]
fn store_files_match_the_golden_bytes() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let found = contents(&store);
    store.close().unwrap();
    for name in FILES {
        compare(&disk, name, &golden(NOW, name));
    }
    assert_eq!(contents(&open_golden(&disk_of(NOW))), found);
}

#[test]
fn store_of_an_earlier_version_opens_with_deletes_applied() {
    let now = SimDisk::new(1);
    let expected = contents(&store(&now));
    for version in BEFORE {
        let disk = disk_of(version);
        let store = open_golden(&disk);
        assert_eq!(contents(&store), expected, "{version}");
        assert_eq!(store.stats().tombstones, 1);
        store.merge().unwrap();
        assert_eq!((store.stats().tombstones, contents(&store)), (0, expected.clone()));
        store.close().unwrap();
        assert_eq!(contents(&open(&disk, Wal::Always).0), expected, "{version}");
    }
}

fn compare(disk: &SimDisk, name: &str, golden: &Path) {
    let bytes = disk.content(&Path::new("/series").join(name)).unwrap();
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(golden, &bytes).unwrap();
    }
    assert!(std::fs::read(golden).unwrap() == bytes, "{name} differs");
}

#[test]
fn roll_up_bytes_are_stable_and_its_steps_match_the_samples() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Off);
    let row = store.row(b"cpu.user|cpu.sys host=a").unwrap();
    let mut batch = Batch::new();
    for i in 0..90i64 {
        let odd = if i == 7 { f64::NAN } else { (i * i % 97) as f64 / 100.0 };
        batch.push(row, i * 70_000_000_000 + 5, &[odd, i as f64 / 3.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    let steps = |store: &Store| {
        let snapshot = store.snapshot();
        let range = TimeRange { from_ns: 0, to_ns: i64::MAX };
        let of = |s: &series::Series| snapshot.steps(s, range, 300_000_000_000).unwrap();
        store.find(&Selector::default()).iter().map(of).collect::<Vec<_>>()
    };
    let by_samples = steps(&store);
    store.merge().unwrap();
    assert_eq!(store.stats().rollups, 1);
    // NaN is equal to itself only as text.
    assert_eq!(format!("{:?}", steps(&store)), format!("{by_samples:?}"));
    let rollup = "parts/part-0000000000000002";
    compare(&disk, rollup, &golden(NOW, "rollup"));
    let bytes = disk.content(&Path::new("/series").join(rollup)).unwrap();
    assert_eq!((&bytes[..8], &bytes[12..16]), (&b"hfsepart"[..], &300u32.to_le_bytes()[..]));
}

#[test]
fn part_with_deleted_values_matches_the_golden_bytes() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    store.seal().unwrap();
    let expected = contents(&store);
    store.merge().unwrap();
    assert_eq!((store.stats().tombstones, contents(&store)), (0, expected));
    // The first partition's part is rewritten without the values.
    let names = disk.list(Path::new("/series/parts")).unwrap();
    let first = format!("parts/{}", names.get(1).unwrap());
    compare(&disk, &first, &golden(NOW, "deleted"));
}

/// Returns a disk with the golden files of a version.
fn disk_of(version: &str) -> SimDisk {
    let disk = SimDisk::new(2);
    for name in FILES {
        let bytes = std::fs::read(golden(version, name)).unwrap();
        let file = disk.open(&Path::new("/series").join(name), Access::CREATE).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
    }
    disk
}

fn open_golden(disk: &SimDisk) -> Store {
    let (store, report) = Store::open(Path::new("/series"), options(disk, Wal::Always)).unwrap();
    assert!(report.clean && report.parts == 2);
    store
}
