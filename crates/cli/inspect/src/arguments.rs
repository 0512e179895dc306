//! Arguments of `holdfast queue` and `holdfast journal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use client::existing_data;

/// Folder of the installed agent's unit.
const UNITS_DATA: &str = "/var/lib/holdfast-agent/agent";

/// Location of a queue.
#[derive(Debug, Args)]
pub struct QueueOf {
    /// Data folder of `holdfast up` or of an agent. Default: ./data if it exists, else that of the
    /// installed agent.
    #[arg(long, value_name = "DIR", env = "HOLDFAST_DATA", hide_env_values = true)]
    data: Option<PathBuf>,
    /// Configuration of an agent, whose data folder is used instead.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl QueueOf {
    /// Returns the data folder.
    ///
    /// # Errors
    /// As for [`existing_data`].
    pub fn folder(&self) -> anyhow::Result<PathBuf> {
        existing_data(self.data.as_deref(), UNITS_DATA)
    }
}

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Print how many items are known, pending and acknowledged, and the size of the database.
    #[command(after_help = "Example:\n  holdfast queue status --data ./data --json")]
    Status {
        #[command(flatten)]
        of: QueueOf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Print the items: when each last changed, whether that is acknowledged, and its state.
    #[command(after_help = "Examples:\n  holdfast queue list --pending\n  \
        holdfast queue list --config agent.toml --path /etc/ssh --json")]
    List {
        #[command(flatten)]
        of: QueueOf,
        /// Only items with a change that is not acknowledged.
        #[arg(long)]
        pending: bool,
        /// Only items of this dataset, for example fim-files.
        #[arg(long, value_name = "NAME")]
        dataset: Option<String>,
        /// Only items whose path or key begins with this text.
        #[arg(long, value_name = "PREFIX", default_value = "")]
        path: String,
        /// Most items to print.
        #[arg(long, default_value_t = 1000, value_parser = client::whole::<0, { u32::MAX }>)]
        limit: u32,
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Check the database's structure and the constraints between its tables. The agent may be
    /// running. Exit code 1 if something is wrong.
    #[command(after_help = "Example:\n  holdfast queue verify --data ./data")]
    Verify {
        #[command(flatten)]
        of: QueueOf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Checkpoint the write-ahead log and return unused space to the file system. Refused while an
    /// agent is running, because the agent does the same in small steps.
    #[command(after_help = "Example:\n  holdfast queue compact --data ./data")]
    Compact {
        #[command(flatten)]
        of: QueueOf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct JournalArgs {
    /// Folder of the journal, `journal` in a data folder.
    pub dir: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
