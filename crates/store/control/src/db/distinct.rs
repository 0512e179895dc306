//! The distinct values of columns over the agents that match.

use std::fmt::Write as _;

use rusqlite::{Connection, params_from_iter};

use super::columns::{Form, GROUPS, form};
use super::list::Where;
use super::{ControlStore, rows};
use crate::limits::PAGE_ROWS_MAX;
use crate::{AgentColumn, AgentQuery, ControlResult, DistinctPage};
use sqlite::Reader;

impl ControlStore {
    /// Returns the distinct values of columns over the agents that match, each with the number of
    /// agents. Sort steps by other columns are ignored.
    pub fn distinct(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        columns: &[AgentColumn],
        now_s: i64,
    ) -> ControlResult<DistinctPage> {
        self.read(reader, |tx| distinct(tx, query, columns, now_s))
    }
}

/// Returns the distinct values of `columns` with the number of agents that have them.
pub(super) fn distinct(
    tx: &Connection,
    query: &AgentQuery,
    columns: &[AgentColumn],
    now_s: i64,
) -> ControlResult<DistinctPage> {
    let filter = Where::of(query, now_s);
    let keys: Vec<&str> = columns.iter().map(|column| value_sql(*column)).collect();
    let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
    let by = places.join(", ");
    let mut order = String::new();
    for step in &query.sort {
        if let Some(place) = columns.iter().position(|column| *column == step.column) {
            let direction = if step.descending { "DESC" } else { "ASC" };
            // Writing to a String cannot fail.
            let _ = write!(order, "{} {direction}, ", place + 1);
        }
    }
    if order.is_empty() {
        let _ = write!(order, "{} DESC, ", keys.len() + 1);
    }
    let grouped = format!(
        "SELECT {}, count(*) FROM agent a{} GROUP BY {by} ORDER BY {order}{by}",
        keys.join(", "),
        filter.clause()
    );
    let mut page = DistinctPage::default();
    let mut statement = tx.prepare_cached(&grouped)?;
    let mut found = statement.query(params_from_iter(&filter.values))?;
    let end = query.offset.saturating_add(query.limit.min(PAGE_ROWS_MAX));
    while let Some(row) = found.next()? {
        if (query.offset..end).contains(&page.total) {
            let values = (0..keys.len())
                .map(|at| row.get::<_, Option<String>>(at))
                .collect::<Result<_, _>>()?;
            page.items.push((values, rows::unsigned(row, keys.len())?));
        }
        page.total += 1;
    }
    Ok(page)
}

/// Returns the SQL expression of a column's value as text.
fn value_sql(column: AgentColumn) -> &'static str {
    match form(column) {
        Form::Text(sql) | Form::Version(sql, _) => sql,
        Form::Number("a.id") => "printf('%03d', a.id)",
        Form::Date("a.added_at_s") => "CAST(a.added_at_s AS TEXT)",
        Form::Date("a.keepalive_at_s") => "CAST(a.keepalive_at_s AS TEXT)",
        Form::Date("a.disconnected_at_s") => "CAST(a.disconnected_at_s AS TEXT)",
        Form::Number("a.status_code") => "CAST(a.status_code AS TEXT)",
        Form::Number(_) | Form::Date(_) => "NULL",
        Form::Status => "a.status",
        Form::Config => "CASE a.config_synced WHEN 1 THEN 'synced' ELSE 'not synced' END",
        Form::Group => GROUPS,
    }
}
