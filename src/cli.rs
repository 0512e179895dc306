//! The command line. Each command says what it does, what it prints and shows an example.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Where data lives unless told otherwise.
const DEFAULT_DATA: &str = "./data";

/// Holdfast knows what changed on every machine you run, and never loses it.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 100, propagate_version = true)]
#[command(
    after_help = "Start here: holdfast up\n\nExit codes: 0 fine, 1 differences found or not \
proven, 2 error.\nstdout is data, stderr is messages."
)]
pub(crate) struct Cli {
    /// How much to log on stderr: error, warn, info, debug or trace, or per part
    /// (info,sync=debug).
    #[arg(long, global = true, env = "HOLDFAST_LOG", value_name = "LEVEL", default_value = "warn")]
    pub(crate) log: String,
    /// How to log.
    #[arg(long, global = true, env = "HOLDFAST_LOG_FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run server and a local agent in one process, in one data folder.
    #[command(after_help = "Example:\n  holdfast up --data ./data --watch /etc --watch /srv \
--scan-interval 5m\n\nPrints `ready: URL` on stdout once it serves. The first administrator \
password is made at first start and shown once, unless HOLDFAST_ADMIN_PASSWORD gives it.")]
    Up(UpArgs),
    /// Run the fleet's server.
    #[command(after_help = "Example:\n  holdfast server --config server.toml")]
    Server(ConfigArg),
    /// Run an agent that was enrolled before.
    #[command(after_help = "Example:\n  holdfast agent --config agent.toml\n  holdfast agent \
status --config agent.toml --json")]
    Agent(AgentArgs),
    /// Enrol this machine's agent with a token of the server.
    #[command(after_help = "Example:\n  holdfast enroll --config agent.toml --server \
https://10.0.0.1:1517 --token hf1.SECRET.FINGERPRINT")]
    Enroll(EnrollArgs),
    /// Make an enrolment token on the server's machine.
    #[command(after_help = "Example:\n  holdfast token --data ./data --uses 10 --ttl 1h")]
    Token(TokenArgs),
    /// Remove an agent from a running server on this machine: its certificate is refused at once,
    /// its documents go, its history stays.
    #[command(after_help = "Example:\n  holdfast remove 001 --data ./data")]
    Remove(RemoveArgs),
    /// Look after the registry of agents on the server's machine.
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Print what a scan sees, without server or database.
    #[command(after_help = "Example:\n  holdfast scan /etc --json | tail -n 1")]
    Scan(ScanArgs),
    /// Print the history of changes of a running server on this machine, newest last.
    #[command(after_help = "Example:\n  holdfast changes --data ./data --path /etc --since 1h \
--json")]
    Changes(ChangesArgs),
    /// Save a consistent copy of a data folder while it is in use.
    #[command(after_help = "Example:\n  holdfast backup --data ./data --to /backup/today")]
    Backup(BackupArgs),
    /// Put a backup in place of a data folder that does not exist yet.
    #[command(after_help = "Example:\n  holdfast restore --from /backup/today --data ./data")]
    Restore(RestoreArgs),
    /// Look after users on the server's machine.
    #[command(subcommand)]
    User(UserCommand),
    /// Print or check a configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look into an agent's queue.
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look into a journal.
    #[command(subcommand)]
    Journal(JournalCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// Take over the agents of a 4.x server from its client.keys, with their numbers, names,
    /// addresses and keys: all of them or, when one cannot be taken over, none. The server must not
    /// run.
    #[command(after_help = "Example:\n  holdfast agents import client.keys --data ./data")]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The client.keys of the other server.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigArg {
    /// The configuration (TOML); `holdfast config default` prints one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

/// A data folder.
#[derive(Debug, Args)]
pub(crate) struct DataArg {
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA)]
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// A folder or file to watch; may be given more than once. Without it: /etc, /usr/bin,
    /// /usr/sbin, /usr/lib/systemd and /boot, those that exist.
    #[arg(long, value_name = "PATH")]
    pub(crate) watch: Vec<PathBuf>,
    /// Where page and API listen.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:55000")]
    pub(crate) api: SocketAddr,
    /// Where the agents' side listens; port 0 takes any free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) agents: SocketAddr,
    /// Time between two scans.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    pub(crate) scan_interval: Duration,
    /// Serve page and API over plain HTTP; only on a loopback address.
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// The system whose packages are told: var/lib/dpkg/status below this folder.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) system: PathBuf,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
    /// The configuration (TOML); `holdfast config default agent` prints one.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// What the agent holds, what is pending and when it last scanned and synchronised.
    Status(AgentStatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentStatusArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    /// Where the server's agents' port is; the configuration's `server` unless given.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The token that `holdfast token` printed on the server.
    #[arg(long, env = "HOLDFAST_TOKEN", hide_env_values = true)]
    pub(crate) token: String,
    /// Name to enrol under; this machine's host name unless given.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Group to join; may be given more than once.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// How many agents may enrol with it.
    #[arg(long, default_value_t = 1)]
    pub(crate) uses: u32,
    /// How long it is good for.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Duration,
    /// Group that its agents join; may be given more than once.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The agent's number.
    #[arg(value_name = "ID")]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) data: DataArg,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// What to scan.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// One JSON object per entry and a last `{"summary": ...}`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the summary.
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
    /// Only this agent.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Only at or below this path.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only this kind.
    #[arg(long, value_parser = ["created", "modified", "deleted", "coverage"])]
    pub(crate) kind: Option<String>,
    /// Only younger than this.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) since: Option<Duration>,
    /// Most lines to print at first.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Go on and print what comes.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// One JSON object per change.
    #[arg(long)]
    pub(crate) json: bool,
}

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
pub(crate) enum UserCommand {
    /// Set a new password; read from `HOLDFAST_NEW_PASSWORD` or made at random and shown once.
    #[command(after_help = "Example:\n  holdfast user password admin --data ./data")]
    Password {
        /// Whose.
        name: String,
        #[command(flatten)]
        data: DataArg,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a commented configuration with every key at its default.
    Default {
        /// Of what.
        #[arg(value_enum, default_value = "server")]
        role: Role,
    },
    /// Read a configuration and say what is wrong with it.
    Check {
        /// Of what.
        #[arg(value_enum)]
        role: Role,
        /// The file.
        file: PathBuf,
    },
}

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// `holdfast server`
    Server,
    /// `holdfast agent`
    Agent,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// What is known, pending and told, and the database's size.
    #[command(after_help = "Example:\n  holdfast queue status --data ./data --json")]
    Status {
        #[command(flatten)]
        data: DataArg,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// The items: when each last changed, whether it was told, what it is.
    #[command(after_help = "Examples:\n  holdfast queue list --pending\n  \
        holdfast queue list --data ./data --path /etc/ssh --json")]
    List {
        #[command(flatten)]
        data: DataArg,
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
        data: DataArg,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fold the write-ahead log in and give unused space back to the file system. Refused while an
    /// agent runs: that one does it by itself, piece by piece.
    #[command(after_help = "Example:\n  holdfast queue compact --data ./data")]
    Compact {
        #[command(flatten)]
        data: DataArg,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

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
