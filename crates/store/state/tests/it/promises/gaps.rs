//! Promises about open gaps.

use model::{
    AgentEvent, AgentId, ChangeKind, Coverage, CoverageKind, EventBody, Incarnation, LastingGap,
    OpenGap, Record, Write,
};

use super::{apply, open};
use records::{document, session, session_of_life};
use state::limits::OPEN_GAPS_MAX;
use state::{ChangeQuery, EventKind, LateChanges, Reader, StateStore};

fn opening(agent: u32, life: u64, from_us: u64) -> Record {
    let gap = OpenGap { kind: CoverageKind::AgentSilent, from_us, detail: "no word".into() };
    record(agent, life, from_us, &EventBody::of_open_gap(gap))
}

fn record(agent: u32, life: u64, at_us: u64, event: &EventBody) -> Record {
    let (agent, incarnation) = (AgentId(agent), Incarnation(life));
    let id = format!("gap-{at_us}");
    let event = AgentEvent { agent, incarnation, id, body: event.to_json() };
    Record::AgentEvents { at_us, events: vec![event] }
}

fn coverage(kind: CoverageKind, from_us: u64, to_us: u64) -> EventBody {
    let (path, detail) = (String::new(), String::new());
    EventBody::of_coverage(Coverage {
        kind,
        path,
        from_us,
        to_us,
        found: None,
        lasting: None,
        detail,
    })
}

/// Returns the numbers of the agents whose gap is in this state.
fn agents_with(store: &StateStore, kind: EventKind) -> Vec<u32> {
    let query = ChangeQuery { kinds: vec![kind], ..ChangeQuery::default() };
    let page = store.changes(&Reader::server(), &query).unwrap();
    page.items.iter().map(|event| event.agent.0).collect()
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn gap_is_open_until_the_agent_has_reported_its_absence() {
    let store = open();
    apply(&store, session(1, 1, vec![document("/a", 1, |_| ())]));
    apply(&store, session(2, 1, vec![document("/a", 1, |_| ())]));
    for agent in [1, 2, 3] {
        assert_eq!(apply(&store, opening(agent, 1, 1_000)).changed, 1);
    }
    assert_eq!(apply(&store, opening(1, 1, 1_000)).changed, 0, "the same id again");
    assert_eq!(agents_with(&store, EventKind::OpenGap), [3, 2, 1]);

    let down = |from, to| coverage(CoverageKind::AgentDown, from, to).to_json();
    let event = |id: &str, body| vec![Write::Event { id: id.into(), body }];
    let other = coverage(CoverageKind::Baseline, 1, 2_000).to_json();
    apply(&store, session(1, 3, event("other", other)));
    assert_eq!(agents_with(&store, EventKind::OpenGap), [3, 2, 1], "it is no absence");

    // The agent's clock is behind the server's.
    apply(&store, session(1, 4, event("down", down(500, 900))));
    let silent = coverage(CoverageKind::AgentSilent, 1_000, 3_000);
    apply(&store, record(2, 1, 3_000, &silent));
    assert_eq!(agents_with(&store, EventKind::OpenGap), [3]);
    assert_eq!(agents_with(&store, EventKind::EndedGap), [2, 1]);

    let removed = Record::AgentRemoved { agent: AgentId(3), incarnation: Incarnation(1), at_us: 9 };
    apply(&store, removed);
    assert!(agents_with(&store, EventKind::OpenGap).is_empty());
    let counts = store.counts(&Reader::server()).unwrap();
    let count = |kind| counts.events_by_kind.iter().find(|(k, _)| *k == kind).unwrap().1;
    assert_eq!((count(EventKind::OpenGap), count(EventKind::EndedGap)), (0, 3));
    assert_eq!(count(EventKind::Other), 0);
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn event_of_an_ended_life_opens_no_gap() {
    let store = open();
    apply(&store, session_of_life(1, 1, 1, vec![document("/a", 1, |_| ())]));
    apply(&store, session_of_life(1, 2, 2, vec![document("/a", 1, |_| ())]));
    assert_eq!(apply(&store, opening(1, 1, 3)).changed, 0);
    assert!(agents_with(&store, EventKind::OpenGap).is_empty());
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn agent_cannot_open_a_gap_itself() {
    let store = open();
    let gap = OpenGap { kind: CoverageKind::AgentSilent, from_us: 5, detail: String::new() };
    let body = EventBody::of_open_gap(gap).to_json();
    apply(&store, session(1, 1, vec![Write::Event { id: "own".into(), body }]));
    assert!(agents_with(&store, EventKind::OpenGap).is_empty());
    assert_eq!(agents_with(&store, EventKind::Other), [1]);
}

/// Returns an event of an agent's gap.
fn of_gap(lasting: LastingGap) -> EventBody {
    let kind = CoverageKind::RootGone;
    let (path, detail) = ("/srv".to_owned(), String::new());
    let (from_us, to_us) = (5, if lasting.open { 5 } else { 9 });
    let lasting = Some(lasting);
    EventBody::of_coverage(Coverage { kind, path, from_us, to_us, found: None, lasting, detail })
}

fn report(store: &StateStore, agent: u32, number: u64, body: &EventBody) {
    let id = format!("own-{number}");
    apply(store, session(agent, number, vec![Write::Event { id, body: body.to_json() }]));
}

/// Returns the events of this kind, the newest first.
fn events(store: &StateStore, kind: EventKind) -> Vec<String> {
    let query = ChangeQuery { kinds: vec![kind], ..ChangeQuery::default() };
    let page = store.changes(&Reader::server(), &query).unwrap();
    page.items.iter().map(|event| event.id.clone()).collect()
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn gap_of_an_agent_is_open_until_an_event_names_it() {
    let store = open();
    report(&store, 1, 1, &of_gap(LastingGap::start("a")));
    report(&store, 1, 2, &of_gap(LastingGap::start("b")));
    report(&store, 2, 1, &of_gap(LastingGap::start("a")));
    apply(&store, opening(1, 1, 1_000));
    report(&store, 1, 3, &coverage(CoverageKind::AgentDown, 1, 2));
    assert_eq!(agents_with(&store, EventKind::OpenGap), [2, 1, 1], "the absence alone has ended");

    report(&store, 1, 4, &of_gap(LastingGap::end("a")));
    assert_eq!(agents_with(&store, EventKind::OpenGap), [2, 1]);
    assert_eq!(events(&store, EventKind::OpenGap), ["own-1", "own-2"]);
    report(&store, 1, 5, &of_gap(LastingGap::end("a")));
    assert_eq!(agents_with(&store, EventKind::OpenGap).len(), 2, "it had ended");
    apply(&store, opening(1, 1, 2_000));
    assert_eq!(agents_with(&store, EventKind::OpenGap).len(), 3, "silence ends no other gap");

    apply(&store, session_of_life(1, 2, 1, vec![document("/a", 1, |_| ())]));
    assert_eq!(agents_with(&store, EventKind::OpenGap), [2], "the life has ended");
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn start_that_is_reported_again_replaces_the_first_one() {
    let store = open();
    report(&store, 1, 1, &of_gap(LastingGap::start("a")));
    report(&store, 1, 2, &of_gap(LastingGap::start("a")));
    assert_eq!(events(&store, EventKind::OpenGap), ["own-2"]);
    assert_eq!(events(&store, EventKind::EndedGap), ["own-1"]);

    let mut number = 3;
    for lost in [CoverageKind::DatabaseRebuilt, CoverageKind::EventsDropped] {
        report(&store, 1, number, &of_gap(LastingGap::start("b")));
        report(&store, 1, number + 1, &coverage(lost, 1, 2));
        assert!(events(&store, EventKind::OpenGap).is_empty(), "the agent no longer knows them");
        number += 2;
    }
    report(&store, 1, number, &of_gap(LastingGap::start("b")));
    assert_eq!(events(&store, EventKind::OpenGap), ["own-7"]);
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn gaps_beyond_the_limit_and_with_long_ids_are_stored_as_ended() {
    let store = open();
    let max = OPEN_GAPS_MAX as u64;
    for n in 1..=max + 1 {
        report(&store, 1, n, &of_gap(LastingGap::start(n.to_string())));
    }
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..ChangeQuery::default() };
    let beyond = store.changes(&Reader::server(), &query).unwrap().items;
    assert_eq!(beyond.len(), 1);
    report(&store, 1, max + 2, &of_gap(LastingGap::end("1")));
    report(&store, 1, max + 3, &of_gap(LastingGap::start("x".repeat(65))));
    report(&store, 1, max + 4, &of_gap(LastingGap::start("")));
    let counts = store.counts(&Reader::server()).unwrap();
    let count = |kind| counts.events_by_kind.iter().find(|(k, _)| *k == kind).unwrap().1;
    assert_eq!((count(EventKind::OpenGap), count(EventKind::EndedGap)), (max - 1, 1));
    assert_eq!(count(EventKind::Coverage), 4);
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn absences_are_listed_without_the_gaps_of_agents() {
    let store = open();
    report(&store, 1, 1, &of_gap(LastingGap::start("a")));
    for agent in [3, 2] {
        apply(&store, opening(agent, 1, 1_000));
    }
    let agents = |after| {
        let page = store.open_absences(&Reader::server(), after, 9).unwrap();
        page.iter().map(|event| event.agent.0).collect::<Vec<_>>()
    };
    assert_eq!(agents(0), [3, 2]);
    let first = store.open_absences(&Reader::server(), 0, 1).unwrap()[0].number;
    assert_eq!(agents(first), [2]);
    apply(&store, record(3, 1, 3_000, &coverage(CoverageKind::AgentSilent, 1_000, 3_000)));
    assert_eq!(agents(0), [2]);
}

/// # Panics
/// If the store does not keep its promise.
#[test]
fn late_changes_are_those_that_arrived_during_the_absence() {
    let store = open();
    let late = |agent, opening: &str, to_us| {
        store.late_changes(&Reader::server(), AgentId(agent), opening, to_us).unwrap()
    };
    assert_eq!(late(1, "gap-1000", u64::MAX), None);
    let change = |id: &str, found| records::event(id, "/a", ChangeKind::Modified, found);
    apply(&store, session(1, 1, vec![change("before", 10)]));
    apply(&store, opening(1, 1, 1_000));
    apply(&store, session(1, 2, vec![change("late", 20), change("new", 40)]));
    apply(&store, session(2, 1, vec![change("other", 20)]));
    let of = |is_open, changes| Some(LateChanges { is_open, changes });
    assert_eq!(late(1, "gap-1000", u64::MAX), of(true, 2));
    assert_eq!(late(1, "gap-1000", 30), of(true, 1), "found after the end");
    report(&store, 1, 3, &coverage(CoverageKind::AgentDown, 1, 2));
    assert_eq!(late(1, "gap-1000", u64::MAX), of(false, 2));
}
