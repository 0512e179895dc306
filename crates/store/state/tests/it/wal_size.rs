//! The bound on the size of the write-ahead log.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use model::{AgentId, Dataset, Incarnation, Overlay, Position, Record, SessionRecord, Write};
use state::{DocumentQuery, Reader, StateOptions, StateStore};

/// A limit that a few sessions exceed, bytes.
const LIMIT: u64 = 256 * 1024;
const SESSION_DOCUMENTS: u64 = 50;
/// Every id that an item can have.
const ALL: &[(u64, u64)] = &[(0, u64::MAX)];

fn open(file: &Path) -> StateStore {
    let options = StateOptions { readers: 2, wal_bytes_max: LIMIT, ..StateOptions::default() };
    StateStore::open(file, options).unwrap()
}

/// Applies session number `n`, which adds about 100 kB to the log.
fn apply(store: &StateStore, n: u64) {
    let write = |document| Write::Upsert {
        dataset: Dataset::fim_files(),
        id: format!("{:040x}", n * SESSION_DOCUMENTS + document),
        version: n,
        body: br#"{"file":{"path":"/a"}}"#.to_vec(),
    };
    let session = SessionRecord {
        agent: AgentId(1),
        incarnation: Incarnation(1),
        received_at_us: n,
        session: n.to_string(),
        overlay: Overlay::default(),
        writes: (0..SESSION_DOCUMENTS).map(write).collect(),
    };
    store.apply(&[(Position(n), Record::Session(session))]).unwrap();
}

/// Runs a query whose snapshot lasts until `visit` returns.
fn query(store: &StateStore, mut visit: impl FnMut()) {
    let mut first = |_: &str, _: u64, _: &str| {
        visit();
        false
    };
    let dataset = Dataset::fim_files();
    store.each_in_ranges(&Reader::server(), AgentId(1), &dataset, ALL, &mut first).unwrap();
}

#[test]
fn opening_truncates_the_log_of_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open(&file);
    let mut n = 0;
    while store.log_bytes() < LIMIT {
        n += 1;
        apply(&store, n);
    }
    // The files of an open store are what a kill leaves behind.
    let copy = dir.path().join("killed.db");
    for suffix in ["", "-wal"] {
        let named = |file: &Path| format!("{}{suffix}", file.display());
        std::fs::copy(named(&file), named(&copy)).unwrap();
    }
    let killed = open(&copy);
    assert_eq!(killed.log_bytes(), 0);
    assert_eq!(killed.applied().unwrap(), Position(n), "nothing in it was lost");
}

#[test]
fn overlapping_queries_do_not_let_the_log_grow() {
    const SESSIONS: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state.db"));
    apply(&store, 1);
    let stop = AtomicBool::new(false);
    let pause = || {
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    };
    let overlapping = || {
        while !stop.load(Ordering::Relaxed) {
            query(&store, pause);
        }
    };
    let largest = std::thread::scope(|scope| {
        let queries = [scope.spawn(overlapping), scope.spawn(overlapping)];
        let mut largest = 0;
        for n in 2..=SESSIONS {
            apply(&store, n);
            if store.checkpoint_due() {
                store.checkpoint().unwrap();
            }
            largest = largest.max(store.log_bytes());
        }
        stop.store(true, Ordering::Relaxed);
        for query in queries {
            query.join().unwrap();
        }
        largest
    });
    // Twice the limit, and what sessions add between two checkpoints.
    assert!(largest < 4 * LIMIT, "{largest} bytes");
    let all = DocumentQuery::new(AgentId(1), Dataset::fim_files());
    let page = store.documents(&Reader::server(), &all).unwrap();
    assert_eq!(page.total, SESSIONS * SESSION_DOCUMENTS);
}

#[test]
fn a_long_query_keeps_the_log_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = &open(&dir.path().join("state.db"));
    apply(store, 1);
    let (begun, wait) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            query(store, || {
                begun.send(()).unwrap();
                let _ = ended.recv();
            });
        });
        wait.recv().unwrap();
        let mut n = 1;
        while store.log_bytes() < 3 * LIMIT {
            n += 1;
            apply(store, n);
        }
        assert_eq!(store.checkpoint().unwrap(), Position(0), "the snapshot prevents it");
        assert!(!store.shrink().unwrap() && store.log_bytes() >= 3 * LIMIT);
        drop(end);
    });
    assert!(store.shrink().unwrap());
    assert_eq!(store.log_bytes(), 0);
}
