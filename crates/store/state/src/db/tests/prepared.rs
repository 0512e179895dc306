//! Statements are prepared once per connection, whatever their values.

use std::sync::{Arc, Mutex};

use ::model::limits::TOMBSTONE_SECONDS;
use ::model::{
    AgentId, AgentSubject, ChangeKind, Coverage, CoverageKind, Dataset, EventBody, Incarnation,
    LastingGap, Position, Record, Write,
};
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::{StateOptions, apply};
use crate::limits::RETAIN_CHUNK_ROWS;
use crate::query::{
    ArrivalQuery, ChangeQuery, Comparison, Condition, DocumentField, DocumentQuery, EventKind,
    FleetQuery, PathMatch, Retention, SortDirection,
};
use crate::{Reader, StateError, StateStore};
use model::Permitted;
use records::{caused, document, event, removal, session, session_of_life};

/// The authorizer calls of SQLite while it prepares statements: one line for each table and column.
type Prepared = Arc<Mutex<Vec<String>>>;

fn watch(conn: &mut Connection, prepared: &Prepared) {
    let prepared = Arc::clone(prepared);
    let seen = move |context: AuthContext<'_>| {
        // Transaction and pragma statements are not statements over tables.
        if !matches!(context.action, AuthAction::Transaction { .. } | AuthAction::Pragma { .. }) {
            prepared.lock().unwrap().push(format!("{:?}", context.action));
        }
        Authorization::Allow
    };
    conn.authorizer(Some(seen)).unwrap();
}

/// Returns the time of a step of a round, microseconds.
fn at(n: u64, step: u64) -> u64 {
    n * 1_000_000_000 + step
}

/// Writes everything that agents write; `n` differs each time.
fn writes(store: &StateStore, n: u64) {
    let agent = n as u32;
    let (first, second, third) = (format!("/a/{n}"), format!("/b/{n}"), format!("/c/{n}"));
    let of = |path: &str, version| document(path, version, |o| o.size = n * version);
    let seen = event(&format!("e-{n}"), &first, ChangeKind::Created, at(n, 1));
    apply(store, session(agent, at(n, 1), vec![of(&first, 1), of(&second, 1), seen]));
    let run = format!("run-{n}");
    let upgraded = |k: u64| caused(&format!("p-{n}-{k}"), &first, &run, "bash", at(n, 1) + k);
    apply(store, session(agent, at(n, 1) + 1, (0..3).map(upgraded).collect()));
    let changed = || vec![of(&first, 2), of(&first, 1), removal(&second, 2), of(&third, 1)];
    apply(store, session(agent, at(n, 2), changed()));
    let again = apply(store, session(agent, at(n, 2), changed()));
    assert!(again.replayed);
    // A removed document returns, one changes its path, and invalid bodies are skipped.
    let Write::Upsert { dataset, id, .. } = of(&third, 1) else { unreachable!() };
    let Write::Upsert { body, .. } = of(&first, 9) else { unreachable!() };
    let bad =
        Write::Upsert { dataset: dataset.clone(), id: id.clone(), version: 8, body: b"[".into() };
    let moved = Write::Upsert { dataset, id, version: 9, body };
    apply(store, session(agent, at(n, 3), vec![of(&second, 5), bad, moved]));
    for (life, subject) in [(0, AgentSubject::Metadata), (0, AgentSubject::Groups)] {
        let describe = vec![Write::Describe { subject, version: n, check: false }];
        apply(store, session_of_life(agent + 100, life, at(n, 4 + n), describe));
    }
    let clean = Write::Clean { dataset: Dataset::fim_files() };
    apply(store, session_of_life(agent, 2, at(n, 5), vec![of(&first, 1), clean, of(&second, 1)]));
    let coverage = |kind, lasting| {
        EventBody::of_coverage(Coverage {
            kind,
            path: String::new(),
            from_us: at(n, 6),
            to_us: at(n, 7),
            found: None,
            lasting,
            detail: String::new(),
        })
    };
    let gap = coverage(CoverageKind::AgentDown, None);
    let starts = [LastingGap::start("a"), LastingGap::start("b"), LastingGap::end("a")];
    for (k, lasting) in (8..).zip(starts) {
        let body = coverage(CoverageKind::RootGone, Some(lasting)).to_json();
        let own = Write::Event { id: format!("g-{n}-{k}"), body };
        apply(store, session_of_life(agent, 2, at(n, k), vec![own]));
    }
    let lost = coverage(CoverageKind::DatabaseRebuilt, None).to_json();
    let lost = Write::Event { id: format!("g-{n}"), body: lost };
    apply(store, session_of_life(agent, 2, at(n, 11), vec![lost]));
    let told = Record::ServerEvent { id: format!("s-{n}"), at_us: at(n, 7), body: gap.to_json() };
    apply(store, told);
    let next = Position(store.applied().unwrap().0 + 1);
    store.quarantine(next, &[n as u8], "bytes").unwrap();
}

/// Runs every query of requests and sessions.
fn reads(store: &StateStore, n: u64) {
    let (agent, files) = (AgentId(n as u32), Dataset::fim_files());
    store.last_session(&Reader::server(), agent).unwrap();
    store.overlay(&Reader::server(), agent).unwrap();
    store.document(&Reader::server(), agent, &files, "00").unwrap();
    store.checksum(&Reader::server(), agent, &files).unwrap();
    store
        .each_in_ranges(&Reader::server(), agent, &files, &[(n, u64::MAX)], &mut |_, _, _| true)
        .unwrap();
    let plain = DocumentQuery { limit: 1, ..DocumentQuery::new(agent, files.clone()) };
    let page = store.documents(&Reader::server(), &plain).unwrap();
    store
        .documents(&Reader::server(), &DocumentQuery { after: page.next, ..plain.clone() })
        .unwrap();
    let size = || Condition::Field(DocumentField::Size, Comparison::Greater, (n as i64).into());
    let sort = vec![(DocumentField::Size, SortDirection::Descending)];
    let sorted = DocumentQuery { sort: sort.clone(), condition: size(), ..plain };
    store.documents(&Reader::server(), &sorted).unwrap();
    let agents = Permitted::Only(vec![agent].into());
    let fleet = FleetQuery { agents, dataset: files, condition: size(), sort, offset: 0, limit: 2 };
    store.fleet_documents(&Reader::server(), &fleet).unwrap();
    let whole = FleetQuery {
        agents: Permitted::All,
        condition: Condition::default(),
        sort: Vec::new(),
        ..fleet
    };
    store.fleet_documents(&Reader::server(), &whole).unwrap();
    let all = ChangeQuery { limit: 2, ..ChangeQuery::default() };
    let newest = store.changes(&Reader::server(), &all).unwrap().newest;
    store
        .changes(
            &Reader::server(),
            &ChangeQuery { agents: Some(vec![agent]), former: false, ..all.clone() },
        )
        .unwrap();
    let whole_page = ChangeQuery { limit: 1, ..all.clone() };
    let path = PathMatch::Prefix(format!("/a/{n}"));
    let kinds = vec![EventKind::Created];
    store
        .changes(
            &Reader::server(),
            &ChangeQuery { path, kinds: kinds.clone(), since: Some(newest - 1), ..all },
        )
        .unwrap();
    let lines = ChangeQuery { collapse: true, unexplained_first: true, ..whole_page.clone() };
    let next = store.changes(&Reader::server(), &lines).unwrap().next;
    store.changes(&Reader::server(), &ChangeQuery { cursor: next, ..lines }).unwrap();
    let one =
        ChangeQuery { agents: Some(vec![agent]), cause_id: Some(format!("run-{n}")), ..whole_page };
    store.changes(&Reader::server(), &one).unwrap();
    let arrivals = ArrivalQuery { agents: Permitted::All, kinds, since: newest - 1 };
    store.arrivals(&Reader::server(), &arrivals, &mut |_| true).unwrap();
    store.open_absences(&Reader::server(), n, 2).unwrap();
    let late = store.late_changes(&Reader::server(), agent, &format!("g-{n}"), at(n, 12)).unwrap();
    assert!(late.is_some());
    store.counts(&Reader::server()).unwrap();
    store.agent_counts(&Reader::server(), agent).unwrap();
}

/// Drops events by age and size, in more than one chunk, and removes an agent.
fn endings(store: &StateStore, n: u64) {
    let many = RETAIN_CHUNK_ROWS as u64 + 10;
    let seen = |k| event(&format!("m-{n}-{k}"), "/m", ChangeKind::Modified, at(n, k));
    apply(store, session(50, at(n, 10), (0..many).map(seen).collect()));
    apply(store, session(51, at(n, 11), vec![removal(&format!("/t/{n}"), 1)]));
    let policy = Retention { event_bytes_max: 0, ..Retention::default() };
    let later = at(n, 20) + TOMBSTONE_SECONDS * 1_000_000;
    let submit = |part| Ok::<_, StateError>(apply(store, part));
    let retained = store.retain(&policy, later, submit).unwrap();
    assert!(retained.events >= many && retained.tombstones > 0, "{retained:?}");
    let (agent, incarnation) = (AgentId(n as u32), Incarnation(2));
    apply(store, Record::AgentRemoved { agent, incarnation, at_us: at(n, 30) });
}

#[test]
fn a_statement_is_prepared_once_whatever_values_it_gets() {
    let dir = tempfile::tempdir().unwrap();
    let options = StateOptions { readers: 1, ..StateOptions::default() };
    let store = StateStore::open(&dir.path().join("state.db"), options).unwrap();
    let prepared = Prepared::default();
    watch(&mut store.writer.lock(), &prepared);
    let each = |conn: &mut Connection| {
        watch(conn, &prepared);
        Ok::<(), ()>(())
    };
    store.readers.each(each).unwrap();
    for n in 1..=3 {
        writes(&store, n);
        reads(&store, n);
        endings(&store, n);
        let new = std::mem::take(&mut *prepared.lock().unwrap());
        assert_eq!(new.is_empty(), n > 1, "round {n}: {new:#?}");
    }
}
