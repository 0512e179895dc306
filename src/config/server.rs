//! `server.toml`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde::Deserialize;
use settings::bounds::{duration, within};

use super::{SeriesConfig, expect_both, expect_hosts, expect_origins};

/// A commented file with every key at its default.
pub(crate) const DEFAULT_SERVER: &str = concat!(
    include_str!("server.default.toml"),
    "\n# The series store.\n[series]\n",
    include_str!("series.default.toml")
);

/// The whole of `server.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    pub(crate) data: PathBuf,
    pub(crate) cluster_name: String,
    pub(crate) node_name: String,
    pub(crate) api: ApiConfig,
    pub(crate) auth: AuthConfig,
    pub(crate) db: DbConfig,
    pub(crate) agents: AgentsConfig,
    pub(crate) cache: CacheConfig,
    pub(crate) journal: JournalConfig,
    pub(crate) retention: RetentionConfig,
    pub(crate) series: SeriesConfig,
    /// The file that the configuration was read from, if any.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            data: "./data".into(),
            cluster_name: "holdfast".into(),
            node_name: "node01".into(),
            api: ApiConfig::default(),
            auth: AuthConfig::default(),
            db: DbConfig::default(),
            agents: AgentsConfig::default(),
            cache: CacheConfig::default(),
            journal: JournalConfig::default(),
            retention: RetentionConfig::default(),
            series: SeriesConfig::default(),
            file: None,
        }
    }
}

impl ServerConfig {
    /// Returns an error for the first value that no server can run with. The error names its key.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
        let year = Duration::from_hours(365 * 24);
        within("api.token_timeout", &self.api.token_timeout, &second, &year)?;
        within("api.request_timeout", &self.api.request_timeout, &second, &year)?;
        within("auth.workers", &self.auth.workers, &1, &50)?;
        within("db.readers", &self.db.readers, &1, &64)?;
        within("db.wal_mib", &self.db.wal_mib, &1, &65_536)?;
        within("agents.connections_max", &self.agents.connections_max, &1, &1_000_000)?;
        // The minima are one whole session: 20 MiB, which take 50 MiB of memory.
        within("agents.in_flight_mib", &self.agents.in_flight_mib, &64, &65_536)?;
        within("agents.share_mib", &self.agents.share_mib, &20, &65_536)?;
        within("api.max_connections", &self.api.max_connections, &8, &100_000)?;
        // The minimum is above the default heartbeat of agents.
        within("agents.idle_time", &self.agents.idle_time, &(second * 11), &year)?;
        expect_both("api.", &self.api.tls_cert, &self.api.tls_key)?;
        expect_hosts("api.names", &self.api.names)?;
        expect_hosts("agents.names", &self.agents.names)?;
        expect_origins("api.cors_origins", &self.api.cors_origins)?;
        within("auth.block_time", &self.auth.block_time, &second, &year)?;
        let silent = &self.agents.disconnection_time;
        within("agents.disconnection_time", silent, &second, &year)?;
        within("agents.quiet_start", &self.agents.quiet_start, &Duration::ZERO, &hour)?;
        within("cache.ttl", &self.cache.ttl, &Duration::ZERO, &CACHE_TTL_MAX)?;
        within("journal.segment_mib", &self.journal.segment_mib, &1, &1024)?;
        let most = 1_u64 << 50;
        within("journal.follow_bytes_max", &self.journal.follow_bytes_max, &(1 << 20), &most)?;
        within("retention.events_age", &self.retention.events_age, &hour, &(year * 100))?;
        within("retention.events_gib", &self.retention.events_gib, &1, &1_048_576)?;
        self.series.validate("series.")?;
        if self.api.plain_http && !self.api.listen.ip().is_loopback() {
            bail!("api.plain_http: only on a loopback address, not on {}", self.api.listen);
        }
        if self.api.listen == self.agents.listen && self.api.listen.port() != 0 {
            bail!("api.listen and agents.listen are both {}: choose two", self.api.listen);
        }
        for (key, name) in [("cluster_name", &self.cluster_name), ("node_name", &self.node_name)] {
            if name.is_empty() || name.len() > 128 {
                bail!("{key} = {name:?}: must have 1 to 128 bytes");
            }
        }
        if self.data.as_os_str().is_empty() {
            bail!("data is empty: name a folder");
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApiConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) plain_http: bool,
    pub(crate) tls_cert: PathBuf,
    pub(crate) tls_key: PathBuf,
    pub(crate) names: Vec<String>,
    pub(crate) max_request_per_minute: u32,
    pub(crate) max_request_per_minute_all: u32,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_network: usize,
    pub(crate) trusted_proxies: Vec<IpAddr>,
    #[serde(deserialize_with = "duration")]
    pub(crate) request_timeout: Duration,
    pub(crate) cors_origins: Vec<String>,
    #[serde(deserialize_with = "duration")]
    pub(crate) token_timeout: Duration,
}

impl ApiConfig {
    /// Sets the listener's limits on connections.
    pub(crate) fn set_connection_limits(&self, options: &mut listener::ServeOptions) {
        options.connections_max = self.max_connections;
        options.network_connections_max = self.max_connections_per_network;
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 55_000)),
            plain_http: false,
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            names: Vec::new(),
            max_request_per_minute: 300,
            max_request_per_minute_all: 6_000,
            max_connections: 1_024,
            max_connections_per_network: 256,
            trusted_proxies: Vec::new(),
            request_timeout: Duration::from_secs(10),
            cors_origins: Vec::new(),
            token_timeout: Duration::from_mins(15),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuthConfig {
    pub(crate) workers: usize,
    pub(crate) max_login_attempts: u32,
    #[serde(deserialize_with = "duration")]
    pub(crate) block_time: Duration,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { workers: 2, max_login_attempts: 50, block_time: Duration::from_mins(5) }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DbConfig {
    pub(crate) readers: usize,
    pub(crate) wal_mib: u64,
}

impl Default for DbConfig {
    fn default() -> Self {
        Self { readers: 3, wal_mib: 128 }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentsConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) names: Vec<String>,
    pub(crate) socket: PathBuf,
    pub(crate) allowed_uids: Vec<u32>,
    #[serde(deserialize_with = "duration")]
    pub(crate) disconnection_time: Duration,
    #[serde(deserialize_with = "duration")]
    pub(crate) quiet_start: Duration,
    pub(crate) connections_max: usize,
    pub(crate) in_flight_mib: usize,
    pub(crate) share_mib: usize,
    /// Connections on the unix socket; not a key of the file.
    #[serde(skip)]
    pub(crate) local_connections_max: usize,
    #[serde(deserialize_with = "duration")]
    pub(crate) idle_time: Duration,
}

impl AgentsConfig {
    /// Returns the limits of the agents' side.
    pub(crate) fn limits(&self) -> sessions::SessionsLimits {
        sessions::SessionsLimits {
            connections_max: self.connections_max,
            local_connections_max: self.local_connections_max,
            in_flight_bytes_max: self.in_flight_mib << 20,
            agent_share_bytes_max: self.share_mib << 20,
            ..sessions::SessionsLimits::default()
        }
    }
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 1517)),
            names: Vec::new(),
            socket: "holdfast.sock".into(),
            allowed_uids: Vec::new(),
            disconnection_time: Duration::from_mins(15),
            quiet_start: sessions::SilenceOptions::default().quiet_start,
            connections_max: 20_000,
            in_flight_mib: 256,
            share_mib: 40,
            local_connections_max: sessions::SessionsLimits::default().local_connections_max,
            idle_time: Duration::from_mins(1),
        }
    }
}

/// Longest time that data is cached; changes made by another process take effect within this time.
const CACHE_TTL_MAX: Duration = Duration::from_secs(10);

/// The cache of the data that every request needs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CacheConfig {
    #[serde(deserialize_with = "duration")]
    pub(crate) ttl: Duration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { ttl: CACHE_TTL_MAX }
    }
}

/// The on-disk layout of the journal's groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    Packed,
    Sparse,
    Ring,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct JournalConfig {
    pub(crate) layout: Layout,
    pub(crate) segment_mib: u32,
    pub(crate) follow_bytes_max: u64,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { layout: Layout::Packed, segment_mib: 64, follow_bytes_max: 8 << 30 }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetentionConfig {
    #[serde(deserialize_with = "duration")]
    pub(crate) events_age: Duration,
    pub(crate) events_gib: u32,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { events_age: Duration::from_hours(400 * 24), events_gib: 20 }
    }
}
