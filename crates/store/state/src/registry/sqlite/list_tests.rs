//! The plans of lists and counters: what may scan the fleet and what may not.

use rusqlite::Connection;

use super::*;
use crate::registry::sqlite::SqliteRegistry;

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

#[test]
fn counters_are_read_by_key_and_never_counted() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
    let conn = store.writer.lock();
    let steps = plan(
        &conn,
        "SELECT value, n FROM counter WHERE kind = ?1 ORDER BY n DESC, value",
        &[Bound::One(Value::Text("status".into()))],
    );
    assert!(steps[0].starts_with("SEARCH counter USING PRIMARY KEY"), "{steps:?}");
    let steps = plan(&conn, "SELECT name, agents, config_sum FROM agent_group ORDER BY name", &[]);
    assert!(steps.iter().all(|s| !s.contains("membership") && !s.contains("agent a")));
}

#[test]
fn the_signs_of_a_pattern_are_only_signs() {
    assert_eq!(pattern("a%b_c\\d"), "%a\\%b\\_c\\\\d%");
}
