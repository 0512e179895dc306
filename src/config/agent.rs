//! `agent.toml`.

use std::path::PathBuf;

use anyhow::bail;
use run::{
    AgentSettings, InventoryConfig, MetricsConfig, QueueConfig, RealtimeConfig, ScanConfig,
    SyncConfig,
};
use serde::Deserialize;

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
    pub(crate) realtime: RealtimeConfig,
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
            realtime: RealtimeConfig::default(),
            inventory: InventoryConfig::default(),
            metrics: MetricsConfig::default(),
            queue: QueueConfig::default(),
            sync: SyncConfig::default(),
            watch: detect::Rules::default(),
        }
    }
}

impl AgentConfig {
    /// Returns the settings of an agent. Without a watch list it watches the usual system paths.
    pub(crate) fn into_settings(self) -> AgentSettings {
        let is_default = self.watch.0.is_empty();
        let rules = if is_default { detect::Rules::default_system() } else { self.watch };
        AgentSettings {
            rules,
            excluded: vec![self.data.clone()],
            folder: self.data,
            scan: self.scan,
            realtime: self.realtime,
            inventory: self.inventory,
            metrics: self.metrics,
            queue: self.queue,
            sync: self.sync,
        }
    }

    /// Returns an error for the first value that no agent can run with. The error names its key.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        self.scan.validate()?;
        self.realtime.validate()?;
        self.inventory.validate()?;
        self.sync.validate()?;
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
        Ok(self.watch.validate()?)
    }
}
