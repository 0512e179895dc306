//! Events that the server makes about agents.

use model::AgentEvent;

use super::apply::{Applier, Stop};
use super::event_time::EventTime;
use super::gaps::ABSENCE;
use crate::query::EventKind;
use columns::EventColumns;

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
                self.open_gap(*agent, ABSENCE, EventKind::Other, body.len() as i64)?;
            }
        }
        Ok(changed)
    }
}
