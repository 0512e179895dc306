//! Writes a year series by series and checks the costs: they follow the length of the year, not the
//! number of its partitions.

use std::path::Path;
use std::time::Duration;

use crate::common::{PARTITION_S, options};
use env::files::{Files, SimDisk};
use series::{
    Ack, Batch, OPEN_INDEX_BYTES_MAX, OPEN_PARTS_MAX, Selector, SeriesRetention, Store,
    StoreOptions, TimeRange, Wal,
};

const SECOND: i64 = 1_000_000_000;
/// Number of partitions in a year.
const YEAR: i64 = 4380;
/// Number of samples of a series in each partition.
const EACH: i64 = 3;

fn open_on(disk: &SimDisk, retention: SeriesRetention) -> Store {
    let options = StoreOptions {
        head_bytes_max: 64 << 20,
        segment_bytes: 16 << 20,
        rollups_beside: false,
        retention,
        ..options(disk, Wal::Always)
    };
    Store::open(Path::new("/series"), options).unwrap().0
}

/// Writes a year of two series, one series after the other.
fn year(store: &Store, first: i64) {
    for host in first..first + 2 {
        let row = store.row(format!("load|io host=h{host}").as_bytes()).unwrap();
        let mut batch = Batch::new();
        for i in 0..YEAR * EACH {
            let time = i * PARTITION_S / EACH * SECOND;
            batch.push(row, time, &[(i % 50) as f64 / 4.0, i as f64]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
    }
}

fn check(store: &Store, hosts: usize, partitions: i64) {
    let (snapshot, all) = (store.snapshot(), store.find(&Selector::default()));
    assert_eq!(all.len(), 2 * hosts);
    for series in all {
        let found = snapshot.summary(&series, TimeRange::ALL).unwrap().unwrap();
        assert_eq!(found.count as i64, partitions * EACH, "{}", series.name());
    }
}

#[test]
fn backfilled_year_needs_few_files_and_flushes() {
    let disk = SimDisk::new(1);
    let store = open_on(&disk, SeriesRetention::default());
    year(&store, 0);
    let before = disk.calls();
    let sealed = store.seal().unwrap();
    assert_eq!(i64::from(sealed.parts), YEAR);
    // Each row series is read from the head once, not once per partition or file.
    assert_eq!(sealed.rows_read, 2);
    let calls = disk.calls() - before;
    let files = disk.list(Path::new("/series/parts")).unwrap().len();
    assert!(files <= 32 && calls < 300, "{files} files, {calls} calls that change the disk");
    check(&store, 2, YEAR);
    year(&store, 2);
    store.seal().unwrap();
    // Many partitions take one file and one manifest.
    let before = disk.calls();
    let outcome = store.merge().unwrap();
    let calls = disk.calls() - before;
    assert_eq!((i64::from(outcome.parts_before), i64::from(outcome.parts_after)), (2 * YEAR, YEAR));
    assert!(calls < YEAR as u64 / 2, "{calls} calls that change the disk");
    let files = disk.list(Path::new("/series/parts")).unwrap().len();
    assert!(files <= 100, "{files} files");
    check(&store, 4, YEAR);
    let stats = store.stats();
    assert!(stats.parts_open <= OPEN_PARTS_MAX as u64, "{stats:?}");
    assert!(stats.open_index_bytes <= OPEN_INDEX_BYTES_MAX, "{stats:?}");
    store.close().unwrap();
    // A file of several partitions is removed with the last of them.
    let kept = 100;
    let age = options(&disk, Wal::Off).clock.now_us() / 1_000_000 - (YEAR - kept) as u64 * 7200;
    let retention = SeriesRetention { age: Some(Duration::from_secs(age)), bytes_max: None };
    let store = open_on(&disk, retention);
    let before = disk.calls();
    store.retain().unwrap();
    let calls = disk.calls() - before;
    assert!(calls < 200, "{calls} calls that change the disk");
    check(&store, 4, kept);
    let files = disk.list(Path::new("/series/parts")).unwrap().len();
    assert!(files <= 4, "{files} files of {kept} partitions");
}
