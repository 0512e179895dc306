//! Gaps in coverage, which are reported as events: the items, the interval, and the result of the
//! rescan.

use serde::{Deserialize, Serialize};

/// The reason for a gap in coverage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CoverageKind {
    /// The agent was not running.
    AgentDown,
    /// A path was scanned for the first time; its content became the baseline.
    Baseline,
    /// A root is missing, not mounted, or on another device than before.
    RootGone,
    /// A root or a directory below it could not be read.
    Unreadable,
    /// The wall clock jumped.
    ClockJump,
    /// The same file system has another device number; no change was missed.
    Renumbered,
    /// A queue of notifications overflowed.
    Overflow,
    /// Notifications were not delivered for some time, or a file system was mounted or unmounted.
    /// The roots were compared completely.
    WatchInterrupted,
    /// A limit was reached and something was left out.
    LimitReached,
    /// The agent's database was damaged and rebuilt.
    DatabaseRebuilt,
    /// Events were dropped because the queue had reached its byte limit.
    EventsDropped,
    /// The server dropped events past their retention.
    Retention,
    /// A record could not be applied and was set aside.
    Quarantined,
    /// The disk is nearly full.
    DiskLow,
    /// The server dropped a follower of its journal, which kept too much data for it.
    FollowerDropped,
    /// An agent's identity is in use on two machines; one of them was refused.
    IdentityCloned,
    /// The server did not hear from the agent.
    AgentSilent,
    /// The agent said goodbye and has not returned.
    AgentStopped,
}

impl CoverageKind {
    /// Returns the word in events and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::AgentDown => "agent_down",
            Self::Baseline => "baseline",
            Self::RootGone => "root_gone",
            Self::Unreadable => "unreadable",
            Self::ClockJump => "clock_jump",
            Self::Renumbered => "renumbered",
            Self::Overflow => "overflow",
            Self::WatchInterrupted => "watch_interrupted",
            Self::LimitReached => "limit_reached",
            Self::DatabaseRebuilt => "database_rebuilt",
            Self::EventsDropped => "events_dropped",
            Self::Retention => "retention",
            Self::Quarantined => "quarantined",
            Self::DiskLow => "disk_low",
            Self::FollowerDropped => "follower_dropped",
            Self::IdentityCloned => "identity_cloned",
            Self::AgentSilent => "agent_silent",
            Self::AgentStopped => "agent_stopped",
        }
    }
}

/// One interval in which changes may have been missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    pub kind: CoverageKind,
    /// Root or path concerned; empty when all are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Start, microseconds since the epoch.
    pub from_us: u64,
    /// End, microseconds since the epoch.
    pub to_us: u64,
    /// Number of changes that the rescan found afterwards, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// The gap of which this is the start or the end; `None` if the event reports a gap as a whole.
    #[serde(flatten)]
    pub lasting: Option<LastingGap>,
    /// Description for people, with the remedy where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A gap that an agent reports when it opens and when it ends: the start and the end name the same
/// gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastingGap {
    /// The agent's id of the gap, at most [`GAP_ID_BYTES_MAX`] bytes.
    pub gap: String,
    /// True for the start. Its `to_us` is no end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

/// Largest id of a gap, bytes. An event with a larger one reports a gap as a whole.
pub const GAP_ID_BYTES_MAX: usize = 64;

impl LastingGap {
    pub fn start(gap: impl Into<String>) -> Self {
        Self { gap: gap.into(), open: true }
    }

    pub fn end(gap: impl Into<String>) -> Self {
        Self { gap: gap.into(), open: false }
    }
}

/// An interval that has not ended: the server does not hear from an agent. A [`Coverage`] of the
/// same agent ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenGap {
    pub kind: CoverageKind,
    /// Start, microseconds since the epoch.
    pub from_us: u64,
    /// Description for people, with the remedy where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}
