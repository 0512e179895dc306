//! Collapsed lists: of the explained changes of one agent that share the id of a cause, only the newest
//! is listed. Unexplained changes are always listed, whatever id they have.
//!
//! Nothing is stored for it. A page walks the changes in their order, remembers the causes that it
//! has listed, and asks an index whether an earlier page has listed a cause.

use std::collections::HashSet;
use std::fmt::Write as _;

use model::CauseKind;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::changes::{BEFORE_ALL, Lines, WHAT, search};
use super::kinds::{CAUSE_STEP, cause_of};
use super::terms::{Key, Part, Terms};
use crate::error::{Context, StateError};
use crate::limits::COLLAPSED_LOOKED_AT_MAX;
use crate::query::{Collapsed, PathMatch};

/// Keys that are read at once.
const BATCH: usize = 1_000;

/// The agent and the id of a cause.
type CauseOfAgent = (i64, String);

/// Returns at most `limit` lines of a part.
pub(super) fn lines(db: &Connection, part: &Part<'_>, limit: usize) -> Result<Lines, StateError> {
    let mut found = Lines::default();
    let mut listed = HashSet::new();
    let mut at = part.clone();
    let mut looked_at = 0;
    loop {
        let keys = search(db, &at, BATCH)?;
        for key in &keys {
            let line = line(db, part, *key, &mut listed)?;
            if line.is_some() && found.lines.len() == limit {
                found.next = at.before.or(Some(BEFORE_ALL));
                return Ok(found);
            }
            found.lines.extend(line.map(|collapsed| (*key, collapsed)));
            at.before = Some(*key);
        }
        looked_at += keys.len();
        if keys.len() < BATCH {
            return Ok(found);
        }
        if looked_at >= COLLAPSED_LOOKED_AT_MAX {
            found.next = at.before;
            return Ok(found);
        }
    }
}

/// Returns the number of changes that the line of an event represents, if there are several; the
/// outer `None` if the event has no line.
#[expect(clippy::option_option, reason = "read in one place only")]
fn line(
    db: &Connection,
    part: &Part<'_>,
    key: Key,
    listed: &mut HashSet<CauseOfAgent>,
) -> Result<Option<Option<Collapsed>>, StateError> {
    let Some(cause) = cause_of_event(db, key)? else { return Ok(Some(None)) };
    if listed.contains(&cause) {
        return Ok(None);
    }
    let earlier = listed_before(db, part, &cause)?;
    let collapsed = if earlier { None } else { Some(count(db, part, &cause)?) };
    listed.insert(cause);
    Ok(collapsed.map(|collapsed| Some(collapsed).filter(|collapsed| collapsed.changes > 1)))
}

/// Returns the cause that an event shares with others; `None` if it is unexplained or has no id.
fn cause_of_event(db: &Connection, key: Key) -> Result<Option<CauseOfAgent>, StateError> {
    db.prepare_cached(
        "SELECT agent, cause_id FROM event
         WHERE number = ?1 AND kind >= ?2 AND cause_id IS NOT NULL",
    )
    .and_then(|mut s| s.query_row([key.1, CAUSE_STEP], |r| Ok((r.get(0)?, r.get(1)?))).optional())
    .context(WHAT)
}

/// Returns the terms for all changes of a cause that the query selects.
fn selected(part: &Part<'_>, (agent, id): &CauseOfAgent) -> Terms {
    let mut terms = Terms::default();
    terms.text("cause_id = ", id);
    terms.integer("agent = ", *agent);
    terms.range(&Part { before: None, ..part.clone() });
    let explained = |kind: &i64| cause_of(*kind) != CauseKind::Unexplained;
    terms.any_of("kind", part.kinds.iter().copied().filter(explained));
    match &part.q.path {
        PathMatch::Exact(path) => {
            terms.text("(path = ", path);
            let _ = write!(terms.sql, " OR moved_from = ?{})", terms.values.len());
        }
        path => terms.path(path),
    }
    terms.user_and_process(part.q);
    terms
}

/// Returns true if a page before this one has listed the cause.
fn listed_before(
    db: &Connection,
    part: &Part<'_>,
    cause: &CauseOfAgent,
) -> Result<bool, StateError> {
    let Some(before) = part.before else { return Ok(false) };
    let mut terms = selected(part, cause);
    terms.integer("found_us >= ", before.0);
    terms.key(">=", before);
    let sql = format!("SELECT 1 FROM event INDEXED BY event_cause_id WHERE {} LIMIT 1", terms.sql);
    db.prepare_cached(&sql)
        .and_then(|mut s| s.exists(params_from_iter(&terms.values)))
        .context(WHAT)
}

fn count(db: &Connection, part: &Part<'_>, cause: &CauseOfAgent) -> Result<Collapsed, StateError> {
    let terms = selected(part, cause);
    let sql = format!(
        "SELECT count(*), count(DISTINCT cause_package) FROM event INDEXED BY event_cause_id
         WHERE {}",
        terms.sql
    );
    db.prepare_cached(&sql)
        .and_then(|mut s| {
            s.query_row(params_from_iter(&terms.values), |r| {
                Ok(Collapsed {
                    changes: r.get::<_, i64>(0)? as u64,
                    packages: r.get::<_, i64>(1)? as u64,
                })
            })
        })
        .context(WHAT)
}
