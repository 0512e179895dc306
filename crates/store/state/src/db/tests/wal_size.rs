//! Tests of the bound on the write-ahead log's size.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::*;
use crate::query::DocumentQuery;

/// A limit that a few sessions exceed, bytes.
const LIMIT: u64 = 256 * 1024;

fn open_small(file: &Path) -> SqliteState {
    let options = StateOptions { readers: 2, wal_bytes_max: LIMIT, ..StateOptions::default() };
    SqliteState::open(file, options).unwrap()
}

/// Applies session number `n`, which writes about 100 kB of log.
fn apply_some(store: &SqliteState, n: u64) {
    let writes = (0..50).map(|f| document(&format!("/{n}/{f}"), n, |_| ())).collect();
    apply(store, session(1, n, writes));
}

#[test]
fn opening_truncates_the_log_of_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open_small(&file);
    let mut n = 0;
    while store.log_bytes() < LIMIT {
        n += 1;
        apply_some(&store, n);
    }
    // Leaked instead of closed: the log stays, as after a kill.
    let copy = dir.path().join("killed.db");
    for suffix in ["", "-wal"] {
        let named = |file: &Path| format!("{}{suffix}", file.display());
        std::fs::copy(named(&file), named(&copy)).unwrap();
    }
    assert!(wal::bytes(&copy) >= LIMIT);
    let killed = open_small(&copy);
    assert_eq!(killed.log_bytes(), 0);
    assert_eq!(killed.applied().unwrap(), Position(n), "nothing in it was lost");
}

#[test]
fn overlapping_queries_do_not_let_the_log_grow() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(&dir.path().join("state.db"));
    apply_some(&store, 1);
    let stop = AtomicBool::new(false);
    let mut largest = 0;
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| hold_snapshots(&store, &stop));
        }
        for n in 2..=200 {
            apply_some(&store, n);
            if store.checkpoint_due() {
                store.checkpoint().unwrap();
            }
            largest = largest.max(store.log_bytes());
        }
    });
    // What one session adds between two checkpoints lies on top of the bound.
    assert!(largest < 4 * LIMIT, "{largest} bytes");
    let query = DocumentQuery::new(AgentId(1), Dataset::fim_files());
    assert_eq!(store.documents(&Reader::server(), &query).unwrap().total, 200 * 50);
}

#[test]
fn a_long_query_keeps_the_log_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = &open_small(&dir.path().join("state.db"));
    apply_some(store, 1);
    let (begun, wait) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let query = scope.spawn(move || {
            store.read(&Reader::server(), "hold a snapshot", |db| {
                Progress::load(db).context("read the position")?;
                begun.send(()).unwrap();
                let _ = ended.recv();
                Ok(())
            })
        });
        wait.recv().unwrap();
        let mut n = 1;
        while store.log_bytes() < 3 * LIMIT {
            n += 1;
            apply_some(store, n);
        }
        assert_eq!(store.checkpoint().unwrap(), Position(0), "the snapshot prevents it");
        assert!(!store.shrink().unwrap() && store.log_bytes() >= 3 * LIMIT);
        drop(end);
        query.join().unwrap().unwrap();
    });
    assert!(store.shrink().unwrap());
    assert_eq!(store.log_bytes(), 0);
}

/// Reads from one snapshot after the other, each for 20 ms.
fn hold_snapshots(store: &SqliteState, stop: &AtomicBool) {
    let query = |db: &Connection| {
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            Progress::load(db).context("read the position")?;
        }
        Ok(())
    };
    while !stop.load(Ordering::Relaxed) {
        store.read(&Reader::server(), "hold a snapshot", query).unwrap();
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
