//! Query plans of lists and counters: which of them may scan the fleet.

use std::sync::mpsc;

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::*;
use crate::db::distinct::distinct;
use crate::db::{agents, audit, commands, counters, users};
use crate::{
    CommandKind, ControlStore, NewCommand, OutcomeFilter, OutcomeRow, OutcomeState, WriteContext,
};
use sqlite::Reader;

fn plan(conn: &Connection, sql: &str, values: &[Bound]) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map(params_from_iter(values), |r| r.get(3)).unwrap();
    steps.collect::<Result<_, _>>().unwrap()
}

fn page_plan(query: &AgentQuery) -> Vec<String> {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let conn = &store.writer.lock().conn;
    let mut filter = Where::of(query, 0);
    let sql = page_sql(&filter, query);
    filter.values.push(Bound::One(Value::Integer(500)));
    filter.values.push(Bound::One(Value::Integer(0)));
    plan(conn, &sql, &filter.values)
}

fn scans_the_fleet(plan: &[String]) -> bool {
    plan.iter().any(|step| step.starts_with("SCAN a"))
}

fn sorts(plan: &[String]) -> bool {
    plan.iter().any(|step| step.contains("TEMP B-TREE FOR ORDER BY"))
}

#[test]
fn plain_list_scans_the_table_in_order_and_stops_at_the_limit() {
    let plan = page_plan(&AgentQuery::default());
    assert_eq!(plan[0], "SCAN a", "{plan:?}");
    assert!(!sorts(&plan), "{plan:?}");
}

#[test]
fn agent_list_filters_use_an_index() {
    let text = || vec!["x".to_owned()];
    let all = AgentQuery::default;
    for query in [
        AgentQuery { status: vec![AgentStatus::Active], ..all() },
        AgentQuery { name: text(), ..all() },
        AgentQuery { os_platform: text(), ..all() },
        AgentQuery { version: text(), ..all() },
        AgentQuery { ip: text(), ..all() },
        AgentQuery { register_ip: text(), ..all() },
        AgentQuery { os_name: text(), ..all() },
        AgentQuery { os_version: text(), ..all() },
        AgentQuery { group: text(), ..all() },
        AgentQuery { ids: Some(vec![AgentId(1)]), ..all() },
        AgentQuery {
            condition: Some(AgentCondition::any_of(AgentColumn::ConfigStatus, ["not synced"])),
            ..all()
        },
    ] {
        let plan = page_plan(&query);
        assert!(!scans_the_fleet(&plan), "{query:?}: {plan:?}");
    }
    let active = AgentQuery { status: vec![AgentStatus::Active], ..all() };
    assert!(!sorts(&page_plan(&active)), "the index gives the numbers in order");
}

#[test]
fn descending_number_list_needs_no_sort() {
    let sort = vec![Sort { column: AgentColumn::Id, descending: true }];
    assert!(!sorts(&page_plan(&AgentQuery { sort, ..AgentQuery::default() })));
}

#[test]
fn agent_ids_are_read_from_one_covering_index() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let conn = &store.writer.lock().conn;
    let active = AgentQuery { status: vec![AgentStatus::Active], ..AgentQuery::default() };
    for query in [AgentQuery::default(), active] {
        let filter = Where::of(&query, 0);
        let steps = plan(conn, &ids_sql(&filter), &filter.values);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(steps[0].contains("USING COVERING INDEX"), "{steps:?}");
    }
}

#[test]
fn sort_by_indexed_column_reads_the_index_in_order() {
    for column in [
        AgentColumn::Name,
        AgentColumn::Ip,
        AgentColumn::RegisterIp,
        AgentColumn::Version,
        AgentColumn::OsName,
        AgentColumn::OsPlatform,
        AgentColumn::OsVersion,
        AgentColumn::Status,
        AgentColumn::Id,
    ] {
        let sort = vec![Sort { column, descending: false }];
        let plan = page_plan(&AgentQuery { sort, ..AgentQuery::default() });
        assert!(!sorts(&plan), "{column:?}: {plan:?}");
    }
}

/// Returns the statements that `work` runs, each with its plan.
fn ran(work: impl FnOnce(&Connection)) -> Vec<(String, Vec<String>)> {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    ran_on(&store, work)
}

fn ran_on(store: &ControlStore, work: impl FnOnce(&Connection)) -> Vec<(String, Vec<String>)> {
    let query = |conn: &mut Connection| {
        let (note, ran) = mpsc::channel();
        let note = move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(_, sql) = event {
                note.send(sql.to_owned()).unwrap();
            }
        };
        conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note)).unwrap();
        let tx = conn.transaction().unwrap();
        work(&tx);
        drop(tx);
        conn.trace_v2(TraceEventCodes::empty(), None::<fn(TraceEvent<'_>)>).unwrap();
        let reads = ran.try_iter().filter(|sql| sql.starts_with("SELECT"));
        reads.map(|sql| (sql.clone(), plan_of_any(conn, &sql))).collect()
    };
    store.readers.read(&Reader::server(), query).unwrap()
}

/// Returns the plan that holds for all values.
fn plan_of_any(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    statement.raw_query().mapped(|r| r.get(3)).collect::<Result<_, _>>().unwrap()
}

/// Returns true if the plan reads every row of a table that grows with the fleet, or sorts its
/// rows.
fn grows(plan: &[String]) -> bool {
    let big = ["agent", "a", "membership", "m", "command_outcome", "o", "certificate", "audit"];
    plan.iter().any(|step| {
        let table = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
        table.is_some_and(|table| big.contains(&table))
    })
}

#[test]
fn fleet_counters_do_not_scan_agents() {
    let statements = ran(|tx| {
        status_summary(tx).unwrap();
        counters::summary(tx).unwrap();
        counters::overview(tx).unwrap();
        agents::last(tx).unwrap();
    });
    assert!(statements.len() >= 8, "{statements:#?}");
    for (sql, plan) in statements {
        // The newest agent is the first row of an index.
        let newest = plan[0] == "SCAN a USING INDEX agent_by_added" && sql.ends_with("LIMIT 1");
        assert!(newest || !grows(&plan), "{sql}: {plan:?}");
        // Only a few counters are sorted.
        let sorted = sorts(&plan) && !sql.contains("FROM counter");
        assert!(!sorted, "{sql}: {plan:?}");
    }
}

#[test]
fn status_summary_is_one_primary_key_search() {
    let statements = ran(|tx| {
        status_summary(tx).unwrap();
    });
    assert_eq!(statements.len(), 1, "{statements:#?}");
    let (_, plan) = &statements[0];
    assert!(plan[0].starts_with("SEARCH counter USING PRIMARY KEY (kind=?)"), "{plan:?}");
}

#[test]
fn page_of_commands_or_outcomes_is_read_in_key_order() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let new = NewCommand {
        kind: CommandKind::Restart,
        agents: (1..=2_000).map(AgentId).collect(),
        user: "admin".into(),
        now_s: 0,
        expires_at_s: 60,
    };
    store.create_command(&WriteContext::server(), &new).unwrap();
    let (some, page) = (Permitted::Only(vec![AgentId(8)].into()), OutcomeFilter::default());
    let after = OutcomeFilter { after: Some(AgentId(7)), limit: 10, ..page };
    let statements = ran_on(&store, |tx| {
        commands::newest(tx, 10, &some).unwrap();
        let (_, outcomes) = commands::one(tx, 1, &Permitted::All, after).unwrap().unwrap();
        assert_eq!(outcomes.len(), 10);
        commands::outstanding(tx).unwrap();
    });
    assert!(statements.len() > 6, "{statements:#?}");
    for (sql, plan) in statements {
        assert!(!grows(&plan) && !sorts(&plan), "{sql}: {plan:?}");
    }
}

/// Other agents' commands are skipped by their sets, without a lookup of their outcomes.
#[test]
fn other_agents_commands_cost_scoped_callers_no_outcome_lookup() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let order = |agents: std::ops::RangeInclusive<u32>| {
        let new = NewCommand {
            kind: CommandKind::Restart,
            agents: agents.map(AgentId).collect(),
            user: "admin".into(),
            now_s: 0,
            expires_at_s: 60,
        };
        store.create_command(&WriteContext::server(), &new).unwrap()
    };
    let outcome = |command, agent| OutcomeRow {
        command,
        agent: AgentId(agent),
        state: OutcomeState::Failed,
        detail: String::new(),
        at_s: 1,
    };
    let (own, both) = (order(1..=3), order(3..=6));
    let others: Vec<u64> = (0..20).map(|_| order(5..=9)).collect();
    let rows = [outcome(own, 1), outcome(both, 3), outcome(both, 6), outcome(others[0], 5)];
    store.save_outcomes(&rows).unwrap();
    let counted = |scope: &Permitted| {
        let mut seen = Vec::new();
        let statements = ran_on(&store, |tx| {
            for row in commands::newest(tx, 500, scope).unwrap() {
                seen.push((row.id, row.counts.pending, row.counts.failed, row.counts.total));
            }
        });
        let looks = statements.iter().filter(|(sql, _)| sql.contains("FROM command_outcome"));
        (seen, looks.count())
    };
    let ids = |list: &[u32]| std::sync::Arc::new(list.iter().copied().map(AgentId).collect());
    let only = counted(&Permitted::Only(ids(&[1, 2, 3])));
    assert_eq!(only, (vec![(both, 0, 1, 1), (own, 2, 1, 3)], 1), "all of its own need no look");
    let (except, looks) = counted(&Permitted::Except(ids(&[3])));
    assert_eq!((looks, except[19]), (2, (others[0], 4, 1, 5)));
    assert_eq!(except[20..], [(both, 2, 1, 3), (own, 1, 1, 2)]);
}

#[test]
fn rivals_are_looked_up_by_index() {
    let statements = ran(|tx| {
        agents::rivals(tx, "web", Some(AgentId(7)), Some("192.0.2.7")).unwrap();
    });
    assert!(!grows(&statements[0].1), "{statements:#?}");
}

#[test]
fn counting_an_indexed_filter_reads_matching_rows_only() {
    let text = || vec!["x".to_owned()];
    let all = AgentQuery::default;
    let some = || Permitted::Only(vec![AgentId(3), AgentId(9)].into());
    for query in [
        AgentQuery { name: text(), ..all() },
        AgentQuery { ip: text(), ..all() },
        AgentQuery { register_ip: text(), ..all() },
        AgentQuery { os_platform: text(), ..all() },
        AgentQuery { os_name: text(), ..all() },
        AgentQuery { os_version: text(), ..all() },
        AgentQuery { version: text(), ..all() },
        AgentQuery { group: text(), ..all() },
        AgentQuery { ids: Some(vec![AgentId(1)]), ..all() },
        AgentQuery { permitted: some(), ..all() },
        AgentQuery { permitted: some(), os_platform: text(), ..all() },
        AgentQuery { permitted: some(), status: vec![AgentStatus::Active], ..all() },
    ] {
        let statements = ran(|tx| {
            page(tx, &AgentQuery { limit: 1, ..query.clone() }, 0).unwrap();
            ids(tx, &query, 0).unwrap();
        });
        assert!(statements.iter().any(|(sql, _)| sql.contains("count(*)")), "{query:?}");
        for (sql, plan) in statements {
            assert!(!grows(&plan), "{query:?}: {sql}: {plan:?}");
        }
    }
}

#[test]
fn group_user_and_key_queries_do_not_grow_with_the_fleet() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let statements = ran_on(&store, |tx| {
        groups::all(tx).unwrap();
        groups::names(tx).unwrap();
        audit::page(tx, Some(100), 10).unwrap();
        users::all(tx).unwrap();
        users::roles(tx).unwrap();
        users::policies(tx, &[1, 2]).unwrap();
        users::revocations(tx).unwrap();
        agents::client_key(tx, AgentId(1)).unwrap_err();
        agents::last_scan(tx, AgentId(1)).unwrap_err();
    });
    assert!(statements.len() >= 9, "{statements:#?}");
    for (sql, plan) in statements {
        assert!(!grows(&plan), "{sql}: {plan:?}");
    }
}

#[test]
fn counters_do_not_wait_while_a_reader_is_free() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open_with(&folder.path().join("registry.db"), 2).unwrap();
    let counters = |_: &mut Connection| {
        for _ in 0..10 {
            store.status_summary(&Reader::server()).unwrap();
        }
    };
    store.readers.read(&Reader::server(), counters).unwrap();
}

#[test]
fn identity_and_access_reads_do_not_wait_for_list_readers() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open_with(&folder.path().join("registry.db"), 2).unwrap();
    let roles = [store.roles(&Reader::server()).unwrap()[0].id];
    store.create_user(&WriteContext::server(), "joe", "hash", false, &roles).unwrap();
    let id = store.user(&Reader::server(), "joe").unwrap().unwrap().id;
    let keyed = |_: &mut Connection| {
        assert!(store.user(&Reader::server(), "joe").unwrap().is_some());
        assert!(store.access(&Reader::server(), id, &roles, &["rbac_mode"]).unwrap().is_some());
        store.policies(&Reader::server(), &roles).unwrap();
        store.setting(&Reader::server(), "rbac_mode").unwrap();
        store.revocations().unwrap();
    };
    let both = |_: &mut Connection| store.readers.read(&Reader::server(), keyed).unwrap();
    store.readers.read(&Reader::server(), both).unwrap();
}

#[test]
fn authorisation_is_one_indexed_statement() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    store.create_user(&WriteContext::server(), "admin", "hash", true, &[1]).unwrap();
    store.set_setting("mode", "black").unwrap();
    let reader = Reader::server();
    let rows = store.access(&reader, 1, &[2, 1], &["mode", "gone"]).unwrap().unwrap();
    assert_eq!(reader.cost().queries, 1);
    assert_eq!(rows.user, store.user_by_id(&Reader::server(), 1).unwrap().unwrap());
    assert_eq!(rows.policies, store.policies(&Reader::server(), &[2, 1]).unwrap());
    assert_eq!(rows.settings, [("mode".to_owned(), "black".to_owned())].into());
    assert_eq!(store.access(&Reader::server(), 7, &[1], &[]).unwrap(), None);
}

#[test]
fn plain_list_total_comes_from_stored_counters() {
    let status = vec![AgentStatus::Active];
    for query in [AgentQuery::default(), AgentQuery { status, ..AgentQuery::default() }] {
        let statements = ran(|tx| drop(page(tx, &AgentQuery { limit: 1, ..query }, 0).unwrap()));
        let counts = statements.iter().filter(|(sql, _)| sql.contains("count(*)"));
        assert_eq!(counts.count(), 0, "{statements:#?}");
    }
}

#[test]
fn like_pattern_escapes_special_characters() {
    assert_eq!(pattern("a%b_c\\d"), "%a\\%b\\_c\\\\d%");
}

/// Only these queries, which have no index, read every agent.
#[test]
fn only_listed_queries_scan_the_fleet() {
    use AgentColumn as C;
    use CompareOp::{Contains, Equal, Greater, Less, NotEqual};
    let is = |column, op, value: &str| AgentCondition::Compare { column, op, value: value.into() };
    let asked = |condition| AgentQuery { condition: Some(condition), ..AgentQuery::default() };
    let lone = AgentCondition::And(vec![is(C::Id, Greater, "0"), AgentCondition::IsNull(C::Group)]);
    let either = |a, b| AgentCondition::Or(vec![is(a, Equal, "x"), is(b, Equal, "x")]);
    let scans = |query: &AgentQuery| scans_the_fleet(&page_plan(query));
    for (name, query) in [
        ("q: name =", asked(is(C::Name, Equal, "x"))),
        ("q: group ~", asked(is(C::Group, Contains, "x"))),
    ] {
        assert!(!scans(&query), "{name}: {:?}", page_plan(&query));
    }
    for (name, query) in [
        ("q: os.platform = or name =", asked(either(C::OsPlatform, C::Name))),
        ("q: group = or name =", asked(either(C::Group, C::Name))),
        ("q: dateAdd <", asked(is(C::DateAdd, Less, "7"))),
        ("q: version <", asked(is(C::Version, Less, "v0.9.1"))),
        ("q: version >", asked(is(C::Version, Greater, "v0.9.1"))),
        ("outdated", asked(is(C::Version, Less, "v1"))),
        ("q: name !=", asked(is(C::Name, NotEqual, "x"))),
        ("q: name ~", asked(is(C::Name, Contains, "x"))),
        ("q: os.arch =", asked(is(C::OsArch, Equal, "x"))),
        ("q: lastKeepAlive <", asked(is(C::LastKeepAlive, Less, "7"))),
        ("q: os.arch = or name =", asked(either(C::OsArch, C::Name))),
        ("older_than", AgentQuery { older_than_s: Some(60), ..AgentQuery::default() }),
    ] {
        assert!(scans(&query), "{name} has an index now, update the list: {:?}", page_plan(&query));
    }
    // The filter matches every agent but the server; each agent needs one lookup in an index.
    let plan = page_plan(&asked(lone));
    assert!(plan[0].contains("USING INTEGER PRIMARY KEY (rowid>?)"), "{plan:?}");
    assert!(plan.iter().any(|step| step.starts_with("SEARCH m USING")), "{plan:?}");
    for (column, sorted) in [
        (C::DateAdd, false),
        (C::LastKeepAlive, true),
        (C::DisconnectionTime, true),
        (C::Group, true),
        (C::OsArch, true),
        (C::OsUname, true),
        (C::OsCodename, true),
        (C::OsMajor, true),
        (C::StatusCode, true),
        (C::ConfigSum, true),
        (C::ConfigStatus, false),
    ] {
        for descending in [false, true] {
            let sort = vec![Sort { column, descending }];
            let plan = page_plan(&AgentQuery { sort, ..AgentQuery::default() });
            assert_eq!(sorts(&plan), sorted, "{column:?}: {plan:?}");
        }
    }
}

#[test]
fn distinct_values_of_indexed_column_are_read_from_the_index() {
    use AgentColumn as C;
    let plan_of = |columns: &[C]| {
        let statements = ran(|tx| drop(distinct(tx, &AgentQuery::default(), columns, 0).unwrap()));
        statements.into_iter().flat_map(|(_, plan)| plan).collect::<Vec<_>>()
    };
    for column in [C::OsPlatform, C::Version, C::OsName, C::OsVersion, C::Status, C::Name] {
        let plan = plan_of(&[column]);
        assert!(
            plan.iter().any(|step| step.contains("USING COVERING INDEX")),
            "{column:?}: {plan:?}"
        );
    }
    // Every agent is read once; the sort covers one row for each distinct value.
    for columns in [&[C::OsPlatform, C::Version][..], &[C::OsArch], &[C::Group], &[C::ConfigStatus]]
    {
        let plan = plan_of(columns);
        assert!(scans_the_fleet(&plan), "{columns:?} have an index now, update the list: {plan:?}");
    }
}
