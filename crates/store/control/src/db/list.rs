//! Lists of agents and the stored counters. A query becomes SQL from whitelisted pieces; every
//! value is a bound parameter.

use std::rc::Rc;

use model::{AgentId, AgentStatus};
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, params_from_iter};

use super::columns::{Form, GROUPS, PRINTED_DATE, form};
use super::counters::status_summary;
use super::rows::{self, AGENT_COLUMNS, version_key};
use super::users::array;
use super::{ControlStore, groups};
use crate::limits::PAGE_ROWS_MAX;
use crate::{
    AgentColumn, AgentCondition, AgentPage, AgentQuery, CompareOp, ControlResult, Permitted, Sort,
};
use sqlite::Reader;

impl ControlStore {
    /// Returns one page of agents and the number of all that match.
    pub fn agents(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        now_s: i64,
    ) -> ControlResult<AgentPage> {
        self.read(reader, |tx| page(tx, query, now_s))
    }

    /// Returns the numbers of all agents that match, ascending, without paging.
    pub fn agent_ids(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        now_s: i64,
    ) -> ControlResult<Vec<AgentId>> {
        self.read(reader, |tx| ids(tx, query, now_s))
    }
}

/// SQL under construction with its values.
#[derive(Default)]
pub(super) struct Where {
    sql: String,
    pub(super) values: Vec<Bound>,
}

pub(super) enum Bound {
    One(Value),
    Many(Rc<Vec<Value>>),
}

impl ToSql for Bound {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::One(value) => value.to_sql(),
            Self::Many(values) => values.to_sql(),
        }
    }
}

const IN_GROUP: &str = "a.id IN (SELECT m.agent FROM agent_group g CROSS JOIN membership m \
     ON m.grp = g.id WHERE g.name ";

impl Where {
    fn push(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    fn bind(&mut self, value: Value) {
        self.values.push(Bound::One(value));
        self.push("?");
    }

    fn text(&mut self, text: &str) {
        self.bind(Value::Text(text.to_owned()));
    }

    fn and(&mut self) {
        self.push(if self.sql.is_empty() { "" } else { " AND " });
    }

    fn join(&mut self, parts: &[AgentCondition], word: &str, empty: &str) {
        if parts.is_empty() {
            return self.push(empty);
        }
        for (n, part) in parts.iter().enumerate() {
            self.push(if n == 0 { "(" } else { word });
            self.condition(part);
        }
        self.push(")");
    }

    fn condition(&mut self, condition: &AgentCondition) {
        match condition {
            AgentCondition::And(parts) => self.join(parts, " AND ", "1"),
            AgentCondition::Or(parts) => self.join(parts, " OR ", "0"),
            AgentCondition::IsNull(column) => self.is_null(*column),
            AgentCondition::NotNull(column) => {
                self.push("NOT (");
                self.is_null(*column);
                self.push(")");
            }
            AgentCondition::Compare { column, op, value } => self.compare(*column, *op, value),
        }
    }

    fn is_null(&mut self, column: AgentColumn) {
        match form(column) {
            Form::Text(sql) | Form::Number(sql) | Form::Date(sql) | Form::Version(sql, _) => {
                self.push(sql);
                self.push(" IS NULL");
            }
            Form::Status | Form::Config => self.push("0"),
            Form::Group => {
                self.push("NOT EXISTS (SELECT 1 FROM membership m WHERE m.agent = a.id)");
            }
        }
    }

    fn compare(&mut self, column: AgentColumn, op: CompareOp, value: &str) {
        match (form(column), op) {
            (Form::Group, _) => self.group(op, value),
            (Form::Config, _) => self.config(op, value),
            (Form::Number("a.id"), CompareOp::Contains | CompareOp::NotContains) => {
                self.like("printf('%03d', a.id)", op, value);
            }
            (Form::Status, CompareOp::Contains | CompareOp::NotContains) => {
                self.like("a.status", op, value);
            }
            (Form::Date(sql), CompareOp::Contains | CompareOp::NotContains) => {
                self.like(&format!("strftime('{PRINTED_DATE}', {sql}, 'unixepoch')"), op, value);
            }
            (
                Form::Text(sql) | Form::Number(sql) | Form::Version(sql, _),
                CompareOp::Contains | CompareOp::NotContains,
            ) => self.like(sql, op, value),
            (Form::Number(sql) | Form::Date(sql), _) => match value.trim().parse::<i64>() {
                Ok(number) => self.operator(sql, op, Value::Integer(number), ""),
                Err(_) if op == CompareOp::NotEqual => {
                    self.condition(&AgentCondition::NotNull(column));
                }
                Err(_) => self.push("0"),
            },
            (Form::Version(_, key), CompareOp::Less | CompareOp::Greater)
                if version_key(value).is_some() =>
            {
                let number = version_key(value).unwrap_or_default();
                self.operator(key, op, Value::Integer(number), "");
            }
            (Form::Status, _) => {
                self.operator("a.status", op, Value::Text(value.to_lowercase()), "");
            }
            (Form::Text(sql) | Form::Version(sql, _), _) => {
                self.operator(sql, op, Value::Text(value.to_owned()), " COLLATE NOCASE");
            }
        }
    }

    /// Adds a comparison with the configuration status, evaluated here for each of its two words.
    fn config(&mut self, op: CompareOp, value: &str) {
        let value = value.to_lowercase();
        let holds = |word: &str| match op {
            CompareOp::Equal => word == value,
            CompareOp::NotEqual => word != value,
            CompareOp::Less => word < value.as_str(),
            CompareOp::Greater => word > value.as_str(),
            CompareOp::Contains => word.contains(&value),
            CompareOp::NotContains => !word.contains(&value),
        };
        self.push(match (holds("synced"), holds("not synced")) {
            (true, true) => "1",
            (true, false) => "a.config_synced = 1",
            (false, true) => "a.config_synced = 0",
            (false, false) => "0",
        });
    }

    fn operator(&mut self, sql: &str, op: CompareOp, value: Value, collation: &str) {
        let sign = match op {
            // The result is not true for null, as in SQL.
            CompareOp::NotEqual => " <> ",
            CompareOp::Less => " < ",
            CompareOp::Greater => " > ",
            CompareOp::Equal | CompareOp::Contains | CompareOp::NotContains => " = ",
        };
        self.push(sql);
        self.push(sign);
        self.bind(value);
        self.push(collation);
    }

    fn like(&mut self, sql: &str, op: CompareOp, value: &str) {
        // SQLite ends a pattern at a NUL, and no column contains one.
        if value.contains('\0') {
            return self.push(if op == CompareOp::NotContains { "1" } else { "0" });
        }
        if op == CompareOp::NotContains {
            self.push("coalesce(");
            self.push(sql);
            self.push(", '') NOT LIKE ");
        } else {
            self.push(sql);
            self.push(" LIKE ");
        }
        self.text(&pattern(value));
        self.push(" ESCAPE '\\'");
    }

    fn group(&mut self, op: CompareOp, value: &str) {
        if value.contains('\0') {
            let not = matches!(op, CompareOp::NotEqual | CompareOp::NotContains);
            return self.push(if not { "1" } else { "0" });
        }
        if matches!(op, CompareOp::NotEqual | CompareOp::NotContains) {
            self.push("NOT ");
        }
        self.push(IN_GROUP);
        match op {
            CompareOp::Contains | CompareOp::NotContains => {
                self.push("LIKE ");
                self.text(&pattern(value));
                self.push(" ESCAPE '\\')");
            }
            CompareOp::Equal | CompareOp::NotEqual => {
                self.push("= ");
                self.text(value);
                self.push(" COLLATE NOCASE)");
            }
            CompareOp::Less | CompareOp::Greater => {
                self.push(if op == CompareOp::Less { "< " } else { "> " });
                self.text(value);
                self.push(" COLLATE NOCASE)");
            }
        }
    }

    fn any_of(&mut self, column: AgentColumn, values: &[String]) {
        if !values.is_empty() {
            self.and();
            self.condition(&AgentCondition::any_of(column, values.iter().map(String::as_str)));
        }
    }

    /// Adds a condition on the agents' numbers; `sql` is an `IN` or `NOT IN` over the one
    /// parameter.
    fn numbers(&mut self, sql: &str, ids: &[AgentId]) {
        self.and();
        self.push(sql);
        self.values.push(Bound::Many(array(ids.iter().map(|id| i64::from(id.0)))));
    }

    pub(super) fn of(query: &AgentQuery, now_s: i64) -> Self {
        let mut filter = Self::default();
        match &query.permitted {
            Permitted::All => {}
            Permitted::Only(ids) => filter.numbers("a.id IN rarray(?)", ids),
            Permitted::Except(ids) => filter.numbers("a.id NOT IN rarray(?)", ids),
        }
        if let Some(ids) = &query.ids {
            filter.numbers("a.id IN rarray(?)", ids);
        }
        let status: Vec<String> = query.status.iter().map(|s| s.name().to_owned()).collect();
        filter.any_of(AgentColumn::Status, &status);
        filter.any_of(AgentColumn::Name, &query.name);
        filter.any_of(AgentColumn::Ip, &query.ip);
        filter.any_of(AgentColumn::RegisterIp, &query.register_ip);
        filter.any_of(AgentColumn::Group, &query.group);
        filter.any_of(AgentColumn::OsPlatform, &query.os_platform);
        filter.any_of(AgentColumn::OsName, &query.os_name);
        filter.any_of(AgentColumn::OsVersion, &query.os_version);
        filter.any_of(AgentColumn::Version, &query.version);
        if let Some(search) = &query.search {
            filter.and();
            filter.condition(&search_condition(search));
        }
        if let Some(age_s) = query.older_than_s {
            filter.and();
            filter.push("coalesce(a.keepalive_at_s, a.added_at_s) < ");
            filter.bind(Value::Integer(now_s.saturating_sub_unsigned(age_s)));
        }
        if let Some(condition) = &query.condition {
            filter.and();
            filter.condition(condition);
        }
        filter
    }

    pub(super) fn clause(&self) -> String {
        if self.sql.is_empty() { String::new() } else { format!(" WHERE {}", self.sql) }
    }
}

/// Returns `%text%` with the special characters of a pattern escaped.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// Columns that a text search covers. The caller compares the values that are the same for every
/// agent, such as the server's names.
const SEARCHED: [AgentColumn; 20] = [
    AgentColumn::DateAdd,
    AgentColumn::LastKeepAlive,
    AgentColumn::DisconnectionTime,
    AgentColumn::StatusCode,
    AgentColumn::ConfigSum,
    AgentColumn::ConfigStatus,
    AgentColumn::Id,
    AgentColumn::Name,
    AgentColumn::Ip,
    AgentColumn::RegisterIp,
    AgentColumn::Status,
    AgentColumn::Version,
    AgentColumn::Hostname,
    AgentColumn::OsName,
    AgentColumn::OsPlatform,
    AgentColumn::OsVersion,
    AgentColumn::OsArch,
    AgentColumn::OsUname,
    AgentColumn::OsCodename,
    AgentColumn::Group,
];

fn search_condition(search: &str) -> AgentCondition {
    let (op, text) = match search.strip_prefix('-') {
        Some(rest) => (CompareOp::NotContains, rest),
        None => (CompareOp::Contains, search),
    };
    let parts = SEARCHED
        .into_iter()
        .map(|column| AgentCondition::Compare { column, op, value: text.to_owned() })
        .collect();
    if op == CompareOp::NotContains {
        AgentCondition::And(parts)
    } else {
        AgentCondition::Or(parts)
    }
}

fn order(sort: &[Sort]) -> String {
    let mut sql = String::from(" ORDER BY ");
    for step in sort {
        let (key, collation) = match form(step.column) {
            Form::Text(sql) => (sql, " COLLATE NOCASE"),
            Form::Number(sql) | Form::Date(sql) | Form::Version(_, sql) => (sql, ""),
            Form::Status => ("a.status", ""),
            // `not synced` sorts before `synced`.
            Form::Config => ("a.config_synced", ""),
            // A comma sorts before every character of a name.
            Form::Group => (GROUPS, " COLLATE NOCASE"),
        };
        sql.push_str(key);
        sql.push_str(collation);
        sql.push_str(if step.descending { " DESC, " } else { ", " });
        if step.column == AgentColumn::Id {
            break;
        }
    }
    sql.push_str("a.id");
    sql
}

/// Returns the SQL of a page without its values. The plan test uses it too.
fn page_sql(filter: &Where, query: &AgentQuery) -> String {
    format!(
        "SELECT {AGENT_COLUMNS} FROM agent a{}{} LIMIT ? OFFSET ?",
        filter.clause(),
        order(&query.sort)
    )
}

pub(super) fn page(tx: &Connection, query: &AgentQuery, now_s: i64) -> ControlResult<AgentPage> {
    let mut filter = Where::of(query, now_s);
    let total = total(tx, query, &filter)?;
    let sql = page_sql(&filter, query);
    let limit = query.limit.min(PAGE_ROWS_MAX).cast_signed();
    filter.values.push(Bound::One(Value::Integer(limit)));
    let offset = rows::signed(query.offset);
    filter.values.push(Bound::One(Value::Integer(offset)));
    let names = groups::names(tx)?;
    let missing = query.ids.as_deref().map_or_else(|| Ok(Vec::new()), |ids| missing(tx, ids))?;
    let mut page = AgentPage { total, missing, ..AgentPage::default() };
    let mut statement = tx.prepare_cached(&sql)?;
    let mut found = statement.query(params_from_iter(&filter.values))?;
    while let Some(row) = found.next()? {
        page.items.push(rows::agent(row, &names)?);
    }
    Ok(page)
}

/// Returns those of the numbers that no agent has, ascending.
fn missing(tx: &Connection, ids: &[AgentId]) -> ControlResult<Vec<AgentId>> {
    let mut statement = tx.prepare_cached(
        "SELECT DISTINCT w.value FROM rarray(?1) w
         WHERE NOT EXISTS (SELECT 1 FROM agent WHERE id = w.value) ORDER BY 1",
    )?;
    let ids = array(ids.iter().map(|id| i64::from(id.0)));
    let missing = statement.query_map([ids], |r| r.get(0).map(AgentId))?.collect::<Result<_, _>>();
    Ok(missing?)
}

/// Returns the number of matches. Without a filter, or with one by status alone, it comes from the
/// stored counters plus one for the server's own row.
fn total(tx: &Connection, query: &AgentQuery, filter: &Where) -> ControlResult<u64> {
    if filter.sql.is_empty() || by_status_alone(query) {
        let asked = |status| query.status.is_empty() || query.status.contains(&status);
        let kept = status_summary(tx)?;
        let server: u64 = tx
            .prepare_cached("SELECT 1 FROM agent WHERE id = 0 AND status = 'active'")?
            .exists([])?
            .into();
        return Ok(AgentStatus::ALL
            .into_iter()
            .filter(|status| asked(*status))
            .map(|status| match status {
                AgentStatus::Active => kept.active + server,
                AgentStatus::Disconnected => kept.disconnected,
                AgentStatus::NeverConnected => kept.never_connected,
                AgentStatus::Pending => kept.pending,
            })
            .sum());
    }
    let sql = format!("SELECT count(*) FROM agent a{}", filter.clause());
    let mut statement = tx.prepare_cached(&sql)?;
    Ok(statement.query_row(params_from_iter(&filter.values), |r| rows::unsigned(r, 0))?)
}

fn by_status_alone(query: &AgentQuery) -> bool {
    query.permitted.is_all()
        && query.ids.is_none()
        && query.search.is_none()
        && query.older_than_s.is_none()
        && query.condition.is_none()
        && [
            &query.name,
            &query.ip,
            &query.register_ip,
            &query.group,
            &query.os_platform,
            &query.os_name,
            &query.os_version,
            &query.version,
        ]
        .iter()
        .all(|values| values.is_empty())
}

pub(super) fn ids(tx: &Connection, query: &AgentQuery, now_s: i64) -> ControlResult<Vec<AgentId>> {
    let filter = Where::of(query, now_s);
    let mut statement = tx.prepare_cached(&ids_sql(&filter))?;
    let mut ids: Vec<AgentId> = statement
        .query_map(params_from_iter(&filter.values), |r| r.get(0).map(AgentId))?
        .collect::<Result<_, _>>()?;
    // This stable sort merges runs, and the index returns one run for each of its few values.
    ids.sort();
    Ok(ids)
}

/// Returns SQL without an order, so that SQLite may use the narrowest index. The plan test uses it
/// too.
fn ids_sql(filter: &Where) -> String {
    format!("SELECT a.id FROM agent a{}", filter.clause())
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
