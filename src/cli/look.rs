//! Commands that only show: scan, changes.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;

use super::{DataArg, QueueOf};

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// Files and folders to scan.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// Print only what differs from the agent's baseline at these paths and below them. Nothing is
    /// stored or reported.
    #[arg(long)]
    pub(crate) below: bool,
    #[command(flatten, next_help_heading = "The agent, with --below")]
    pub(crate) of: QueueOf,
    /// Print one JSON object per entry and a final `{"summary": ...}`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the summary only.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Threads that read and hash.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) threads: u8,
}

#[derive(Debug, Args)]
pub(crate) struct ChangesArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Only changes of this agent.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Only changes of this path and of everything below it.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only changes of these kinds, separated by commas; coverage (gaps) stands alone.
    #[arg(long, value_delimiter = ',', value_parser = ["created", "modified", "deleted", "moved", "transient", "coverage"])]
    pub(crate) kind: Vec<String>,
    /// Only changes with these causes, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = ["unexplained", "package", "deployment"])]
    pub(crate) cause: Vec<String>,
    /// Print unexplained changes first; each part newest first.
    #[arg(long, value_name = "ORDER", value_parser = ["unexplained"], conflicts_with = "follow")]
    pub(crate) sort: Option<String>,
    /// Only changes younger than this age (2h), or since this time (2026-01-31T12:00:00Z).
    #[arg(long, value_name = "AGE|TIME", value_parser = since)]
    pub(crate) since: Option<SystemTime>,
    /// Most lines to print before following.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Keep running and print new changes as they arrive.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON object per change.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns the time that is this long ago, or this time.
fn since(text: &str) -> Result<SystemTime, String> {
    if let Ok(age) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(age).ok_or_else(|| "before the year 1970".into());
    }
    humantime::parse_rfc3339(text)
        .map_err(|_| "write an age such as 2h, or a time such as 2026-01-31T12:00:00Z".into())
}
