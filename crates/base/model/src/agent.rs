//! Agents as the server knows them.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Incarnation};

/// The connection status of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// Heard from within the disconnection time.
    Active,
    /// Started, no keepalive yet.
    Pending,
    /// Silent for longer than the disconnection time, or shut down.
    Disconnected,
    /// Registered, never heard from.
    NeverConnected,
}

impl AgentStatus {
    /// All statuses, in the order in which counters list them.
    pub const ALL: [Self; 4] =
        [Self::Active, Self::Disconnected, Self::NeverConnected, Self::Pending];

    /// Returns the word in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Disconnected => "disconnected",
            Self::NeverConnected => "never_connected",
        }
    }

    /// Returns the status of a word of the API.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// The operating system that an agent reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct AgentOs {
    /// `Debian GNU/Linux`.
    pub name: String,
    /// `debian`.
    pub platform: String,
    /// `linux`.
    #[serde(rename = "type")]
    pub family: String,
    /// `12`.
    pub version: String,
    /// `x86_64`.
    pub arch: String,
    /// Kernel line as `uname -a` gives it.
    pub uname: String,
    /// `bookworm`; empty if the system has none, or if the agent is older.
    #[serde(default)]
    pub codename: String,
}

/// One registered agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub id: AgentId,
    /// Incarnation of that number.
    pub incarnation: Incarnation,
    /// Its name, unique.
    pub name: String,
    /// Address it was registered with, or `any`.
    pub register_ip: String,
    /// Address it was last heard from.
    pub ip: Option<String>,
    /// Version of its program, e.g. `Holdfast v0.1.0`.
    pub version: Option<String>,
    /// Its host name.
    pub hostname: Option<String>,
    /// Its operating system.
    pub os: Option<AgentOs>,
    /// Groups, in order of priority.
    pub groups: Vec<String>,
    /// Connection status.
    pub status: AgentStatus,
    /// When it was registered, seconds since the epoch.
    pub added_at_s: i64,
    /// When it was last heard from, seconds since the epoch.
    pub keepalive_at_s: Option<i64>,
    /// When it was found disconnected, seconds since the epoch.
    pub disconnected_at_s: Option<i64>,
}
