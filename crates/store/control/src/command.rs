//! Commands to agents, and each agent's outcome.

use model::AgentId;
use serde::{Deserialize, Serialize};

/// An action that a command asks of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommandKind {
    /// Scan everything again now.
    Rescan,
    /// Restart the agent's program.
    Restart,
    /// Drop the connection and connect again.
    Reconnect,
    /// Apply the configuration of the agent's groups.
    Configure,
}

impl CommandKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Rescan, Self::Restart, Self::Reconnect, Self::Configure];

    /// Returns the word on the wire and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rescan => "rescan",
            Self::Restart => "restart",
            Self::Reconnect => "reconnect",
            Self::Configure => "configure",
        }
    }

    /// Returns the kind named by a word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// A command as one agent gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Command {
    pub id: u64,
    pub kind: CommandKind,
}

/// A command to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommand {
    pub kind: CommandKind,
    pub agents: Vec<AgentId>,
    /// User who created it.
    pub user: String,
    /// Now, seconds since the epoch.
    pub now_s: i64,
    /// When an unfinished outcome counts as expired, seconds since the epoch.
    pub expires_at_s: i64,
}

/// State of a command at one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeState {
    /// Not handed out yet.
    Pending,
    /// Handed out, not answered yet.
    Sent,
    /// The agent reported success.
    Acknowledged,
    /// The agent reported a failure.
    Failed,
    /// It expired without an answer.
    Expired,
    Cancelled,
}

impl OutcomeState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Sent,
        Self::Acknowledged,
        Self::Failed,
        Self::Expired,
        Self::Cancelled,
    ];

    /// Returns the word in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Acknowledged => "acknowledged",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state named by a word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Returns true if no other state follows. The exception is an agent's own answer, which
    /// replaces `expired` and `cancelled` because it says what really happened.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Sent)
    }
}

/// One agent's outcome of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutcomeRow {
    pub command: u64,
    pub agent: AgentId,
    pub state: OutcomeState,
    /// Detail that the agent reported.
    pub detail: String,
    /// Time of the present state, seconds since the epoch.
    pub at_s: i64,
}

/// Outcome of a command as an agent reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// Acknowledged or failed.
    pub state: OutcomeState,
    pub detail: String,
}

/// Number of agents by state, stored with the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CommandCounts {
    /// Not handed out yet.
    pub pending: u64,
    /// Handed out, not answered yet.
    pub sent: u64,
    pub acknowledged: u64,
    pub failed: u64,
    /// Not answered in time.
    pub expired: u64,
    pub cancelled: u64,
    pub total: u64,
}

impl CommandCounts {
    /// Adds `n` agents of a state.
    pub(crate) fn add(&mut self, state: OutcomeState, n: u64) {
        self.total += n;
        *match state {
            OutcomeState::Pending => &mut self.pending,
            OutcomeState::Sent => &mut self.sent,
            OutcomeState::Acknowledged => &mut self.acknowledged,
            OutcomeState::Failed => &mut self.failed,
            OutcomeState::Expired => &mut self.expired,
            OutcomeState::Cancelled => &mut self.cancelled,
        } += n;
    }

    /// Returns the counts minus those of `other`.
    pub(crate) fn without(self, other: Self) -> Self {
        Self {
            pending: self.pending.saturating_sub(other.pending),
            sent: self.sent.saturating_sub(other.sent),
            acknowledged: self.acknowledged.saturating_sub(other.acknowledged),
            failed: self.failed.saturating_sub(other.failed),
            expired: self.expired.saturating_sub(other.expired),
            cancelled: self.cancelled.saturating_sub(other.cancelled),
            total: self.total.saturating_sub(other.total),
        }
    }
}

/// A command with its counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandRow {
    pub id: u64,
    pub kind: CommandKind,
    /// User who created it.
    pub user: String,
    /// Time of creation, seconds since the epoch.
    pub created_at_s: i64,
    /// When unfinished outcomes expire, seconds since the epoch.
    pub expires_at_s: i64,
    /// Number of agents by state.
    pub counts: CommandCounts,
}

/// An unfinished command, and the agents that have not answered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCommand {
    pub id: u64,
    pub kind: CommandKind,
    /// User who created it.
    pub user: String,
    /// When it expires, seconds since the epoch.
    pub expires_at_s: i64,
    /// Agents that have not answered, ascending.
    pub agents: Vec<AgentId>,
}

/// Selection of outcomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeFilter {
    pub state: Option<OutcomeState>,
    /// Only outcomes of agents with a higher number.
    pub after: Option<AgentId>,
    /// Maximum number of outcomes.
    pub limit: u64,
}
