//! Promises about open gaps.

use model::{
    AgentEvent, AgentId, Coverage, CoverageKind, EventBody, Incarnation, OpenGap, Record, Write,
};

use super::{apply, open};
use records::{document, session, session_of_life};
use state::{ChangeQuery, EventKind, Reader, StateStore};

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
    EventBody::of_coverage(Coverage { kind, path, from_us, to_us, found: None, detail })
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
