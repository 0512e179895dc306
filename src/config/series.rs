//! `[series]` of `server.toml`, and `series.toml` for `holdfast series serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use settings::bounds::{ConfigValue, duration, within};

use super::expect_both;
use crate::cli::SeriesPortArgs;

/// A commented file with every key at its default.
pub(crate) const DEFAULT_SERIES: &str = include_str!("series.default.toml");

/// When the log is persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WalMode {
    /// Before each answer.
    Always,
    /// After an interval.
    Interval,
    /// There is no log.
    Off,
}

/// The address of a port, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    Off,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let address = text.parse().map(Self::At);
        address
            .map_err(|_| format!("`{text}` is neither HOST:PORT, such as 127.0.0.1:8282, nor off"))
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A number of bytes: `20GiB`, `512MiB`, `1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = match text.get(digits.len()..).unwrap_or_default().trim() {
            "" | "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            "TiB" => Some(1_u64 << 40),
            _ => None,
        };
        let number = digits.parse::<u64>().ok();
        let bytes = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
        bytes.map(Self).ok_or_else(|| format!("`{text}` is not a size such as 512MiB or 20GiB"))
    }
}

impl ConfigValue for Bytes {
    fn written(&self) -> String {
        let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let whole = units.into_iter().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        whole.map_or_else(|| self.0.to_string(), |(name, unit)| format!("{}{name}", self.0 / unit))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The options of a series store and its ports.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SeriesConfig {
    pub(crate) resp: Option<Listen>,
    pub(crate) udp: Option<Listen>,
    pub(crate) opentsdb: Option<Listen>,
    pub(crate) http: Option<Listen>,
    pub(crate) tls_cert: PathBuf,
    pub(crate) tls_key: PathBuf,
    pub(crate) names: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) wal: WalMode,
    #[serde(deserialize_with = "duration")]
    pub(crate) interval: Duration,
    pub(crate) segment_mib: u32,
    #[serde(deserialize_with = "duration")]
    pub(crate) seal_after: Duration,
    #[serde(deserialize_with = "duration")]
    pub(crate) log_reopen_pause: Duration,
    pub(crate) head_mib: u32,
    #[serde(deserialize_with = "duration")]
    pub(crate) age_max: Duration,
    pub(crate) size_max: Bytes,
    #[serde(deserialize_with = "duration")]
    pub(crate) rollup_age: Duration,
    #[serde(deserialize_with = "duration")]
    pub(crate) hourly_age: Duration,
    pub(crate) rollups_beside: bool,
    pub(crate) merge_mib_s: u32,
    pub(crate) series_max: u64,
    pub(crate) agent_series_max: u64,
    pub(crate) labels_max: usize,
    pub(crate) query_mib: u32,
    pub(crate) queries_mib: u32,
    #[serde(deserialize_with = "duration")]
    pub(crate) own_metrics: Duration,
    /// Connections of one port; not a key of the file.
    #[serde(skip)]
    pub(crate) connections_max: usize,
}

impl Default for SeriesConfig {
    fn default() -> Self {
        Self {
            resp: None,
            udp: None,
            opentsdb: None,
            http: None,
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            names: Vec::new(),
            cors_origins: Vec::new(),
            wal: WalMode::Always,
            interval: Duration::from_millis(100),
            segment_mib: 16,
            seal_after: Duration::from_mins(15),
            log_reopen_pause: Duration::from_mins(1),
            head_mib: 256,
            age_max: Duration::from_hours(400 * 24),
            size_max: Bytes(20 << 30),
            rollup_age: Duration::ZERO,
            hourly_age: Duration::ZERO,
            rollups_beside: false,
            merge_mib_s: 0,
            series_max: series::SERIES_MAX_DEFAULT,
            agent_series_max: sessions::AGENT_SERIES_MAX_DEFAULT,
            labels_max: series::LABELS_MAX_DEFAULT,
            query_mib: 512,
            queries_mib: 1024,
            own_metrics: Duration::ZERO,
            connections_max: ingest::CONNECTIONS_MAX,
        }
    }
}

impl SeriesConfig {
    /// Overrides the ports with those of a command line.
    pub(crate) fn with_ports(mut self, args: &SeriesPortArgs) -> Self {
        self.resp = args.resp.or(self.resp);
        self.udp = args.udp.or(self.udp);
        self.opentsdb = args.opentsdb.or(self.opentsdb);
        self.http = args.http.or(self.http);
        self
    }

    /// Sets each port that is not configured to its usual one on loopback.
    pub(crate) fn with_all_ports(mut self) -> Self {
        let local = |port| Some(Listen::At(SocketAddr::from(([127, 0, 0, 1], port))));
        self.resp = self.resp.or(local(8282));
        self.udp = self.udp.or(local(8383));
        self.opentsdb = self.opentsdb.or(local(4242));
        self.http = self.http.or(local(8181));
        self
    }

    /// Returns an error for the first value that no store can run with. The error names its key,
    /// after `prefix`. Ages must increase: `age_max` < `rollup_age` < `hourly_age`, unless a
    /// roll-up is off.
    pub(crate) fn validate(&self, prefix: &str) -> anyhow::Result<()> {
        let (tick, year) = (Duration::from_millis(1), Duration::from_hours(365 * 24));
        let key = |name: &str| format!("{prefix}{name}");
        within(&key("interval"), &self.interval, &tick, &Duration::from_mins(1))?;
        within(&key("segment_mib"), &self.segment_mib, &1, &1024)?;
        within(&key("seal_after"), &self.seal_after, &Duration::from_secs(1), &(year / 365))?;
        let second = Duration::from_secs(1);
        within(&key("log_reopen_pause"), &self.log_reopen_pause, &second, &(year / 365 / 24))?;
        within(&key("head_mib"), &self.head_mib, &1, &65_536)?;
        within(&key("age_max"), &self.age_max, &Duration::from_hours(1), &(year * 100))?;
        within(&key("size_max"), &self.size_max, &Bytes(1 << 20), &Bytes(1 << 60))?;
        within(&key("series_max"), &self.series_max, &1, &u64::from(u32::MAX))?;
        within(&key("agent_series_max"), &self.agent_series_max, &1, &u64::from(u32::MAX))?;
        within(&key("labels_max"), &self.labels_max, &1, &series::TAGS_MAX)?;
        within(&key("query_mib"), &self.query_mib, &16, &65_536)?;
        within(&key("queries_mib"), &self.queries_mib, &self.query_mib, &1_048_576)?;
        within(&key("rollup_age"), &self.rollup_age, &Duration::ZERO, &(year * 100))?;
        within(&key("hourly_age"), &self.hourly_age, &Duration::ZERO, &(year * 100))?;
        let before = self.age_max.max(self.rollup_age);
        for (name, age, before) in
            [("rollup_age", self.rollup_age, self.age_max), ("hourly_age", self.hourly_age, before)]
        {
            if age > Duration::ZERO && age <= before {
                bail!(
                    "{}: must be longer than the age of the finer data before it, or it would keep nothing",
                    key(name)
                );
            }
        }
        within(&key("own_metrics"), &self.own_metrics, &Duration::ZERO, &(year / 365))?;
        if let Some(Listen::At(address)) = self.udp
            && !address.ip().is_loopback()
        {
            bail!("{}: UDP has neither TLS nor token: only on a loopback address", key("udp"));
        }
        expect_both(prefix, &self.tls_cert, &self.tls_key)
    }

    /// Returns a pool of memory for the queries of all ports.
    pub(crate) fn query_memory(&self) -> ingest::Memory {
        let bytes = |mib: u32| (mib as usize) << 20;
        ingest::Memory::new(bytes(self.query_mib), bytes(self.queries_mib))
    }

    /// Returns the ages at which samples and their roll-ups are deleted.
    pub(crate) fn ages(&self) -> Vec<Duration> {
        let all = [self.age_max, self.rollup_age, self.hourly_age];
        all.into_iter().filter(|age| !age.is_zero()).collect()
    }

    /// Returns the options for opening the store.
    pub(crate) fn store_options(&self) -> series::StoreOptions {
        series::StoreOptions {
            wal: match self.wal {
                WalMode::Always => series::Wal::Always,
                WalMode::Interval => series::Wal::Interval(self.interval),
                WalMode::Off => series::Wal::Off,
            },
            head_bytes_max: (self.head_mib as usize) << 20,
            seal_after: self.seal_after,
            log_reopen_pause: self.log_reopen_pause,
            retention: series::SeriesRetention {
                age: Some(self.age_max),
                bytes_max: Some(self.size_max.0),
            },
            rollups_beside: self.rollups_beside,
            rollup_age: Some(self.rollup_age).filter(|age| !age.is_zero()),
            hourly_age: Some(self.hourly_age).filter(|age| !age.is_zero()),
            merge_bytes_per_s_max: u64::from(self.merge_mib_s) << 20,
            series_max: self.series_max,
            labels_max: self.labels_max,
            segment_bytes: u64::from(self.segment_mib) << 20,
            ..series::StoreOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn printed_defaults_equal_the_defaults() {
        assert_eq!(parse::<SeriesConfig>(DEFAULT_SERIES).unwrap(), SeriesConfig::default());
        let ports: String = DEFAULT_SERIES
            .lines()
            .filter_map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = \"127")))
            .fold(String::new(), |all, line| all + line + "\n");
        assert_eq!(
            parse::<SeriesConfig>(&ports).unwrap(),
            SeriesConfig::default().with_all_ports()
        );
    }

    #[test]
    fn memory_of_queries_is_within_bounds() {
        let refused = |query_mib, queries_mib| {
            let config = SeriesConfig { query_mib, queries_mib, ..SeriesConfig::default() };
            config.validate("series.").unwrap_err().to_string()
        };
        assert_eq!(refused(8, 1024), "series.query_mib = 8: must be from 16 to 65536");
        assert_eq!(refused(512, 256), "series.queries_mib = 256: must be from 512 to 1048576");
    }

    #[test]
    fn tags_of_a_series_are_within_what_a_store_holds() {
        let checked = |labels_max| {
            let config = SeriesConfig { labels_max, ..SeriesConfig::default() };
            (config.store_options().labels_max, config.validate("series."))
        };
        assert!(matches!(checked(256), (256, Ok(()))));
        let refused = checked(257).1.unwrap_err().to_string();
        assert_eq!(refused, "series.labels_max = 257: must be from 1 to 256");
    }

    #[test]
    fn byte_sizes_parse_with_units() {
        assert_eq!("20GiB".parse(), Ok(Bytes(20 << 30)));
        assert_eq!("512 MiB".parse(), Ok(Bytes(512 << 20)));
        assert_eq!("1000".parse(), Ok(Bytes(1000)));
        for wrong in ["", "GiB", "1GB", "99999999999TiB", "-1"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }
}
