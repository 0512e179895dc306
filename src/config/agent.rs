//! `agent.toml`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::duration;

/// A commented file with every key at its default.
pub(crate) const DEFAULT_AGENT: &str = include_str!("agent.default.toml");

/// The whole of `agent.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentConfig {
    pub(crate) data: PathBuf,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) scan: ScanConfig,
    pub(crate) queue: QueueConfig,
    pub(crate) sync: SyncConfig,
    pub(crate) watch: detect::Rules,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            data: "./agent".into(),
            server: "https://127.0.0.1:1517".into(),
            name: String::new(),
            scan: ScanConfig::default(),
            queue: QueueConfig::default(),
            sync: SyncConfig::default(),
            watch: detect::Rules::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScanConfig {
    #[serde(deserialize_with = "duration")]
    pub(crate) interval: Duration,
    pub(crate) threads: u8,
    pub(crate) max_bytes_per_second: u64,
    pub(crate) background_priority: bool,
}

impl Default for ScanConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_hours(1),
            threads: 2,
            max_bytes_per_second: 64 * 1024 * 1024,
            background_priority: true,
        }
    }
}

/// What survives what (`docs/format/agent-db.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    Process,
    Power,
}

/// How changes are grouped into transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transaction {
    Group,
    PerEvent,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueConfig {
    pub(crate) durability: Durability,
    pub(crate) transaction: Transaction,
    pub(crate) limit_mib: u32,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { durability: Durability::Process, transaction: Transaction::Group, limit_mib: 1024 }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SyncConfig {
    #[serde(deserialize_with = "duration")]
    pub(crate) heartbeat: Duration,
    #[serde(deserialize_with = "duration")]
    pub(crate) check_interval: Duration,
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), check_interval: Duration::from_hours(24) }
    }
}
