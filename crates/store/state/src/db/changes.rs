//! Events, newest first. Keys are found by an index first; bodies are read for the page only.
//!
//! Without a path, each kind (and each agent, when few are named) is a range of an index that is
//! already in the wanted order, and the page is merged from the first events of each range. With a
//! path prefix that few events match, these are read by the path index and sorted. With any other
//! prefix the events are searched by time, because a page of matches is then found soon.

use std::rc::Rc;

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::documents::prefix_end;
use super::transaction_cache::{Progress, kind_number, kind_of};
use crate::error::{Context, StateError};
use crate::limits::{ARRIVALS_LOOKED_AT_MAX, PAGE_ITEMS_MAX, PREFIX_CANDIDATES_MAX};
use crate::query::{
    ArrivalQuery, Arrivals, ChangePage, ChangeQuery, EventKind, PathMatch, StoredEvent,
};
use model::AgentId;
use model::Permitted;

const WHAT: &str = "read changes";
/// Maximum number of agents that are searched one by one.
const AGENTS_APART_MAX: usize = 8;
/// Maximum number of events after `since` that are searched by number.
const SINCE_EVENTS_MAX: u64 = 10_000;

/// Sort key of events: time found and number.
type Key = (i64, i64);

enum Bound {
    One(SqlValue),
    Many(Rc<Vec<SqlValue>>),
}

impl ToSql for Bound {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::One(value) => value.to_sql(),
            Self::Many(values) => values.to_sql(),
        }
    }
}

/// The SQL terms of a search, with their values.
#[derive(Default)]
struct Terms {
    sql: String,
    values: Vec<Bound>,
}

impl Terms {
    fn and(&mut self, before: &str, value: Bound, after: &str) {
        if !self.sql.is_empty() {
            self.sql.push_str(" AND ");
        }
        self.values.push(value);
        let number = self.values.len();
        self.sql.push_str(before);
        self.sql.push('?');
        self.sql.push_str(&number.to_string());
        self.sql.push_str(after);
    }

    fn integer(&mut self, before: &str, value: i64) {
        self.and(before, Bound::One(SqlValue::Integer(value)), "");
    }

    fn text(&mut self, before: &str, value: &str) {
        self.and(before, Bound::One(SqlValue::Text(value.to_owned())), "");
    }

    /// Excludes events that a former life of their agent number reported.
    fn present(&mut self) {
        if !self.sql.is_empty() {
            self.sql.push_str(" AND ");
        }
        self.sql.push_str(
            "NOT EXISTS (SELECT 1 FROM removed r
             WHERE r.agent = event.agent AND r.through >= event.number)",
        );
    }

    fn any_of(&mut self, column: &str, values: impl Iterator<Item = i64>) {
        let values = Rc::new(values.map(SqlValue::Integer).collect());
        self.and(&format!("{column} IN (SELECT value FROM rarray("), Bound::Many(values), "))");
    }

    fn path(&mut self, path: &PathMatch) {
        match path {
            PathMatch::Any => {}
            PathMatch::Exact(path) => self.text("path = ", path),
            PathMatch::Prefix(prefix) => {
                self.text("path >= ", prefix);
                if let Some(end) = prefix_end(prefix) {
                    self.text("path < ", &end);
                }
            }
        }
    }

    /// Adds the terms for everything except the path.
    fn all(&mut self, q: &ChangeQuery) -> Result<(), StateError> {
        self.range(q)?;
        if let Some(user) = &q.user {
            self.text("user = ", user);
        }
        if let Some(process) = &q.process {
            self.text("process = ", process);
        }
        if let Some(agents) = &q.agents {
            self.any_of("agent", agents.iter().map(|a| i64::from(a.0)));
        }
        if !q.kinds.is_empty() {
            self.any_of("kind", q.kinds.iter().map(|k| kind_number(*k)));
        }
        Ok(())
    }

    /// Adds the terms for times, `since`, former lives and the cursor.
    fn range(&mut self, q: &ChangeQuery) -> Result<(), StateError> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if let Some(from) = q.from_us {
            self.integer("found_us >= ", number(from));
        }
        if let Some(to) = q.to_us {
            self.integer("found_us < ", number(to));
        }
        if let Some(since) = q.since {
            self.integer("number > ", number(since));
        }
        if !q.former {
            self.present();
        }
        if let Some(cursor) = &q.cursor {
            let (found, event) = parse_cursor(cursor)?;
            self.integer("found_us <= ", found);
            self.integer("(found_us, number) < (", found);
            self.values.push(Bound::One(SqlValue::Integer(event)));
            let place = self.values.len();
            self.sql.push_str(", ?");
            self.sql.push_str(&place.to_string());
            self.sql.push(')');
        }
        Ok(())
    }

    /// Runs the search on one index and returns at most `limit` keys, newest first.
    fn keys(&self, db: &Connection, source: &str, limit: usize) -> Result<Vec<Key>, StateError> {
        let condition = if self.sql.is_empty() { "1" } else { self.sql.as_str() };
        let sql = format!(
            "SELECT found_us, number FROM event {source} WHERE {condition}
             ORDER BY found_us DESC, number DESC LIMIT {limit}"
        );
        let mut select = db.prepare_cached(&sql).context(WHAT)?;
        select
            .query_map(params_from_iter(&self.values), |r| Ok((r.get(0)?, r.get(1)?)))
            .and_then(Iterator::collect)
            .context(WHAT)
    }
}

fn parse_cursor(text: &str) -> Result<Key, StateError> {
    let (found, number) = text.split_once('.').ok_or(StateError::Cursor)?;
    let parse = |text: &str| text.parse().map_err(|_| StateError::Cursor);
    Ok((parse(found)?, parse(number)?))
}

/// Returns a page of events.
pub(super) fn changes(db: &Connection, q: &ChangeQuery) -> Result<ChangePage, StateError> {
    if q.limit > PAGE_ITEMS_MAX {
        return Err(StateError::Query("the page is too large".into()));
    }
    let newest = Progress::load(db).context(WHAT)?.last_event as u64;
    // One more than the page shows whether there is a next one.
    let mut keys = search(db, q, newest, q.limit + 1)?;
    let more = keys.len() > q.limit;
    keys.truncate(q.limit);
    let next = match keys.last() {
        Some((found, number)) if more => Some(format!("{found}.{number}")),
        _ => None,
    };
    let mut read = db
        .prepare_cached(&format!(
            "SELECT {ROW} FROM event e LEFT JOIN agent a ON a.number = e.agent WHERE e.number = ?1"
        ))
        .context(WHAT)?;
    let items = keys
        .iter()
        .map(|(_, number)| read.query_row([number], read_row))
        .collect::<Result<_, _>>()
        .context(WHAT)?;
    Ok(ChangePage { items, next, newest })
}

/// Visits events by the table's own key, so that nothing is sorted and one row is held at a time.
pub(super) fn arrivals(
    db: &Connection,
    q: &ArrivalQuery,
    visit: &mut dyn FnMut(StoredEvent) -> bool,
) -> Result<Arrivals, StateError> {
    let newest = Progress::load(db).context(WHAT)?.last_event as u64;
    let end = q.since.saturating_add(ARRIVALS_LOOKED_AT_MAX).min(newest).max(q.since);
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut terms = Terms::default();
    terms.integer("e.number > ", number(q.since));
    terms.integer("e.number <= ", number(end));
    match &q.agents {
        Permitted::All => {}
        Permitted::Only(ids) => terms.any_of("e.agent", ids.iter().map(|a| i64::from(a.0))),
        Permitted::Except(ids) => terms.any_of("e.agent NOT", ids.iter().map(|a| i64::from(a.0))),
    }
    if !q.kinds.is_empty() {
        terms.any_of("e.kind", q.kinds.iter().map(|k| kind_number(*k)));
    }
    let sql = format!(
        "SELECT {ROW} FROM event e NOT INDEXED LEFT JOIN agent a ON a.number = e.agent WHERE {}
         ORDER BY e.number",
        terms.sql
    );
    let mut select = db.prepare_cached(&sql).context(WHAT)?;
    let mut rows = select.query(params_from_iter(&terms.values)).context(WHAT)?;
    while let Some(row) = rows.next().context(WHAT)? {
        let event = read_row(row).context(WHAT)?;
        let through = event.number;
        if !visit(event) {
            return Ok(Arrivals { through, newest });
        }
    }
    Ok(Arrivals { through: end, newest })
}

/// The columns that [`read_row`] reads.
const ROW: &str = "e.number, e.agent, coalesce(a.name, ''), e.id, e.received_us, e.found_us,
     e.kind, e.path, e.changed, e.body,
     (SELECT r.name FROM removed r WHERE r.agent = e.agent AND r.through >= e.number
      ORDER BY r.through LIMIT 1)";

fn read_row(r: &Row<'_>) -> rusqlite::Result<StoredEvent> {
    let changed: String = r.get(8)?;
    let former: Option<String> = r.get(10)?;
    Ok(StoredEvent {
        number: r.get::<_, i64>(0)? as u64,
        agent: AgentId(r.get(1)?),
        former: former.is_some(),
        agent_name: former.map_or_else(|| r.get(2), Ok)?,
        id: r.get(3)?,
        received_at_us: r.get::<_, i64>(4)? as u64,
        found_at_us: r.get::<_, i64>(5)? as u64,
        kind: kind_of(r.get(6)?),
        path: r.get(7)?,
        changed_fields: changed.split(',').filter(|f| !f.is_empty()).map(String::from).collect(),
        body: r.get(9)?,
    })
}

/// Returns the keys of at most `limit` matching events, newest first. Chooses the index by the path
/// and by the number of events after `since`.
fn search(
    db: &Connection,
    q: &ChangeQuery,
    newest: u64,
    limit: usize,
) -> Result<Vec<Key>, StateError> {
    if q.agents.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let source = match &q.path {
        _ if q.since.is_some_and(|since| newest.saturating_sub(since) <= SINCE_EVENTS_MAX) => {
            Some("NOT INDEXED")
        }
        PathMatch::Exact(_) => Some("INDEXED BY event_path"),
        PathMatch::Prefix(_) if few(db, &q.path)? => Some("INDEXED BY event_path"),
        _ if q.user.is_some() => Some("INDEXED BY event_user"),
        _ if q.process.is_some() => Some("INDEXED BY event_process"),
        _ => None,
    };
    let Some(source) = source else { return by_time(db, q, limit) };
    let mut terms = Terms::default();
    terms.path(&q.path);
    terms.all(q)?;
    let mut keys = terms.keys(db, source, limit)?;
    if let PathMatch::Exact(path) = &q.path {
        let mut terms = Terms::default();
        terms.text("moved_from = ", path);
        terms.all(q)?;
        let moved = if source == "NOT INDEXED" { source } else { "INDEXED BY event_moved_from" };
        keys.extend(terms.keys(db, moved, limit)?);
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys.dedup();
        keys.truncate(limit);
    }
    Ok(keys)
}

/// Returns true if few enough events match the path to sort all of them.
fn few(db: &Connection, path: &PathMatch) -> Result<bool, StateError> {
    let mut terms = Terms::default();
    terms.path(path);
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM event INDEXED BY event_path WHERE {} LIMIT {})",
        terms.sql, PREFIX_CANDIDATES_MAX
    );
    let mut count = db.prepare_cached(&sql).context(WHAT)?;
    let found: i64 =
        count.query_row(params_from_iter(&terms.values), |r| r.get(0)).context(WHAT)?;
    Ok((found as usize) < PREFIX_CANDIDATES_MAX)
}

/// Searches one index range for each kind, or for each kind and agent when few agents are named,
/// and merges the results. Each range returns up to `limit` keys.
fn by_time(db: &Connection, q: &ChangeQuery, limit: usize) -> Result<Vec<Key>, StateError> {
    let mut kinds = if q.kinds.is_empty() { EventKind::ALL.to_vec() } else { q.kinds.clone() };
    kinds.sort_unstable();
    kinds.dedup();
    let mut agents = q.agents.clone().unwrap_or_default();
    agents.sort_unstable();
    agents.dedup();
    let mut keys = Vec::new();
    for kind in kinds {
        if agents.is_empty() || agents.len() > AGENTS_APART_MAX {
            let mut terms = Terms::default();
            terms.integer("kind = ", kind_number(kind));
            terms.range(q)?;
            terms.path(&q.path);
            if !agents.is_empty() {
                terms.any_of("agent", agents.iter().map(|a| i64::from(a.0)));
            }
            keys.extend(terms.keys(db, "INDEXED BY event_kind", limit)?);
            continue;
        }
        for agent in &agents {
            let mut terms = Terms::default();
            terms.integer("agent = ", i64::from(agent.0));
            terms.integer("kind = ", kind_number(kind));
            terms.range(q)?;
            terms.path(&q.path);
            keys.extend(terms.keys(db, "INDEXED BY event_agent_kind", limit)?);
        }
    }
    keys.sort_unstable_by(|a, b| b.cmp(a));
    keys.truncate(limit);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_change_cursor_is_refused() {
        for bad in ["", "1", "a.b", "1.", "1.2.3"] {
            assert!(matches!(parse_cursor(bad), Err(StateError::Cursor)), "{bad}");
        }
        assert_eq!(parse_cursor("5.7").unwrap(), (5, 7));
    }
}
