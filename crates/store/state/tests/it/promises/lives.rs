//! Lives of agents: the data that ends with them, and what stays known of their sessions and
//! overlays.

use model::limits::DOCUMENT_BYTES_MAX;
use model::{
    AgentId, AgentReport, AgentSubject, Applied, ChangeKind, Dataset, Incarnation, Overlay, Record,
    ReportKind, SkipReason, Write,
};

use super::{apply, open, paths};
use model::Permitted;
use records::{document, event, removal, session, session_of_life};
use state::limits::SESSIONS_KEPT;
use state::{ArrivalQuery, ChangeQuery, DocumentQuery, Reader};

fn refused() -> Applied {
    Applied { refused: true, ..Applied::default() }
}

fn removed(agent: u32, life: u64, at_us: u64) -> Record {
    Record::AgentRemoved { agent: AgentId(agent), incarnation: Incarnation(life), at_us }
}

#[test]
fn removing_an_agent_drops_documents_and_keeps_events() {
    let store = open();
    let writes = || {
        vec![
            document("/a", 5, |_| ()),
            removal("/b", 5),
            event("e-1", "/a", ChangeKind::Created, 5),
        ]
    };
    apply(&store, session(1, 1, writes()));
    apply(&store, session(2, 2, writes()));
    let applied = apply(
        &store,
        Record::AgentRemoved { agent: AgentId(1), incarnation: Incarnation(1), at_us: 3 },
    );
    assert_eq!(applied.changed, 1);
    assert!(paths(&store, 1).is_empty());
    assert_eq!(paths(&store, 2), ["/a"]);
    assert_eq!(store.last_session(&Reader::server(), AgentId(1)).unwrap(), None);
    let query = ChangeQuery { agents: Some(vec![AgentId(1)]), ..ChangeQuery::default() };
    let items = store.changes(&Reader::server(), &query).unwrap().items;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].agent_name, "agent-1");
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!((counts.documents[0].1, counts.events, counts.tombstones), (1, 2, 1));
}

#[test]
fn late_record_of_removed_agent_is_refused() {
    let store = open();
    apply(&store, session(1, 1, vec![document("/a", 5, |_| ())]));
    let removed =
        |at_us| Record::AgentRemoved { agent: AgentId(1), incarnation: Incarnation(1), at_us };
    apply(&store, removed(2));
    let late = vec![document("/b", 6, |_| ()), event("e-1", "/b", ChangeKind::Created, 6)];
    assert_eq!(apply(&store, session(1, 3, late.clone())), refused());
    assert!(paths(&store, 1).is_empty());
    apply(&store, session_of_life(1, 2, 4, vec![document("/new", 1, |_| ())]));
    assert_eq!(apply(&store, session(1, 5, late)), refused());
    apply(&store, removed(6));
    assert_eq!(paths(&store, 1), ["/new"], "a removal of the former life touches nothing");
    assert_eq!(store.counts(&Reader::server()).unwrap().events, 0);
}

#[test]
fn new_incarnation_starts_without_documents() {
    let store = open();
    apply(&store, session(1, 1, vec![document("/a", 5, |_| ()), removal("/b", 9)]));
    let applied = apply(&store, session_of_life(1, 2, 2, vec![document("/b", 1, |_| ())]));
    assert!(applied.skipped.is_empty());
    assert_eq!(paths(&store, 1), ["/b"]);
    assert_eq!(apply(&store, session(1, 3, vec![document("/a", 6, |_| ())])), refused());
    assert_eq!(paths(&store, 1), ["/b"]);
}

#[test]
fn event_belongs_to_the_incarnation_that_reported_it() {
    let store = open();
    let told = |agent: u32, life: u64, at: u64, name: &str| {
        let writes = vec![event(&format!("e-{at}"), "/a", ChangeKind::Created, at)];
        let mut record = session_of_life(agent, life, at, writes);
        if let Record::Session(session) = &mut record {
            session.overlay.agent_name = name.into();
        }
        apply(&store, record);
    };
    let agents = Some(vec![AgentId(1)]);
    let seen = |former: bool| -> Vec<(u64, String, bool)> {
        let query = ChangeQuery { agents: agents.clone(), former, ..ChangeQuery::default() };
        let items = store.changes(&Reader::server(), &query).unwrap().items;
        items.into_iter().map(|e| (e.found_at_us, e.agent_name, e.former)).collect()
    };
    let row = |at, name: &str, former| (at, name.to_owned(), former);
    told(1, 5, 1, "first");
    told(2, 5, 2, "other");
    assert_eq!(seen(false), [row(1, "first", false)]);
    apply(&store, removed(1, 5, 3));
    assert_eq!(seen(false), []);
    assert_eq!(seen(true), [row(1, "first", true)]);
    told(1, 6, 4, "second");
    apply(&store, removed(1, 5, 5));
    assert_eq!(seen(false), [row(4, "second", false)], "what ended before ends nothing again");
    // A life is replaced by the next one before its removal is recorded.
    told(1, 7, 6, "third");
    assert_eq!(seen(false), [row(6, "third", false)]);
    let all = [row(6, "third", false), row(4, "second", true), row(1, "first", true)];
    assert_eq!(seen(true), all);
    let mut arrived = Vec::new();
    let everyone = ArrivalQuery { agents: Permitted::All, kinds: Vec::new(), since: 0 };
    let mut visit = |e: state::StoredEvent| {
        arrived.push((e.found_at_us, e.agent_name, e.former));
        true
    };
    store.arrivals(&Reader::server(), &everyone, &mut visit).unwrap();
    let other = row(2, "other", false);
    assert_eq!(arrived, [all[2].clone(), other, all[1].clone(), all[0].clone()]);
    // An agent that is not registered uses life 0 until it is registered.
    told(3, 0, 7, "local");
    told(3, 8, 8, "registered");
    let query =
        |former| ChangeQuery { agents: Some(vec![AgentId(3)]), former, ..ChangeQuery::default() };
    assert_eq!(store.changes(&Reader::server(), &query(false)).unwrap().items.len(), 1);
    let former = &store.changes(&Reader::server(), &query(true)).unwrap().items[1];
    assert_eq!((former.agent_name.as_str(), former.former), ("local", true));
}

#[test]
fn replayed_session_writes_nothing_and_reports_newer_versions() {
    let store = open();
    let clean = || vec![Write::Clean { dataset: Dataset::fim_files() }];
    let first = session(1, 1, vec![document("/a", 5, |_| ()), document("/b", 5, |_| ())]);
    apply(&store, first.clone());
    let plain = session(1, 2, vec![document("/c", 0, |_| ())]);
    apply(&store, plain.clone());
    let emptied = session(1, 3, clean());
    apply(&store, emptied.clone());
    apply(&store, session(1, 4, vec![document("/a", 6, |_| ()), removal("/b", 7)]));
    let gone = session(1, 5, vec![removal("/a", 0)]);
    apply(&store, gone.clone());
    apply(&store, session(1, 6, vec![document("/d", 1, |_| ())]));
    let before = (paths(&store, 1), store.counts(&Reader::server()).unwrap());
    assert_eq!(before.0, ["/d"]);
    let again = apply(&store, first);
    assert_eq!((again.changed, again.replayed, again.refused), (0, true, false));
    let named: Vec<_> = again.skipped.iter().map(|s| (s.index, s.reason, s.version)).collect();
    assert_eq!(named, [(1, SkipReason::Stale, 7)]);
    for session in [plain, emptied, gone] {
        assert!(apply(&store, session).replayed);
    }
    assert_eq!((paths(&store, 1), store.counts(&Reader::server()).unwrap()), before);
    assert_eq!(
        store.last_session(&Reader::server(), AgentId(1)).unwrap().as_deref(),
        Some("fim-6")
    );
    let another = session(2, 1, vec![document("/a", 5, |_| ())]);
    assert!(!apply(&store, another).replayed, "another agent's sessions are its own");
}

#[test]
fn last_sessions_of_an_agent_are_remembered() {
    let store = open();
    let kept = SESSIONS_KEPT as u64;
    let nth = |n| session(1, n, vec![document("/a", n, |_| ())]);
    for n in 1..=kept + 1 {
        apply(&store, nth(n));
    }
    assert!(!apply(&store, session(1, 1, vec![removal("/b", 1)])).replayed, "beyond the last ones");
    let known = (3..=kept + 1).all(|n| apply(&store, nth(n)).replayed);
    assert!(known, "the replays themselves push nothing out");
}

#[test]
fn reused_session_id_with_other_content_is_another_session() {
    let store = open();
    let write = |path| session(1, 1, vec![document(path, 0, |_| ())]);
    for path in ["/a", "/b", "/c"] {
        let applied = apply(&store, write(path));
        assert_eq!((applied.changed, applied.replayed), (1, false), "{path}");
    }
    assert_eq!(paths(&store, 1), ["/a", "/b", "/c"]);
    assert!(["/a", "/b", "/c"].into_iter().all(|path| apply(&store, write(path)).replayed));
}

/// Microseconds since the epoch.
const NOW_US: u64 = 1_790_000_000_000_000;

/// Returns a session of that time with an id of the contract's form
/// (`docs/reference/wire.md`, "Sessions: size and id").
fn timed(life: u64, at_us: u64, writes: Vec<Write>) -> Record {
    let mut record = session_of_life(1, life, at_us, writes);
    if let Record::Session(session) = &mut record {
        session.session = format!("fim-{}", at_us << 12);
    }
    record
}

#[test]
fn outdated_session_writes_nothing_and_is_reported() {
    let store = open();
    let plain = timed(1, NOW_US, vec![document("/a", 0, |_| ())]);
    let versioned = timed(1, NOW_US + 1, vec![document("/b", 5, |_| ())]);
    let gone = timed(1, NOW_US + 2, vec![removal("/a", 0)]);
    let emptied = timed(1, NOW_US + 3, vec![Write::Clean { dataset: Dataset::fim_files() }]);
    let late = timed(1, NOW_US + 4, vec![document("/never", 1, |_| ())]);
    for record in [&plain, &versioned, &gone, &emptied] {
        apply(&store, record.clone());
    }
    let last = SESSIONS_KEPT as u64 + 10;
    for n in 10..=last {
        let path = if n % 2 == 0 { "/a" } else { "/c" };
        apply(&store, timed(1, NOW_US + n, vec![document(path, 0, |o| o.size = n)]));
    }
    let before = (paths(&store, 1), store.counts(&Reader::server()).unwrap());
    assert_eq!(before.0, ["/a", "/c"]);
    let outdated = Applied { outdated: true, ..Applied::default() };
    for record in [plain, versioned, gone, emptied, late] {
        assert_eq!(apply(&store, record), outdated);
    }
    assert_eq!((paths(&store, 1), store.counts(&Reader::server()).unwrap()), before);
    let between = timed(1, NOW_US + last - 1, vec![document("/out of order", 1, |_| ())]);
    assert_eq!(apply(&store, between).changed, 1, "not older than those that are known");
}

#[test]
fn removed_unregistered_sessions_are_not_reapplied() {
    let store = open();
    let first = timed(0, NOW_US, vec![document("/local", 1, |_| ())]);
    apply(&store, first.clone());
    apply(&store, removed(1, 0, NOW_US + 1));
    assert!(apply(&store, first).outdated);
    assert!(paths(&store, 1).is_empty());
    assert_eq!(apply(&store, timed(0, NOW_US + 2, vec![document("/a", 1, |_| ())])).changed, 1);
    assert_eq!(apply(&store, timed(3, NOW_US, vec![document("/own", 1, |_| ())])).changed, 1);
    assert_eq!(paths(&store, 1), ["/own"], "a registered life begins without a past");
}

#[test]
fn unregistered_number_restarts_after_removal_and_ends_no_life() {
    let store = open();
    let local = |at_us, path| session_of_life(7, 0, at_us, vec![document(path, 1, |_| ())]);
    apply(&store, local(1, "/local"));
    let overtaken = apply(&store, session_of_life(7, 9, 2, vec![document("/own", 1, |_| ())]));
    assert_eq!(overtaken.changed, 1);
    assert_eq!(paths(&store, 7), ["/own"], "a registered life begins empty");
    assert_eq!(apply(&store, local(3, "/late")), refused());
    assert_eq!(paths(&store, 7), ["/own"]);
    apply(&store, removed(7, 9, 4));
    assert_eq!(apply(&store, local(5, "/again")).changed, 1);
    assert_eq!(paths(&store, 7), ["/again"]);
    assert_eq!(apply(&store, removed(7, 0, 6)).changed, 1);
    assert!(paths(&store, 7).is_empty());
    assert_eq!(apply(&store, local(5, "/again")).changed, 1, "it restarts");
    assert!(apply(&store, local(5, "/again")).replayed);
    assert_eq!(apply(&store, local(7, "/once more")).changed, 1);
    assert_eq!(paths(&store, 7), ["/again", "/once more"]);
    assert_eq!(
        store.agent_counts(&Reader::server(), AgentId(7)).unwrap().life,
        Some(Incarnation(0))
    );
    apply(&store, removed(7, 0, 8));
    assert_eq!(store.agent_counts(&Reader::server(), AgentId(7)).unwrap().life, None);
}

fn session_with_overlay(life: u64, at_us: u64, overlay: Overlay, writes: Vec<Write>) -> Record {
    let mut record = session_of_life(3, life, at_us, writes);
    if let Record::Session(session) = &mut record {
        session.overlay = overlay;
    }
    record
}

#[test]
fn agent_overlay_is_replaced_only_by_newer_versions() {
    let store = open();
    let is = |host: &str, group: &str| Overlay {
        agent_name: format!("on-{host}"),
        hostname: host.into(),
        groups: vec![group.into()],
        cluster: "c".into(),
        ..Overlay::default()
    };
    let describe = |subject, version, check| vec![Write::Describe { subject, version, check }];
    let now = || {
        let overlay = store.overlay(&Reader::server(), AgentId(3)).unwrap().unwrap();
        assert_eq!(
            (overlay.agent_name, overlay.cluster),
            (format!("on-{}", overlay.hostname), "c".into())
        );
        (overlay.hostname, overlay.groups.concat())
    };
    let pair = |host: &str, group: &str| (host.to_owned(), group.to_owned());
    assert_eq!(store.overlay(&Reader::server(), AgentId(3)).unwrap(), None);
    apply(&store, session_with_overlay(0, 1, is("a", "g"), vec![document("/a", 1, |_| ())]));
    assert_eq!(now(), pair("a", "g"));
    apply(
        &store,
        session_with_overlay(0, 2, is("b", "h"), describe(AgentSubject::Metadata, 5, false)),
    );
    assert_eq!(now(), pair("b", "g"), "metadata are not groups");
    apply(&store, session_with_overlay(0, 3, is("c", "h"), vec![document("/a", 2, |_| ())]));
    assert_eq!(now(), pair("b", "h"), "a described version is not changed by a mention");
    let stale = apply(
        &store,
        session_with_overlay(0, 4, is("d", "i"), describe(AgentSubject::Metadata, 4, false)),
    );
    assert_eq!((stale.skipped[0].reason, stale.skipped[0].version), (SkipReason::Stale, 5));
    assert_eq!(now(), pair("b", "h"));
    apply(
        &store,
        session_with_overlay(0, 5, is("e", "i"), describe(AgentSubject::Groups, 4, false)),
    );
    assert_eq!(now(), pair("b", "i"), "each has a version of its own");
    let mended = apply(
        &store,
        session_with_overlay(0, 6, is("f", "k"), describe(AgentSubject::Metadata, 9, true)),
    );
    assert_eq!((mended.changed, now()), (1, pair("f", "i")));
    let again = apply(
        &store,
        session_with_overlay(0, 7, is("f", "k"), describe(AgentSubject::Metadata, 9, true)),
    );
    assert_eq!(again.changed, 0, "nothing differs");
    apply(
        &store,
        session_with_overlay(0, 8, is("g", "k"), describe(AgentSubject::Metadata, 6, false)),
    );
    assert_eq!(now(), pair("g", "i"), "a check leaves the version as it was");
    apply(&store, session_with_overlay(2, 9, is("h", "l"), vec![document("/a", 1, |_| ())]));
    assert_eq!(now(), pair("h", "l"), "of a registered agent the server's word counts");
    apply(&store, removed(3, 2, 10));
    assert_eq!(now(), pair("h", "l"), "kept for its events");
}

#[test]
fn last_report_of_each_kind_is_stored_until_its_life_ends() {
    let store = open();
    let report = |life: u64, at_us: u64, kind, body: &str| {
        let (agent, incarnation, body) = (AgentId(1), Incarnation(life), body.into());
        Record::Report(AgentReport { agent, incarnation, at_us, kind, body })
    };
    let stored = |life: u64, kind| {
        let found = store.report(&Reader::server(), AgentId(1), Incarnation(life), kind).unwrap();
        found.map(|report| (report.at_us, String::from_utf8(report.body).unwrap()))
    };
    let (stats, config) = (ReportKind::Stats, ReportKind::Config);
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    for (at_us, kind, body) in [(2, stats, "{}"), (3, stats, r#"{"a":1}"#), (4, config, "{}")] {
        assert_eq!(apply(&store, report(1, at_us, kind, body)).changed, 1);
    }
    assert_eq!(stored(1, stats), Some((3, r#"{"a":1}"#.to_owned())));
    assert_eq!(stored(1, config), Some((4, "{}".to_owned())));
    assert_eq!(stored(2, stats), None, "another life has reported nothing");
    let last = store.last_session(&Reader::server(), AgentId(1)).unwrap();
    assert_eq!(last.as_deref(), Some("fim-1"), "a report is no session");
    let large = "x".repeat(DOCUMENT_BYTES_MAX + 1);
    assert!(apply(&store, report(1, 5, stats, &large)).quarantined.is_some());
    apply(&store, removed(1, 1, 6));
    assert_eq!((stored(1, stats), stored(1, config)), (None, None));
    assert!(apply(&store, report(1, 7, stats, "{}")).refused);
    assert_eq!(apply(&store, report(2, 8, stats, "{}")).changed, 1);
    assert_eq!(stored(2, stats), Some((8, "{}".to_owned())));
}

#[test]
fn description_raises_the_version_of_named_datasets() {
    let store = open();
    let raise = |at_us, dataset: &Dataset, version| {
        let write = Write::RaiseVersion { dataset: dataset.clone(), version };
        apply(&store, session(1, at_us, vec![write])).changed
    };
    let shown = || {
        let query = DocumentQuery::new(AgentId(1), Dataset::fim_files());
        let items = store.documents(&Reader::server(), &query).unwrap().items;
        items.iter().map(|item| (item.version, item.described_version)).collect::<Vec<_>>()
    };
    let files = Dataset::fim_files();
    assert_eq!(raise(1, &files, 9), 0, "there is no document yet");
    apply(&store, session(1, 2, vec![document("/a", 5, |_| ())]));
    assert_eq!(shown(), [(5, 0)]);
    assert_eq!(raise(3, &Dataset::inventory_packages(), 9), 0);
    assert_eq!((raise(4, &files, 8), raise(5, &files, 7)), (1, 0), "the highest counts");
    assert_eq!(shown(), [(5, 8)]);
    apply(&store, session(1, 6, vec![document("/a", 6, |_| ())]));
    assert_eq!(shown(), [(6, 8)], "the version of the document itself is as it was sent");
    apply(&store, removed(1, 1, 7));
    apply(&store, session_of_life(1, 2, 8, vec![document("/a", 1, |_| ())]));
    assert_eq!(shown(), [(1, 0)], "another life has described nothing");
}
