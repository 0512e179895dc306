//! Tests of this engine alone: the file, the checkpoint, copies, and that no query of the API scans
//! a whole table.

mod prepared;

use std::path::Path;

use ::model::Position;
use tempfile::TempDir;

use super::*;
use records::{document, session};

struct Fresh {
    state: StateStore,
    _dir: TempDir,
}

impl std::ops::Deref for Fresh {
    type Target = StateStore;
    fn deref(&self) -> &StateStore {
        &self.state
    }
}

fn open(file: &Path) -> StateStore {
    StateStore::open(file, StateOptions { readers: 2, ..StateOptions::default() }).unwrap()
}

fn fresh() -> Fresh {
    let dir = tempfile::tempdir().unwrap();
    Fresh { state: open(&dir.path().join("state.db")), _dir: dir }
}

/// Applies one record at the next position.
fn apply(store: &StateStore, record: Record) -> Applied {
    let next = Position(store.applied().unwrap().0 + 1);
    store.apply(&[(next, record)]).unwrap().remove(0)
}

#[test]
fn checkpoint_returns_the_position_it_completed() {
    let store = fresh();
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    assert_eq!(store.checkpoint().unwrap(), Position(1));
    // A reader's snapshot keeps later frames from being copied.
    let reader = open_reader(&store.file).unwrap();
    let snapshot = reader.unchecked_transaction().unwrap();
    let seen = |db: &Connection| Progress::load(db).unwrap().applied;
    assert_eq!(seen(&snapshot), 1);
    apply(&store, session(1, 2, vec![document("/b", 1, |_| ())]));
    apply(&store, session(1, 3, vec![document("/c", 1, |_| ())]));
    assert_eq!(store.checkpoint().unwrap(), Position(1));
    assert_eq!(seen(&snapshot), 1);
    drop(snapshot);
    assert_eq!(store.checkpoint().unwrap(), Position(3));
}

/// Returns positions and lengths of the records set aside.
fn set_aside(file: &Path) -> Vec<(i64, i64)> {
    let db = Connection::open(file).unwrap();
    let mut rows =
        db.prepare("SELECT position, length(record) FROM quarantine ORDER BY position").unwrap();
    rows.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap().map(Result::unwrap).collect()
}

#[test]
fn quarantine_is_bounded_and_keeps_newest_records() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open(&file);
    let third = quarantine::QUARANTINE_BYTES_MAX / 3;
    for position in 1..=5 {
        store.quarantine(Position(position), &vec![0; third as usize], "too large").unwrap();
    }
    let kept = third as i64;
    assert_eq!(set_aside(&file), [(3, kept), (4, kept), (5, kept)]);
    let whole = vec![0; quarantine::QUARANTINE_BYTES_MAX as usize + 1];
    store.quarantine(Position(6), &whole, "larger than all").unwrap();
    assert_eq!(set_aside(&file), [(6, whole.len() as i64)]);
    assert_eq!(store.counts(&Reader::server()).unwrap().quarantined, 6, "all are counted");
}

#[test]
fn quarantine_after_a_restore_gets_its_own_event_id() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open(&file);
    store.quarantine(Position(1), b"before", "no record").unwrap();
    drop(store);
    StateStore::prepare_restored(&file, Position(0)).unwrap();
    let store = open(&file);
    store.quarantine(Position(1), b"after", "no record").unwrap();
    assert_eq!(store.counts(&Reader::server()).unwrap().events, 2, "each has an id of its own");
    assert_eq!(set_aside(&file), [(1, 5)], "the newest of a position is kept");
}

#[test]
fn counter_and_page_plans_scan_no_table() {
    let store = fresh();
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    let db = store.writer.lock();
    let plan = |sql: &str| -> String {
        let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let count = explain.parameter_count();
        let lines = explain
            .query_map(rusqlite::params_from_iter(vec![1; count]), |r| r.get::<_, String>(3))
            .unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    for sql in [
        "SELECT number, path FROM document WHERE collection = ?1 ORDER BY path, number LIMIT 5",
        "SELECT number, path FROM document WHERE collection = ?1 AND (path, number) > (?2, ?3)
         ORDER BY path, number LIMIT 5",
        "SELECT count(*) FROM document WHERE collection = ?1 AND ((path >= ?2 AND path < ?3))",
        "SELECT collection, id FROM tombstone WHERE at_us < ?1 ORDER BY at_us, collection, id LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_kind WHERE kind = ?1
         AND found_us <= ?2 AND (found_us, number) < (?3, ?4)
         ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_agent_kind WHERE agent = ?1
         AND kind = ?2 ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_moved_from WHERE moved_from = ?1
         ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_user WHERE user = ?1
         AND found_us < ?2 ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_process
         WHERE process = ?1 AND found_us <= ?2
         UNION
         SELECT event_found_us, event_number FROM candidate
         CROSS JOIN event ON number = event_number
         WHERE name = ?1 AND event_found_us <= ?2
         ORDER BY 1 DESC, 2 DESC LIMIT 5",
        "SELECT count(*), count(DISTINCT cause_package) FROM event INDEXED BY event_cause_id
         WHERE cause_id = ?1 AND agent = ?2",
        "SELECT 1 FROM event INDEXED BY event_cause_id WHERE cause_id = ?1 AND agent = ?2
         AND found_us >= ?3 AND (found_us, number) >= (?4, ?5) LIMIT 1",
    ] {
        let plan = plan(sql);
        assert!(plan.contains("SEARCH") && plan.contains("INDEX"), "{plan}");
        let sorted = plan.replace("TEMP B-TREE FOR count(DISTINCT)", "").contains("TEMP B-TREE");
        assert!(!plan.contains("SCAN") && !sorted, "{sql}: {plan}");
    }
}
