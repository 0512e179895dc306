//! `holdfast journal`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
    /// Measure how many bytes reach the medium for each byte of log, by layout, record size and
    /// writers.
    #[command(after_help = "Example:\n  holdfast journal bench --record 16 --writers 1,8 --svg \
amplification.svg\n  holdfast journal bench --device --beside bench/results/journal.json")]
    Bench(JournalBenchArgs),
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

#[derive(Debug, Args)]
pub(crate) struct JournalBenchArgs {
    /// Layouts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "packed,sparse,ring")]
    pub(crate) layout: Vec<JournalLayout>,
    /// Sizes of records, bytes.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "128,32,16",
        value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) record: Vec<u32>,
    /// Writers that append at the same time.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16,32",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) writers: Vec<u16>,
    /// Commits of each case, at least; the ring's take as many as write it twice.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) commits: u64,
    /// Measure at a block device under ext4, in recycled segments, with the file system's journal
    /// told apart. Needs root and /dev/fuse.
    #[arg(long)]
    pub(crate) device: bool,
    /// Where the journals are written, without --device; the folder for temporary files unless
    /// given.
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    pub(crate) dir: Option<PathBuf>,
    /// Show other logs' figures beside, from the results of a comparison (JSON).
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How groups are laid on blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JournalLayout {
    /// One after the other; the last block is written again.
    Packed,
    /// Each in blocks of its own.
    Sparse,
    /// Sparse in a small ring, packed in an archive.
    Ring,
}
