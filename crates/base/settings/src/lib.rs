//! The settings of a group: a part of its agents' configuration, in two text forms (TOML as in
//! `agent.toml`, and the `agent_config` documents of the 4.x line), merged over the groups of an
//! agent and identified by its digest (`docs/reference/groups.md`).
//!
//! Invariants
//! - Nothing outside [`Settings`] can be set by a group: no folder, server address, name, key,
//!   durability or root of the inventory.
//! - A text is accepted as a whole or refused with its line; nothing is ignored silently.
//! - Merging is deterministic, so equal settings have equal texts and equal digests.
//!
//! Limits are the constants of [`limits`].

pub mod bounds;
mod error;
pub mod limits;
mod merge;
mod span;
mod watch;
mod xml;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::SettingsError;
pub use merge::{Merged, merged};
pub use span::Span;
pub use watch::{HashAlgorithm, WatchSettings, WatchedAttribute};

use span::within;

/// The settings that a group may set. For an absent one, the agent's own configuration applies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Settings of file scans.
    #[serde(skip_serializing_if = "ScanSettings::is_empty")]
    pub scan: ScanSettings,
    /// Settings of realtime detection.
    #[serde(skip_serializing_if = "RealtimeSettings::is_empty")]
    pub realtime: RealtimeSettings,
    /// Settings of the inventory.
    #[serde(skip_serializing_if = "InventorySettings::is_empty")]
    pub inventory: InventorySettings,
    /// The host's metrics.
    #[serde(skip_serializing_if = "MetricsSettings::is_empty")]
    pub metrics: MetricsSettings,
    /// The agent's queue.
    #[serde(skip_serializing_if = "QueueSettings::is_empty")]
    pub queue: QueueSettings,
    /// The dialogue with the server.
    #[serde(skip_serializing_if = "Sync::is_empty")]
    pub sync: Sync,
    /// Watched paths, in addition to those in the agent's own configuration.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "watch::list")]
    pub watch: Vec<WatchSettings>,
}

/// Settings of file scans.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanSettings {
    /// Time between two scans.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "interval")]
    pub interval: Option<Span>,
    /// Threads that read and hash.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "threads")]
    pub threads: Option<u8>,
    /// Limit of bytes per second that rescans read; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "bytes")]
    pub max_bytes_per_second: Option<u64>,
    /// Rescans run at the lowest priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_priority: Option<bool>,
}

/// Settings of realtime detection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RealtimeSettings {
    /// Detect changes as they happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Report the process and user of a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribution: Option<bool>,
}

/// Settings of the inventory of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InventorySettings {
    /// The dataset of installed packages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packages: Option<bool>,
    /// Time between two scans of the inventory.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "interval")]
    pub interval: Option<Span>,
}

/// The host's metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// True if metrics are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Time between two samples.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "metrics_interval")]
    pub interval: Option<Span>,
    /// Names of the processes that are sampled.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "processes")]
    pub processes: Option<Vec<String>>,
    /// Size limit of the metrics waiting for the server, MiB.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "mebibytes")]
    pub limit_mib: Option<u32>,
}

/// The agent's queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueSettings {
    /// Size above which the oldest events are dropped, MiB.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "mebibytes")]
    pub limit_mib: Option<u32>,
}

/// The dialogue with the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sync {
    /// Time between two heartbeats.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "heartbeat")]
    pub heartbeat: Option<Span>,
    /// Time between two integrity checks.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "interval")]
    pub check_interval: Option<Span>,
}

macro_rules! is_empty {
    ($($section:ty),*) => {$(
        impl $section {
            fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }
    )*};
}
is_empty!(ScanSettings, RealtimeSettings, InventorySettings, MetricsSettings, QueueSettings, Sync);

impl Settings {
    /// Parses a text in either form: `agent_config` if it begins with `<`, else TOML.
    ///
    /// # Errors
    /// Returns the setting that is unknown or out of its bounds, with its line.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        if text.len() > limits::TEXT_BYTES_MAX {
            return Err(SettingsError::TooLong(text.len()));
        }
        let settings = if is_xml(text) { xml::parse(text)? } else { Self::from_toml(text)? };
        // Merging one group applies the limits of an agent that has this group alone.
        merged([&settings])
    }

    /// Checks that the heartbeat interval is short enough for a server that considers an agent
    /// disconnected after a silence of `silence`.
    ///
    /// # Errors
    /// Returns `TooSlow` if it is not.
    pub fn check_silence(&self, silence: Duration) -> Result<(), SettingsError> {
        let most = silence / limits::BEATS_MIN;
        match self.sync.heartbeat {
            Some(Span(heartbeat)) if heartbeat > most => {
                Err(SettingsError::TooSlow { heartbeat, most })
            }
            _ => Ok(()),
        }
    }

    /// Parses the TOML form.
    ///
    /// # Errors
    /// See [`Settings::parse`].
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(at).filter(|b| *b == b'\n').count() + 1;
            SettingsError::at(line, error.message().to_owned())
        })
    }

    /// Returns the TOML form; empty if nothing is set.
    pub fn to_toml(&self) -> String {
        // Texts, numbers and lists of them can always be written as TOML.
        toml::to_string(self).unwrap_or_default()
    }

    /// Returns true if nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns true if a text is in the form of the 4.x line.
pub fn is_xml(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with('<')
}

/// Returns the MD5 of a text in hex, as 4.x clients compare configurations; empty for an empty
/// text.
pub fn sum(text: &str) -> String {
    use md5::Digest as _;
    use std::fmt::Write as _;
    if text.is_empty() {
        return String::new();
    }
    md5::Md5::digest(text).iter().fold(String::with_capacity(32), |mut sum, byte| {
        let _ = write!(sum, "{byte:02x}");
        sum
    })
}

type Read<T, E> = Result<Option<T>, E>;

fn interval<'de, D: serde::Deserializer<'de>>(from: D) -> Read<Span, D::Error> {
    Span::bounded(from, limits::INTERVAL_MIN, limits::INTERVAL_MAX).map(Some)
}

fn metrics_interval<'de, D: serde::Deserializer<'de>>(from: D) -> Read<Span, D::Error> {
    Span::bounded(from, limits::INTERVAL_MIN, limits::METRICS_INTERVAL_MAX).map(Some)
}

fn heartbeat<'de, D: serde::Deserializer<'de>>(from: D) -> Read<Span, D::Error> {
    Span::bounded(from, limits::HEARTBEAT_MIN, limits::HEARTBEAT_MAX).map(Some)
}

fn threads<'de, D: serde::Deserializer<'de>>(from: D) -> Read<u8, D::Error> {
    within(u8::deserialize(from)?, &1, &limits::THREADS_MAX).map(Some)
}

fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Read<u64, D::Error> {
    within(u64::deserialize(from)?, &0, &limits::BYTES_MAX).map(Some)
}

fn mebibytes<'de, D: serde::Deserializer<'de>>(from: D) -> Read<u32, D::Error> {
    within(u32::deserialize(from)?, &1, &limits::MIB_MAX).map(Some)
}

fn processes<'de, D: serde::Deserializer<'de>>(from: D) -> Read<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    if names.len() > limits::PROCESSES_MAX {
        let text = format!("more than {} names of processes", limits::PROCESSES_MAX);
        return Err(serde::de::Error::custom(text));
    }
    let bad = |name: &&String| {
        name.is_empty() || name.len() > limits::PROCESS_BYTES_MAX || name.contains(['/', '\n'])
    };
    match names.iter().find(bad) {
        Some(name) => Err(serde::de::Error::custom(format!(
            "{name:?} is no name as in /proc/PID/comm: 1 to {} bytes",
            limits::PROCESS_BYTES_MAX
        ))),
        None => Ok(Some(names)),
    }
}
