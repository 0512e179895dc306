//! A whole data folder: backup, restore, clock.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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

#[derive(Debug, Subcommand)]
pub(crate) enum ClockCommand {
    /// Print the wall clock and the guarded time, and whether the wall clock is held.
    #[command(
        after_help = "Example:\n  holdfast clock show --data ./data\n\nExit code 1 when the \
wall clock is held: it moved by more than a day and is not followed yet."
    )]
    Show(DataArg),
    /// Follow the wall clock at once, because it is right.
    #[command(
        after_help = "Example:\n  holdfast clock accept --data ./data\n\nWhat is past its age \
by the accepted time is forgotten from then on."
    )]
    Accept(DataArg),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Write the authority's certificate again with a new validity, where it was made at a wrong
    /// time. Stop the server first.
    #[command(
        after_help = "Example:\n  holdfast authority reissue --data ./data\n\nEnrolled agents \
go on. Browsers must import the new certificate, and enrolment tokens made before are refused."
    )]
    Reissue(DataArg),
}
