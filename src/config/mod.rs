//! Configuration files in TOML. Every key is optional. An unknown key is refused, and the error
//! suggests the nearest known key.

mod agent;
mod file;
mod series;
mod server;
mod setup;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;

use crate::cli::Role;

pub(crate) use agent::{AgentConfig, DEFAULT_AGENT};
pub(crate) use file::ServerFile;
pub(crate) use series::{Bytes, DEFAULT_SERIES, Listen, SeriesConfig, WalMode};
pub(crate) use server::{AgentsConfig, ApiConfig, DEFAULT_SERVER, Layout, ServerConfig};
pub(crate) use setup::{
    UNITS_AGENT, agent_file, is_units, names_of, setup, write_agent, write_server,
};

/// Largest configuration that is read, bytes.
const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a configuration.
pub(crate) fn load<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let what = || format!("configuration {}", file.display());
    let missing = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => {
            anyhow::anyhow!("there is none; `holdfast config default` prints one")
        }
        _ => e.into(),
    };
    let size = fs::metadata(file).map_err(missing).with_context(what)?.len();
    if size > CONFIG_BYTES_MAX {
        bail!("configuration {}: larger than {CONFIG_BYTES_MAX} bytes", file.display());
    }
    let text = String::from_utf8(fs::read(file).with_context(what)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        anyhow::anyhow!("{}: line {line} is not UTF-8 text", what())
    })?;
    parse(&text).with_context(what)
}

/// Prints a commented configuration with every key at its default.
pub(crate) fn print_default(role: Role) -> anyhow::Result<()> {
    let text = match role {
        Role::Server => DEFAULT_SERVER,
        Role::Agent => DEFAULT_AGENT,
    };
    io::stdout().write_all(text.as_bytes()).context("stdout")
}

/// `holdfast config check`.
pub(crate) fn check(role: Role, file: &Path) -> anyhow::Result<()> {
    match role {
        Role::Server => load::<ServerConfig>(file)?.validate(),
        Role::Agent => load::<AgentConfig>(file)?.validate(),
    }
    .with_context(|| format!("configuration {}", file.display()))?;
    writeln!(io::stdout(), "{}: fine", file.display()).context("stdout")
}

/// Longest name of a host (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Returns an error unless each name is an IP address or a host name; wildcards are allowed.
fn expect_hosts(key: &str, names: &[String]) -> anyhow::Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._*".contains(c);
    for name in names {
        let is_name = !name.is_empty() && name.len() <= HOST_BYTES_MAX && name.chars().all(fits);
        if !is_name && name.parse::<std::net::IpAddr>().is_err() {
            bail!("{key}: {name:?} is neither a host's name nor an IP address");
        }
    }
    Ok(())
}

/// Returns an error if only one of certificate and key is named.
fn expect_both(prefix: &str, cert: &Path, key: &Path) -> anyhow::Result<()> {
    if cert.as_os_str().is_empty() != key.as_os_str().is_empty() {
        bail!("{prefix}tls_cert and {prefix}tls_key: name both or none");
    }
    Ok(())
}

/// Returns an error unless each origin is one as browsers send it (RFC 6454), or `*`.
fn expect_origins(key: &str, origins: &[String]) -> anyhow::Result<()> {
    for origin in origins {
        let parsed = reqwest::Url::parse(origin).ok();
        if origin != "*" && parsed.is_none_or(|url| url.origin().ascii_serialization() != *origin) {
            bail!("{key}: {origin:?} is no origin such as https://wall.example:8443");
        }
    }
    Ok(())
}

/// Parses a configuration's text.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let text = error.to_string();
        match nearest(&text) {
            Some(known) => anyhow::anyhow!("{}\ndid you mean `{known}`?", text.trim_end()),
            None => anyhow::anyhow!("{}", text.trim_end()),
        }
    })
}

/// Returns the known key nearest to the unknown one in a message of serde:
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use settings::bounds::ConfigValue as _;

    use super::*;

    #[test]
    fn unknown_config_key_suggests_the_nearest_key() {
        let error = parse::<ServerConfig>("[api]\nlisen = \"127.0.0.1:1\"\n").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("did you mean `listen`?"), "{text}");
        assert!(text.contains("lisen"), "{text}");
    }

    #[test]
    fn printed_defaults_equal_the_defaults() {
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
    fn bounds_are_displayed_as_written() {
        let of = |ms: u64| Duration::from_millis(ms).written();
        assert_eq!([of(0), of(100), of(1_000), of(300_000)], ["0s", "100ms", "1s", "5m"]);
        assert_eq!([of(86_400_000 * 365), of(7_200_000), of(1_500)], ["365days", "2h", "1s 500ms"]);
        assert_eq!(Duration::from_nanos(1).written(), "1ns");
        let size = |bytes: u64| Bytes(bytes).written();
        assert_eq!(
            [size(20), size(1 << 20), size(3 << 30), size(1025)],
            ["20", "1MiB", "3GiB", "1025"]
        );
        for text in ["365days", "20GiB"] {
            assert!(text.parse::<Bytes>().is_ok() || client::duration(text).is_ok());
        }
    }

    #[test]
    fn invalid_config_values_are_refused_with_their_key() {
        let server = |text: &str| parse::<ServerConfig>(text).unwrap().validate();
        let agent = |text: &str| parse::<AgentConfig>(text).unwrap().validate();
        let cases = [
            (server("[agents]\nnames = [\"bad name\"]"), "agents.names: \"bad name\""),
            (server("[api]\nnames = [\"\"]"), "api.names"),
            (server("[api]\ntls_key = \"a\""), "api.tls_cert and api.tls_key: name both"),
            (server("[api]\ncors_origins = [\"foo\"]"), "api.cors_origins: \"foo\""),
            (server("[api]\ncors_origins = [\"https://a/\"]"), "api.cors_origins"),
            (server("[agents]\nidle_time = \"1s\""), "agents.idle_time = 1s"),
            (server("[agents]\nshare_mib = 19"), "agents.share_mib = 19: must be from 20 to"),
            (server("[agents]\nin_flight_mib = 63"), "agents.in_flight_mib = 63"),
            (server("[series]\nsize_max = \"20\""), "series.size_max = 20: must be from 1MiB to"),
            (agent("name = \"b d\""), "name = \"b d\""),
            (agent("[sync]\nheartbeat = \"1h\""), "sync.heartbeat = 1h: must be from 100ms to 5m"),
        ];
        for (checked, expected) in cases {
            let error = checked.unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        server("[api]\nnames = [\"web.example\", \"::1\"]\ncors_origins = [\"*\", \"http://a:1\"]")
            .unwrap();
        agent("name = \"web-1.example\"").unwrap();
    }

    #[test]
    fn invalid_duration_is_named_in_the_error() {
        let error = parse::<AgentConfig>("[scan]\ninterval = \"often\"\n").unwrap_err().to_string();
        assert!(error.contains("often"), "{error}");
    }
}
