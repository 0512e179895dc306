//! Stored counters.

use std::path::Path;

use model::{AgentId, Dataset, Incarnation};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::connections::BUSY_WAIT;
use super::transaction_cache::Progress;
use super::{StateStore, kinds};
use crate::error::{Context, StateError};
use crate::query::{AgentCounts, EventKind, StateCounts};
use sqlite::Reader;

impl StateStore {
    /// Returns the stored counters of the whole store.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn counts(&self, reader: &Reader) -> Result<StateCounts, StateError> {
        self.read(reader, "read the counters", |db| counts(db).context("read the counters"))
    }

    /// Returns the stored counters of one agent.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn agent_counts(&self, reader: &Reader, agent: AgentId) -> Result<AgentCounts, StateError> {
        self.read(reader, "read the counters", |db| {
            agent_counts(db, agent).context("read the counters")
        })
    }
}

impl StateStore {
    /// Returns the highest number of an enrolled agent, present or removed, that a state's file knows;
    /// 000 if it knows none. Local senders may use any number and do not count.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn peek_highest_agent(file: &Path) -> Result<AgentId, StateError> {
        const WHAT: &str = "read the state's agents";
        const SQL: &str = "SELECT coalesce(max(number), 0) FROM (
            SELECT max(number) AS number FROM agent WHERE incarnation <> 0
            UNION ALL SELECT max(agent) FROM removed WHERE incarnation <> 0)";
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = Connection::open_with_flags(file, flags).context(WHAT)?;
        db.busy_timeout(BUSY_WAIT).context(WHAT)?;
        db.query_row(SQL, [], |row| row.get(0)).map(AgentId).context(WHAT)
    }
}

/// Returns the counters of the whole store.
pub(super) fn counts(db: &Connection) -> rusqlite::Result<StateCounts> {
    let progress = Progress::load(db)?;
    let mut counts = StateCounts {
        tombstones: progress.tombstones as u64,
        quarantined: progress.quarantined as u64,
        events_by_kind: EventKind::ALL.iter().map(|k| (*k, 0)).collect(),
        changes_by_cause: kinds::CAUSES.iter().map(|c| (*c, 0)).collect(),
        ..StateCounts::default()
    };
    let mut datasets =
        db.prepare_cached("SELECT name, documents, bytes FROM dataset ORDER BY name")?;
    for row in datasets.query_map([], read_count)? {
        counts.documents.push(row?);
    }
    let mut counters = db.prepare_cached("SELECT kind, events, bytes FROM event_kind_count")?;
    let mut rows = counters.query([])?;
    while let Some(row) = rows.next()? {
        let (number, events) = (row.get(0)?, row.get::<_, i64>(1)? as u64);
        let (kind, cause) = (kinds::kind_of(number), kinds::cause_of(number));
        counts.events += events;
        counts.event_bytes += row.get::<_, i64>(2)? as u64;
        for counted in counts.events_by_kind.iter_mut().filter(|(k, _)| *k == kind) {
            counted.1 += events;
        }
        let change = EventKind::CHANGES.contains(&kind);
        for counted in counts.changes_by_cause.iter_mut().filter(|(c, _)| change && *c == cause) {
            counted.1 += events;
        }
    }
    Ok(counts)
}

/// Returns the counters of one agent.
fn agent_counts(db: &Connection, agent: AgentId) -> rusqlite::Result<AgentCounts> {
    let mut counts = db
        .prepare_cached("SELECT events, last_session_us, incarnation FROM agent WHERE number = ?1")?
        .query_row([agent.0], |r| {
            Ok(AgentCounts {
                events: r.get::<_, i64>(0)? as u64,
                last_session_at_us: r.get::<_, Option<i64>>(1)?.map(|us| us as u64),
                life: r.get::<_, Option<i64>>(2)?.map(|life| Incarnation(life as u64)),
                ..AgentCounts::default()
            })
        })
        .optional()?
        .unwrap_or_default();
    let mut collections = db.prepare_cached(
        "SELECT d.name, c.documents, c.bytes FROM collection c JOIN dataset d ON d.number = c.dataset
         WHERE c.agent = ?1 AND c.documents > 0 ORDER BY d.name",
    )?;
    for row in collections.query_map([agent.0], read_count)? {
        counts.documents.push(row?);
    }
    Ok(counts)
}

fn read_count(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Dataset, u64, u64)> {
    let name: String = row.get(0)?;
    Ok((Dataset::new(name), row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64))
}
