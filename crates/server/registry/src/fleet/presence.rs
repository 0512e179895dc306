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

    /// Returns the ephemeral agents without a heartbeat for their time, each with that time,
    /// ascending.
    pub(crate) fn ephemeral_due(&self, now: Now) -> Vec<(AgentId, Duration)> {
        let due = self.agents.iter().filter_map(|(id, live)| {
            let silence = Duration::from_secs(live.ephemeral_s?);
            (now.monotonic.saturating_sub(live.heard) >= silence).then_some((*id, silence))
        });
        let mut due: Vec<(AgentId, Duration)> = due.collect();
        due.sort_unstable();
        due
    }

    /// Counts an agent that got another certificate as heard now.
    pub(crate) fn enrolled_again(&mut self, id: AgentId, now: Now) {
        if let Some(live) = self.agents.get_mut(&id) {
            live.heard = now.monotonic;
        }
    }
}
