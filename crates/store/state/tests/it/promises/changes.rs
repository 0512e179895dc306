//! Queries for events, and the events that retention keeps.

use std::sync::Arc;

use model::document::NoNames;
use model::notification::Detection;
use model::{
    Actor, ActorUser, AgentId, Attribution, Change, ChangeKind, EventBody, Executable, Fields,
    ItemKey, Kind, Observation, ProcessInfo, Write,
};

use super::{apply, open, retain};
use records::{event, session};
use state::limits::PREFIX_CANDIDATES_MAX;
use state::{ChangeQuery, EventKind, PathMatch, Reader, Retention, StateError, StateStore};

const DAY_US: u64 = 24 * 3600 * 1_000_000;

fn ids(store: &StateStore, q: &ChangeQuery) -> Vec<String> {
    let page = store.changes(&Reader::server(), q).unwrap();
    assert!(page.items.len() <= q.limit);
    page.items.into_iter().map(|e| e.id).collect()
}

fn all() -> ChangeQuery {
    ChangeQuery::default()
}

#[test]
fn changes_are_newest_first_without_duplicates() {
    let store = open();
    assert_eq!(store.changes(&Reader::server(), &all()).unwrap(), state::ChangePage::default());
    let first = event("e-1", "/a", ChangeKind::Created, 30);
    let writes = vec![
        first.clone(),
        event("e-2", "/b", ChangeKind::Modified, 10),
        event("e-3", "/c", ChangeKind::Deleted, 20),
        first,
    ];
    let applied = apply(&store, session(1, 99, writes));
    assert_eq!(applied.changed, 3);
    apply(&store, session(2, 100, vec![event("e-1", "/a", ChangeKind::Created, 25)]));
    assert_eq!(ids(&store, &all()), ["e-1", "e-1", "e-3", "e-2"]);
    let page = store.changes(&Reader::server(), &all()).unwrap();
    let newest = &page.items[0];
    assert_eq!((newest.agent, newest.agent_name.as_str()), (AgentId(1), "agent-1"));
    assert_eq!((newest.found_at_us, newest.received_at_us), (30, 99));
    assert_eq!((newest.kind, newest.path.as_str()), (EventKind::Created, "/a"));
    assert!(serde_json::from_slice::<EventBody>(&newest.body).is_ok());
    assert_eq!(page.newest, 4);
}

#[test]
fn change_pages_are_stable_while_events_arrive() {
    let store = open();
    let some = |from: u64| {
        (from..from + 10)
            .map(|n| {
                let kind = if n % 2 == 0 { ChangeKind::Created } else { ChangeKind::Modified };
                event(&format!("e-{n}"), "/a", kind, 1_000 + n / 3)
            })
            .collect()
    };
    apply(&store, session(1, 1, some(0)));
    apply(&store, session(1, 2, some(10)));
    let before = ids(&store, &all());
    assert_eq!(before.len(), 20);
    let mut seen = Vec::new();
    let mut q = ChangeQuery { limit: 3, ..all() };
    loop {
        let page = store.changes(&Reader::server(), &q).unwrap();
        seen.extend(page.items.into_iter().map(|e| e.id));
        if page.next.is_none() {
            break;
        }
        q.cursor = page.next;
        let n = 100 + seen.len() as u64;
        let newer = event(&format!("e-{n}"), "/a", ChangeKind::Created, 5_000 + n);
        apply(&store, session(1, n, vec![newer]));
    }
    assert_eq!(seen, before);
    q.cursor = Some("nonsense".into());
    assert!(matches!(store.changes(&Reader::server(), &q), Err(StateError::Cursor)));
}

#[test]
fn changes_filter_by_agent_path_kind_and_time() {
    use ChangeKind::{Created, Deleted, Modified};
    let store = open();
    let writes = vec![
        event("1", "/etc/a", Created, 10),
        event("2", "/etc/b", Modified, 20),
        event("3", "/etcetera", Deleted, 30),
        event("4", "/srv/a", Modified, 40),
    ];
    apply(&store, session(1, 50, writes));
    for agent in 2..=12u32 {
        let id = format!("x{agent}");
        let found = 100 + u64::from(agent);
        apply(&store, session(agent, 60, vec![event(&id, "/etc/a", Created, found)]));
    }
    let of = |agents: &[u32]| Some(agents.iter().map(|a| AgentId(*a)).collect());
    assert_eq!(ids(&store, &ChangeQuery { agents: of(&[1]), ..all() }), ["4", "3", "2", "1"]);
    assert_eq!(ids(&store, &ChangeQuery { agents: of(&[2, 3, 2]), ..all() }), ["x3", "x2"]);
    let ten: Vec<u32> = (3..=12).collect();
    assert_eq!(ids(&store, &ChangeQuery { agents: of(&ten), ..all() }).len(), 10);
    assert_eq!(ids(&store, &ChangeQuery { agents: of(&[]), ..all() }).len(), 0);
    let one = || ChangeQuery { agents: of(&[1]), ..all() };
    let prefix = |p: &str| PathMatch::Prefix(p.into());
    assert_eq!(ids(&store, &ChangeQuery { path: prefix("/etc/"), ..one() }), ["2", "1"]);
    assert_eq!(ids(&store, &ChangeQuery { path: prefix("/etc"), ..one() }), ["3", "2", "1"]);
    let exact = PathMatch::Exact("/etc/a".into());
    assert_eq!(ids(&store, &ChangeQuery { path: exact.clone(), ..one() }), ["1"]);
    assert_eq!(ids(&store, &ChangeQuery { path: exact, ..all() }).len(), 12);
    let kinds = vec![EventKind::Modified, EventKind::Deleted, EventKind::Modified];
    assert_eq!(ids(&store, &ChangeQuery { kinds: kinds.clone(), ..all() }), ["4", "3", "2"]);
    let narrow = ChangeQuery { kinds, path: prefix("/srv"), ..all() };
    assert_eq!(ids(&store, &narrow), ["4"]);
    let span = ChangeQuery { from_us: Some(20), to_us: Some(40), ..all() };
    assert_eq!(ids(&store, &span), ["3", "2"]);
    assert_eq!(ids(&store, &ChangeQuery { limit: 2, ..span }), ["3", "2"]);
}

#[test]
fn large_and_small_path_prefixes_return_equal_changes() {
    let store = open();
    let many = PREFIX_CANDIDATES_MAX as u64 + 100;
    let writes = (0..many)
        .map(|n| {
            let path = if n % 50 == 0 { format!("/few/{n}") } else { format!("/many/{n}") };
            event(&n.to_string(), &path, ChangeKind::Modified, n)
        })
        .collect();
    apply(&store, session(1, 1, writes));
    let last = |path: &str| {
        let path = PathMatch::Prefix(path.into());
        ids(&store, &ChangeQuery { path, limit: 2, ..all() })
    };
    assert_eq!(last("/few"), ["2050", "2000"]);
    assert_eq!(last("/many"), ["2099", "2098"]);
    assert_eq!(last("/"), ["2099", "2098"]);
    let all_few = ChangeQuery { path: PathMatch::Prefix("/few".into()), limit: 1000, ..all() };
    assert_eq!(ids(&store, &all_few).len(), 42);
    let all_many = ChangeQuery { path: PathMatch::Prefix("/many".into()), limit: 9_000, ..all() };
    assert_eq!(ids(&store, &all_many).len() as u64, many - 42);
}

#[test]
fn changes_since_a_number_arrived_after_it() {
    let store = open();
    let one = |id: &str, found| vec![event(id, "/a", ChangeKind::Created, found)];
    apply(&store, session(1, 1, one("a", 100)));
    let newest = store.changes(&Reader::server(), &all()).unwrap().newest;
    let later = ChangeQuery { since: Some(newest), ..all() };
    assert!(ids(&store, &later).is_empty());
    apply(&store, session(2, 2, one("late", 5)));
    apply(&store, session(1, 3, one("b", 200)));
    assert_eq!(ids(&store, &later), ["b", "late"]);
    let narrow = ChangeQuery { agents: Some(vec![AgentId(2)]), ..later };
    assert_eq!(ids(&store, &narrow), ["late"]);
}

#[test]
fn retention_drops_old_events_and_adds_coverage_event() {
    let store = open();
    for day in 1..=10 {
        let id = format!("d-{day}");
        let one = event(&id, "/a", ChangeKind::Created, day * DAY_US);
        apply(&store, session(1, day * DAY_US, vec![one]));
    }
    let policy = Retention { age_us_max: 3 * DAY_US, ..Retention::default() };
    let retained = retain(&store, policy, 10 * DAY_US);
    assert_eq!(retained.events, 6);
    let id = retained.coverage.clone().unwrap();
    assert_eq!(ids(&store, &all()), ["d-10", "d-9", "d-8", "d-7", id.as_str()]);
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!((counts.events, counts.events_by_kind[0].1), (5, 4));
    assert_eq!(store.agent_counts(&Reader::server(), AgentId(1)).unwrap().events, 4);
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..all() };
    let told = store.changes(&Reader::server(), &query).unwrap().items;
    assert_eq!(told[0].agent, AgentId::SERVER);
    let body: EventBody = serde_json::from_slice(&told[0].body).unwrap();
    let coverage = body.holdfast.coverage.unwrap();
    assert_eq!((coverage.from_us, coverage.to_us), (DAY_US, 6 * DAY_US));
    assert!(coverage.detail.starts_with("6 events"), "{}", coverage.detail);
    let again = retain(&store, policy, 10 * DAY_US);
    assert_eq!(again, state::Retained::default(), "what is left stays");
}

#[test]
fn size_retention_drops_oldest_events_first() {
    let store = open();
    let many = state::limits::RETAIN_CHUNK_ROWS as u64 + 200;
    let writes: Vec<_> = (0..many)
        .map(|n| event(&format!("{n:06}"), "/a", ChangeKind::Modified, 100_000 + n))
        .collect();
    apply(&store, session(1, 1, writes));
    let before = store.counts(&Reader::server()).unwrap();
    let each = before.event_bytes / before.events;
    let policy = Retention { event_bytes_max: each * 100, ..Retention::default() };
    let retained = retain(&store, policy, 2);
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!(retained.events + counts.events, many + 1);
    assert!(counts.event_bytes <= each * 101 + 1024, "{}", counts.event_bytes);
    assert!(counts.events >= 98, "{}", counts.events);
    let last = format!("{:06}", many - 1);
    assert_eq!(ids(&store, &ChangeQuery { limit: 1, ..all() }), [last]);
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..all() };
    let told = store.changes(&Reader::server(), &query).unwrap().items;
    assert_eq!(told.len(), 1, "one event covers the whole run");
    let body: EventBody = serde_json::from_slice(&told[0].body).unwrap();
    let detail = body.holdfast.coverage.unwrap().detail;
    assert!(detail.starts_with(&format!("{} events", retained.events)), "{detail}");
    let stored: u64 = store
        .changes(&Reader::server(), &ChangeQuery { limit: 10_000, ..all() })
        .unwrap()
        .items
        .iter()
        .map(|e| e.body.len() as u64)
        .sum();
    assert_eq!(stored, counts.event_bytes);
}

/// Returns an event of a change with a writer.
fn written(id: &str, change: Change, user: &str, executable: &str) -> Write {
    let executable = Executable { path: executable.into(), ..Executable::default() };
    let actor = Actor {
        attribution: Attribution::Exact,
        process: Some(ProcessInfo { executable: Some(executable), ..ProcessInfo::default() }),
        real_user: Some(ActorUser { id: 7, name: user.into() }),
        ..Actor::default()
    };
    let seen = Detection {
        first_us: change.found_at_us,
        notices: 1,
        actors: vec![actor],
        ..Detection::default()
    };
    let change = Change { seen: Some(Arc::new(seen)), ..change };
    Write::Event { id: id.into(), body: EventBody::of_change(&change, &NoNames).to_json() }
}

#[test]
fn changes_are_found_by_user_process_and_former_path() {
    let store = open();
    let change = |path: &str, from: Option<&str>, found_at_us| Change {
        key: ItemKey::of_path(path.as_bytes()),
        kind: if from.is_some() { ChangeKind::Moved } else { ChangeKind::Modified },
        before: Some(Observation::empty(Kind::File)),
        after: Some(Observation::empty(Kind::File)),
        from: from.map(|from| ItemKey::of_path(from.as_bytes())),
        fields: Fields::default(),
        found_at_us,
        seen: None,
        cause: None,
    };
    let writes = vec![
        written("e-1", change("/a", None, 10), "alice", "/usr/bin/vim"),
        written("e-2", change("/b", None, 20), "bob", "/usr/bin/vim"),
        written("e-3", change("/c", Some("/a"), 30), "alice", "/bin/mv"),
        event("e-4", "/a", ChangeKind::Created, 40),
    ];
    apply(&store, session(1, 99, writes));
    let of = |user: Option<&str>, process: Option<&str>, path| {
        let (user, process) = (user.map(str::to_owned), process.map(str::to_owned));
        ids(&store, &ChangeQuery { path, user, process, ..all() })
    };
    assert_eq!(of(Some("alice"), None, PathMatch::Any), ["e-3", "e-1"]);
    assert_eq!(of(Some("7"), None, PathMatch::Any), [""; 0], "it has a name");
    assert_eq!(of(None, Some("vim"), PathMatch::Any), ["e-2", "e-1"]);
    assert_eq!(of(Some("bob"), Some("vim"), PathMatch::Any), ["e-2"]);
    assert_eq!(of(None, None, PathMatch::Exact("/a".into())), ["e-4", "e-3", "e-1"]);
    assert_eq!(of(Some("alice"), None, PathMatch::Exact("/a".into())), ["e-3", "e-1"]);
    let moved = ChangeQuery { kinds: vec![EventKind::Moved], ..all() };
    assert_eq!(ids(&store, &moved), ["e-3"]);
    let counts = store.counts(&Reader::server()).unwrap();
    assert!(counts.events_by_kind.contains(&(EventKind::Moved, 1)), "{counts:?}");
}

#[test]
fn process_matches_each_program_that_may_have_made_a_change() {
    let store = open();
    let event = |id: &str, found: u64, process: &str| {
        let at = model::timestamp::micros(found * 1_000_000);
        let body = format!(
            r#"{{"@timestamp":"{at}","event":{{"action":"modified"}},"file":{{"path":"/{id}"}},
            "process":{process}}}"#
        );
        Write::Event { id: id.into(), body: body.into_bytes() }
    };
    let two = r#"{"candidates":[{"name":"bash"},{"name":"cp"}]}"#;
    let writes = vec![
        event("e-1", 10, two),
        event("e-2", 20, r#"{"name":"cp"}"#),
        event("e-3", 30, r#"{"name":"cat","earlier":[{"name":"bash"}]}"#),
        event("e-4", 40, two),
    ];
    apply(&store, session(1, 99, writes));
    let of = |process: &str| ChangeQuery { process: Some(process.into()), ..all() };
    assert_eq!(ids(&store, &of("bash")), ["e-4", "e-3", "e-1"]);
    assert_eq!(ids(&store, &of("cp")), ["e-4", "e-2", "e-1"]);
    assert_eq!(ids(&store, &of("cat")), ["e-3"]);
    let path = PathMatch::Exact("/e-1".into());
    assert_eq!(ids(&store, &ChangeQuery { path, ..of("cp") }), ["e-1"]);
    let agents = Some(vec![AgentId(2)]);
    assert_eq!(ids(&store, &ChangeQuery { agents, ..of("cp") }), [""; 0]);
    let query = ChangeQuery { limit: 1, ..of("cp") };
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let query = ChangeQuery { cursor, ..query.clone() };
        let page = store.changes(&Reader::server(), &query).unwrap();
        listed.extend(page.items.into_iter().map(|event| event.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, ["e-4", "e-2", "e-1"], "page by page");
}
