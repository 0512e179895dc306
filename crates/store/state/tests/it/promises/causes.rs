//! Queries for changes by their causes.

use model::{AgentId, Cause, CauseKind, ChangeKind, Write};

use super::{apply, open, retain};
use records::{caused, event, event_with_cause, session};
use state::{ChangeQuery, Collapsed, EventKind, PathMatch, Reader, Retention, StateStore};

/// Returns an event of a change that a deployment explains, or of an unexplained one.
fn of_run(id: &str, kind: CauseKind, cause: &str, found_at_us: u64) -> Write {
    event_with_cause(
        id,
        "/etc/run",
        Cause { kind, id: cause.into(), ..Cause::default() },
        found_at_us,
    )
}

/// Returns the ids on all pages of a query, with what each line stands for.
fn pages(store: &StateStore, q: &ChangeQuery) -> Vec<(String, Option<Collapsed>)> {
    let mut seen = Vec::new();
    let mut q = q.clone();
    loop {
        let page = store.changes(&Reader::server(), &q).unwrap();
        assert!(page.items.len() <= q.limit);
        seen.extend(page.items.into_iter().map(|e| (e.id, e.collapsed)));
        if page.next.is_none() {
            return seen;
        }
        q.cursor = page.next;
    }
}

/// Returns the ids on all pages, which are the same for every size of a page.
fn ids(store: &StateStore, q: &ChangeQuery) -> Vec<String> {
    let whole = pages(store, q);
    for limit in 1..=4 {
        assert_eq!(pages(store, &ChangeQuery { limit, ..q.clone() }), whole, "pages of {limit}");
    }
    whole.into_iter().map(|(id, _)| id).collect()
}

/// Applies changes of two upgrades and a deployment, and unexplained ones among them.
fn fill(store: &StateStore) {
    let writes = vec![
        event("u-1", "/etc/a", ChangeKind::Modified, 10),
        caused("p-1", "/usr/a", "apt-1", "bash", 20),
        caused("p-2", "/usr/b", "apt-1", "dash", 30),
        of_run("r-1", CauseKind::Deployment, "run-1", 35),
        caused("p-3", "/etc/p", "apt-1", "dash", 40),
        of_run("planted", CauseKind::Unexplained, "apt-1", 41),
        caused("q-1", "/usr/c", "apt-2", "bash", 50),
        event("u-2", "/etc/b", ChangeKind::Created, 60),
        caused("p-4", "/usr/d", "apt-1", "bash", 70),
        of_run("r-2", CauseKind::Deployment, "", 80),
    ];
    apply(store, session(1, 99, writes));
    apply(store, session(2, 99, vec![caused("x-1", "/usr/a", "apt-1", "bash", 45)]));
}

#[test]
fn changes_are_selected_by_cause_and_counted() {
    use CauseKind::{Deployment, Package, Unexplained};
    let store = open();
    fill(&store);
    let of = |causes: &[CauseKind]| {
        ids(&store, &ChangeQuery { causes: causes.to_vec(), ..ChangeQuery::default() })
    };
    assert_eq!(of(&[Unexplained]), ["u-2", "planted", "u-1"]);
    assert_eq!(of(&[Deployment]), ["r-2", "r-1"]);
    assert_eq!(of(&[Unexplained, Deployment]), ["r-2", "u-2", "planted", "r-1", "u-1"]);
    let one = |id: &str| ChangeQuery { cause_id: Some(id.into()), ..ChangeQuery::default() };
    assert_eq!(ids(&store, &one("apt-1")), ["p-4", "x-1", "planted", "p-3", "p-2", "p-1"]);
    let agents = Some(vec![AgentId(1)]);
    let query = ChangeQuery { agents: agents.clone(), causes: vec![Package], ..one("apt-1") };
    assert_eq!(ids(&store, &query), ["p-4", "p-3", "p-2", "p-1"]);
    let path = PathMatch::Prefix("/usr/".into());
    assert_eq!(ids(&store, &ChangeQuery { path, agents, ..one("apt-1") }), ["p-4", "p-2", "p-1"]);
    assert_eq!(ids(&store, &one("unknown")), [""; 0]);
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!(counts.changes_by_cause, [(Unexplained, 3), (Package, 6), (Deployment, 2)]);
    assert!(counts.events_by_kind.contains(&(EventKind::Modified, 10)), "{counts:?}");
    let policy = Retention { event_bytes_max: 0, ..Retention::default() };
    retain(&store, policy, 100);
    let counts = store.counts(&Reader::server()).unwrap();
    assert_eq!(counts.changes_by_cause, [(Unexplained, 0), (Package, 0), (Deployment, 0)]);
}

#[test]
fn unexplained_changes_are_listed_first_on_stable_pages() {
    let store = open();
    fill(&store);
    let query = ChangeQuery { unexplained_first: true, ..ChangeQuery::default() };
    let unexplained = ["u-2", "planted", "u-1"];
    let explained = ["r-2", "p-4", "q-1", "x-1", "p-3", "r-1", "p-2", "p-1"];
    assert_eq!(ids(&store, &query), [&unexplained[..], &explained].concat());
    let packages = ChangeQuery { causes: vec![CauseKind::Package], ..query.clone() };
    assert_eq!(ids(&store, &packages), ["p-4", "q-1", "x-1", "p-3", "p-2", "p-1"]);
    let first = store.changes(&Reader::server(), &ChangeQuery { limit: 3, ..query.clone() });
    let next = first.unwrap().next;
    apply(&store, session(3, 1, vec![event("late", "/z", ChangeKind::Created, 500)]));
    let rest = ChangeQuery { cursor: next, limit: 100, ..query };
    let rest: Vec<String> = pages(&store, &rest).into_iter().map(|(id, _)| id).collect();
    assert_eq!(rest, explained, "an unexplained change that arrives does not shift a page");
}

#[test]
fn collapsed_list_shows_the_newest_change_of_each_cause() {
    let store = open();
    fill(&store);
    let query = ChangeQuery { collapse: true, ..ChangeQuery::default() };
    let lines = ["r-2", "p-4", "u-2", "q-1", "x-1", "planted", "r-1", "u-1"];
    assert_eq!(ids(&store, &query), lines);
    let collapsed: Vec<_> =
        pages(&store, &query).into_iter().filter_map(|(id, c)| Some((id, c?))).collect();
    assert_eq!(collapsed, [("p-4".into(), Collapsed { changes: 4, packages: 2 })]);
    let sorted = ChangeQuery { unexplained_first: true, ..query };
    let lines = ["u-2", "planted", "u-1", "r-2", "p-4", "q-1", "x-1", "r-1"];
    assert_eq!(ids(&store, &sorted), lines);
}

#[test]
fn collapsed_changes_are_those_that_the_query_selects() {
    let store = open();
    fill(&store);
    let query = ChangeQuery { collapse: true, ..ChangeQuery::default() };
    let path = PathMatch::Prefix("/etc/".into());
    let below = ChangeQuery { path, ..query.clone() };
    assert_eq!(ids(&store, &below), ["r-2", "u-2", "planted", "p-3", "r-1", "u-1"]);
    let past = ChangeQuery { to_us: Some(35), ..query.clone() };
    let lines = pages(&store, &past);
    let two = Some(Collapsed { changes: 2, packages: 2 });
    assert_eq!(lines, [("p-2".into(), two), ("u-1".into(), None)]);
    let exact = ChangeQuery { path: PathMatch::Exact("/usr/b".into()), ..query.clone() };
    assert_eq!(pages(&store, &exact), [("p-2".into(), None)]);
    let many = (0..2_500).map(|n| caused(&n.to_string(), "/opt/a", "apt-3", "big", 100 + n));
    apply(&store, session(1, 100, many.collect()));
    let lines = pages(&store, &ChangeQuery { limit: 2, ..query });
    assert_eq!(lines[0], ("2499".into(), Some(Collapsed { changes: 2_500, packages: 1 })));
    assert_eq!(lines.len(), 9, "one line more than without it");
}
