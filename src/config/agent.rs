//! `agent.toml`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde::Deserialize;

use super::{SCAN_INTERVAL, duration, within};

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
    pub(crate) inventory: InventoryConfig,
    pub(crate) metrics: MetricsConfig,
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
            inventory: InventoryConfig::default(),
            metrics: MetricsConfig::default(),
            queue: QueueConfig::default(),
            sync: SyncConfig::default(),
            watch: detect::Rules::default(),
        }
    }
}

impl AgentConfig {
    /// Values that no agent can run with, each by its key.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        let (tick, year) = SCAN_INTERVAL;
        within("scan.interval", &self.scan.interval, &tick, &year)?;
        within("inventory.interval", &self.inventory.interval, &tick, &year)?;
        within("scan.threads", &self.scan.threads, &1, &8)?;
        within("sync.heartbeat", &self.sync.heartbeat, &tick, &Duration::from_mins(5))?;
        within("sync.check_interval", &self.sync.check_interval, &tick, &year)?;
        self.queue.validate()?;
        self.metrics.validate()?;
        if !self.server.starts_with("https://") {
            bail!("server = {:?}: must begin with https://", self.server);
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let length = self.name.len();
        if length > 0 && (!(2..=128).contains(&length) || !self.name.chars().all(fits)) {
            bail!("name = {:?}: must have 2 to 128 of A-Z a-z 0-9 . _ -", self.name);
        }
        if self.data.as_os_str().is_empty() {
            bail!("data is empty: name a folder");
        }
        if !self.inventory.root.is_absolute() {
            bail!("inventory.root = {}: must begin with /", self.inventory.root.display());
        }
        Ok(self.watch.validate()?)
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

/// What is told of the host beside its files.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct InventoryConfig {
    pub(crate) packages: bool,
    #[serde(deserialize_with = "duration")]
    pub(crate) interval: Duration,
    pub(crate) root: PathBuf,
}

impl Default for InventoryConfig {
    fn default() -> Self {
        Self { packages: true, interval: Duration::from_mins(5), root: "/".into() }
    }
}

/// The host's metrics.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MetricsConfig {
    pub(crate) enabled: bool,
    #[serde(deserialize_with = "duration")]
    pub(crate) interval: Duration,
    pub(crate) processes: Vec<String>,
    pub(crate) ignore_interfaces: Vec<String>,
    pub(crate) own: bool,
    pub(crate) limit_mib: u32,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        let interval = Duration::from_secs(10);
        Self {
            enabled: true,
            interval,
            processes: Vec::new(),
            ignore_interfaces: host::metrics::ignored_interfaces(),
            own: false,
            limit_mib: 64,
        }
    }
}

/// Most processes that are looked at by name.
const PROCESSES_MAX: usize = 64;
/// Most patterns of interfaces that are left out.
const IGNORED_MAX: usize = 64;
/// Longest name of a process, bytes (`TASK_COMM_LEN` less its end, proc(5)).
const PROCESS_BYTES_MAX: usize = 15;

impl MetricsConfig {
    fn validate(&self) -> anyhow::Result<()> {
        let (least, most) = (Duration::from_millis(100), Duration::from_hours(24));
        within("metrics.interval", &self.interval, &least, &most)?;
        within("metrics.limit_mib", &self.limit_mib, &1, &1_048_576)?;
        within("the number of metrics.processes", &self.processes.len(), &0, &PROCESSES_MAX)?;
        for name in &self.processes {
            if name.is_empty() || name.len() > PROCESS_BYTES_MAX || name.contains(['/', '\n']) {
                bail!(
                    "metrics.processes: {name:?} is no name as in /proc/PID/comm: 1 to \
                     {PROCESS_BYTES_MAX} bytes"
                );
            }
        }
        let ignored = &self.ignore_interfaces;
        within("the number of metrics.ignore_interfaces", &ignored.len(), &0, &IGNORED_MAX)?;
        for pattern in ignored {
            if pattern.is_empty() || pattern.trim_end_matches('*').contains('*') {
                bail!(
                    "metrics.ignore_interfaces: {pattern:?} is neither a name such as \"tun0\" nor how \
                     names begin, such as \"veth*\""
                );
            }
        }
        Ok(())
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
    #[serde(deserialize_with = "duration")]
    pub(crate) window: Duration,
    pub(crate) page_size: u32,
    /// Pages; the queue chooses where nothing is said.
    pub(crate) wal_autocheckpoint: Option<u32>,
    pub(crate) journal_size_limit: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Process,
            transaction: Transaction::Group,
            limit_mib: 1024,
            window: Duration::from_millis(20),
            page_size: 4096,
            wal_autocheckpoint: None,
            journal_size_limit: 32 * 1024 * 1024,
        }
    }
}

impl QueueConfig {
    fn validate(&self) -> anyhow::Result<()> {
        within("queue.limit_mib", &self.limit_mib, &1, &1_048_576)?;
        within("queue.window", &self.window, &Duration::ZERO, &Duration::from_secs(10))?;
        within("queue.page_size", &self.page_size, &512, &65_536)?;
        if !self.page_size.is_power_of_two() {
            bail!("queue.page_size = {}: must be a power of two", self.page_size);
        }
        if let Some(pages) = &self.wal_autocheckpoint {
            within("queue.wal_autocheckpoint", pages, &1, &1_000_000)?;
        }
        within("queue.journal_size_limit", &self.journal_size_limit, &0, &(1 << 40))
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
