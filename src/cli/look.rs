//! Commands that only show: scan, changes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::DataArg;

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// Files and folders to scan.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
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
    /// Only changes at or below this path.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only changes of this kind.
    #[arg(long, value_parser = ["created", "modified", "deleted", "coverage"])]
    pub(crate) kind: Option<String>,
    /// Only changes younger than this.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) since: Option<Duration>,
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
