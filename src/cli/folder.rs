//! A whole data folder: backup, restore.

use std::path::PathBuf;

use clap::Args;

use super::DataArg;

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// A folder that does not exist yet, or is empty.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// What `holdfast backup` wrote.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArg,
}
