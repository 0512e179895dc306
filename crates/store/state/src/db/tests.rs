//! Tests of this engine alone: the file, its versions, the checkpoint, copies, and that no
//! query of the API scans a whole table.

mod prepared;

use std::path::Path;
use std::sync::Arc;

use ::model::{AgentId, ChangeKind, Dataset, Position};
use env::random::SeededRandom;
use sha1::Digest as _;
use tempfile::TempDir;

use super::*;
use crate::conformance::{apply, document, event, paths, session};
use crate::query::{Comparison, Condition, DocumentField, SortDirection};
use ::model::Permitted;

struct Fresh {
    state: SqliteState,
    _dir: TempDir,
}

impl std::ops::Deref for Fresh {
    type Target = SqliteState;
    fn deref(&self) -> &SqliteState {
        &self.state
    }
}

fn open(file: &Path) -> SqliteState {
    SqliteState::open(file, StateOptions { readers: 2, ..StateOptions::default() }).unwrap()
}

fn fresh() -> Fresh {
    let dir = tempfile::tempdir().unwrap();
    Fresh { state: open(&dir.path().join("state.db")), _dir: dir }
}

crate::state_conformance!(fresh);

#[test]
fn reopened_store_keeps_data_counters_and_store_id() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open(&file);
    let id = store.store_id();
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    let counts = store.counts(&Reader::server()).unwrap();
    drop(store);
    let store = open(&file);
    assert_eq!(store.store_id(), id);
    assert_eq!(
        (store.applied().unwrap(), store.counts(&Reader::server()).unwrap()),
        (Position(1), counts)
    );
    assert_eq!(paths(&store, 1), ["/a"]);
    let other = fresh();
    assert_ne!(other.store_id(), id, "every store has a name of its own");
}

#[test]
fn state_db_of_newer_version_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    drop(open(&file));
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = SqliteState::open(&file, StateOptions::default()).unwrap_err();
    assert!(matches!(error, StateError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("state.db") && error.to_string().contains("99"), "{error}");
}

#[test]
fn foreign_state_db_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.db");
    std::fs::write(&text, "not a database at all, but long enough to look like one: ".repeat(40))
        .unwrap();
    let error = SqliteState::open(&text, StateOptions::default()).unwrap_err();
    assert!(matches!(error, StateError::NotOurs { .. }), "{error}");
    let other = dir.path().join("other.db");
    let db = Connection::open(&other).unwrap();
    db.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(db);
    let error = SqliteState::open(&other, StateOptions::default()).unwrap_err();
    assert!(matches!(error, StateError::NotOurs { .. }), "{error}");
    let db = Connection::open(&other).unwrap();
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).unwrap();
    assert_eq!(tables, 1);
}

/// The committed file of version 1; `BLESS=1` rewrites it (only before that version is
/// released).
#[test]
fn state_db_version_1_fixture_opens() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-v1.db");
    if std::env::var_os("BLESS").is_some() {
        bless(&fixture);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    std::fs::copy(&fixture, &file).unwrap();
    let store = open(&file);
    assert_eq!(store.applied().unwrap(), Position(2));
    assert_eq!(paths(&store, 1), ["/etc/hosts", "/etc/passwd"]);
    assert_eq!(
        store.last_session(&Reader::server(), AgentId(1)).unwrap().as_deref(),
        Some("fim-2")
    );
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!((counts.events, counts.tombstones), (1, 1));
    assert_eq!(
        store.changes(&Reader::server(), &ChangeQuery::default()).unwrap().items[0].path,
        "/etc/gone"
    );
    apply(&store, session(1, 3, vec![document("/etc/new", 9, |_| ())]));
    assert_eq!(paths(&store, 1).len(), 3);
}

#[test]
fn version_3_session_is_not_reapplied_and_blocks_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let at_us = 1_790_000_000_000_000;
    let sent = |at_us: u64, path| {
        let mut record = session(1, at_us, vec![document(path, 0, |_| ())]);
        if let Record::Session(session) = &mut record {
            session.session = format!("fim-{}", at_us << 12);
        }
        record
    };
    apply(&open(&file), sent(at_us, "/a"));
    // That version stored the first bytes of the ids' digests.
    let digest = sha1::Sha1::digest(format!("fim-{}", at_us << 12));
    let keys = [b"another ", &digest[..8]].concat();
    let db = Connection::open(&file).unwrap();
    db.execute("UPDATE agent SET sessions = ?1", [keys]).unwrap();
    db.execute_batch(
        "ALTER TABLE agent DROP COLUMN session_floor; DROP INDEX event_moved_from;
         DROP INDEX event_user; DROP INDEX event_process; ALTER TABLE event DROP COLUMN user;
         ALTER TABLE event DROP COLUMN process; ALTER TABLE event DROP COLUMN moved_from;
         PRAGMA user_version = 3;",
    )
    .unwrap();
    drop(db);
    let store = open(&file);
    // The session is sent again because its answer was lost; the answer is the same.
    assert!(apply(&store, sent(at_us, "/a")).replayed);
    // Another part of the agent, whose numbers are lower.
    assert_eq!(apply(&store, sent(at_us - 1, "/b")).changed, 1);
    assert!(apply(&store, sent(at_us, "/a")).replayed, "nor when it is rewritten");
    assert_eq!(apply(&store, sent(at_us + 1, "/c")).changed, 1);
    assert_eq!(paths(&store, 1), ["/a", "/b", "/c"]);
}

fn bless(fixture: &Path) {
    std::fs::create_dir_all(fixture.parent().unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let random = Arc::new(SeededRandom::new(1));
    let options = StateOptions { random, ..StateOptions::default() };
    let store = SqliteState::open(&dir.path().join("state.db"), options).unwrap();
    apply(
        &store,
        session(
            1,
            1,
            vec![
                document("/etc/passwd", 1, |o| o.hashes.sha256 = Some([7; 32])),
                document("/etc/hosts", 2, |o| o.mode = 0o644),
                document("/etc/gone", 3, |_| ()),
            ],
        ),
    );
    let id = ::model::ItemKey::of_path(b"/etc/gone").document_id();
    let removal = ::model::Write::Delete { dataset: Dataset::fim_files(), id, version: 4 };
    let told = event("e-1", "/etc/gone", ChangeKind::Deleted, 1_700_000_000_000_000);
    apply(&store, session(1, 2, vec![removal, told]));
    let _ = std::fs::remove_file(fixture);
    store.backup_to(fixture).unwrap();
}

#[test]
fn checkpoint_returns_the_position_it_completed() {
    let store = fresh();
    apply(&*store, session(1, 1, vec![document("/a", 1, |_| ())]));
    assert_eq!(store.checkpoint().unwrap(), Position(1));
    // A reader's snapshot keeps later frames from being copied.
    let reader = open_reader(&store.file).unwrap();
    let snapshot = reader.unchecked_transaction().unwrap();
    let seen = |db: &Connection| Progress::load(db).unwrap().applied;
    assert_eq!(seen(&snapshot), 1);
    apply(&*store, session(1, 2, vec![document("/b", 1, |_| ())]));
    apply(&*store, session(1, 3, vec![document("/c", 1, |_| ())]));
    assert_eq!(store.checkpoint().unwrap(), Position(1));
    assert_eq!(seen(&snapshot), 1);
    drop(snapshot);
    assert_eq!(store.checkpoint().unwrap(), Position(3));
}

#[test]
fn wal_restarts_after_a_checkpoint() {
    let store = fresh();
    let log = store.file.with_extension("db-wal");
    let mut largest = 0;
    for n in 1..=40 {
        let writes = (0..50).map(|f| document(&format!("/{f}"), n, |_| ())).collect();
        apply(&*store, session(1, n, writes));
        store.checkpoint().unwrap();
        let bytes = std::fs::metadata(&log).unwrap().len();
        if n == 5 {
            largest = bytes * 2;
        }
        assert!(n < 5 || bytes <= largest, "{bytes} after {n} rounds");
    }
}

#[test]
fn backup_under_writes_is_a_consistent_snapshot() {
    let store = Arc::new(fresh());
    let dir = tempfile::tempdir().unwrap();
    for n in 1..=20 {
        let writes = (0..40).map(|f| document(&format!("/{n}/{f}"), 1, |_| ())).collect();
        apply(&**store, session(1, n, writes));
    }
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for n in 21..=60 {
                // Each session replaces what it adds: the number of documents identifies the
                // moment.
                let writes = vec![document(&format!("/x/{n}"), 1, |_| ())];
                apply(&**store, session(1, n, writes));
            }
        })
    };
    let file = dir.path().join("copy.db");
    store.backup_to(&file).unwrap();
    writer.join().unwrap();
    let copy = open(&file);
    let position = copy.applied().unwrap().0;
    assert!((20..=60).contains(&position));
    assert_eq!(paths(&copy, 1).len() as u64, 800 + position - 20);
    let error = store.backup_to(&file).unwrap_err();
    assert!(error.to_string().contains("copy.db"), "{error}");
}

#[test]
fn restored_copy_resets_position_and_changes_store_id() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh();
    apply(&*store, session(1, 1, vec![document("/a", 1, |_| ())]));
    let file = dir.path().join("copy.db");
    store.backup_to(&file).unwrap();
    SqliteState::prepare_restored(&file, Position(0)).unwrap();
    let copy = open(&file);
    assert_eq!(copy.applied().unwrap(), Position(0));
    assert_ne!(copy.store_id(), store.store_id());
    assert_eq!(paths(&copy, 1), ["/a"]);
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
    let third = apply::QUARANTINE_BYTES_MAX / 3;
    for position in 1..=5 {
        store.quarantine(Position(position), &vec![0; third as usize], "too large").unwrap();
    }
    let kept = third as i64;
    assert_eq!(set_aside(&file), [(3, kept), (4, kept), (5, kept)]);
    let whole = vec![0; apply::QUARANTINE_BYTES_MAX as usize + 1];
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
    SqliteState::prepare_restored(&file, Position(0)).unwrap();
    let store = open(&file);
    store.quarantine(Position(1), b"after", "no record").unwrap();
    assert_eq!(store.counts(&Reader::server()).unwrap().events, 2, "each has an id of its own");
    assert_eq!(set_aside(&file), [(1, 5)], "the newest of a position is kept");
}

#[test]
fn promoted_copy_continues_under_a_new_store_id() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open(&file);
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    let id = store.store_id();
    drop(store);
    SqliteState::prepare_promoted(&file).unwrap();
    let store = open(&file);
    assert_ne!(store.store_id(), id);
    assert_eq!(store.applied().unwrap(), Position(1));
    assert_eq!(paths(&store, 1), ["/a"]);
}

#[test]
fn readers_never_see_part_of_a_batch() {
    let store = Arc::new(fresh());
    let dataset = Dataset::fim_files();
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for n in 1..=50 {
                let both =
                    vec![document("/a", n, |o| o.size = n), document("/b", n, |o| o.size = n)];
                apply(&**store, session(1, n, both));
            }
        })
    };
    let query = DocumentQuery::new(AgentId(1), dataset);
    while !writer.is_finished() {
        let page = store.documents(&Reader::server(), &query).unwrap();
        let versions: Vec<_> = page.items.iter().map(|d| d.version).collect();
        assert!(versions.is_empty() || versions[0] == versions[1], "{versions:?}");
    }
    writer.join().unwrap();
}

#[test]
fn fleet_documents_span_more_than_1000_agents() {
    let store = fresh();
    let agents = 1..=1_500_u32;
    let batch: Vec<(Position, Record)> = agents
        .clone()
        .map(|agent| {
            let size = u64::from(agent % 100);
            let writes = vec![document("/etc/a", 1, |o| o.size = size), document("/b", 1, |_| ())];
            (Position(u64::from(agent)), session(agent, 1, writes))
        })
        .collect();
    store.apply(&batch).unwrap();
    let query = |agents, condition, limit| FleetQuery {
        agents,
        dataset: Dataset::fim_files(),
        condition,
        sort: Vec::new(),
        offset: 0,
        limit,
    };
    let all = store
        .fleet_documents(&Reader::server(), &query(Permitted::All, Condition::default(), 5_000))
        .unwrap();
    assert_eq!((all.total, all.items.len()), (3_000, 3_000));
    let order: Vec<u32> = all.items.iter().map(|item| item.agent.0).collect();
    assert!(order.is_sorted(), "by agent");
    let etc = || Condition::field(DocumentField::Path, Comparison::Prefix, "/etc/");
    let but = Permitted::Except(Arc::new(vec![AgentId(1), AgentId(1_500)]));
    let page = FleetQuery { offset: 1_495, ..query(but, etc(), 10) };
    let page = store.fleet_documents(&Reader::server(), &page).unwrap();
    let last: Vec<u32> = page.items.iter().map(|item| item.agent.0).collect();
    assert_eq!((page.total, last), (1_498, vec![1_497, 1_498, 1_499]));
    let only = Permitted::Only(Arc::new((1..=1_200).map(AgentId).collect()));
    let largest = FleetQuery {
        sort: vec![(DocumentField::Size, SortDirection::Descending)],
        ..query(only, etc(), 13)
    };
    let largest = store.fleet_documents(&Reader::server(), &largest).unwrap();
    let ids: Vec<u32> = largest.items.iter().map(|item| item.agent.0).collect();
    let wanted: Vec<u32> = (0..12).map(|n| n * 100 + 99).chain([98]).collect();
    assert_eq!((largest.total, ids), (1_200, wanted));
    let none =
        store.fleet_documents(&Reader::server(), &query(Permitted::none(), etc(), 10)).unwrap();
    assert_eq!(none, DocumentPage::default());
}

#[test]
fn counter_and_page_plans_scan_no_table() {
    let store = fresh();
    apply(&*store, session(1, 1, vec![document("/a", 1, |_| ())]));
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
        "SELECT found_us, number FROM event INDEXED BY event_kind WHERE kind = ?1
         AND found_us <= ?2 AND (found_us, number) < (?3, ?4)
         ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_agent_kind WHERE agent = ?1
         AND kind = ?2 ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_moved_from WHERE moved_from = ?1
         ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_user WHERE user = ?1
         AND found_us < ?2 ORDER BY found_us DESC, number DESC LIMIT 5",
        "SELECT found_us, number FROM event INDEXED BY event_process WHERE process = ?1
         ORDER BY found_us DESC, number DESC LIMIT 5",
    ] {
        let plan = plan(sql);
        assert!(plan.contains("SEARCH") && plan.contains("INDEX"), "{plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}
