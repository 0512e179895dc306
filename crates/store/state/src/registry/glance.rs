//! The fleet at a glance, groups with their configuration, and what an agent told of its scans.

use serde::Serialize;

use super::{AgentRow, Summary};

/// The fleet at a glance from one snapshot, without 000; kept, not counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    /// By status, group and version.
    pub summary: Summary,
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
    /// Its name.
    pub name: String,
    /// Its agents.
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

/// What an agent told of its last scan, seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastScan {
    /// When it began.
    pub started_at_s: Option<i64>,
    /// When it ended; `None` or before the start while it runs.
    pub ended_at_s: Option<i64>,
}
