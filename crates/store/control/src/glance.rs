//! The fleet's counters, groups with their configuration, and the last scan of an agent.

use model::AgentStatus;
use serde::Serialize;

use super::AgentRow;

/// The fleet at a glance from one snapshot, without 000; kept, not counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    /// By status, group and version.
    pub summary: FleetSummary,
    /// Every group, most agents first.
    pub groups: Vec<GroupCount>,
    /// OS name, platform and version with their agents, most first.
    pub systems: Vec<([String; 3], u64)>,
    /// The agent with the highest number.
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
    /// As it was put.
    pub body: Vec<u8>,
    /// Its MD5 in hex.
    pub sum: String,
    /// Since when, seconds since the epoch.
    pub at_s: i64,
}

/// The last scan as an agent reported it, seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastScan {
    /// When it began.
    pub started_at_s: Option<i64>,
    /// When it ended; `None` or before the start while it runs.
    pub ended_at_s: Option<i64>,
}

/// Agents by status, without 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StatusSummary {
    /// Heard from within the disconnection time.
    pub active: u64,
    /// Silent, or said goodbye.
    pub disconnected: u64,
    /// Registered, never heard from.
    pub never_connected: u64,
    /// Started, no keepalive yet.
    pub pending: u64,
    pub total: u64,
    /// Those that run what their groups configure.
    pub synced: u64,
}

impl StatusSummary {
    /// One more agent of a status.
    pub fn add(&mut self, status: AgentStatus) {
        *self.of(status) += 1;
        self.total += 1;
    }

    /// One agent of a status less.
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
    /// Platform and agents, most first.
    pub os: Vec<(String, u64)>,
    /// Group and agents, most first; groups without agents included.
    pub groups: Vec<(String, u64)>,
    /// Version and agents, most first.
    pub versions: Vec<(String, u64)>,
}
