//! Events that the server makes, about itself and about agents; open gaps among them.
//!
//! An event that opens a gap has the kind [`EventKind::OpenGap`] until the gap ends, and
//! [`EventKind::EndedGap`] from then on. Its body never changes. A gap ends with the next event of
//! the agent that reports an absence as a whole, and with the agent's life. Their times are not
//! compared, because they may be of different clocks.

use model::{AgentEvent, AgentId, EventBody};
use rusqlite::params;

use super::apply::{Applier, Stop};
use super::event_time::EventTime;
use super::extract::EventColumns;
use super::kinds::kind_number;
use super::transaction_cache::TransactionCache;
use crate::query::EventKind;

impl Applier<'_> {
    /// Appends events of agents that the server made; returns the number of new ones. Those of
    /// ended lives are left out.
    pub(super) fn agent_events(&mut self, at_us: u64, events: &[AgentEvent]) -> Result<u64, Stop> {
        let mut changed = 0;
        for AgentEvent { agent, incarnation, id, body } in events {
            if !self.admit(*agent, *incarnation)? {
                continue;
            }
            let Ok(new) = self.event(*agent, id, EventTime::of_server(at_us), body)? else {
                return Err(Stop::Unfit(format!("the event of agent {agent} is not one")));
            };
            changed += u64::from(new);
            if new && EventColumns::read(body).is_some_and(|columns| columns.opens_gap()) {
                self.end_gaps(*agent)?;
                let number = self.kept.progress.last_event;
                let bytes = body.len() as i64;
                self.change_kind(number, bytes, (EventKind::Other, EventKind::OpenGap))?;
            }
        }
        Ok(changed)
    }

    /// Ends the open gap of the agent, if there is one.
    pub(super) fn end_gaps(&mut self, agent: AgentId) -> rusqlite::Result<()> {
        let open: Vec<(i64, i64)> = self
            .db
            .prepare_cached(
                "SELECT number, length(body) FROM event INDEXED BY event_agent_kind
                 WHERE agent = ?1 AND kind = ?2",
            )?
            .query_map(params![agent.0, kind_number(EventKind::OpenGap)], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        for (number, bytes) in open {
            self.change_kind(number, bytes, (EventKind::OpenGap, EventKind::EndedGap))?;
        }
        Ok(())
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

    /// Appends an event of the server itself.
    pub(super) fn server_event(
        &mut self,
        id: &str,
        at_us: u64,
        event: &EventBody,
    ) -> rusqlite::Result<()> {
        self.event(AgentId::SERVER, id, EventTime::of_server(at_us), &event.to_json()).map(|_| ())
    }

    /// Returns the rows kept in memory, for retention to update.
    pub(super) fn cached_rows(&mut self) -> &mut TransactionCache {
        &mut self.kept
    }
}
