//! Copies of an open store contain everything acknowledged before, regardless of concurrent seals,
//! merges and trims.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::common::{
    self, Draw, Model, apply, batch, bury, contents, delete, open, options, write,
};
use env::clock::SystemClock;
use env::files::{Files, SimDisk};
use series::{Ack, Batch, Selector, SeriesOpenError, Store, StoreOptions, TimeRange, Wal, backup};

const SECOND: i64 = 1_000_000_000;
/// Number of copies of a store under load.
const COPIES: usize = 12;

fn copy(disk: &SimDisk, to: &str) -> Result<series::BackupReport, SeriesOpenError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    backup(Path::new("/series"), Path::new(to), &files)
}

fn opened(disk: &SimDisk, dir: &str, wal: Wal) -> Store {
    Store::open(Path::new(dir), options(disk, wal)).unwrap().0
}

#[test]
fn backup_equals_the_store_and_accepts_writes() {
    for seed in 0..3 {
        let disk = SimDisk::new(seed);
        let mut draw = Draw(seed);
        let (store, _) = open(&disk, Wal::Always);
        let (mut model, mut clock_s) = (Model::new(), 1000);
        for step in 0..30 {
            match draw.below(9) {
                0 => drop(store.seal().unwrap()),
                1 => drop(store.merge().unwrap()),
                2 => {
                    let (selector, range) = delete(&mut draw);
                    store.delete(&selector, range).unwrap();
                    bury(&mut model, &store, &selector, range);
                }
                _ => {
                    let (it, change) = batch(&store, &mut draw, &mut clock_s);
                    write(&store, it).unwrap();
                    apply(&mut model, &change);
                }
            }
            if step % 10 == 9 {
                let to = format!("/copy{step}");
                copy(&disk, &to).unwrap();
                // The copy is persisted, even data that is not yet persisted in the store itself.
                let image = disk.crash(seed);
                let again = opened(&image, &to, Wal::Always);
                assert_eq!(contents(&again), model, "seed {seed} step {step}");
                let mut after = model.clone();
                let (it, change) = batch(&again, &mut draw, &mut clock_s);
                write(&again, it).unwrap();
                apply(&mut after, &change);
                again.seal().unwrap();
                drop(again);
                assert_eq!(contents(&opened(&image, &to, Wal::Off)), after, "seed {seed}");
            }
        }
    }
}

#[test]
fn backup_under_load_holds_everything_acknowledged_before_it() {
    let disk = SimDisk::new(5);
    let background = StoreOptions {
        background: true,
        head_bytes_max: 16 << 10,
        segment_bytes: 16 << 10,
        clock: Arc::new(SystemClock::new()),
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/series"), background).unwrap();
    let (done, acknowledged) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                store.seal().unwrap();
                store.merge().unwrap();
            }
        });
        let writer = scope.spawn(|| {
            for number in (0..).take_while(|_| !done.load(Ordering::Acquire)) {
                one_row(&store, number);
                acknowledged.store(number + 1, Ordering::Release);
            }
        });
        for round in 0..COPIES {
            let before = acknowledged.load(Ordering::Acquire);
            let to = format!("/copy{round}");
            copy(&disk, &to).unwrap();
            let copied = opened(&disk, &to, Wal::Always);
            check(&copied, before, round);
            copied.close().unwrap();
            while acknowledged.load(Ordering::Acquire) < before + 20 {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Release);
        writer.join().unwrap();
    });
}

/// Writes a row of two series. The times alternate between three partitions.
fn one_row(store: &Store, number: i64) {
    let row = store.row(b"a|b host=x").unwrap();
    let mut batch = Batch::new();
    let time = (number + number % 3 * common::PARTITION_S) * SECOND;
    batch.push(row, time, &[number as f64, 1.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
}

/// Checks that there are at least `rows` rows, and that no row is missing before the last one
/// found.
fn check(store: &Store, rows: i64, round: usize) {
    let snapshot = store.snapshot();
    for series in store.find(&Selector::metric("a")) {
        let all = snapshot.summary(&series, TimeRange::ALL).unwrap();
        let (count, max) = all.map_or((0, -1.0), |all| (all.count as i64, all.max));
        assert!(count >= rows, "round {round}: {count} of {rows} rows");
        assert_eq!(count, max as i64 + 1, "round {round}: a hole");
    }
    assert!(rows == 0 || !store.find(&Selector::metric("a")).is_empty());
}

#[test]
fn backup_of_a_damaged_store_fails() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    one_row(&store, 0);
    store.seal().unwrap();
    let part = disk.list(Path::new("/series/parts")).unwrap().remove(0);
    disk.open(&Path::new("/series/parts").join(part), env::files::Access::CREATE)
        .unwrap()
        .set_size(50)
        .unwrap();
    assert!(matches!(copy(&disk, "/copy"), Err(SeriesOpenError::Corrupt(_))));
}
