//! Agents that are silent, and ephemeral ones.

use std::collections::BTreeMap;
use std::time::Duration;

use model::AgentId;

use super::{Fleet, Now};

impl Fleet {
    /// Replaces the set of silent agents; ephemeral and removed ones are left out.
    pub(crate) fn set_silent(&mut self, mut silent: BTreeMap<AgentId, u64>) {
        silent.retain(|id, _| self.agents.get(id).is_some_and(|live| live.ephemeral_s.is_none()));
        self.silent = silent;
    }

    /// Returns the silent agents with the time since when, microseconds since the epoch.
    pub(crate) fn silent(&self) -> &BTreeMap<AgentId, u64> {
        &self.silent
    }

    /// Returns the silence after which the agent is removed, seconds.
    pub(crate) fn ephemeral_s(&self, id: AgentId) -> Option<u64> {
        self.agents.get(&id)?.ephemeral_s
    }

    /// Returns the ephemeral agents that were silent for their time, ascending.
    pub(crate) fn ephemeral_due(&self, now: Now) -> Vec<AgentId> {
        let is_due = |heard: Duration, limit_s: u64| {
            now.monotonic.saturating_sub(heard) >= Duration::from_secs(limit_s)
        };
        let mut due: Vec<AgentId> = self
            .agents
            .iter()
            .filter(|(_, live)| live.ephemeral_s.is_some_and(|limit_s| is_due(live.heard, limit_s)))
            .map(|(id, _)| *id)
            .collect();
        due.sort_unstable();
        due
    }
}
