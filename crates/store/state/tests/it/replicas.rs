//! Two states that apply the same records are equal, row for row, in whatever batches they take them.

use std::path::{Path, PathBuf};

use model::limits::TOMBSTONE_SECONDS;
use model::{ChangeKind, Dataset, Position, Record, Write};
use proptest::prelude::*;
use rusqlite::Connection;
use state::limits::RETAIN_CHUNK_ROWS;
use state::{Reader, Retained, Retention, StateError, StateOptions, StateStore};
use tempfile::TempDir;

use crate::model::{Step, record, step};
use records::{document, event, removal, session};

const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// A state that records are submitted to, and the records so far.
struct Server {
    folder: TempDir,
    state: StateStore,
    log: Vec<(Position, Record)>,
}

fn open(file: &Path) -> StateStore {
    StateStore::open(file, StateOptions { readers: 2, ..StateOptions::default() }).unwrap()
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = open(&folder.path().join("server.db"));
        Self { folder, state, log: Vec::new() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn apply(&mut self, record: Record) {
        let entry = (Position(self.log.len() as u64 + 1), record);
        self.state.apply(std::slice::from_ref(&entry)).unwrap();
        self.log.push(entry);
    }

    fn retain(&mut self, policy: Retention, now_us: u64) -> Retained {
        let Self { state, log, .. } = self;
        let submit = |part| {
            let entry = (Position(log.len() as u64 + 1), part);
            let applied = state.apply(std::slice::from_ref(&entry))?.remove(0);
            log.push(entry);
            Ok::<_, StateError>(applied)
        };
        state.retain(&policy, now_us, submit).unwrap()
    }

    /// Returns a follower: a copy of the state, to which the later records are not applied.
    fn follower(&self) -> StateStore {
        let file = self.file("follower.db");
        self.state.backup_to(&file).unwrap();
        open(&file)
    }

    /// Applies the log to the follower in batches of this size, and compares all rows.
    fn compare(&self, follower: &StateStore, batch_records: usize) {
        let from = follower.applied().unwrap().0 as usize;
        for batch in self.log.get(from..).unwrap_or_default().chunks(batch_records) {
            follower.apply(batch).unwrap();
        }
        let (server, follower) = (self.file("server.db"), self.file("follower.db"));
        assert_eq!(rows(&server), rows(&follower));
    }
}

/// Returns every row of every table, with the table's name.
fn rows(file: &Path) -> Vec<String> {
    let db = Connection::open(file).unwrap();
    let mut tables = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let tables = tables.query_map([], |r| r.get(0)).unwrap();
    let tables: Vec<String> = tables.map(Result::unwrap).collect();
    let mut found = Vec::new();
    for table in tables {
        let mut select = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = select.column_count();
        let mut rows = select.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|c| row.get_ref(c).unwrap()).collect();
            found.push(format!("{table} {values:?}"));
        }
    }
    found
}

fn change(n: u64, at_us: u64) -> Record {
    let one = event(&format!("e-{n}"), "/a", ChangeKind::Modified, at_us);
    session(1, at_us, vec![document(&format!("/d/{n}"), n, |_| ()), one])
}

#[test]
fn follower_has_the_event_numbers_after_a_retention() {
    let mut server = Server::new();
    let follower = server.follower();
    (1..=10).for_each(|n| server.apply(change(n, n * DAY_US)));
    let policy = Retention { age_us_max: 3 * DAY_US, ..Retention::default() };
    assert_eq!(server.retain(policy, 10 * DAY_US).events, 6);
    (11..=20).for_each(|n| server.apply(change(n, n * DAY_US)));
    assert_eq!(server.retain(policy, 20 * DAY_US).events, 11);
    (21..=25).for_each(|n| server.apply(change(n, n * DAY_US)));
    server.compare(&follower, 3);
}

#[test]
fn record_set_aside_writes_the_same_rows_everywhere() {
    let mut server = Server::new();
    let follower = server.follower();
    server.apply(change(1, DAY_US));
    follower.apply(&server.log).unwrap();
    for store in [&server.state, &follower] {
        store.quarantine(Position(2), b"\x01\xff", "not a record").unwrap();
    }
    server.compare(&follower, 1);
}

/// Every copy of the state writes these bytes, also one that another version of the program updates.
#[test]
fn record_set_aside_has_a_fixed_event() {
    let mut server = Server::new();
    server.apply(change(1, DAY_US));
    server.state.quarantine(Position(2), b"\x01\xff", "not a record").unwrap();
    let db = Connection::open(server.file("server.db")).unwrap();
    let sql = "SELECT received_us, found_us, body FROM event WHERE agent = 0";
    let read = |r: &rusqlite::Row<'_>| Ok((r.get(0)?, r.get(1)?, r.get(2)?));
    let (received_us, found_us, body): (i64, i64, Vec<u8>) = db.query_row(sql, [], read).unwrap();
    assert_eq!([received_us, found_us], [DAY_US as i64; 2], "the time of the event before it");
    let expected = r#"{"@timestamp":"1970-01-02T00:00:00.000000Z","event":{"kind":"event","category":["host"],"type":["info"],"action":"coverage"},"holdfast":{"coverage":{"kind":"quarantined","from_us":86400000000,"to_us":86400000000,"detail":"record 2 of agent 000 was set aside"}}}"#;
    assert_eq!(String::from_utf8(body).unwrap(), expected);
}

#[test]
fn large_retention_is_many_small_parts() {
    let mut server = Server::new();
    let follower = server.follower();
    let many = RETAIN_CHUNK_ROWS + 10;
    let removals = (0..many).map(|n| removal(&format!("/t/{n}"), 1)).collect();
    server.apply(session(1, 1, removals));
    let events = (0..2 * many).map(|n| event(&format!("e-{n}"), "/a", ChangeKind::Deleted, 1));
    server.apply(session(2, 2, events.collect()));
    let before = server.log.len();
    let policy = Retention { event_bytes_max: 0, ..Retention::default() };
    let retained = server.retain(policy, 3 + TOMBSTONE_SECONDS * 1_000_000);
    assert_eq!((retained.events, retained.tombstones), (2 * many as u64, many as u64));
    assert_eq!(server.log.len() - before, 5, "three parts for the events, two for the tombstones");
    assert_eq!(server.retain(policy, 4).events, 1, "a later run deletes the report of this one");
    server.compare(&follower, 2);
}

/// A part that waited for disk space is applied after a later run has counted the same events.
#[test]
fn part_that_deletes_nothing_adds_no_event() {
    let mut server = Server::new();
    server.apply(change(1, DAY_US));
    let policy = Retention { event_bytes_max: 0, ..Retention::default() };
    server.retain(policy, 2 * DAY_US);
    let (_, Record::Retain { through, event: Some(mut event), .. }) = server.log[1].clone() else {
        panic!("{:?}", server.log)
    };
    event.id = "retention-again".into();
    let counts = server.state.counts(&Reader::server()).unwrap();
    server.apply(Record::Retain { through, tombstones_before_us: 0, event: Some(event) });
    assert_eq!(server.state.counts(&Reader::server()).unwrap(), counts);
}

#[derive(Debug, Clone)]
enum Action {
    Record(Step),
    /// A session that cannot be applied.
    Unfit,
    /// The server deletes events above a size, and tombstones of up to this time before the newest
    /// session.
    Retain {
        event_bytes_max: u64,
        back_us: u64,
    },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => step().prop_map(Action::Record),
        1 => Just(Action::Unfit),
        2 => (0..4_000u64, 0..5u64)
            .prop_map(|(event_bytes_max, back_us)| Action::Retain { event_bytes_max, back_us }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_records_give_equal_rows(
        actions in prop::collection::vec(action(), 1..60),
        batch_records in 1..9usize,
    ) {
        let mut server = Server::new();
        let follower = server.follower();
        for action in actions {
            let now_us = server.log.len() as u64 + 1;
            match action {
                Action::Record(step) => {
                    if let Some(record) = record(&step, now_us) {
                        server.apply(record);
                    }
                }
                Action::Unfit => {
                    let dataset = Dataset::new("");
                    let writes = vec![document("/kept", now_us, |_| ()), Write::Clean { dataset }];
                    server.apply(session(1, now_us, writes));
                }
                Action::Retain { event_bytes_max, back_us } => {
                    let policy = Retention { event_bytes_max, ..Retention::default() };
                    let past_us = now_us.saturating_sub(back_us);
                    server.retain(policy, TOMBSTONE_SECONDS * 1_000_000 + past_us);
                }
            }
        }
        server.compare(&follower, batch_records);
    }
}
