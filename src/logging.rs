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

/// Log targets that a filter may name: our crates, and the dependencies that log connections.
const PARTS: [&str; 34] = [
    "api",
    "attribution",
    "commit",
    "console",
    "control",
    "detect",
    "device",
    "env",
    "holdfast",
    "host",
    "ingest",
    "journal",
    "link",
    "model",
    "page",
    "query",
    "queue",
    "registry",
    "replication",
    "run",
    "series",
    "sessions",
    "settings",
    "sigma",
    "silence",
    "sqlite",
    "state",
    "sync",
    "h2",
    "hyper",
    "hyper_util",
    "reqwest",
    "rustls",
    "tower",
];

/// Former name of a part; filters may still use it.
const FORMER_PART: &str = "ship";
const ITS_PART_NOW: &str = "replication";

static RING: LazyLock<LogRing> = LazyLock::new(LogRing::default);

/// Returns the ring of this process's latest lines.
pub(crate) fn ring() -> LogRing {
    RING.clone()
}

/// Starts logging. The program calls this once, before anything else.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = &with_present_parts(filter);
    expect_known(filter)?;
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter}: use error, warn, info, debug or trace"))?;
    let kept = tracing_subscriber::registry().with(filter);
    let kept = kept.with(Keep { clock: SystemClock::new(), ring: ring() });
    let lines = fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => kept.with(lines.with_ansi(io::stderr().is_terminal())).init(),
        LogFormat::Json => kept.with(lines.json().flatten_event(true)).init(),
    }
    Ok(())
}

/// Returns the filter with a part's former name replaced by its present one.
fn with_present_parts(filter: &str) -> String {
    let present = |directive: &str| match directive.trim().split_once('=') {
        Some((FORMER_PART, level)) => format!("{ITS_PART_NOW}={level}"),
        _ if directive.trim() == FORMER_PART => ITS_PART_NOW.to_owned(),
        _ => directive.to_owned(),
    };
    filter.split(',').map(present).collect::<Vec<_>>().join(",")
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
struct Keep {
    clock: SystemClock,
    ring: LogRing,
}

impl<S: Subscriber> Layer<S> for Keep {
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
        let ours = manifest.lines().filter(|line| line.contains("{ package = \"holdfast-"));
        let ours: Vec<&str> = ours.filter_map(|line| line.split(' ').next()).collect();
        assert!(ours.len() > 10, "{ours:?}");
        for name in ours {
            assert!(PARTS.contains(&name), "{name}");
        }
        assert!(PARTS.contains(&"holdfast"));
    }

    #[test]
    fn log_filter_accepts_the_former_name_of_a_part() {
        for (filter, present) in [
            ("info,ship=debug", "info,replication=debug"),
            ("ship", "replication"),
            (" ship=warn ,api=debug", "replication=warn,api=debug"),
            ("info", "info"),
        ] {
            assert_eq!(with_present_parts(filter), present);
            expect_known(&with_present_parts(filter)).unwrap();
        }
    }

    #[test]
    fn log_filter_rejects_unknown_levels_and_parts() {
        for fine in ["warn", "INFO,sync=debug", "off", "info, api::serve=trace", "sync", ""] {
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
        let kept = Keep { clock: SystemClock::new(), ring: ring.clone() };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(kept), || {
            tracing::info!(target: api::ACCESS_LOG, user = "admin", path = "/security/users");
            tracing::info!("agent removed");
        });
        let texts: Vec<String> = ring.newest_first().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["agent removed"]);
    }
}
