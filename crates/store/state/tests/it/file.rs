//! The file of the state: its versions, and files that are none.

use std::path::Path;
use std::sync::Arc;

use env::random::SeededRandom;
use model::{
    AgentEvent, AgentId, CauseKind, ChangeKind, CoverageKind, Dataset, EventBody, Incarnation,
    OpenGap, Position, Record,
};
use records::{caused, document, event, session};
use rusqlite::Connection;
use sha1::Digest as _;
use state::{ChangeQuery, DocumentQuery, EventKind, Reader, StateError, StateOptions, StateStore};

use crate::promises::{apply, paths};

fn open(file: &Path) -> StateStore {
    StateStore::open(file, StateOptions { readers: 2, ..StateOptions::default() }).unwrap()
}

#[test]
fn state_db_of_newer_version_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    drop(open(&file));
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = StateStore::open(&file, StateOptions::default()).unwrap_err();
    assert!(matches!(error, StateError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("state.db") && error.to_string().contains("99"), "{error}");
}

#[test]
fn foreign_state_db_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.db");
    std::fs::write(&text, "not a database at all, but long enough to look like one: ".repeat(40))
        .unwrap();
    let error = StateStore::open(&text, StateOptions::default()).unwrap_err();
    assert!(matches!(error, StateError::NotOurs { .. }), "{error}");
    let other = dir.path().join("other.db");
    let db = Connection::open(&other).unwrap();
    db.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(db);
    let error = StateStore::open(&other, StateOptions::default()).unwrap_err();
    assert!(matches!(error, StateError::NotOurs { .. }), "{error}");
    let db = Connection::open(&other).unwrap();
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).unwrap();
    assert_eq!(tables, 1);
}

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
    let other = open(&dir.path().join("other.db"));
    assert_ne!(other.store_id(), id, "every store has a name of its own");
}

#[test]
fn restored_copy_resets_position_and_changes_store_id() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state.db"));
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    let file = dir.path().join("copy.db");
    store.backup_to(&file).unwrap();
    StateStore::prepare_restored(&file, Position(0)).unwrap();
    let copy = open(&file);
    assert_eq!(copy.applied().unwrap(), Position(0));
    assert_ne!(copy.store_id(), store.store_id());
    assert_eq!(paths(&copy, 1), ["/a"]);
}

#[test]
fn promoted_copy_continues_under_a_new_store_id() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = open(&file);
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    let id = store.store_id();
    drop(store);
    StateStore::prepare_promoted(&file).unwrap();
    let store = open(&file);
    assert_ne!(store.store_id(), id);
    assert_eq!(store.applied().unwrap(), Position(1));
    assert_eq!(paths(&store, 1), ["/a"]);
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
        "ALTER TABLE agent DROP COLUMN session_floor; DROP INDEX event_cause_id;
         ALTER TABLE event DROP COLUMN cause; ALTER TABLE event DROP COLUMN cause_id;
         ALTER TABLE event DROP COLUMN cause_package; DROP INDEX event_moved_from;
         DROP INDEX event_user; DROP INDEX event_process; ALTER TABLE event DROP COLUMN user;
         ALTER TABLE event DROP COLUMN process; ALTER TABLE event DROP COLUMN moved_from;
         DROP TABLE report; DROP TABLE open_gap;
         ALTER TABLE collection DROP COLUMN described_version; DROP TABLE candidate;
         ALTER TABLE document DROP COLUMN changes; PRAGMA user_version = 3;",
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
    let store = StateStore::open(&dir.path().join("state.db"), options).unwrap();
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
    let id = model::ItemKey::of_path(b"/etc/gone").document_id();
    let removal = model::Write::Delete { dataset: Dataset::fim_files(), id, version: 4 };
    let told = event("e-1", "/etc/gone", ChangeKind::Deleted, 1_700_000_000_000_000);
    apply(&store, session(1, 2, vec![removal, told]));
    let _ = std::fs::remove_file(fixture);
    store.backup_to(fixture).unwrap();
}

/// Makes a file of the newest version one of version 6.
fn downgrade_to_version_6(file: &Path) {
    let db = Connection::open(file).unwrap();
    db.execute_batch(
        "DROP INDEX event_cause_id; ALTER TABLE event DROP COLUMN cause;
         ALTER TABLE event DROP COLUMN cause_id; ALTER TABLE event DROP COLUMN cause_package;
         DELETE FROM event_kind_count WHERE kind >= 8; DROP TABLE report; DROP TABLE open_gap;
         ALTER TABLE collection DROP COLUMN described_version; DROP TABLE candidate;
         ALTER TABLE document DROP COLUMN changes; PRAGMA user_version = 6;",
    )
    .unwrap();
}

#[test]
fn events_of_version_6_are_unexplained_after_the_migration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let many = 20_000_u64;
    let writes = (0..many)
        .map(|n| event(&n.to_string(), &format!("/a/{n}"), ChangeKind::Modified, n))
        .collect();
    apply(&open(&file), session(1, 1, writes));
    downgrade_to_version_6(&file);
    let store = open(&file);
    let counts = store.counts(&Reader::server()).unwrap();
    let causes =
        [(CauseKind::Unexplained, many), (CauseKind::Package, 0), (CauseKind::Deployment, 0)];
    assert_eq!(counts.changes_by_cause, causes);
    let of = |causes| {
        let query = ChangeQuery { causes, limit: 3, ..ChangeQuery::default() };
        let page = store.changes(&Reader::server(), &query).unwrap();
        page.items.into_iter().map(|e| e.id).collect::<Vec<_>>()
    };
    assert_eq!(of(vec![CauseKind::Unexplained]), ["19999", "19998", "19997"]);
    let new = caused("new", "/a/new", "apt-1", "bash", many);
    apply(&store, session(1, 2, vec![new, transient()]));
    assert_eq!(of(vec![CauseKind::Package]), ["new"]);
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!(counts.changes_by_cause[1], (CauseKind::Package, 1));
    assert!(counts.events_by_kind.contains(&(EventKind::Transient, 1)), "{counts:?}");
    let db = Connection::open(&file).unwrap();
    let row: (i64, String, String) = db
        .query_row("SELECT cause, cause_id, cause_package FROM event WHERE id = 'new'", [], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?))
        })
        .unwrap();
    assert_eq!(row, (1, "apt-1".into(), "bash".into()));
}

fn transient() -> model::Write {
    let body = br#"{"@timestamp":"2026-11-26T10:00:00Z","event":{"action":"transient"},
        "file":{"path":"/tmp"},"holdfast":{"transient":{"count":2,"names":["a","b"]}}}"#;
    model::Write::Event { id: "transient".into(), body: body.to_vec() }
}

#[test]
fn absence_of_version_8_is_open_after_the_migration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let absence = |agent: u32, body: EventBody| {
        let (incarnation, id) = (Incarnation(1), format!("gap-{agent}"));
        let event = AgentEvent { agent: AgentId(agent), incarnation, id, body: body.to_json() };
        Record::AgentEvents { at_us: 9, events: vec![event] }
    };
    let store = open(&file);
    for agent in [1, 2] {
        let kind = CoverageKind::AgentSilent;
        let gap = OpenGap { kind, from_us: 5, detail: String::new() };
        apply(&store, absence(agent, EventBody::of_open_gap(gap)));
    }
    drop(store);
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "DROP TABLE open_gap; DROP TABLE candidate; ALTER TABLE document DROP COLUMN changes;
         PRAGMA user_version = 8;",
    )
    .unwrap();
    drop(db);
    let store = open(&file);
    let open = || store.open_absences(&Reader::server(), 0, 9).unwrap().len();
    assert_eq!(open(), 2);
    apply(
        &store,
        Record::AgentRemoved { agent: AgentId(1), incarnation: Incarnation(1), at_us: 9 },
    );
    assert_eq!(open(), 1);
}

#[test]
fn documents_of_version_10_count_changes_from_the_migration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let of = |version: u64| vec![document("/a", version, |o| o.size = version)];
    let store = open(&file);
    (1..4).for_each(|version| drop(apply(&store, session(1, version, of(version)))));
    drop(store);
    let db = Connection::open(&file).unwrap();
    let former = "ALTER TABLE document DROP COLUMN changes; PRAGMA user_version = 10;";
    db.execute_batch(former).unwrap();
    drop(db);
    let store = open(&file);
    let changes = || {
        let files = DocumentQuery::new(AgentId(1), Dataset::fim_files());
        store.documents(&Reader::server(), &files).unwrap().items[0].changes
    };
    assert_eq!(changes(), 0);
    apply(&store, session(1, 4, of(4)));
    assert_eq!(changes(), 1);
}

#[test]
fn backup_under_writes_is_a_consistent_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&dir.path().join("state.db")));
    for n in 1..=20 {
        let writes = (0..40).map(|f| document(&format!("/{n}/{f}"), 1, |_| ())).collect();
        apply(&store, session(1, n, writes));
    }
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for n in 21..=60 {
                // Each session replaces what it adds: the number of documents identifies the
                // moment.
                let writes = vec![document(&format!("/x/{n}"), 1, |_| ())];
                apply(&store, session(1, n, writes));
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
fn readers_never_see_part_of_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&dir.path().join("state.db")));
    let dataset = Dataset::fim_files();
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for n in 1..=50 {
                let both =
                    vec![document("/a", n, |o| o.size = n), document("/b", n, |o| o.size = n)];
                apply(&store, session(1, n, both));
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
fn wal_restarts_after_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state.db"));
    let log = dir.path().join("state.db-wal");
    let mut largest = 0;
    for n in 1..=40 {
        let writes = (0..50).map(|f| document(&format!("/{f}"), n, |_| ())).collect();
        apply(&store, session(1, n, writes));
        store.checkpoint().unwrap();
        let bytes = std::fs::metadata(&log).unwrap().len();
        if n == 5 {
            largest = bytes * 2;
        }
        assert!(n < 5 || bytes <= largest, "{bytes} after {n} rounds");
    }
}
