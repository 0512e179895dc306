//! The fleet's counters, groups with their configuration, and the last scan of an agent.

use model::AgentStatus;
use serde::Serialize;

use super::AgentRow;

/// The fleet at a glance from one snapshot, without agent 000. Read from stored counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    /// Number of agents by status, group and version.
    pub summary: FleetSummary,
    /// All groups, by number of agents, descending.
    pub groups: Vec<GroupCount>,
    /// OS name, platform and version with the number of agents, descending.
    pub systems: Vec<([String; 3], u64)>,
    /// The agent that was registered last.
    pub last: Option<AgentRow>,
}

/// A group and how many agents are in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GroupCount {
    pub name: String,
    pub count: u64,
    /// MD5 of its configuration in hex; empty when it has none.
    pub config_sum: String,
}

/// The configuration of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// The text as it was stored.
    pub body: Vec<u8>,
    /// Its MD5 in hex.
    pub sum: String,
    /// Time at which it was stored, seconds since the epoch.
    pub at_s: i64,
}

/// The last scan as an agent reported it, seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastScan {
    /// Start of the scan.
    pub started_at_s: Option<i64>,
    /// End of the scan; `None`, or before the start, while the scan runs.
    pub ended_at_s: Option<i64>,
}

/// Agents by status, without 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StatusSummary {
    /// Heard from within the disconnection time.
    pub active: u64,
    /// Silent for too long, or shut down.
    pub disconnected: u64,
    /// Registered, never heard from.
    pub never_connected: u64,
    /// Started, no keepalive yet.
    pub pending: u64,
    pub total: u64,
    /// Agents that run the configuration of their groups.
    pub synced: u64,
}

impl StatusSummary {
    /// Adds an agent of a status.
    pub fn add(&mut self, status: AgentStatus) {
        *self.of(status) += 1;
        self.total += 1;
    }

    /// Removes an agent of a status.
    pub fn remove_agent(&mut self, status: AgentStatus) {
        let count = self.of(status);
        *count = count.saturating_sub(1);
        self.total = self.total.saturating_sub(1);
    }

    fn of(&mut self, status: AgentStatus) -> &mut u64 {
        match status {
            AgentStatus::Active => &mut self.active,
            AgentStatus::Disconnected => &mut self.disconnected,
            AgentStatus::NeverConnected => &mut self.never_connected,
            AgentStatus::Pending => &mut self.pending,
        }
    }
}

/// The fleet's counters from one snapshot, without 000.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FleetSummary {
    pub status: StatusSummary,
    /// Number of agents by platform, descending.
    pub os: Vec<(String, u64)>,
    /// Number of agents by group, descending; groups without agents are included.
    pub groups: Vec<(String, u64)>,
    /// Number of agents by version, descending.
    pub versions: Vec<(String, u64)>,
}
