//! Events, newest first. Keys are found by an index first; bodies are read for the page only.
//!
//! Without a path, each kind with each cause (and each agent, when few are named) is a range of an index that is
//! already in the wanted order, and the page is merged from the first events of each range. With a
//! path prefix that few events match, these are read by the path index and sorted. With any other
//! prefix the events are searched by time, because a page of matches is then found soon.

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, params_from_iter};

use super::kinds::{CAUSES, kind_number, kind_of, numbers};
use super::terms::{Bound, Key, Part, Terms};
use super::transaction_cache::Progress;
use super::{StateStore, collapse};
use crate::error::{Context, StateError};
use crate::limits::{ARRIVALS_LOOKED_AT_MAX, PAGE_ITEMS_MAX, PREFIX_CANDIDATES_MAX};
use crate::query::{
    ArrivalQuery, Arrivals, ChangePage, ChangeQuery, Collapsed, EventKind, PathMatch, StoredEvent,
};
use model::{AgentId, CauseKind, Permitted};
use sqlite::Reader;

impl StateStore {
    /// Returns events, newest first.
    ///
    /// # Errors
    /// Returns an error if the query is beyond the limits, the cursor is foreign or the store
    /// cannot be read.
    pub fn changes(&self, reader: &Reader, query: &ChangeQuery) -> Result<ChangePage, StateError> {
        self.read(reader, "read changes", |db| changes(db, query))
    }

    /// Visits events in the order of arrival, after a given number, until `visit` returns `false`
    /// or [`ARRIVALS_LOOKED_AT_MAX`] numbers were
    /// examined. Holds one event in memory at a time.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn arrivals(
        &self,
        reader: &Reader,
        query: &ArrivalQuery,
        visit: &mut dyn FnMut(StoredEvent) -> bool,
    ) -> Result<Arrivals, StateError> {
        self.read(reader, "read arrivals", |db| arrivals(db, query, visit))
    }
}

pub(super) const WHAT: &str = "read changes";
/// Maximum number of agents that are searched one by one.
const AGENTS_APART_MAX: usize = 8;
/// Maximum number of events after `since` that are searched by number.
const SINCE_EVENTS_MAX: u64 = 10_000;

/// The key before the newest event.
pub(super) const BEFORE_ALL: Key = (i64::MAX, i64::MAX);

/// Causes of each part of a list, by default and with the unexplained events first.
const ONE_PART: &[&[CauseKind]] = &[&CAUSES];
const UNEXPLAINED_FIRST: &[&[CauseKind]] =
    &[&[CauseKind::Unexplained], &[CauseKind::Package, CauseKind::Deployment]];

/// The lines of a part that fit a page.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<(Key, Option<Collapsed>)>,
    /// The key after which the next page continues, if there is more.
    pub(super) next: Option<Key>,
}

/// Parses the cursor of a page: the number of the part, and the key.
fn parse_cursor(text: &str) -> Result<(usize, Key), StateError> {
    let (part, text) = text.strip_prefix('e').map_or((0, text), |rest| (1, rest));
    let (found, number) = text.split_once('.').ok_or(StateError::Cursor)?;
    let parse = |text: &str| text.parse().map_err(|_| StateError::Cursor);
    Ok((part, (parse(found)?, parse(number)?)))
}

/// Returns a page of events.
pub(super) fn changes(db: &Connection, q: &ChangeQuery) -> Result<ChangePage, StateError> {
    if q.limit > PAGE_ITEMS_MAX {
        return Err(StateError::Query("the page is too large".into()));
    }
    let newest = Progress::load(db).context(WHAT)?.last_event as u64;
    let (lines, next) = page(db, q, newest)?;
    let mut read = db
        .prepare_cached(&format!(
            "SELECT {ROW} FROM event e LEFT JOIN agent a ON a.number = e.agent WHERE e.number = ?1"
        ))
        .context(WHAT)?;
    let items = lines
        .iter()
        .map(|((_, number), collapsed)| {
            let event = read.query_row([number], read_row)?;
            Ok(StoredEvent { collapsed: *collapsed, ..event })
        })
        .collect::<Result<_, _>>()
        .context(WHAT)?;
    Ok(ChangePage { items, next, newest })
}

/// Returns the lines of a page from one part of the list after the other, and the next cursor.
#[expect(clippy::type_complexity, reason = "read in one place only")]
fn page(
    db: &Connection,
    q: &ChangeQuery,
    newest: u64,
) -> Result<(Vec<(Key, Option<Collapsed>)>, Option<String>), StateError> {
    let parts = if q.unexplained_first { UNEXPLAINED_FIRST } else { ONE_PART };
    let (first, mut before) = match &q.cursor {
        Some(cursor) => parse_cursor(cursor).map(|(part, key)| (part, Some(key)))?,
        None => (0, None),
    };
    if first >= parts.len() {
        return Err(StateError::Cursor);
    }
    let kinds = if q.kinds.is_empty() { &EventKind::ALL[..] } else { &q.kinds };
    let mut lines = Vec::new();
    for (place, causes) in parts.iter().enumerate().skip(first) {
        let asked = |cause: &CauseKind| q.causes.is_empty() || q.causes.contains(cause);
        let causes: Vec<CauseKind> = causes.iter().copied().filter(asked).collect();
        let part = Part { q, newest, kinds: numbers(kinds, &causes), before: before.take() };
        let limit = q.limit - lines.len();
        let found =
            if q.collapse { collapse::lines(db, &part, limit)? } else { plain(db, &part, limit)? };
        lines.extend(found.lines);
        if let Some((found, number)) = found.next {
            let prefix = if place == 0 { "" } else { "e" };
            return Ok((lines, Some(format!("{prefix}{found}.{number}"))));
        }
    }
    Ok((lines, None))
}

fn plain(db: &Connection, part: &Part<'_>, limit: usize) -> Result<Lines, StateError> {
    // One more than the page shows whether there is a next one.
    let mut keys = search(db, part, limit + 1)?;
    let more = keys.len() > limit;
    keys.truncate(limit);
    let last = keys.last().copied().or(part.before).unwrap_or(BEFORE_ALL);
    let next = more.then_some(last);
    Ok(Lines { lines: keys.into_iter().map(|key| (key, None)).collect(), next })
}

/// Visits events by the table's own key, so that nothing is sorted and one row is held at a time.
fn arrivals(
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
pub(super) const ROW: &str =
    "e.number, e.agent, coalesce(a.name, ''), e.id, e.received_us, e.found_us,
     e.kind, e.path, e.changed, e.body,
     (SELECT r.name FROM removed r WHERE r.agent = e.agent AND r.through >= e.number
      ORDER BY r.through LIMIT 1)";

pub(super) fn read_row(r: &Row<'_>) -> rusqlite::Result<StoredEvent> {
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
        collapsed: None,
    })
}

/// Returns the keys of at most `limit` matching events, newest first. Chooses the index by the cause,
/// the path and the number of events after `since`.
pub(super) fn search(
    db: &Connection,
    part: &Part<'_>,
    limit: usize,
) -> Result<Vec<Key>, StateError> {
    let q = part.q;
    if q.agents.as_ref().is_some_and(Vec::is_empty) || part.kinds.is_empty() {
        return Ok(Vec::new());
    }
    let arrived = |since| part.newest.saturating_sub(since);
    let source = match &q.path {
        _ if q.since.is_some_and(|since| arrived(since) <= SINCE_EVENTS_MAX) => Some("NOT INDEXED"),
        _ if q.cause_id.is_some() => Some("INDEXED BY event_cause_id"),
        PathMatch::Exact(_) => Some("INDEXED BY event_path"),
        PathMatch::Prefix(_) if few(db, &q.path)? => Some("INDEXED BY event_path"),
        _ if q.user.is_some() => Some("INDEXED BY event_user"),
        _ => None,
    };
    let Some(source) = source else {
        return match &q.process {
            Some(process) => by_process(db, part, process, limit),
            None => by_time(db, part, limit),
        };
    };
    let mut terms = Terms::default();
    terms.path(&q.path);
    terms.all(part);
    let mut keys = keys_by(db, &terms, source, limit)?;
    if let PathMatch::Exact(path) = &q.path {
        let mut terms = Terms::default();
        terms.text("moved_from = ", path);
        terms.all(part);
        let by_path = source == "INDEXED BY event_path";
        let moved = if by_path { "INDEXED BY event_moved_from" } else { source };
        keys.extend(keys_by(db, &terms, moved, limit)?);
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

/// Merges the changes that a program made with those that it perhaps made.
fn by_process(
    db: &Connection,
    part: &Part<'_>,
    process: &str,
    limit: usize,
) -> Result<Vec<Key>, StateError> {
    let others = ChangeQuery { process: None, ..part.q.clone() };
    let mut terms = Terms::default();
    terms.path(&others.path);
    terms.all(&Part { q: &others, ..part.clone() });
    let condition = terms.condition().to_owned();
    let newest = part.before.unwrap_or(BEFORE_ALL).0;
    let bound = [SqlValue::Text(process.to_owned()), SqlValue::Integer(newest)];
    let (name, until) = (terms.values.len() + 1, terms.values.len() + 2);
    let sql = format!(
        "SELECT found_us, number FROM event INDEXED BY event_process
         WHERE process = ?{name} AND found_us <= ?{until} AND {condition}
         UNION
         SELECT event_found_us, event_number FROM candidate
         CROSS JOIN event ON number = event_number
         WHERE name = ?{name} AND event_found_us <= ?{until} AND {condition}
         ORDER BY 1 DESC, 2 DESC LIMIT {limit}"
    );
    terms.values.extend(bound.map(Bound::One));
    keys_of(db, &sql, &terms.values)
}

/// Runs the search on one index and returns at most `limit` keys, newest first.
fn keys_by(
    db: &Connection,
    terms: &Terms,
    source: &str,
    limit: usize,
) -> Result<Vec<Key>, StateError> {
    let condition = terms.condition();
    let sql = format!(
        "SELECT found_us, number FROM event {source} WHERE {condition}
         ORDER BY found_us DESC, number DESC LIMIT {limit}"
    );
    keys_of(db, &sql, &terms.values)
}

/// Runs a search for keys.
fn keys_of(db: &Connection, sql: &str, values: &[Bound]) -> Result<Vec<Key>, StateError> {
    db.prepare_cached(sql)
        .and_then(|mut select| {
            let rows =
                select.query_map(params_from_iter(values), |r| Ok((r.get(0)?, r.get(1)?)))?;
            rows.collect()
        })
        .context(WHAT)
}

/// Searches one index range for each kind with each cause, or for each of these and agent when few
/// agents are named, and merges the results. Each range returns up to `limit` keys.
fn by_time(db: &Connection, part: &Part<'_>, limit: usize) -> Result<Vec<Key>, StateError> {
    let mut agents = part.q.agents.clone().unwrap_or_default();
    agents.sort_unstable();
    agents.dedup();
    let apart = (1..=AGENTS_APART_MAX).contains(&agents.len());
    let source = if apart { "INDEXED BY event_agent_kind" } else { "INDEXED BY event_kind" };
    // Without agents, and with many, one search covers all of them.
    let groups: Vec<&[AgentId]> = if apart { agents.chunks(1).collect() } else { vec![&agents] };
    let mut keys = Vec::new();
    for kind in &part.kinds {
        for agents in &groups {
            let mut terms = Terms::default();
            if !agents.is_empty() {
                terms.agents(agents);
            }
            terms.integer("kind = ", *kind);
            terms.range(part);
            terms.path(&part.q.path);
            keys.extend(keys_by(db, &terms, source, limit)?);
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
        for bad in ["", "1", "a.b", "1.", "1.2.3", "e", "e1", "ee1.2"] {
            assert!(matches!(parse_cursor(bad), Err(StateError::Cursor)), "{bad}");
        }
        assert_eq!(parse_cursor("5.7").unwrap(), (0, (5, 7)));
        assert_eq!(parse_cursor("e5.7").unwrap(), (1, (5, 7)));
    }
}
