//! Looking: scan, changes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::DataArg;

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// What to scan.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// One JSON object per entry and a last `{"summary": ...}`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the summary.
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
    /// Only this agent.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Only at or below this path.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only this kind.
    #[arg(long, value_parser = ["created", "modified", "deleted", "coverage"])]
    pub(crate) kind: Option<String>,
    /// Only younger than this.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) since: Option<Duration>,
    /// Most lines to print at first.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Go on and print what comes.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// One JSON object per change.
    #[arg(long)]
    pub(crate) json: bool,
}
