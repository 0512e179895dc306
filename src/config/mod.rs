//! Configuration files: TOML, every key optional, an unknown one refused with the nearest known.

mod agent;
mod file;
mod series;
mod server;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::cli::Role;

pub(crate) use agent::{
    AgentConfig, DEFAULT_AGENT, Durability, InventoryConfig, MetricsConfig, QueueConfig,
    ScanConfig, SyncConfig, Transaction,
};
pub(crate) use file::ServerFile;
pub(crate) use series::{Bytes, DEFAULT_SERIES, Listen, SeriesConfig, WalMode};
pub(crate) use server::{AgentsConfig, ApiConfig, DEFAULT_SERVER, Layout, ServerConfig};

/// Largest configuration that is read, bytes.
const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Read a configuration.
pub(crate) fn load<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let size =
        fs::metadata(file).with_context(|| format!("configuration {}", file.display()))?.len();
    if size > CONFIG_BYTES_MAX {
        bail!("configuration {}: larger than {CONFIG_BYTES_MAX} bytes", file.display());
    }
    let text =
        fs::read_to_string(file).with_context(|| format!("configuration {}", file.display()))?;
    parse(&text).with_context(|| format!("configuration {}", file.display()))
}

/// Print a commented configuration with every key at its default.
pub(crate) fn print_default(role: Role) -> anyhow::Result<()> {
    let text = match role {
        Role::Server => DEFAULT_SERVER,
        Role::Agent => DEFAULT_AGENT,
    };
    std::io::stdout().write_all(text.as_bytes()).context("stdout")
}

/// `holdfast config check`.
pub(crate) fn check(role: Role, file: &Path) -> anyhow::Result<()> {
    match role {
        Role::Server => load::<ServerConfig>(file)?.validate(),
        Role::Agent => load::<AgentConfig>(file)?.validate(),
    }
    .with_context(|| format!("configuration {}", file.display()))?;
    writeln!(std::io::stdout(), "{}: fine", file.display()).context("stdout")
}

/// That a value is within its bounds; the text names the key and them.
fn within<T: PartialOrd + std::fmt::Debug>(
    key: &str,
    value: &T,
    least: &T,
    most: &T,
) -> anyhow::Result<()> {
    if value < least || value > most {
        bail!("{key} = {value:?}: must be from {least:?} to {most:?}");
    }
    Ok(())
}

/// Parse a configuration's text.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let text = error.to_string();
        match nearest(&text) {
            Some(known) => anyhow::anyhow!("{}\ndid you mean `{known}`?", text.trim_end()),
            None => anyhow::anyhow!("{}", text.trim_end()),
        }
    })
}

/// The known key nearest to the unknown one that a message of serde names:
/// ``unknown field `a`, expected one of `b`, `c` ``.
fn nearest(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (unknown, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2);
    known
        .map(|k| (strsim::damerau_levenshtein(unknown, k), k))
        .min()
        .filter(|(distance, k)| *distance <= k.len().max(unknown.len()) / 2 + 1)
        .map(|(_, k)| k.to_owned())
}

/// A duration as text: `10s`, `5m`, `12h`, `400d`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(|e| {
        serde::de::Error::custom(format!("`{text}` is not a duration such as \"10s\": {e}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest_one() {
        let error = parse::<ServerConfig>("[api]\nlisen = \"127.0.0.1:1\"\n").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("did you mean `listen`?"), "{text}");
        assert!(text.contains("lisen"), "{text}");
    }

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        assert_eq!(parse::<ServerConfig>(DEFAULT_SERVER).unwrap(), ServerConfig::default());
        let printed = parse::<AgentConfig>(DEFAULT_AGENT).unwrap();
        let empty = parse::<AgentConfig>("").unwrap();
        assert_eq!(printed.scan, empty.scan);
        assert_eq!(printed.queue, empty.queue);
        assert_eq!(printed.inventory, empty.inventory);
        assert_eq!(printed.metrics, empty.metrics);
        assert_eq!(printed.data, empty.data);
    }

    #[test]
    fn a_bad_duration_is_named() {
        let error = parse::<AgentConfig>("[scan]\ninterval = \"often\"\n").unwrap_err().to_string();
        assert!(error.contains("often"), "{error}");
    }
}
