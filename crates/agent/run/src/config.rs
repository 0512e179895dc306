//! The sections of an agent's configuration, and their bounds.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use detect::Rules;
use queue::{QueueDurability, Transaction};
use serde::{Deserialize, Deserializer};
use settings::bounds::{duration, within};
use settings::limits::{HEARTBEAT_MAX, INTERVAL_MAX, INTERVAL_MIN};
use telemetry::MetricsConfig;

fn some_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanConfig {
    /// Absent: an hour if realtime detection covers every path, else 5 minutes.
    #[serde(deserialize_with = "some_duration")]
    pub interval: Option<Duration>,
    pub threads: u8,
    pub max_bytes_per_second: u64,
    pub background_priority: bool,
}

impl ScanConfig {
    pub fn validate(&self) -> anyhow::Result<()> {
        if let Some(interval) = &self.interval {
            within("scan.interval", interval, &INTERVAL_MIN, &INTERVAL_MAX)?;
        }
        within("scan.threads", &self.threads, &1, &8)?;
        Ok(())
    }
}

impl Default for ScanConfig {
    fn default() -> Self {
        Self {
            interval: None,
            threads: 2,
            max_bytes_per_second: 64 * 1024 * 1024,
            background_priority: true,
        }
    }
}

/// Settings of realtime detection.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RealtimeConfig {
    pub enabled: bool,
    pub attribution: bool,
    pub checks_per_second: u32,
    pub names_max: u32,
    pub notifications_max: u32,
    pub directories_max: u32,
    pub mask: Vec<String>,
}

impl RealtimeConfig {
    pub fn validate(&self) -> anyhow::Result<()> {
        within("realtime.checks_per_second", &self.checks_per_second, &1, &1_000_000)?;
        within("realtime.names_max", &self.names_max, &100, &10_000_000)?;
        within("realtime.notifications_max", &self.notifications_max, &1_000, &10_000_000)?;
        within("realtime.directories_max", &self.directories_max, &1_000, &100_000_000)?;
        within("the number of realtime.mask", &self.mask.len(), &0, &64)?;
        Ok(())
    }
}

impl Default for RealtimeConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            attribution: true,
            checks_per_second: 2_000,
            names_max: 100_000,
            notifications_max: 500_000,
            directories_max: 1_000_000,
            mask: Vec::new(),
        }
    }
}

/// Settings of the inventory of the host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InventoryConfig {
    pub packages: bool,
    #[serde(deserialize_with = "duration")]
    pub interval: Duration,
    pub root: PathBuf,
}

impl InventoryConfig {
    pub fn validate(&self) -> anyhow::Result<()> {
        within("inventory.interval", &self.interval, &INTERVAL_MIN, &INTERVAL_MAX)?;
        if !self.root.is_absolute() {
            bail!("inventory.root = {}: must begin with /", self.root.display());
        }
        Ok(())
    }
}

impl Default for InventoryConfig {
    fn default() -> Self {
        Self { packages: true, interval: Duration::from_mins(5), root: "/".into() }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    pub durability: QueueDurability,
    pub transaction: Transaction,
    pub limit_mib: u32,
    #[serde(deserialize_with = "duration")]
    pub window: Duration,
    pub page_size: u32,
    /// Pages; the queue's default if absent.
    pub wal_autocheckpoint: Option<u32>,
    pub journal_size_limit: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            durability: QueueDurability::Process,
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
    pub fn validate(&self) -> anyhow::Result<()> {
        within("queue.limit_mib", &self.limit_mib, &1, &1_048_576)?;
        within("queue.window", &self.window, &Duration::ZERO, &Duration::from_secs(10))?;
        within("queue.page_size", &self.page_size, &512, &65_536)?;
        if !self.page_size.is_power_of_two() {
            bail!("queue.page_size = {}: must be a power of two", self.page_size);
        }
        if let Some(pages) = &self.wal_autocheckpoint {
            within("queue.wal_autocheckpoint", pages, &1, &1_000_000)?;
        }
        within("queue.journal_size_limit", &self.journal_size_limit, &0, &(1 << 40))?;
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyncConfig {
    #[serde(deserialize_with = "duration")]
    pub heartbeat: Duration,
    #[serde(deserialize_with = "duration")]
    pub check_interval: Duration,
}

impl SyncConfig {
    pub fn validate(&self) -> anyhow::Result<()> {
        within("sync.heartbeat", &self.heartbeat, &INTERVAL_MIN, &HEARTBEAT_MAX)?;
        within("sync.check_interval", &self.check_interval, &INTERVAL_MIN, &INTERVAL_MAX)?;
        Ok(())
    }
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), check_interval: Duration::from_hours(24) }
    }
}

/// The settings of an agent.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Folder of queue and identity.
    pub folder: PathBuf,
    /// Folders of the program's own data, which are not watched.
    pub excluded: Vec<PathBuf>,
    pub rules: Rules,
    pub scan: ScanConfig,
    pub realtime: RealtimeConfig,
    pub inventory: InventoryConfig,
    pub metrics: MetricsConfig,
    pub queue: QueueConfig,
    pub sync: SyncConfig,
}

impl AgentSettings {
    /// Checks that an agent can run with these settings. The error names the key.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.scan.validate()?;
        self.realtime.validate()?;
        self.inventory.validate()?;
        self.sync.validate()?;
        self.queue.validate()?;
        self.metrics.validate()?;
        Ok(self.rules.validate()?)
    }
}
