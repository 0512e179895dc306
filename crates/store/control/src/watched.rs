//! The state in which agents watch their roots, as they report it.

use model::{AgentId, CoverageState, WatchReport};

use crate::Permitted;

/// An agent's last report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchRow {
    /// Time at which the server received it, seconds since the epoch.
    pub reported_s: i64,
    pub report: WatchReport,
}

/// Selection of reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchQuery {
    pub permitted: Permitted,
    /// Only agents with a root in this state.
    pub state: Option<CoverageState>,
    /// Number of agents to skip.
    pub offset: u64,
    /// Most agents to return.
    pub limit: u64,
}

/// One page of reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchPage {
    pub items: Vec<(AgentId, WatchRow)>,
    /// Number of all agents that match.
    pub total: u64,
}
