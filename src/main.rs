//! `holdfast`: assembly of the crates into one program. Each command has its own file;
//! `ARCHITECTURE.md` states the guarantees.

mod cli;
mod clock;
mod config;
mod enrol;
mod follow;
mod logging;
mod manual;
mod open_files;
mod roles;
mod scan_command;
mod series;
mod server;
mod up;
mod user;

use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use client::{AgentsArgs, AgentsCommand, FleetCommand, UsersArgs, UsersCommand};

use crate::cli::{
    AgentCommand, AuthorityCommand, Cli, Command, ConfigCommand, JournalCommand, RegistryCommand,
    ServerCommand,
};

/// Exit code if differences were found or something is not proven.
const EXIT_DIFFERENT: u8 = 1;
/// Name of stdout in errors.
const STDOUT: &str = "stdout";
/// Exit code for an error.
const EXIT_ERROR: u8 = 2;
/// Exit code if a store failed for good while the server ran, so that it should be started again.
const EXIT_FAILED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| cli::without_variables(error).exit());
    // Set the default provider for TLS clients. The call fails only if it is already set.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Files that this program writes are not readable by other users.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    sqlite::log_system_errors();
    // Commands that run until they are stopped ignore a closed stdout.
    let lasts = matches!(cli.command, Command::Up(_) | Command::Server(_) | Command::Agent(_));
    let done = logging::start(&cli.log, cli.log_format).and_then(|()| run(cli.command));
    let done = done.and_then(|fine| if lasts { Ok(fine) } else { check_stdout().map(|()| fine) });
    match done {
        // The reader has closed the pipe, as `head` does.
        Err(error) if is_unread(&error) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DIFFERENT),
        Err(error) => {
            say_error(&error);
            let failed = error.downcast_ref::<server::StoreFailed>().is_some();
            ExitCode::from(if failed { EXIT_FAILED } else { EXIT_ERROR })
        }
    }
}

#[expect(clippy::print_stderr, reason = "the program's last word belongs to a person")]
fn say_error(error: &anyhow::Error) {
    eprintln!("holdfast: {}", in_one_line(error));
}

/// Formats an error and its causes in one line. Repeated causes are left out, also those that
/// differ only by SQLite's error number.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        let numbered = cause.strip_prefix("Error code ").and_then(|rest| rest.split_once(": "));
        if line.contains(numbered.map_or(&*cause, |(_, text)| text)) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

/// Returns an error if some output could not be written to stdout.
fn check_stdout() -> anyhow::Result<()> {
    let Some(e) = service::Console::lost() else { return Ok(()) };
    let why = match e.kind() {
        ErrorKind::BrokenPipe => anyhow::Error::new(std::io::Error::from(e.kind())),
        _ => anyhow::anyhow!("{e}; what it says is lost, run the command again"),
    };
    Err(why.context(STDOUT))
}

/// Returns true if no process reads stdout any more.
fn is_unread(error: &anyhow::Error) -> bool {
    let closed = |e: &std::io::Error| e.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.to_string() == STDOUT)
        && error.chain().filter_map(|cause| cause.downcast_ref()).any(closed)
}

/// Runs one command. Returns true if all is fine, false if differences were found.
fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Up(args) => runtime()?.block_on(up::run(args))?,
        Command::Server(args) => match (&args.command, &args.config) {
            (Some(ServerCommand::Setup(args)), _) => config::setup(args)?,
            (None, Some(file)) => runtime()?.block_on(roles::server(file, &args))?,
            (None, None) => anyhow::bail!("server: name its configuration with --config FILE"),
        },
        Command::Agent(args) => match (args.command, args.config) {
            (Some(AgentCommand::Status(args)), _) => {
                let config: config::AgentConfig =
                    config::load(&args.config.unwrap_or_else(config::agent_file))?;
                return inspect::agent_status(&config.data, args.json);
            }
            (Some(AgentCommand::Leave(args)), _) => {
                let file = args.config.unwrap_or_else(config::agent_file);
                runtime()?.block_on(roles::leave(&file))?;
            }
            (None, Some(config)) => runtime()?.block_on(roles::agent(&config))?,
            (None, None) => anyhow::bail!("agent: name its configuration with --config FILE"),
        },
        Command::Enroll(args) => runtime()?.block_on(enrol::enroll(&args))?,
        Command::Token(args) => runtime()?.block_on(enrol::token(&args))?,
        Command::Fleet(command) => fleet(command)?,
        Command::Scan(args) => return scan_command::run(&args),
        Command::Backup(args) => {
            print_line(&folder::backup::backup(&args.data.folder()?, &args.to)?)?;
        }
        Command::Restore(args) => {
            let data = args.data.folder()?;
            let line = folder::backup::restore(&args.from, &data)?;
            accept_restored(&data)?;
            print_line(&line)?;
        }
        Command::Authority(AuthorityCommand::Reissue(args)) => clock::reissue(&args)?,
        Command::Registry(RegistryCommand::Accept(args)) => {
            let folder = folder::DataFolder::new(args.folder()?);
            server::expect_own(&folder)?;
            let _lock = folder.claim()?;
            let next = server::accept_registry(&folder)?;
            print_line(&format!("accepted: the next new agent is {next}; every token is revoked"))?;
        }
        Command::Clock(command) => return runtime()?.block_on(clock::run(command)),
        Command::User(_) => anyhow::bail!("user: this command is now `holdfast users`"),
        Command::Remove(_) => anyhow::bail!("remove: this command is now `holdfast agents remove`"),
        Command::Config(ConfigCommand::Default { role }) => config::print_default(role)?,
        Command::Config(ConfigCommand::Check { role, file }) => config::check(role, &file)?,
        Command::Queue(command) => return inspect::run_queue(command, &scan_command::agent_folder),
        Command::Series(command) => return series::run(command),
        Command::Journal(JournalCommand::Verify(args)) => return inspect::journal::verify(&args),
        Command::Journal(JournalCommand::Stat(args)) => {
            let folder = args.dir.parent().unwrap_or(std::path::Path::new("."));
            inspect::journal::stat(&args, &runtime()?.block_on(follow::status(folder))?)?;
        }
        Command::Journal(JournalCommand::Follow(args)) => {
            runtime()?.block_on(follow::follow(args))?;
        }
        Command::Journal(JournalCommand::Promote(args)) => follow::promote(&args)?,
        Command::Journal(JournalCommand::Dump { journal, from, limit }) => {
            inspect::journal::dump(&journal, from, limit.into())?;
        }
        Command::Journal(JournalCommand::Repair(args)) => return inspect::journal::repair(&args),
        Command::Completions { shell } => manual::completions(shell)?,
        Command::Man { to } => manual::man(to.as_deref())?,
    }
    Ok(true)
}

/// Makes the registry of a restored folder safe, if a server's: the backup may be older than numbers
/// and revocations of today.
fn accept_restored(data: &std::path::Path) -> anyhow::Result<()> {
    let folder = folder::DataFolder::new(data);
    if folder::is_there(&folder.registry_db())? {
        let _lock = folder.claim()?;
        server::accept_registry(&folder)?;
    }
    Ok(())
}

/// Prints a line on stdout.
fn print_line(line: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{line}").context(STDOUT)
}

/// Runs an everyday command. Two of them work on the data folder of a server that may not run.
fn fleet(command: FleetCommand) -> anyhow::Result<()> {
    match command {
        FleetCommand::Agents(AgentsArgs { command: Some(AgentsCommand::Import(args)), .. }) => {
            enrol::import(&args)
        }
        FleetCommand::Users(UsersArgs { command: Some(UsersCommand::Password(args)), .. })
            if args.connect.url().is_none() && !is_served(&args.connect.data()?)? =>
        {
            user::set_password(&args)
        }
        command => runtime()?.block_on(client::run(command)),
    }
}

/// Returns true if a server runs on a data folder.
fn is_served(data: &std::path::Path) -> anyhow::Result<bool> {
    let socket = folder::DataFolder::new(data).socket();
    Ok(client::Client::running(&socket)?.is_some())
}

/// Returns the runtime of a command that serves or waits.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    #[cfg(target_env = "gnu")]
    service::return_freed_memory(&runtime);
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_cause_is_formatted_once() {
        let cause = anyhow::anyhow!("file is not a database");
        let refused = cause.context("registry.db: file is not a database").context("registry");
        assert_eq!(in_one_line(&refused), "registry: registry.db: file is not a database");
        let numbered = anyhow::anyhow!("Error code 13: disk is full").context("a: disk is full: b");
        assert_eq!(in_one_line(&numbered), "a: disk is full: b");
        let other = anyhow::anyhow!("Error code 13: disk is full").context("a");
        assert_eq!(in_one_line(&other), "a: Error code 13: disk is full");
    }
}
