//! Lists: filters, order, pages, search, and agent 000.

use crate::common::{Fixture, fixture, info};
use model::{AgentId, AgentStatus};
use registry::{
    AgentColumn, AgentCondition, AgentEnrolment, AgentQuery, CompareOp, Life, Permitted, Reader,
    Sort, StatusSummary, WriteContext,
};
use std::sync::Arc;

/// Returns a fleet with 001 active on debian in web and default, 002 disconnected on rocky in web,
/// 003 never connected, 004 pending on debian with a lower version.
fn fleet() -> Fixture {
    let fixture = fixture();
    fixture.registry.create_group(&WriteContext::server(), "web").unwrap();
    let requests = [
        ("alpha", "192.0.2.1", &["web", "default"][..]),
        ("Bravo", "any", &["web"]),
        ("charlie_x", "any", &[]),
        ("delta%", "any", &[]),
    ]
    .map(|(name, ip, groups)| {
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        let name = name.replace('%', "-");
        (None, AgentEnrolment { name, ip: ip.into(), groups, ..AgentEnrolment::default() })
    });
    let ids = fixture.registry.add_agents(&WriteContext::server(), &requests).unwrap();
    fixture.registry.keepalive(ids[0], &info("debian", "Holdfast v0.10.0"));
    fixture.registry.startup(ids[1], &info("rocky", "Holdfast v0.9.1"));
    fixture.registry.goodbye(ids[1]);
    fixture.registry.startup(ids[3], &info("debian", "Holdfast v0.2.0"));
    fixture
}

fn ids(fixture: &Fixture, query: &AgentQuery) -> Vec<u32> {
    let page = fixture.registry.agents(&Reader::server(), query).unwrap();
    let ids: Vec<u32> = page.items.iter().map(|a| a.record.id.0).collect();
    assert_eq!(page.total, ids.len() as u64, "{query:?}");
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    let all: Vec<u32> =
        fixture.registry.agent_ids(&Reader::server(), query).unwrap().iter().map(|a| a.0).collect();
    assert_eq!(all, sorted, "{query:?}");
    ids
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|v| (*v).to_owned()).collect()
}

#[test]
fn silent_agents_are_found_and_counted_within_the_scope() {
    let fixture = fleet();
    let silent = [(AgentId(2), 2_000_000), (AgentId(3), 1_000_000), (AgentId(77), 3)];
    fixture.registry.set_silent(silent.into());
    let query = |silent| AgentQuery { silent: Some(silent), ..AgentQuery::default() };
    assert_eq!(ids(&fixture, &query(true)), [2, 3], "an agent that does not exist is left out");
    assert_eq!(ids(&fixture, &query(false)), [0, 1, 4]);
    let search = AgentQuery { search: Some("-nothing".into()), ..query(true) };
    assert_eq!(ids(&fixture, &search), [2, 3]);
    let only = Permitted::Only(Arc::new(vec![AgentId(1), AgentId(2)]));
    let scoped = AgentQuery { permitted: only.clone(), ..query(true) };
    assert_eq!(ids(&fixture, &scoped), [2]);
    assert_eq!(fixture.registry.silent_agents(&only).count, 1);
    let all = fixture.registry.silent_agents(&Permitted::All);
    assert_eq!((all.count, all.oldest_us), (2, Some(1_000_000)));
    let name = |id| fixture.registry.agent(AgentId(id)).unwrap().name;
    assert_eq!(all.names, [name(3), name(2)], "the longest silence first");
    fixture.registry.remove_agent(&WriteContext::server(), AgentId(3)).unwrap();
    assert_eq!(ids(&fixture, &query(true)), [2]);
    assert_eq!(ids(&fixture, &AgentQuery { ids: Some(vec![]), ..query(true) }), [0_u32; 0]);
}

#[test]
fn server_agent_is_listed_but_not_counted() {
    let fixture = fleet();
    let page = fixture.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    assert_eq!(page.total, 5);
    let server = &page.items[0].record;
    assert_eq!(server.id, AgentId::SERVER);
    assert_eq!(server.status, AgentStatus::Active);
    let last = model::timestamp::seconds_offset(server.keepalive_at_s.unwrap());
    assert_eq!(last, "9999-12-31T23:59:59+00:00");
    assert!(server.os.is_some() && server.version.is_some());
    assert_eq!(fixture.registry.agent(AgentId::SERVER).as_ref(), Some(server));
    let expected = StatusSummary {
        active: 1,
        disconnected: 1,
        never_connected: 1,
        pending: 1,
        total: 4,
        synced: 3,
    };
    assert_eq!(fixture.registry.status_summary().unwrap(), expected);
    let summary = fixture.registry.summary(&Reader::server()).unwrap();
    assert_eq!(summary.status, expected);
    assert_eq!(summary.os, [("debian".to_owned(), 2), ("rocky".to_owned(), 1)]);
    assert_eq!(summary.groups, [("default".to_owned(), 3), ("web".to_owned(), 2)]);
}

#[test]
fn agent_filters_are_case_insensitive() {
    let fixture = fleet();
    let all = AgentQuery::default;
    let status = vec![AgentStatus::Disconnected, AgentStatus::Pending];
    let cases: Vec<(AgentQuery, &[u32])> = vec![
        (AgentQuery { status, ..all() }, &[2, 4]),
        (AgentQuery { ids: Some(vec![AgentId(3), AgentId(9)]), ..all() }, &[3]),
        (AgentQuery { ids: Some(vec![]), ..all() }, &[]),
        (AgentQuery { name: texts(&["BRAVO", "alpha"]), ..all() }, &[1, 2]),
        (AgentQuery { ip: texts(&["192.0.2.9"]), ..all() }, &[1, 2, 4]),
        (AgentQuery { register_ip: texts(&["192.0.2.1"]), ..all() }, &[1]),
        (AgentQuery { group: texts(&["WEB"]), ..all() }, &[1, 2]),
        (AgentQuery { group: texts(&["null"]), ..all() }, &[0]),
        (AgentQuery { os_platform: texts(&["Debian"]), name: texts(&["alpha"]), ..all() }, &[1]),
        (AgentQuery { os_platform: texts(&["null"]), ..all() }, &[3]),
        (AgentQuery { os_name: texts(&["rocky"]), ..all() }, &[2]),
        (AgentQuery { version: texts(&["holdfast v0.9.1"]), ..all() }, &[2]),
        (AgentQuery { search: Some("rav".into()), ..all() }, &[2]),
        (AgentQuery { search: Some("003".into()), ..all() }, &[3]),
        (AgentQuery { search: Some("_x".into()), ..all() }, &[3]),
        (AgentQuery { search: Some("%".into()), ..all() }, &[]),
        (AgentQuery { search: Some("-default".into()), ..all() }, &[0, 2]),
    ];
    for (query, expected) in cases {
        assert_eq!(ids(&fixture, &query), expected, "{query:?}");
    }
}

#[test]
fn conditions_combine_and_compare_versions_by_number() {
    let fixture = fleet();
    let compare =
        |column, op, value: &str| AgentCondition::Compare { column, op, value: value.into() };
    let find = |condition| {
        ids(&fixture, &AgentQuery { condition: Some(condition), ..AgentQuery::default() })
    };
    let newer = compare(AgentColumn::Version, CompareOp::Greater, "v0.9.0");
    let not_server = compare(AgentColumn::Id, CompareOp::Greater, "0");
    assert_eq!(find(AgentCondition::And(vec![newer, not_server.clone()])), [1, 2]);
    let not_web = compare(AgentColumn::Group, CompareOp::NotEqual, "web");
    assert_eq!(find(AgentCondition::And(vec![not_web, not_server.clone()])), [3, 4]);
    let either = AgentCondition::Or(vec![
        compare(AgentColumn::Name, CompareOp::Contains, "LPH"),
        compare(AgentColumn::Status, CompareOp::Equal, "PENDING"),
    ]);
    assert_eq!(find(either), [1, 4]);
    let not_debian = compare(AgentColumn::OsPlatform, CompareOp::NotEqual, "debian");
    assert_eq!(find(AgentCondition::And(vec![not_debian, not_server])), [2], "003 has no platform");
    assert_eq!(find(compare(AgentColumn::Id, CompareOp::Equal, "x")), [0_u32; 0]);
    assert_eq!(find(AgentCondition::Or(vec![])), [0_u32; 0]);
}

#[test]
fn hostile_filter_values_are_treated_as_data() {
    let fixture = fleet();
    for hostile in ["'; DROP TABLE agent; --", "' OR '1'='1", "\\", "%_\\%", "\0", "a\u{202e}b"] {
        let names = AgentQuery { name: texts(&[hostile]), ..AgentQuery::default() };
        assert_eq!(ids(&fixture, &names), [0_u32; 0]);
        let search = AgentQuery { search: Some(hostile.into()), ..AgentQuery::default() };
        assert_eq!(ids(&fixture, &search), [0_u32; 0], "{hostile}");
    }
    assert_eq!(
        fixture.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap().total,
        5
    );
}

#[test]
fn agent_lists_sort_by_requested_columns_then_by_number() {
    let fixture = fleet();
    let sorted = |steps: &[(AgentColumn, bool)]| {
        let sort = steps
            .iter()
            .map(|(column, descending)| Sort { column: *column, descending: *descending });
        ids(
            &fixture,
            &AgentQuery {
                sort: sort.collect(),
                ids: Some((1..=4).map(AgentId).collect()),
                ..AgentQuery::default()
            },
        )
    };
    assert_eq!(sorted(&[]), [1, 2, 3, 4]);
    assert_eq!(sorted(&[(AgentColumn::Id, true)]), [4, 3, 2, 1]);
    assert_eq!(sorted(&[(AgentColumn::Name, false)]), [1, 2, 3, 4], "without case");
    assert_eq!(sorted(&[(AgentColumn::Version, true)]), [1, 2, 4, 3]);
    assert_eq!(
        sorted(&[(AgentColumn::OsPlatform, false), (AgentColumn::Name, true)]),
        [3, 4, 1, 2]
    );
    assert_eq!(sorted(&[(AgentColumn::Group, true)]), [1, 2, 3, 4]);
    assert_eq!(sorted(&[(AgentColumn::Status, false)]), [1, 2, 3, 4]);
}

#[test]
fn agent_pages_cover_the_list_and_report_the_same_total() {
    let fixture = fleet();
    let page = |offset, limit| {
        let query = AgentQuery { offset, limit, ..AgentQuery::default() };
        let page = fixture.registry.agents(&Reader::server(), &query).unwrap();
        (page.items.iter().map(|a| a.record.id.0).collect::<Vec<_>>(), page.total)
    };
    assert_eq!(page(0, 2), (vec![0, 1], 5));
    assert_eq!(page(2, 2), (vec![2, 3], 5));
    assert_eq!(page(4, 2), (vec![4], 5));
    assert_eq!(page(u64::MAX, 2), (vec![], 5));
    assert_eq!(page(0, u64::MAX).0.len(), 5);
}

#[test]
fn agent_without_a_group_falls_back_to_default() {
    let fixture = fleet();
    let names = |id: u32| fixture.registry.agent(AgentId(id)).unwrap().groups;
    assert_eq!(
        fixture
            .registry
            .set_agent_groups(&WriteContext::server(), AgentId(3), &texts(&["web"]))
            .unwrap(),
        ["web"]
    );
    assert_eq!(fixture.registry.delete_group(&WriteContext::server(), "web").unwrap(), 3);
    for id in 1..=4 {
        assert_eq!(names(id), ["default"], "{id}");
    }
    let page = fixture.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    assert!(page.items[1..].iter().all(|a| a.record.groups == ["default"]));
    assert!(fixture.registry.delete_group(&WriteContext::server(), "default").is_err());
    assert!(fixture.registry.delete_group(&WriteContext::server(), "web").is_err());
    assert!(
        fixture
            .registry
            .set_agent_groups(&WriteContext::server(), AgentId(1), &texts(&["web"]))
            .is_err()
    );
    assert!(fixture.registry.set_agent_groups(&WriteContext::server(), AgentId(9), &[]).is_err());
    for bad in ["", ".", "..", "all", "a/b", "a b", &"x".repeat(129)] {
        assert!(fixture.registry.create_group(&WriteContext::server(), bad).is_err(), "{bad}");
    }
    fixture.registry.create_group(&WriteContext::server(), "x1").unwrap();
    assert!(fixture.registry.create_group(&WriteContext::server(), "x1").is_err());
    let groups = fixture.registry.groups(&Reader::server()).unwrap();
    let counts: Vec<_> = groups.iter().map(|g| (g.name.as_str(), g.count)).collect();
    assert_eq!(counts, [("default", 4), ("x1", 0)]);
    let many: Vec<String> = (0..129).map(|n| format!("g{n}")).collect();
    for group in &many {
        fixture.registry.create_group(&WriteContext::server(), group).unwrap();
    }
    assert!(fixture.registry.set_agent_groups(&WriteContext::server(), AgentId(1), &many).is_err());
    assert_eq!(names(1), ["default"], "nothing was changed");
}

/// Searches whose results from memory and from the database must be equal.
const SEARCHES: [&str; 35] = [
    "",
    "-",
    "a",
    "-a",
    "DEBIAN",
    "002",
    "-002",
    "192.0.2.9",
    "any",
    "active",
    "-active",
    "never_",
    "holdfast v0.1",
    "_",
    "%",
    "web",
    "-web",
    "LINUX",
    "x86",
    "12",
    "nowhere",
    "-nowhere",
    "\0",
    "-\0",
    "a\0",
    "default",
    "host",
    "synced",
    "-not s",
    "2026-",
    "-t1",
    ":00+00:00",
    "9999-12-31",
    "fa",
    "0",
];

#[test]
fn memory_search_equals_database_search() {
    use registry::{ControlStore, Permitted};
    let fixture = fleet();
    fixture.registry.flush().unwrap();
    let store = ControlStore::open(&fixture.folder.path().join("registry.db")).unwrap();
    let some = Permitted::Except(vec![AgentId(1)].into());
    for text in SEARCHES {
        for permitted in [Permitted::All, some.clone()] {
            for (status, named, descending) in [
                (vec![], None, false),
                (vec![], None, true),
                (vec![AgentStatus::Active], None, false),
                (vec![], Some(vec![AgentId(4), AgentId(2)]), false),
            ] {
                let query = AgentQuery {
                    search: Some(text.into()),
                    permitted: permitted.clone(),
                    status,
                    ids: named,
                    sort: vec![Sort { column: AgentColumn::Id, descending }],
                    offset: 1,
                    limit: 2,
                    ..AgentQuery::default()
                };
                let stored = store.agents(&Reader::server(), &query, 0).unwrap();
                let listed = fixture.registry.agents(&Reader::server(), &query).unwrap();
                assert_eq!((listed.items, listed.total), (stored.items, stored.total), "{query:?}");
                let ids = fixture.registry.agent_ids(&Reader::server(), &query).unwrap();
                assert_eq!(
                    ids,
                    store.agent_ids(&Reader::server(), &query, 0).unwrap(),
                    "{query:?}"
                );
            }
        }
    }
    let query = AgentQuery { search: Some("e".into()), ..AgentQuery::default() };
    assert!(
        fixture.registry.distinct(&Reader::server(), &query, &[AgentColumn::Name]).unwrap().total
            > 1
    );
    // A search finds a changed value at once.
    let moved = AgentQuery { search: Some("fedora".into()), ..AgentQuery::default() };
    assert_eq!(fixture.registry.agents(&Reader::server(), &moved).unwrap().total, 0);
    fixture.registry.keepalive(AgentId(3), &info("fedora", "Holdfast v0.1.0"));
    assert_eq!(fixture.registry.agents(&Reader::server(), &moved).unwrap().total, 1);
    let life = fixture.registry.agent(AgentId(3)).unwrap().incarnation;
    fixture
        .registry
        .remove_agents(&WriteContext::server(), &[Life { agent: AgentId(3), incarnation: life }])
        .unwrap();
    assert_eq!(fixture.registry.agents(&Reader::server(), &moved).unwrap().total, 0);
}

#[test]
fn agent_ids_by_status_equal_those_of_the_database() {
    use registry::{ControlStore, Permitted};
    let fixture = fleet();
    fixture.registry.flush().unwrap();
    let store = ControlStore::open(&fixture.folder.path().join("registry.db")).unwrap();
    for permitted in [
        Permitted::All,
        Permitted::Only(vec![AgentId(0), AgentId(2), AgentId(77)].into()),
        Permitted::Except(vec![AgentId(0), AgentId(4)].into()),
    ] {
        for status in [vec![], vec![AgentStatus::Active], AgentStatus::ALL.to_vec()] {
            let query =
                AgentQuery { permitted: permitted.clone(), status, ..AgentQuery::default() };
            let ids = fixture.registry.agent_ids(&Reader::server(), &query).unwrap();
            assert_eq!(ids, store.agent_ids(&Reader::server(), &query, 0).unwrap(), "{query:?}");
            let page = AgentQuery { offset: 1, limit: 1, ..query };
            let (some, total) = fixture.registry.agent_ids_page(&Reader::server(), &page).unwrap();
            assert_eq!(total, ids.len() as u64);
            assert_eq!(some, ids.get(1..2).unwrap_or_default());
        }
    }
}
