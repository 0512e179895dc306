//! Records that cannot be applied.
//!
//! Every copy of the state writes the same event for such a record. The event therefore has neither
//! a clock's time nor the text of an error, and its bytes are the same in every version of the
//! program. The row in `quarantine` has the reason.

use model::{AgentId, Coverage, CoverageKind, EventBody, Position};
use rusqlite::{OptionalExtension, params};

use super::apply::Applier;
use super::event_time::EventTime;

/// Maximum number of set-aside records that are stored; older ones are only counted.
const QUARANTINE_ROWS_MAX: u32 = 1_000;
/// Maximum bytes of set-aside records; the newest is stored whatever its size.
pub(super) const QUARANTINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl Applier<'_> {
    /// Stores a record that cannot be applied, and adds a coverage event. If the record has no time,
    /// both get that of the newest event.
    pub(super) fn set_aside(
        &mut self,
        position: Position,
        agent: AgentId,
        at_us: Option<u64>,
        bytes: &[u8],
        reason: &str,
    ) -> rusqlite::Result<()> {
        let at_us = match at_us {
            Some(at_us) => at_us,
            None => self.newest_received_us()?,
        };
        self.db
            .prepare_cached("INSERT OR REPLACE INTO quarantine VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![position.0 as i64, agent.0, at_us as i64, reason, bytes])?;
        self.db
            .prepare_cached(
                "DELETE FROM quarantine WHERE position IN
                 (SELECT position FROM
                   (SELECT position, row_number() OVER newest AS place,
                           sum(length(record)) OVER newest AS bytes FROM quarantine
                    WINDOW newest AS (ORDER BY position = ?3 DESC, at_us DESC, position DESC))
                  WHERE place > ?1 OR (place > 1 AND bytes > ?2))",
            )?
            .execute(params![
                QUARANTINE_ROWS_MAX,
                QUARANTINE_BYTES_MAX as i64,
                position.0 as i64
            ])?;
        self.kept.progress.quarantined += 1;
        let event = EventBody::of_coverage(Coverage {
            kind: CoverageKind::Quarantined,
            path: String::new(),
            from_us: at_us,
            to_us: at_us,
            found: None,
            lasting: None,
            detail: format!("record {position} of agent {agent} was set aside"),
        });
        // Positions start again after a restore, but then the store has another name.
        let store: String = self
            .db
            .prepare_cached("SELECT substr(value, 1, 8) FROM meta WHERE key = 'store_id'")?
            .query_row([], |row| row.get(0))?;
        let id = format!("quarantine-{store}-{position}");
        self.event(AgentId::SERVER, &id, EventTime::of_server(at_us), &event.to_json()).map(|_| ())
    }

    /// Returns the time at which the newest event was received, microseconds since the epoch; 0 if
    /// there is none.
    fn newest_received_us(&self) -> rusqlite::Result<u64> {
        let received: Option<i64> = self
            .db
            .prepare_cached("SELECT received_us FROM event ORDER BY number DESC LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(received.unwrap_or_default() as u64)
    }
}
