//! `holdfast journal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Read every record and say whether all are whole. Exit code 1 if not.
    #[command(after_help = "Example:\n  holdfast journal verify data/journal")]
    Verify(JournalArgs),
    /// Layout, segments, positions and sizes.
    Stat(JournalArgs),
    /// Print each record as JSON: position, agent, writes.
    Dump {
        #[command(flatten)]
        journal: JournalArgs,
        /// From this position on.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// At most so many.
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Cut a damaged journal at its last whole record, saying what is lost. Keeps the original
    /// segments beside it.
    Repair(JournalArgs),
    /// Keep a second data folder that holds every persisted record of a running server, at the
    /// same positions, and tells the server how far it is.
    #[command(
        after_help = "Example:\n  holdfast journal follow --from https://10.0.0.1:55000 --to \
./second --ca ca.pem\n  holdfast journal follow --from unix:data/holdfast.sock --to ./second --once"
    )]
    Follow(FollowArgs),
    /// Make a folder that followed a server a server's own; its server must never run again.
    #[command(after_help = "Example:\n  holdfast journal promote ./second")]
    Promote(PromoteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// The server: its API, or the socket in its data folder.
    #[arg(long, value_name = "https://HOST:PORT|unix:PATH")]
    pub(crate) from: String,
    /// The folder that follows; made when it is not there.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// End when everything that the server held at the beginning is here.
    #[arg(long)]
    pub(crate) once: bool,
    /// The server's certificate authority, `keys/ca.pem` of its data folder; the folder's own copy
    /// unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The server's token for followers, the content of `keys/follower` in its data folder; the
    /// folder's own copy unless given. Not needed on the socket.
    #[arg(long, env = "HOLDFAST_FOLLOW_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteArgs {
    /// The folder that followed.
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// The journal's folder, `journal` in a data folder.
    pub(crate) dir: PathBuf,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
