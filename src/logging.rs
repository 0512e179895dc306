//! Log lines on stderr, as text or JSON; stdout is for data. The latest lines are also kept in
//! memory for `/manager/logs`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::sync::LazyLock;

use anyhow::{Context as _, bail};
use api::{LogLine, LogRing};
use env::clock::{Clock as _, SystemClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use crate::cli::LogFormat;

/// Log targets that a filter may name: our crates, and dependencies that log connections.
#[rustfmt::skip] // One name a line would fill a page.
const PARTS: &[&str] = &[
    "actor", "api", "attribution", "budget", "client", "codec", "columns", "commit", "control", "detect",
    "dirty", "env", "explain", "folder", "gzip", "holdfast", "host", "ingest", "inspect", "journal", "link", "listener", "model", "observe",
    "page", "prometheus_api", "promql", "promql_syntax", "query", "queue", "readers", "realtime", "registry", "replication", "rest", "rows", "rules", "run", "scan", "security", "series", "series_tools", "service", "sessions",
    "settings", "sigma", "silence", "sqlite", "state", "sync", "telemetry", "watch", "writers",
    "h2", "hyper", "hyper_util", "reqwest", "rustls", "tower",
];

static RING: LazyLock<LogRing> = LazyLock::new(LogRing::default);

/// Returns the ring of this process's latest lines.
pub(crate) fn ring() -> LogRing {
    RING.clone()
}

/// Starts logging. The program calls this once, before anything else.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    expect_known(filter)?;
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter}: use error, warn, info, debug or trace"))?
        // It logs what the caller returns as an error.
        .add_directive("rustls_platform_verifier=off".parse()?);
    let kept = tracing_subscriber::registry().with(filter);
    let kept = kept.with(LogRingLayer { clock: SystemClock::new(), ring: ring() });
    let lines = fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => kept.with(lines.with_ansi(io::stderr().is_terminal())).init(),
        LogFormat::Json => kept.with(lines.json().flatten_event(true)).init(),
    }
    Ok(())
}

/// Returns an error unless each word of a filter is a level or a part of the program. `EnvFilter`
/// would take any other word for a target that never logs, and would disable all other targets.
fn expect_known(filter: &str) -> anyhow::Result<()> {
    for directive in filter.split(',').map(str::trim).filter(|d| !d.is_empty()) {
        let (part, level) = directive.split_once('=').unwrap_or((directive, "trace"));
        let part = part.split("::").next().unwrap_or_default();
        let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
        let alone = is_level(part) && !directive.contains('=');
        if !alone && (!PARTS.contains(&part) || !is_level(level)) {
            bail!(
                "--log {filter}: `{directive}` is neither a level (error, warn, info, debug, trace, \
                 off) nor PART=LEVEL with one of these parts: {}",
                PARTS.join(", ")
            );
        }
    }
    Ok(())
}

/// A layer that appends each line to the ring.
struct LogRingLayer {
    clock: SystemClock,
    ring: LogRing,
}

impl<S: Subscriber> Layer<S> for LogRingLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() == api::ACCESS_LOG {
            // Access lines are not for every reader of the log, and they would fill the ring.
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        };
        let tag = event.metadata().target().split("::").next().unwrap_or_default().to_owned();
        self.ring.push(LogLine { at_us: self.clock.now_us(), level, tag, text: text.0 });
    }
}

/// The text of a line: the message, then its fields.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a `String` cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_parts_include_every_workspace_crate() {
        let manifest = include_str!("../Cargo.toml");
        let logs = |line: &&str| {
            line.contains("{ package = \"holdfast-") && !line.contains("\"crates/testing/")
        };
        let ours = manifest.lines().filter(logs);
        let target = |line: &str| Some(line.split(' ').next()?.replace('-', "_"));
        let ours: Vec<String> = ours.filter_map(target).collect();
        assert!(ours.len() > 10, "{ours:?}");
        let known = |name: &String| PARTS.contains(&name.as_str());
        assert!(ours.iter().all(known), "{ours:?} {PARTS:?}");
        assert!(PARTS.contains(&"holdfast"));
    }

    #[test]
    fn log_filter_rejects_unknown_levels_and_parts() {
        for fine in ["warn", "INFO,sync=debug", "off", "info, listener::tls=trace", "sync", ""] {
            expect_known(fine).unwrap();
        }
        for bad in ["loud", "foo=debug", "sync=", "sync=loud", "info,lound", "warn=info"] {
            let error = expect_known(bad).unwrap_err().to_string();
            assert!(error.contains("neither a level"), "{bad}: {error}");
        }
    }

    #[test]
    fn access_log_lines_are_not_kept_in_the_log_ring() {
        let ring = LogRing::default();
        let kept = LogRingLayer { clock: SystemClock::new(), ring: ring.clone() };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(kept), || {
            tracing::info!(target: api::ACCESS_LOG, user = "admin", path = "/security/users");
            tracing::info!("agent removed");
        });
        let texts: Vec<String> = ring.newest_first().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["agent removed"]);
    }
}
