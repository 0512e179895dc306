//! `holdfast scan`.

use std::path::PathBuf;

use clap::Args;

use inspect::QueueOf;

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
