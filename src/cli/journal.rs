//! `holdfast journal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use inspect::JournalArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Read every record and report damage. Exit code 1 if there is any.
    #[command(after_help = "Example:\n  holdfast journal verify data/journal")]
    Verify(JournalArgs),
    /// Print layout, segments, positions and sizes.
    Stat(JournalArgs),
    /// Print each record as JSON: position, agent, writes.
    Dump {
        #[command(flatten)]
        journal: JournalArgs,
        /// First position to print.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Most records to print.
        #[arg(long, default_value_t = 1000, value_parser = client::whole::<0, { u32::MAX }>)]
        limit: u32,
    },
    /// Repair a damaged journal: keep intact records at their positions, put placeholders at lost ones
    /// and print which are lost. The damaged segments are kept next to it.
    Repair(JournalArgs),
    /// Keep a second data folder with every persisted record of a running server, at the same
    /// positions, and report its progress to the server.
    #[command(
        after_help = "Example:\n  holdfast journal follow --from https://10.0.0.1:55000 --to \
./second --ca ca.pem\n  holdfast journal follow --from unix:data/holdfast.sock --to ./second --once"
    )]
    Follow(FollowArgs),
    /// Turn a folder that followed a server into the data folder of a server. The server that it
    /// followed must never run again.
    #[command(after_help = "Example:\n  holdfast journal promote ./second")]
    Promote(PromoteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// Server to follow: URL of its API, or the socket in its data folder.
    #[arg(long, value_name = "https://HOST:PORT|unix:PATH")]
    pub(crate) from: String,
    /// Folder that follows; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Exit once everything that the server had at the start has arrived.
    #[arg(long)]
    pub(crate) once: bool,
    /// Certificate authority of the server, `keys/ca.pem` in its data folder; default: the copy in
    /// the folder that follows.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The server's token for followers, the content of `keys/follower` in its data folder;
    /// default: the copy in the folder that follows. Not needed on the socket.
    #[arg(long, env = "HOLDFAST_FOLLOW_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteArgs {
    /// Folder that followed.
    pub(crate) dir: PathBuf,
}
