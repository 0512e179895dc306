//! `holdfast queue`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::DEFAULT_DATA;

/// Whose queue.
#[derive(Debug, Args)]
pub(crate) struct QueueOf {
    /// The data folder of `holdfast up`, or that of an agent apart.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA)]
    pub(crate) data: PathBuf,
    /// The configuration of an agent apart, which names its data folder.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// What is known, pending and told, and the database's size.
    #[command(after_help = "Example:\n  holdfast queue status --data ./data --json")]
    Status {
        #[command(flatten)]
        of: QueueOf,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// The items: when each last changed, whether it was told, what it is.
    #[command(after_help = "Examples:\n  holdfast queue list --pending\n  \
        holdfast queue list --config agent.toml --path /etc/ssh --json")]
    List {
        #[command(flatten)]
        of: QueueOf,
        /// Only what is still to be told.
        #[arg(long)]
        pending: bool,
        /// Only this dataset, e.g. fim-files.
        #[arg(long, value_name = "NAME")]
        dataset: Option<String>,
        /// Only items whose path (or key) begins so.
        #[arg(long, value_name = "PREFIX", default_value = "")]
        path: String,
        /// At most so many.
        #[arg(long, default_value_t = 1000)]
        limit: u64,
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Check the database's structure and everything that must hold between its tables, while the
    /// agent runs or not. Exit code 1 when something is wrong.
    #[command(after_help = "Example:\n  holdfast queue verify --data ./data")]
    Verify {
        #[command(flatten)]
        of: QueueOf,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fold the write-ahead log in and give unused space back to the file system. Refused while an
    /// agent runs: that one does it by itself, piece by piece.
    #[command(after_help = "Example:\n  holdfast queue compact --data ./data")]
    Compact {
        #[command(flatten)]
        of: QueueOf,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}
