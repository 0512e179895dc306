//! Open gaps.
//!
//! An event that opens a gap has the kind [`EventKind::OpenGap`] until the gap ends, and
//! [`EventKind::EndedGap`] from then on. Its body never changes. The absence of an agent, which the
//! server reports, ends with the next event that reports an absence as a whole. A gap that the agent
//! reports ends with the event that names its id, or with a report that the agent's database was
//! rebuilt or that it dropped events: the agent then reports again which gaps are open. All gaps end
//! with the agent's life. Their times are not compared, because they may be of different clocks.

use model::AgentId;
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::StateStore;
use super::apply::Applier;
use super::changes::{ROW, read_row};
use super::kinds::{CAUSES, kind_number, numbers};
use crate::error::{Context, StateError};
use crate::limits::{LATE_CHANGES_MAX, OPEN_GAPS_MAX};
use crate::query::{EventKind, LateChanges, StoredEvent};
use columns::EventColumns;
use sqlite::Reader;

/// The id of an agent's absence among its open gaps.
pub(super) const ABSENCE: &str = "";

const WHAT: &str = "read open gaps";

impl StateStore {
    /// Returns up to `limit` events that opened the absence of an agent which has not ended, after
    /// the event `after`, in the order of their numbers.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn open_absences(
        &self,
        reader: &Reader,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StateError> {
        self.read(reader, WHAT, |db| {
            let sql = format!(
                "SELECT {ROW} FROM open_gap g INDEXED BY open_gap_absence
                 JOIN event e ON e.number = g.number
                 LEFT JOIN agent a ON a.number = e.agent
                 WHERE g.gap = '' AND g.number > ?1 ORDER BY g.number LIMIT ?2"
            );
            let mut select = db.prepare_cached(&sql).context(WHAT)?;
            let rows = select.query_map([after as i64, limit as i64], read_row).context(WHAT)?;
            rows.collect::<Result<_, _>>().context(WHAT)
        })
    }

    /// Returns the number of open gaps of each kind that has some, with the kind's word.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn open_gaps_by_kind(&self, reader: &Reader) -> Result<Vec<(String, u64)>, StateError> {
        self.read(reader, WHAT, |db| {
            let mut select = db
                .prepare_cached(
                    "SELECT coalesce(json_extract(CAST(e.body AS TEXT), '$.holdfast.open_gap.kind'),
                       json_extract(CAST(e.body AS TEXT), '$.holdfast.coverage.kind'), ''), count(*)
                     FROM open_gap g JOIN event e ON e.number = g.number GROUP BY 1",
                )
                .context(WHAT)?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)));
            rows.context(WHAT)?.collect::<Result<_, _>>().context(WHAT)
        })
    }

    /// Counts the changes of an agent that arrived after its event `opening` and were found before
    /// `to_us` (microseconds since the epoch). `None` if there is no such event.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn late_changes(
        &self,
        reader: &Reader,
        agent: AgentId,
        opening: &str,
        to_us: u64,
    ) -> Result<Option<LateChanges>, StateError> {
        self.read(reader, WHAT, |db| late_changes(db, agent, opening, to_us).context(WHAT))
    }
}

fn late_changes(
    db: &Connection,
    agent: AgentId,
    opening: &str,
    to_us: u64,
) -> rusqlite::Result<Option<LateChanges>> {
    let found: Option<(i64, i64)> = db
        .prepare_cached("SELECT number, kind FROM event WHERE agent = ?1 AND id = ?2")?
        .query_row(params![agent.0, opening], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let Some((number, kind)) = found else { return Ok(None) };
    // The index holds all that is asked, so no body is read.
    let mut count = db.prepare_cached(
        "SELECT count(*) FROM (
           SELECT 1 FROM event INDEXED BY event_agent_kind
           WHERE agent = ?1 AND kind = ?2 AND found_us <= ?3 AND number > ?4 LIMIT ?5)",
    )?;
    let (to_us, mut changes) = (i64::try_from(to_us).unwrap_or(i64::MAX), 0);
    for kind in numbers(&EventKind::CHANGES, &CAUSES) {
        let room = (LATE_CHANGES_MAX - changes) as i64;
        let values = params![agent.0, kind, to_us, number, room];
        changes += count.query_row(values, |r| r.get::<_, i64>(0))? as u64;
    }
    let is_open = kind == kind_number(EventKind::OpenGap);
    Ok(Some(LateChanges { is_open, changes }))
}

impl Applier<'_> {
    /// Opens or ends gaps as an event says that was just appended.
    pub(super) fn follow_gaps(
        &mut self,
        agent: AgentId,
        event: &EventColumns<'_>,
        bytes: i64,
    ) -> rusqlite::Result<()> {
        if event.is_absence() {
            self.end_gap(agent, ABSENCE)?;
        }
        if event.has_lost_gaps() {
            self.end_gaps("agent = ?1 AND gap <> ''", params![agent.0])?;
        }
        match event.lasting_gap() {
            Some((gap, true)) if agent != AgentId::SERVER => {
                self.end_gap(agent, gap)?;
                if self.number_of_open_gaps(agent)? < OPEN_GAPS_MAX {
                    self.open_gap(agent, gap, EventKind::Coverage, bytes)?;
                }
            }
            Some((gap, false)) => self.end_gap(agent, gap)?,
            _ => {}
        }
        Ok(())
    }

    /// Makes the newest event, which has `bytes` and so far the kind `from`, the start of a gap.
    pub(super) fn open_gap(
        &mut self,
        agent: AgentId,
        gap: &str,
        from: EventKind,
        bytes: i64,
    ) -> rusqlite::Result<()> {
        self.end_gap(agent, gap)?;
        let number = self.kept.progress.last_event;
        self.db
            .prepare_cached("INSERT INTO open_gap (agent, gap, number) VALUES (?1, ?2, ?3)")?
            .execute(params![agent.0, gap, number])?;
        self.change_kind(number, bytes, (from, EventKind::OpenGap))
    }

    /// Ends all gaps of the agent.
    pub(super) fn end_all_gaps(&mut self, agent: AgentId) -> rusqlite::Result<()> {
        self.end_gaps("agent = ?1", params![agent.0])
    }

    fn number_of_open_gaps(&self, agent: AgentId) -> rusqlite::Result<i64> {
        self.db
            .prepare_cached("SELECT count(*) FROM open_gap WHERE agent = ?1 AND gap <> ''")?
            .query_row([agent.0], |r| r.get(0))
    }

    /// Ends one gap, if it is open.
    fn end_gap(&mut self, agent: AgentId, gap: &str) -> rusqlite::Result<()> {
        self.end_gaps("agent = ?1 AND gap = ?2", params![agent.0, gap])
    }

    fn end_gaps(&mut self, which: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
        let sql = format!("DELETE FROM open_gap WHERE {which} RETURNING number");
        let mut delete = self.db.prepare_cached(&sql)?;
        let open: Vec<i64> = delete.query_map(values, |r| r.get(0))?.collect::<Result<_, _>>()?;
        drop(delete);
        open.into_iter().try_for_each(|number| self.has_ended(number))
    }

    fn has_ended(&mut self, number: i64) -> rusqlite::Result<()> {
        let bytes: Option<i64> = self
            .db
            .prepare_cached("SELECT length(body) FROM event WHERE number = ?1")?
            .query_row([number], |r| r.get(0))
            .optional()?;
        match bytes {
            Some(bytes) => {
                self.change_kind(number, bytes, (EventKind::OpenGap, EventKind::EndedGap))
            }
            // Retention dropped the event.
            None => Ok(()),
        }
    }

    fn change_kind(
        &mut self,
        number: i64,
        bytes: i64,
        (from, to): (EventKind, EventKind),
    ) -> rusqlite::Result<()> {
        self.db
            .prepare_cached("UPDATE event SET kind = ?2 WHERE number = ?1")?
            .execute([number, kind_number(to)])?;
        self.kept.count_events(kind_number(from), -1, -bytes);
        self.kept.count_events(kind_number(to), 1, bytes);
        Ok(())
    }
}
