//! The plans of lists and counters: what may scan the fleet and what may not.

use std::cell::RefCell;

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::*;
use crate::registry::sqlite::{SqliteRegistry, agents, commands, counters};

fn plan(conn: &Connection, sql: &str, values: &[Bound]) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map(params_from_iter(values), |r| r.get(3)).unwrap();
    steps.collect::<Result<_, _>>().unwrap()
}

fn page_plan(query: &AgentQuery) -> Vec<String> {
    let folder = tempfile::TempDir::new().unwrap();
    let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
    let conn = store.writer.lock();
    let mut filter = Where::of(query, 0);
    let sql = page_sql(&filter, query);
    filter.values.push(Bound::One(Value::Integer(500)));
    filter.values.push(Bound::One(Value::Integer(0)));
    plan(&conn, &sql, &filter.values)
}

fn scans_the_fleet(plan: &[String]) -> bool {
    plan.iter().any(|step| step.starts_with("SCAN a"))
}

fn sorts(plan: &[String]) -> bool {
    plan.iter().any(|step| step.contains("TEMP B-TREE FOR ORDER BY"))
}

#[test]
fn the_plain_list_walks_the_table_in_its_order_and_stops_at_the_limit() {
    let plan = page_plan(&AgentQuery::default());
    assert_eq!(plan[0], "SCAN a", "{plan:?}");
    assert!(!sorts(&plan), "{plan:?}");
}

#[test]
fn filters_by_status_name_platform_version_group_and_number_use_an_index() {
    let text = || vec!["x".to_owned()];
    let all = AgentQuery::default;
    for query in [
        AgentQuery { status: vec![AgentStatus::Active], ..all() },
        AgentQuery { name: text(), ..all() },
        AgentQuery { os_platform: text(), ..all() },
        AgentQuery { version: text(), ..all() },
        AgentQuery { group: text(), ..all() },
        AgentQuery { ids: Some(vec![AgentId(1)]), ..all() },
    ] {
        let plan = page_plan(&query);
        assert!(!scans_the_fleet(&plan), "{query:?}: {plan:?}");
    }
    let active = AgentQuery { status: vec![AgentStatus::Active], ..all() };
    assert!(!sorts(&page_plan(&active)), "the index gives the numbers in order");
}

#[test]
fn a_list_by_number_backwards_needs_no_sort() {
    let sort = vec![Sort { column: AgentColumn::Id, descending: true }];
    assert!(!sorts(&page_plan(&AgentQuery { sort, ..AgentQuery::default() })));
}

#[test]
fn all_numbers_come_from_one_index_and_no_other_column_is_read() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
    let conn = store.writer.lock();
    let active = AgentQuery { status: vec![AgentStatus::Active], ..AgentQuery::default() };
    for query in [AgentQuery::default(), active] {
        let filter = Where::of(&query, 0);
        let steps = plan(&conn, &ids_sql(&filter), &filter.values);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(steps[0].contains("USING COVERING INDEX"), "{steps:?}");
    }
}

#[test]
fn sorts_by_name_version_status_and_number_are_read_from_an_index() {
    for column in [AgentColumn::Name, AgentColumn::Version, AgentColumn::Status, AgentColumn::Id] {
        let sort = vec![Sort { column, descending: false }];
        let plan = page_plan(&AgentQuery { sort, ..AgentQuery::default() });
        assert!(!sorts(&plan), "{column:?}: {plan:?}");
    }
}

thread_local! {
    static RAN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note(event: &TraceEvent<'_>) {
    if let TraceEvent::Stmt(_, sql) = event {
        RAN.with_borrow_mut(|ran| ran.push((*sql).to_owned()));
    }
}

/// The statements that `work` really runs, each with its plan.
fn ran(work: impl FnOnce(&Transaction<'_>)) -> Vec<(String, Vec<String>)> {
    let folder = tempfile::TempDir::new().unwrap();
    let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
    let mut conn = store.readers[0].lock();
    let note = |event: TraceEvent<'_>| note(&event);
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note)).unwrap();
    RAN.take();
    let tx = conn.transaction().unwrap();
    work(&tx);
    drop(tx);
    conn.trace_v2(TraceEventCodes::empty(), None::<fn(TraceEvent<'_>)>).unwrap();
    let reads = RAN.take().into_iter().filter(|sql| sql.starts_with("SELECT"));
    reads.map(|sql| (sql.clone(), plan_of_any(&conn, &sql))).collect()
}

/// The plan whatever the values are.
fn plan_of_any(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    statement.raw_query().mapped(|r| r.get(3)).collect::<Result<_, _>>().unwrap()
}

/// Steps that look at every row of a table that grows with the fleet, or sort its rows.
fn grows(plan: &[String]) -> bool {
    let big = ["agent", "a", "membership", "m", "command_outcome", "o", "certificate", "audit"];
    plan.iter().any(|step| {
        let table = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
        table.is_some_and(|table| big.contains(&table))
    })
}

#[test]
fn no_counter_looks_at_every_agent() {
    let statements = ran(|tx| {
        status_summary(tx).unwrap();
        counters::summary(tx).unwrap();
        counters::overview(tx).unwrap();
        agents::last(tx).unwrap();
    });
    assert!(statements.len() >= 8, "{statements:#?}");
    for (sql, plan) in statements {
        assert!(!grows(&plan), "{sql}: {plan:?}");
        // What is sorted is a handful of counters.
        let sorted = sorts(&plan) && !sql.contains("FROM counter");
        assert!(!sorted, "{sql}: {plan:?}");
    }
}

#[test]
fn the_status_is_counted_by_one_statement_on_one_key() {
    let statements = ran(|tx| {
        status_summary(tx).unwrap();
    });
    assert_eq!(statements.len(), 1, "{statements:#?}");
    let (_, plan) = &statements[0];
    assert!(plan[0].starts_with("SEARCH counter USING PRIMARY KEY (kind=?)"), "{plan:?}");
}

#[test]
fn a_page_of_commands_or_of_outcomes_is_read_in_the_order_of_its_key() {
    let statements = ran(|tx| {
        commands::newest(tx, 10).unwrap();
        commands::one(tx, 1).unwrap();
        commands::outcomes(tx, 1, None, Some(AgentId(7)), 10).unwrap();
        commands::outstanding(tx).unwrap();
    });
    assert_eq!(statements.len(), 4, "{statements:#?}");
    for (sql, plan) in statements {
        assert!(!grows(&plan) && !sorts(&plan), "{sql}: {plan:?}");
    }
}

#[test]
fn the_total_of_a_plain_list_is_not_counted() {
    let status = vec![AgentStatus::Active];
    for query in [AgentQuery::default(), AgentQuery { status, ..AgentQuery::default() }] {
        let statements = ran(|tx| drop(page(tx, &AgentQuery { limit: 1, ..query }, 0).unwrap()));
        let counts = statements.iter().filter(|(sql, _)| sql.contains("count(*)"));
        assert_eq!(counts.count(), 0, "{statements:#?}");
    }
}

#[test]
fn the_signs_of_a_pattern_are_only_signs() {
    assert_eq!(pattern("a%b_c\\d"), "%a\\%b\\_c\\\\d%");
}
