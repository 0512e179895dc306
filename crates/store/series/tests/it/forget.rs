//! Series without samples are forgotten: their names are removed from searches, limits, memory and
//! the disk. Nothing else is removed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::reads::Reads;
use crate::common::{Model, contents, names_of, options};
use env::clock::ManualClock;
use env::files::{Failure, Fault, Files, SimDisk};
use series::{
    Ack, Batch, NameError, NameKind, Row, Selector, SeriesRetention, Store, StoreOptions,
    TimeRange, Wal, WriteError,
};

const SECOND: i64 = 1_000_000_000;
const HOUR_S: u64 = 3600;

struct Fixture {
    disk: SimDisk,
    clock: ManualClock,
}

impl Fixture {
    fn new() -> Self {
        Self { disk: SimDisk::new(1), clock: ManualClock::at(HOUR_S * 1_000_000) }
    }

    fn open_on(&self, disk: &SimDisk) -> Store {
        let age = Some(Duration::from_secs(24 * HOUR_S));
        let options = StoreOptions {
            series_max: 6,
            retention: SeriesRetention { age, bytes_max: None },
            rollups_beside: false,
            clock: Arc::new(self.clock.clone()),
            ..options(disk, Wal::Always)
        };
        Store::open(Path::new("/series"), options).unwrap().0
    }

    fn open(&self) -> Store {
        self.open_on(&self.disk)
    }
}

fn write(store: &Store, row: Row, time_s: u64, value: f64) -> Result<(), WriteError> {
    let mut batch = Batch::new();
    batch.push(row, time_s as i64 * SECOND, &vec![value; row.columns()]).unwrap();
    store.write(batch, Ack::Persisted).map(drop)
}

fn add(store: &Store, name: &str, time_s: u64, value: f64) -> Row {
    let row = store.row(name.as_bytes()).unwrap();
    write(store, row, time_s, value).unwrap();
    row
}

/// Merges, so that deletes are applied, and lets two epochs pass.
fn settle(store: &Store) -> Result<(), WriteError> {
    store.seal()?;
    for _ in 0..4 {
        store.merge()?;
    }
    Ok(())
}

fn names(store: &Store) -> Vec<String> {
    store.find(&Selector::default()).iter().map(series::Series::name).collect()
}

#[test]
fn series_is_forgotten_with_its_last_sample_and_frees_its_slot() {
    let it = Fixture::new();
    let store = it.open();
    add(&store, "load host=old", 60, 1.0);
    let kept = add(&store, "cpu|mem host=kept", 60, 1.0);
    let old = store.row(b"load host=old").unwrap();
    store.seal().unwrap();
    it.clock.advance(Duration::from_secs(36 * HOUR_S));
    write(&store, kept, 36 * HOUR_S, 2.0).unwrap();
    add(&store, "a|b|c host=more", 36 * HOUR_S, 2.0);
    let full = store.row(b"one host=more");
    assert_eq!(full.unwrap_err(), NameError::LimitReached { max: 6 });
    for _ in 0..3 {
        store.retain().unwrap();
    }
    let rest = ["a host=more", "b host=more", "c host=more", "cpu host=kept", "mem host=kept"];
    assert_eq!(names(&store), rest);
    assert_eq!(names_of(&store, NameKind::Value("host".into()), "", ""), ["kept", "more"]);
    assert_eq!(names_of(&store, NameKind::Metric, "", "l"), Vec::<String>::new());
    assert_eq!((store.stats().rows, store.stats().series), (2, 5));
    assert!(matches!(write(&store, old, 36 * HOUR_S, 3.0), Err(WriteError::UnknownRow(_))));
    assert!(!store.keep_row(old) && store.keep_row(kept));
    let new = add(&store, "load host=new", 36 * HOUR_S, 4.0);
    assert!(new.id() > 2, "a number is used twice");
    let before = contents(&store);
    store.close().unwrap();
    let on_disk = it.disk.list(Path::new("/series")).unwrap();
    let catalogs: Vec<&String> = on_disk.iter().filter(|n| n.starts_with("catalog")).collect();
    assert_eq!(catalogs.len(), 1, "{on_disk:?}");
    let bytes = it.disk.content(&Path::new("/series").join(catalogs[0])).unwrap();
    assert!(!bytes.windows(8).any(|w| w == b"host=old"), "the name is still on the disk");
    let store = it.open();
    assert_eq!((contents(&store), store.stats().rows), (before, 3));
}

#[test]
fn deleted_series_is_forgotten_and_can_be_recreated() {
    let it = Fixture::new();
    let store = it.open();
    add(&store, "load host=a", 60, 1.0);
    let old = store.row(b"load   host=a").unwrap();
    add(&store, "load host=b", 60, 1.0);
    store.seal().unwrap();
    store.delete(&Selector::metric("load").with("host", "a"), TimeRange::ALL).unwrap();
    assert_eq!(names(&store).len(), 2, "it stays until nothing refers to it");
    settle(&store).unwrap();
    assert_eq!(names(&store), ["load host=b"]);
    assert!(matches!(write(&store, old, 61, 9.0), Err(WriteError::UnknownRow(0))));
    // A raw text that named the old row names the new one.
    let new = store.row(b"load   host=a").unwrap();
    assert!(new.id() > old.id());
    write(&store, new, 60, 2.0).unwrap();
    assert_eq!(contents(&store).len(), 2);
    let model = contents(&store);
    let store = it.open_on(&it.disk.kill());
    assert_eq!(contents(&store), model);
    settle(&store).unwrap();
    assert_eq!(contents(&store), model);
}

#[test]
fn recently_used_or_unsealed_series_is_not_forgotten() {
    let it = Fixture::new();
    let store = it.open();
    let asked = store.row(b"asked host=a").unwrap();
    store.row(b"never host=a").unwrap();
    add(&store, "unsealed host=a", 60, 1.0);
    let gone = add(&store, "gone host=a", 60, 1.0);
    store.seal().unwrap();
    add(&store, "unsealed host=a", 61, 1.0);
    store.delete(&Selector::metric("gone"), TimeRange::ALL).unwrap();
    store
        .delete(&Selector::metric("unsealed"), TimeRange { from_ns: 0, to_ns: 61 * SECOND })
        .unwrap();
    let first = store.epoch();
    for _ in 0..3 {
        store.merge().unwrap();
        assert!(store.keep_row(asked));
    }
    assert!(store.epoch() >= first);
    store.seal().unwrap();
    for _ in 0..3 {
        store.merge().unwrap();
        assert!(store.keep_row(asked));
    }
    assert_eq!(names(&store), ["asked host=a", "unsealed host=a"]);
    assert!(!store.keep_row(gone));
    write(&store, asked, 62, 1.0).unwrap();
    assert_eq!(contents(&store).len(), 2);
}

#[test]
fn rows_sharing_a_series_agree_after_one_is_forgotten() {
    let it = Fixture::new();
    let store = it.open();
    add(&store, "cpu host=a", 60, 1.0);
    add(&store, "cpu|mem host=a", 36 * HOUR_S, 2.0);
    store.seal().unwrap();
    it.clock.advance(Duration::from_secs(36 * HOUR_S));
    for _ in 0..3 {
        store.retain().unwrap();
    }
    assert_eq!(store.stats().rows, 1);
    // The row that was first is recreated, and later values of either one are valid.
    add(&store, "cpu host=a", 36 * HOUR_S, 7.0);
    add(&store, "cpu|io host=a", 36 * HOUR_S, 8.0);
    add(&store, "cpu host=a", 36 * HOUR_S + 1, 9.0);
    let found = contents(&store);
    let at = 36 * HOUR_S as i64 * SECOND;
    assert_eq!(found["cpu host=a"][&at], format!("f{:016x}", 8.0f64.to_bits()));
    assert_eq!(found["cpu host=a"].len(), 2);
    settle(&store).unwrap();
    assert_eq!(contents(&store), found);
    assert_eq!(names(&store).len(), 3);
}

#[test]
fn series_found_in_a_part_is_not_read_again() {
    const PARTS: u64 = 1000;
    let it = Fixture::new();
    let reads = Reads::of(&it.disk);
    let options = StoreOptions {
        head_bytes_max: 8 << 20,
        rollups_beside: false,
        files: Arc::new(reads.clone()),
        ..options(&it.disk, Wal::Always)
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let kept = store.row(b"load host=kept").unwrap();
    let mut batch = Batch::new();
    for part in 0..PARTS {
        batch.push(kept, part as i64 * 2 * HOUR_S as i64 * SECOND, &[1.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    // Only this part has the row: finding it takes a look at all parts.
    add(&store, "load host=old", 60, 1.0);
    add(&store, "load host=gone", 60, 1.0);
    store.seal().unwrap();
    store.delete(&Selector::metric("load").with("host", "gone"), TimeRange::ALL).unwrap();
    store.seal().unwrap();
    let read = |store: &Store| {
        let before = reads.count();
        store.merge().unwrap();
        reads.count() - before
    };
    let looks = [read(&store), read(&store), read(&store)];
    assert_eq!(names(&store), ["load host=kept", "load host=old"]);
    assert!(looks[1] >= PARTS / 2 && looks[2] < 10, "{looks:?} reads");
}

/// Creates a store in which one series is about to be forgotten. Returns the store and its content.
fn before_forgetting(it: &Fixture) -> (Store, Model) {
    let store = it.open();
    add(&store, "load host=a", 60, 1.0);
    add(&store, "load host=b", 60, 1.0);
    store.seal().unwrap();
    store.delete(&Selector::metric("load").with("host", "a"), TimeRange::ALL).unwrap();
    add(&store, "load host=c", 61, 1.0);
    let model = contents(&store);
    (store, model)
}

/// Forgets a row, recreates it under another number, and continues.
fn forget(store: &Store, model: &mut Model) -> Result<(), WriteError> {
    settle(store)?;
    let row = store.row(b"load host=a").unwrap();
    write(store, row, 70, 5.0)?;
    *model = with_last(model);
    store.seal().map(drop)
}

fn with_last(model: &Model) -> Model {
    let mut model = model.clone();
    let value = format!("f{:016x}", 5.0f64.to_bits());
    model.entry("load host=a".into()).or_default().insert(70 * SECOND, value);
    model
}

#[test]
fn power_cut_or_failure_during_forget_loses_nothing() {
    let calls = {
        let it = Fixture::new();
        let (store, mut model) = before_forgetting(&it);
        let before = it.disk.calls();
        forget(&store, &mut model).unwrap();
        assert_eq!(names(&store).len(), 3);
        before + 1..=it.disk.calls()
    };
    let mut failed = 0;
    for call in calls {
        for failure in [Failure::PowerCut, Failure::Full, Failure::Io] {
            let it = Fixture::new();
            let (store, mut model) = before_forgetting(&it);
            it.disk.fail(&[Fault { call, failure }]);
            let done = forget(&store, &mut model);
            failed += u32::from(done.is_err());
            let images = [it.disk.crash(call), it.disk.crash(call + 7), it.disk.crash(call + 31)];
            if failure != Failure::PowerCut {
                assert_eq!(contents(&store), model, "call {call} {failure:?}");
                // After a failure the log may have stopped, but nothing is lost.
                let _ = forget(&store, &mut model);
                assert_eq!(contents(&store), model, "call {call} {failure:?} again");
                let again = contents(&it.open_on(&it.disk.kill()));
                // It is unknown whether a failed batch survives.
                let known = again == model || again == with_last(&model);
                assert!(known, "call {call} {failure:?} opened: {again:?}");
                continue;
            }
            for image in images {
                let store = it.open_on(&image);
                let mut found = contents(&store);
                let known = found == model || found == with_last(&model);
                assert!(known, "call {call}: {found:?}");
                forget(&store, &mut found).unwrap();
                assert_eq!(contents(&store), found, "call {call}");
                assert_eq!(contents(&it.open_on(&image.kill())), found, "call {call} again");
            }
        }
    }
    assert!(failed > 40, "{failed} calls failed");
}

/// The store's own threads do the work: the test only lets the manual clock pass. Each search
/// begins an epoch, so it is waited for.
fn pass_minutes(it: &Fixture, store: &Store, minutes: u32) {
    for _ in 0..minutes {
        let before = store.epoch();
        it.clock.advance(Duration::from_mins(1));
        while store.epoch() == before {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn nearly_full_store_frees_names_within_five_minutes() {
    let it = Fixture::new();
    let open = |disk: &SimDisk| {
        let options = StoreOptions {
            series_max: 6,
            rollups_beside: false,
            background: true,
            clock: Arc::new(it.clock.clone()),
            ..options(disk, Wal::Always)
        };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let store = open(&it.disk);
    for name in ["a host=old", "b host=old", "c host=old"] {
        add(&store, name, 60, 1.0);
    }
    let live = store.row(b"live host=kept").unwrap();
    store.seal().unwrap();
    store.row(b"x|y host=unused").unwrap();
    let full = store.row(b"one host=more").unwrap_err().to_string();
    assert!(full.contains("within five minutes"), "{full}");
    let old = Selector::default().with("host", "old");
    store.delete(&old, TimeRange::ALL).unwrap();
    // A minute before the restart, the others after it.
    pass_minutes(&it, &store, 1);
    assert!(store.keep_row(live));
    store.close().unwrap();
    let store = open(&it.disk);
    let live = store.row(b"live host=kept").unwrap();
    for _ in 0..4 {
        pass_minutes(&it, &store, 1);
        assert!(store.keep_row(live), "a handle that is in use was dropped");
        if store.stats().series == 1 {
            break;
        }
    }
    assert_eq!(names(&store), ["live host=kept"]);
    write(&store, live, 61, 1.0).unwrap();
    assert!(store.row(b"one host=more").is_ok());
}
