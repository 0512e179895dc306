//! Log lines on stderr, as text or JSON; stdout belongs to data.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Start logging; called once, before anything else.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter}: use error, warn, info, debug or trace"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
