//! Commands on a whole data folder: backup, restore, clock, authority.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use client::DataArg;

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Target folder; it must be empty or not exist yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Folder that `holdfast backup` wrote.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArg,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClockCommand {
    /// Print the wall clock and the guarded time, and whether the wall clock is held.
    #[command(after_help = "Example:\n  holdfast clock show --data ./data\n\nExit code 1 if the \
wall clock is held: it moved by more than a day and is not followed yet.")]
    Show(DataArg),
    /// Accept the wall clock at once because it is right.
    #[command(
        after_help = "Example:\n  holdfast clock accept --data ./data\n\nFrom then on, what has \
reached its age by the accepted time is deleted."
    )]
    Accept(DataArg),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Go on with a registry.db that is older than state.db: numbers of agents that the state knows are
    /// not given again, and every token is revoked. Stop the server first.
    #[command(
        after_help = "Example:\n  holdfast registry accept --data ./data\n\nWhat was decided since \
that registry.db (users, groups, removed agents, revoked certificates) is lost: check it."
    )]
    Accept(DataArg),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Reissue the authority's certificate with a new validity, if it was issued at a wrong time.
    /// Stop the server first.
    #[command(
        after_help = "Example:\n  holdfast authority reissue --data ./data\n\nEnrolled agents \
continue to work. Browsers must import the new certificate, and earlier enrolment tokens are refused."
    )]
    Reissue(DataArg),
}
