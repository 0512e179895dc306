//! The command line. The help of each command says what it does and what it prints, and shows an
//! example. Each group of commands has a file for its arguments.

mod fleet;
mod folder;
mod journal;
mod look;
mod series;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use client::FleetCommand;
use inspect::QueueCommand;

pub(crate) use self::fleet::{AgentArgs, AgentCommand, EnrollArgs, TokenArgs, UpArgs};
pub(crate) use self::folder::{
    AuthorityCommand, BackupArgs, ClockCommand, RegistryCommand, RestoreArgs,
};
pub(crate) use self::journal::{FollowArgs, JournalCommand, PromoteArgs};
pub(crate) use self::look::ScanArgs;
pub(crate) use self::series::{SeriesBenchArgs, SeriesCommand, SeriesPortArgs, SeriesServeArgs};

/// Holdfast records what changed on each of your machines and keeps every acknowledged change.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 100, propagate_version = true)]
#[command(
    after_help = "Start here: holdfast up\n\nExit codes: 0 fine, 1 differences found or not \
proven, 2 error, 3 a store failed while the server ran.\nstdout is data, stderr is messages."
)]
pub(crate) struct Cli {
    /// Log level on stderr: error, warn, info, debug or trace; also per part, as in
    /// info,sync=debug.
    #[arg(long, global = true, env = "HOLDFAST_LOG", value_name = "LEVEL", default_value = "warn")]
    pub(crate) log: String,
    /// Format of log lines.
    #[arg(long, global = true, env = "HOLDFAST_LOG_FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the error of a command line as it is without environment variables. With them, clap lists
/// each option that has a variable in the usage line, as if it were required.
pub(crate) fn without_variables(error: clap::Error) -> clap::Error {
    fn strip(command: clap::Command) -> clap::Command {
        command.mut_args(|arg| arg.env(None::<&str>)).mut_subcommands(strip)
    }
    match strip(Cli::command()).try_get_matches_from(std::env::args_os()) {
        // Help stays as it is: it names the variables.
        Err(plain) if plain.kind() == error.kind() && error.use_stderr() => plain,
        _ => error,
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server and a local agent in one process with one data folder.
    #[command(after_help = "Example:\n  holdfast up --data ./data --watch /etc --watch /srv \
--scan-interval 5m\n\nPrints `ready: URL` on stdout once it serves. The first administrator \
password is made at first start and shown once, without a terminal in the file admin-password of the \
data folder, unless HOLDFAST_ADMIN_PASSWORD gives it.")]
    Up(UpArgs),
    /// Run the server.
    #[command(after_help = "Example:\n  holdfast server setup --listen 0.0.0.0 --name \
holdfast.example.org\n  holdfast server --config server.toml")]
    Server(ServerArgs),
    /// Run an enrolled agent.
    #[command(after_help = "Example:\n  holdfast agent --config agent.toml\n  holdfast agent \
status --config agent.toml --json")]
    Agent(AgentArgs),
    /// Enrol this machine's agent with a token from the server.
    #[command(
        after_help = "Example:\n  holdfast enroll --server https://holdfast.example.org:1517 \
--token hf1.SECRET.FINGERPRINT"
    )]
    Enroll(EnrollArgs),
    /// Create an enrolment token, on the server's machine.
    #[command(after_help = "Example:\n  holdfast token --data ./data --uses 10 --ttl 1h")]
    Token(TokenArgs),
    #[command(flatten)]
    Fleet(FleetCommand),
    /// Scan and print what is there, or what differs from the agent's baseline.
    #[command(after_help = "Examples:\n  holdfast scan /etc --json | tail -n 1\n  \
holdfast scan /etc/ssh --below --config /etc/holdfast/agent.toml\n\nExit code 1 if \
something could not be read: a folder is reported as a gap, an entry with its error, and the summary \
counts both. Files that change while they are read (unstable) or exceed the size limit (too large) do \
not affect the exit code.")]
    Scan(ScanArgs),
    /// Save a consistent copy of a data folder while it is in use.
    #[command(after_help = "Example:\n  holdfast backup --data ./data --to /backup/today")]
    Backup(BackupArgs),
    /// Restore a backup into a data folder that does not exist yet.
    #[command(after_help = "Example:\n  holdfast restore --from /backup/today --data ./data")]
    Restore(RestoreArgs),
    /// Manage the certificate authority of a server.
    #[command(subcommand)]
    Authority(AuthorityCommand),
    /// Accept a registry that is older than the state next to it.
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Show or accept the clock of a data folder.
    #[command(subcommand)]
    Clock(ClockCommand),
    /// This command is now `holdfast users`.
    #[command(hide = true)]
    User(RenamedArgs),
    /// This command is now `holdfast agents remove`.
    #[command(hide = true)]
    Remove(RenamedArgs),
    /// Print or check a configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Inspect an agent's queue.
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Inspect and repair a journal, follow a server.
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Run, inspect, fill and empty the series store.
    #[command(subcommand)]
    Series(SeriesCommand),
    /// Print shell completions.
    #[command(after_help = "Example:\n  holdfast completions bash >\
/usr/share/bash-completion/completions/holdfast")]
    Completions {
        /// Shell to print them for.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(after_help = "Example:\n  holdfast man | man -l -\n  holdfast man --to \
/usr/share/man/man1")]
    Man {
        /// Write one page per command into this folder instead.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

// The help of the command stays that of its variant.
#[derive(Debug, Args)]
pub(crate) struct RenamedArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

/// Arguments of `holdfast server`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServerCommand>,
    /// Configuration file (TOML). If there is none, and --listen or --name is given, it is written.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    #[command(flatten)]
    pub(crate) failure: FailureArg,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Write the configuration of a server that other machines reach.
    #[command(after_help = "Example:\n  holdfast server setup --listen 0.0.0.0 --name \
holdfast.example.org")]
    Setup(SetupArgs),
}

/// The address and the names under which others reach a server.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    /// Listen address of page and agents' port, such as 0.0.0.0.
    #[arg(long, value_name = "IP")]
    pub(crate) listen: Option<IpAddr>,
    /// Name or address for the certificate, besides the host's own names and addresses; may be given
    /// more than once.
    #[arg(long)]
    pub(crate) name: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// File to write. Default: that of the installed server's unit if there is one, else server.toml.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder of the server; default: ./data, relative to where it is started.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// The action after a store has failed.
#[derive(Debug, Args)]
pub(crate) struct FailureArg {
    /// Exit with code 3 if the journal or state.db fails, as under a service manager, instead of
    /// refusing sessions until a restart.
    #[arg(long)]
    pub(crate) exit_on_failure: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a commented configuration with every key at its default.
    Default {
        /// Program that the configuration is for.
        #[arg(value_enum, default_value = "server")]
        role: Role,
    },
    /// Read a configuration and print what is wrong with it.
    Check {
        /// Program that the configuration is for.
        #[arg(value_enum)]
        role: Role,
        /// Configuration file.
        file: PathBuf,
    },
}

/// Program that a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// `holdfast server`
    Server,
    /// `holdfast agent`
    Agent,
}
