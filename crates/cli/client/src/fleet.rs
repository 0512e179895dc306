//! The commands of this crate.

use clap::Subcommand;

use crate::agents::AgentsArgs;
use crate::audit::AuditArgs;
use crate::changes::ChangesArgs;
use crate::commands::{CommandsArgs, TargetArgs};
use crate::coverage::CoverageArgs;
use crate::files::{FilesArgs, PackagesArgs};
use crate::groups::GroupsArgs;
use crate::login::LoginArgs;
use crate::rules::RulesArgs;
use crate::users::UsersArgs;
use crate::{agents, audit, changes, commands, coverage, files, groups, login, rules, users};

/// Everyday commands on a running server.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Print the history of changes, newest last.
    #[command(after_help = "Examples:\n  holdfast changes --path /etc --since 1h --agent \
web1\n  holdfast changes --group web --since 2026-11-28 --until 2026-11-29")]
    Changes(ChangesArgs),
    /// Print the gaps in which something was not, or not fully, watched, newest last.
    #[command(after_help = "Example:\n  holdfast coverage --open")]
    Coverage(CoverageArgs),
    /// List agents, show one, remove agents, or import those of a 4.x server.
    #[command(
        after_help = "Examples:\n  holdfast agents --status disconnected\n  holdfast agents \
show web1\n  holdfast agents remove web1 web2\n\n`holdfast agent` runs the agent of this machine."
    )]
    Agents(AgentsArgs),
    /// List groups, change their members and their configuration.
    #[command(
        after_help = "Examples:\n  holdfast groups create web\n  holdfast groups add web web1 \
web2\n  holdfast groups configure web web.toml"
    )]
    Groups(GroupsArgs),
    /// Have agents scan now.
    #[command(after_help = "Example:\n  holdfast rescan web1 web2 --wait")]
    Rescan(TargetArgs),
    /// Have agents restart.
    #[command(after_help = "Example:\n  holdfast restart --group web --wait")]
    Restart(TargetArgs),
    /// List the commands given to agents, print the outcomes of one, or cancel it.
    #[command(after_help = "Example:\n  holdfast commands 17")]
    Commands(CommandsArgs),
    /// List the files of an agent as it last reported them.
    #[command(after_help = "Example:\n  holdfast files web1 --path /etc/ssh")]
    Files(FilesArgs),
    /// List the installed packages of one agent or of all.
    #[command(after_help = "Example:\n  holdfast packages --name openssl")]
    Packages(PackagesArgs),
    /// List, create and delete users, set passwords and roles.
    #[command(after_help = "Examples:\n  holdfast users create alice --role readonly\n  holdfast \
users password admin")]
    Users(UsersArgs),
    /// List, show, store and delete detection rules (Sigma).
    #[command(after_help = "Example:\n  holdfast rules add cron_changed.yml")]
    Rules(RulesArgs),
    /// Print the audit log, newest last.
    #[command(after_help = "Example:\n  holdfast audit --limit 20 --json")]
    Audit(AuditArgs),
    /// Log in to a server on another machine and print a token for `HOLDFAST_API_TOKEN`. The password
    /// is read from `HOLDFAST_PASSWORD`, the terminal or stdin.
    #[command(
        after_help = "Example:\n  export HOLDFAST_URL=https://fleet.example.org:55000\n  export \
HOLDFAST_API_TOKEN=$(holdfast login --user admin --ca ca.pem)"
    )]
    Login(LoginArgs),
}

/// Runs a command.
///
/// # Errors
/// If the server does not answer, refuses, or did only a part.
pub async fn run(command: FleetCommand) -> anyhow::Result<()> {
    match command {
        FleetCommand::Changes(args) => changes::run(&args).await,
        FleetCommand::Coverage(args) => coverage::run(&args).await,
        FleetCommand::Agents(args) => agents::run(args).await,
        FleetCommand::Groups(args) => groups::run(args).await,
        FleetCommand::Rescan(args) => commands::give_command(&args, "rescan").await,
        FleetCommand::Restart(args) => commands::give_command(&args, "restart").await,
        FleetCommand::Commands(args) => commands::list(&args).await,
        FleetCommand::Files(args) => files::files(&args).await,
        FleetCommand::Packages(args) => files::packages(&args).await,
        FleetCommand::Users(args) => users::run(args).await,
        FleetCommand::Rules(args) => rules::run(args).await,
        FleetCommand::Audit(args) => audit::run(&args).await,
        FleetCommand::Login(args) => login::run(&args).await,
    }
}
