//! Agents that are silent, have left or are ephemeral: their state besides the status of the 4.x API.
//! Memory only.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{Permitted, StatusCode};
use model::AgentId;

use crate::Registry;
use crate::fleet::Fleet;
use crate::types::SilentAgents;

/// Number of names in [`SilentAgents`].
const NAMES_MAX: usize = 3;

impl Registry {
    /// Replaces the set of agents that have an open gap and were not heard since. Each has the
    /// time since when it is silent, microseconds since the epoch. An ephemeral agent is not part of it.
    pub fn set_silent(&self, silent: BTreeMap<AgentId, u64>) {
        self.inner.fleet.write().set_silent(silent);
    }

    /// Returns the silent agents of a scope.
    pub fn silent_agents(&self, permitted: &Permitted) -> SilentAgents {
        silent_of(&self.inner.fleet.read(), permitted)
    }

    /// Returns the time since when the agent is silent, microseconds since the epoch.
    pub fn silent_since(&self, id: AgentId) -> Option<u64> {
        self.inner.fleet.read().silent().get(&id).copied()
    }

    /// Marks the agent as one that has left the fleet: it is disconnected, and not silent. If it
    /// is heard again, it is back. Returns false if there is no such agent.
    pub fn leave(&self, id: AgentId) -> bool {
        self.inner.fleet.write().goodbye(id, StatusCode::Left, self.now())
    }

    /// Returns true if the agent has left the fleet.
    pub fn has_left(&self, id: AgentId) -> bool {
        let fleet = self.inner.fleet.read();
        fleet.row(id).is_some_and(|(_, code)| code == StatusCode::Left)
    }

    /// Returns the ephemeral agents without a heartbeat for their time, each with that time,
    /// ascending.
    pub fn ephemeral_due(&self) -> Vec<(AgentId, Duration)> {
        self.inner.fleet.read().ephemeral_due(self.now())
    }
}

fn silent_of(fleet: &Fleet, permitted: &Permitted) -> SilentAgents {
    let mut silent: Vec<(u64, AgentId)> = fleet
        .silent()
        .iter()
        .filter(|(id, _)| permitted.holds(**id))
        .map(|(id, since_us)| (*since_us, *id))
        .collect();
    silent.sort_unstable();
    let name = |(_, id): &(u64, AgentId)| fleet.get(*id).map(|record| record.name.clone());
    SilentAgents {
        count: silent.len() as u64,
        oldest_us: silent.first().map(|(since_us, _)| *since_us),
        names: silent.iter().filter_map(name).take(NAMES_MAX).collect(),
    }
}
