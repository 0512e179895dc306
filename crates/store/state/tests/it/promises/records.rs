//! Results of applying records.

use model::limits::{DOCUMENT_BYTES_MAX, TOMBSTONE_SECONDS};
use model::{
    AgentId, Applied, ChangeKind, Dataset, EventBody, Position, SkipReason, Skipped, Write,
};

use super::{apply, open, paths, retain};
use records::{document, event, removal, session};
use state::{ChangeQuery, EventKind, Reader, Retention, StateStore};

fn fim() -> Dataset {
    Dataset::fim_files()
}

fn size_of(store: &StateStore, agent: u32, path: &str) -> Option<u64> {
    let id = model::ItemKey::of_path(path.as_bytes()).document_id();
    let document = store.document(&Reader::server(), AgentId(agent), &fim(), &id).unwrap()?;
    let body: model::FileDocument = serde_json::from_slice(&document.body).unwrap();
    assert_eq!(document.checksum, body.checksum.hash.sha1);
    assert_eq!((document.agent, document.id), (AgentId(agent), id));
    body.file.size
}

#[test]
fn batch_stores_its_position_and_is_applied_once() {
    let store = open();
    assert_eq!(store.applied().unwrap(), Position(0));
    let batch: Vec<_> = (1..=3u64)
        .map(|n| {
            let writes = vec![event(&format!("a-{n}"), "/a", ChangeKind::Modified, n)];
            (Position(n), session(1, n, writes))
        })
        .collect();
    let applied = store.apply(&batch).unwrap();
    assert_eq!(applied.iter().map(|a| a.changed).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(store.applied().unwrap(), Position(3));
    let again = store.apply(&batch).unwrap();
    assert_eq!(again, vec![Applied::default(); 3]);
    assert_eq!(store.counts(&Reader::server()).unwrap().events, 3);
    assert_eq!(store.checkpoint().unwrap(), Position(3));
}

#[test]
fn stale_write_is_skipped_with_the_stored_version() {
    let store = open();
    apply(&store, session(1, 1, vec![document("/a", 5, |o| o.size = 5)]));
    let late = document("/a", 4, |o| o.size = 4);
    let Write::Upsert { id, .. } = &late else { panic!("an upsert") };
    let id = id.clone();
    let other = document("/b", 1, |_| ());
    let applied = apply(&store, session(1, 2, vec![other, late, removal("/a", 3)]));
    let stale = |index| Skipped { index, id: id.clone(), reason: SkipReason::Stale, version: 5 };
    assert_eq!(applied.skipped, [stale(1), stale(2)]);
    assert_eq!(applied.changed, 1);
    assert_eq!(size_of(&store, 1, "/a"), Some(5));
    apply(&store, session(1, 3, vec![document("/a", 5, |o| o.size = 55)]));
    assert_eq!(size_of(&store, 1, "/a"), Some(55), "an equal version replaces");
    let top = u64::MAX;
    apply(&store, session(1, 4, vec![document("/a", top, |o| o.size = 9)]));
    let applied = apply(&store, session(1, 5, vec![document("/a", top - 1, |_| ())]));
    assert_eq!(applied.skipped[0].version, top);
}

#[test]
fn document_update_can_change_its_path() {
    let store = open();
    let renamed = |path: &str, version| match document(path, version, |_| ()) {
        Write::Upsert { dataset, version, body, .. } => {
            Write::Upsert { dataset, id: "one".into(), version, body }
        }
        other => other,
    };
    apply(&store, session(1, 1, vec![renamed("/b", 1), document("/c", 1, |_| ())]));
    apply(&store, session(1, 2, vec![renamed("/d", 2)]));
    assert_eq!(paths(&store, 1), ["/c", "/d"]);
}

#[test]
fn unversioned_write_ignores_the_stored_version() {
    let store = open();
    apply(&store, session(1, 1, vec![document("/a", 7, |o| o.size = 7)]));
    let applied = apply(&store, session(1, 2, vec![document("/a", 0, |o| o.size = 1)]));
    assert!(applied.skipped.is_empty());
    assert_eq!(size_of(&store, 1, "/a"), Some(1));
    apply(&store, session(1, 3, vec![document("/a", 1, |o| o.size = 2)]));
    assert_eq!(size_of(&store, 1, "/a"), Some(2));
    apply(&store, session(1, 4, vec![removal("/a", 0)]));
    assert_eq!(size_of(&store, 1, "/a"), None);
    assert_eq!(store.counts(&Reader::server()).unwrap().tombstones, 0);
}

#[test]
fn repeated_writes_in_a_new_session_change_nothing() {
    let store = open();
    let writes = vec![
        document("/a", 5, |_| ()),
        removal("/b", 6),
        event("e-1", "/a", ChangeKind::Created, 5),
        document("/u", 0, |_| ()),
    ];
    let first = apply(&store, session(1, 1, writes.clone()));
    assert_eq!((first.changed, first.skipped.len()), (3, 0));
    let counts = store.counts(&Reader::server()).unwrap();
    let second = apply(&store, session(1, 2, writes));
    assert_eq!(second, Applied::default());
    assert_eq!(store.counts(&Reader::server()).unwrap(), counts);
}

#[test]
fn late_upsert_does_not_revive_a_deleted_document() {
    let store = open();
    apply(&store, session(1, 1, vec![document("/a", 5, |_| ())]));
    apply(&store, session(1, 2, vec![removal("/a", 8), removal("/never", 3)]));
    assert_eq!(store.counts(&Reader::server()).unwrap().tombstones, 2);
    let late = vec![document("/a", 7, |_| ()), document("/never", 2, |_| ())];
    let applied = apply(&store, session(1, 3, late));
    assert_eq!(applied.skipped.iter().map(|s| s.version).collect::<Vec<_>>(), [8, 3]);
    assert!(paths(&store, 1).is_empty());
    let older = apply(&store, session(1, 4, vec![removal("/a", 6)]));
    assert_eq!(older, Applied::default(), "an older removal of what is gone is done");
    let applied = apply(&store, session(1, 5, vec![document("/a", 7, |_| ())]));
    assert_eq!(applied.skipped[0].version, 8, "and does not lower the tombstone");
    apply(&store, session(1, 6, vec![document("/a", 9, |_| ())]));
    assert_eq!(paths(&store, 1), ["/a"]);
    assert_eq!(store.counts(&Reader::server()).unwrap().tombstones, 1);
}

#[test]
fn clean_removes_documents_and_tombstones_of_one_dataset() {
    let store = open();
    let packages = Dataset::new("inventory-packages");
    let package = Write::Upsert {
        dataset: packages.clone(),
        id: "bash".into(),
        version: 1,
        body: b"{}".to_vec(),
    };
    let writes = vec![document("/a", 5, |_| ()), document("/b", 5, |_| ()), removal("/c", 5)];
    apply(&store, session(1, 1, [writes.clone(), vec![package]].concat()));
    apply(&store, session(2, 2, writes));
    let clean = Write::Clean { dataset: fim() };
    let applied = apply(&store, session(1, 3, vec![clean, document("/d", 1, |_| ())]));
    assert_eq!(applied.changed, 3);
    assert_eq!(paths(&store, 1), ["/d"]);
    assert_eq!(paths(&store, 2), ["/a", "/b"]);
    let stored = store.document(&Reader::server(), AgentId(1), &packages, "bash").unwrap().unwrap();
    assert_eq!((stored.body.as_slice(), stored.checksum.as_str()), (b"{}".as_slice(), ""));
    let applied = apply(&store, session(1, 4, vec![document("/c", 1, |_| ())]));
    assert!(applied.skipped.is_empty(), "a clean forgets removals too");
}

#[test]
fn invalid_bodies_and_ids_are_skipped_with_a_reason() {
    use SkipReason::{Id, Json, TooLarge};
    let store = open();
    let upsert = |id: &str, body: &[u8]| Write::Upsert {
        dataset: fim(),
        id: id.into(),
        version: 1,
        body: body.to_vec(),
    };
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(DOCUMENT_BYTES_MAX));
    let writes = vec![
        upsert("ok", b"{}"),
        upsert("", b"{}"),
        upsert(&"x".repeat(513), b"{}"),
        upsert("a", b"[1]"),
        upsert("b", large.as_bytes()),
        Write::Delete { dataset: fim(), id: String::new(), version: 1 },
        Write::Event { id: "e".into(), body: b"no json".to_vec() },
        Write::Event { id: String::new(), body: b"{}".to_vec() },
    ];
    let applied = apply(&store, session(1, 1, writes));
    let reasons: Vec<_> = applied.skipped.iter().map(|s| (s.index, s.reason)).collect();
    let expected = [(1, Id), (2, Id), (3, Json), (4, TooLarge), (5, Id), (6, Json), (7, Id)];
    assert_eq!(reasons, expected);
    assert_eq!((applied.changed, applied.quarantined), (1, None));
}

#[test]
fn unappliable_record_is_quarantined_with_coverage_event() {
    let store = open();
    let unfit = Write::Upsert {
        dataset: Dataset::new(""),
        id: "x".into(),
        version: 1,
        body: b"{}".to_vec(),
    };
    let batch = [
        (Position(1), session(1, 1, vec![document("/a", 5, |_| ())])),
        (Position(2), session(1, 2, vec![document("/lost", 6, |_| ()), unfit.clone()])),
        (Position(3), session(2, 3, vec![unfit])),
        (Position(4), session(1, 4, vec![document("/b", 7, |_| ())])),
    ];
    let applied = store.apply(&batch).unwrap();
    let aside: Vec<_> = applied.iter().map(|a| a.quarantined.is_some()).collect();
    assert_eq!(aside, [false, true, true, false]);
    assert_eq!(paths(&store, 1), ["/a", "/b"], "nothing of the record is applied");
    assert_eq!(store.counts(&Reader::server()).unwrap().quarantined, 2);
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..ChangeQuery::default() };
    let items = store.changes(&Reader::server(), &query).unwrap().items;
    let store_id = store.store_id();
    let ids: Vec<_> = items.iter().map(|e| (e.agent, e.id.clone())).collect();
    let id = |n| (AgentId::SERVER, format!("quarantine-{}-{n}", &store_id[..8]));
    assert_eq!(ids, [id(3), id(2)]);
    let body: EventBody = serde_json::from_slice(&items[1].body).unwrap();
    assert!(body.holdfast.coverage.unwrap().detail.contains("record 2 of agent 001"));
    assert_eq!(store.applied().unwrap(), Position(4));
}

#[test]
fn undecodable_record_is_quarantined_once() {
    let store = open();
    store.quarantine(Position(1), b"rubbish", "not a record").unwrap();
    store.quarantine(Position(1), b"rubbish", "not a record").unwrap();
    assert_eq!(store.applied().unwrap(), Position(1));
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!((counts.quarantined, counts.events), (1, 1));
}

#[test]
fn last_session_is_stored_per_agent() {
    let store = open();
    assert_eq!(store.last_session(&Reader::server(), AgentId(1)).unwrap(), None);
    apply(&store, session(1, 7, vec![]));
    apply(&store, session(2, 8, vec![]));
    assert_eq!(
        store.last_session(&Reader::server(), AgentId(1)).unwrap().as_deref(),
        Some("fim-7")
    );
    assert_eq!(
        store.last_session(&Reader::server(), AgentId(2)).unwrap().as_deref(),
        Some("fim-8")
    );
    assert_eq!(
        store.agent_counts(&Reader::server(), AgentId(2)).unwrap().last_session_at_us,
        Some(8)
    );
    assert!(!store.store_id().is_empty());
}

#[test]
fn counters_match_stored_documents_and_events() {
    let store = open();
    let bytes = |w: &Write| match w {
        Write::Upsert { body, .. } | Write::Event { body, .. } => body.len() as u64,
        _ => 0,
    };
    let (small, large) = (document("/a", 1, |_| ()), document("/a", 2, |o| o.size = 1 << 40));
    let other = document("/b", 1, |_| ());
    let events =
        [event("e-1", "/a", ChangeKind::Created, 1), event("e-2", "/a", ChangeKind::Deleted, 2)];
    let expected = bytes(&large) + bytes(&other);
    apply(&store, session(1, 1, vec![small, large, other.clone(), document("/c", 1, |_| ())]));
    apply(&store, session(1, 2, vec![removal("/c", 2), events[0].clone(), events[1].clone()]));
    apply(&store, session(2, 3, vec![other.clone()]));
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!(counts.documents, [(fim(), 3, expected + bytes(&other))]);
    assert_eq!((counts.events, counts.event_bytes), (2, events.iter().map(bytes).sum()));
    let kinds: Vec<_> = counts.events_by_kind.iter().map(|(_, n)| *n).collect();
    assert_eq!(kinds, [1, 0, 1, 0, 0, 0, 0, 0, 0]);
    let agent = store.agent_counts(&Reader::server(), AgentId(1)).unwrap();
    assert_eq!((agent.documents, agent.events), (vec![(fim(), 2, expected)], 2));
    assert_eq!(
        store.agent_counts(&Reader::server(), AgentId(9)).unwrap(),
        state::AgentCounts::default()
    );
}

#[test]
fn retention_drops_expired_tombstones() {
    let store = open();
    apply(&store, session(1, 1_000_000, vec![removal("/a", 5)]));
    apply(&store, session(1, 2_000_000, vec![removal("/b", 5)]));
    let now_us = (TOMBSTONE_SECONDS + 1) * 1_000_000;
    let policy = Retention::default();
    assert_eq!(retain(&store, policy, now_us).tombstones, 0);
    assert_eq!(retain(&store, policy, now_us + 1).tombstones, 1);
    let late = vec![document("/a", 1, |_| ()), document("/b", 1, |_| ())];
    let applied = apply(&store, session(1, 3_000_000, late));
    assert_eq!(applied.skipped.len(), 1);
    assert_eq!(store.counts(&Reader::server()).unwrap().tombstones, 1);
}
