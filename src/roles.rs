//! `holdfast server` and `holdfast agent`: each role in a process of its own.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::bail;
use folder::DataFolder;
use run::{Agent, AgentSettings, EndReason, REBUILD_PAUSE};
use service::Console;
use service::Notify;
use service::Stop;
use sync::IdentityFolder;

use crate::cli::ServerArgs;
use crate::config::{self, AgentConfig, ServerConfig};

use crate::series::print_ports;
use crate::server::{Server, shown_address};

/// Runs a server until SIGINT or SIGTERM.
pub(crate) async fn server(file: &Path, args: &ServerArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let console = Console::new();
    if args.reach.listen.is_some() || !args.reach.name.is_empty() {
        if file.exists() {
            let file = file.display();
            console.line(&format!("--listen and --name hold for this run; {file} stays as it is"));
        } else {
            config::write_server(file, &args.reach, None)?;
            console.line(&format!("written: {}", file.display()));
        }
    }
    let mut config: ServerConfig = config::load(file)?;
    config.reach(&args.reach);
    config.file = Some(file.to_owned());
    config.validate()?;
    let notify = Notify::of_environment();
    let (server, started) = Server::start(&config).await?;
    console.line(&format!("page: {}", started.url));
    if let Some(agents) = started.agents {
        console.line(&format!("agents: https://{}", shown_address(agents)));
    }
    print_ports(&console, &started.series);
    if let Some(password) = &started.password {
        console.line(&first_login(password, &std::path::absolute(&config.data)?)?);
    }
    console.line(&format!("ready: {}", started.url));
    let watchdog = notify.ready();
    let exits = args.failure.exit_on_failure || notify.is_connected();
    let failed = tokio::select! {
        () = stop.wait() => Ok(()),
        failed = server.failed(exits) => Err(failed),
    };
    notify.stopping();
    console.line("stopping");
    server.stop_after(failed).await?;
    drop(watchdog);
    console.line("stopped");
    Ok(())
}

/// Returns the line that says how to log in for the first time. Without a terminal the password goes
/// into a file: lines of a service stay in the system's log.
pub(crate) fn first_login(password: &str, data: &Path) -> anyhow::Result<String> {
    let anew = format!("`holdfast users password admin --data {}` makes a new one", data.display());
    if std::io::stdout().is_terminal() {
        return Ok(format!("log in: user admin, password {password} (shown once; {anew})"));
    }
    let file = DataFolder::new(data).store_first_password(password)?;
    let file = file.display();
    Ok(format!("log in: user admin, password in {file} (removed when it is changed; {anew})"))
}

/// Runs an enrolled agent until SIGINT or SIGTERM.
pub(crate) async fn agent(file: &Path) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let console = Console::new();
    let notify = Notify::of_environment();
    loop {
        // A restart command re-reads the configuration; that is its purpose.
        let (settings, _) = agent_settings(file)?;
        let mut agent = Agent::start(&settings, console.clone())?;
        let watchdog = notify.ready();
        let ended = loop {
            let ended = run_to_end(&mut agent, &notify, &mut stop).await;
            if ended != Some(EndReason::Configured) {
                break ended;
            }
            agent = agent.reload(&settings).await?;
            console.line("the agent continues with its groups' configuration");
        };
        if ended.is_none() {
            notify.stopping();
        }
        let ended_well = agent.stop().await;
        drop(watchdog);
        if ended == Some(EndReason::Damaged) {
            if !rebuild_after(ended_well, &console, &mut stop).await {
                return Ok(());
            }
            continue;
        }
        ended_well?;
        let Some(ended) = ended else {
            console.line("stopped");
            return Ok(());
        };
        if let Some(error) = ended.error() {
            return Err(error);
        }
        console.line("the agent restarts on command");
    }
}

/// Tells the server that the agent leaves the fleet.
pub(crate) async fn leave(file: &Path) -> anyhow::Result<()> {
    let (settings, who) = agent_settings(file)?;
    let pending = run::leave(&settings).await?;
    let mut line = format!("left: {who}");
    if pending > 0 {
        let _ = write!(line, "; {pending} changes and events stay in its queue, not sent");
    }
    Console::new().line(&line);
    Ok(())
}

/// Waits until the agent ends by itself, or until a stop signal arrives (`None`), and reports
/// to the service manager whether it is connected. The agent is ready before that, because it works
/// without a server.
async fn run_to_end(agent: &mut Agent, notify: &Notify, stop: &mut Stop) -> Option<EndReason> {
    let mut connected = agent.connected();
    if !*connected.borrow() {
        notify.status("not connected yet");
    }
    let watch_connection = async {
        if connected.wait_for(|connected| *connected).await.is_ok() {
            notify.status("connected");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = agent.ended() => ended,
        () = stop.wait() => None,
        () = watch_connection => None,
    }
}

/// Pauses after an agent stopped because its database is damaged. Returns true if the agent should
/// be started again, false if a stop signal arrived.
pub(crate) async fn rebuild_after(
    ended_well: anyhow::Result<()>,
    console: &Console,
    stop: &mut Stop,
) -> bool {
    if let Err(problem) = ended_well {
        console.line(&format!("agent.db: {problem:#}"));
    }
    tokio::select! {
        () = tokio::time::sleep(REBUILD_PAUSE) => true,
        () = stop.wait() => false,
    }
}

/// Returns the settings of an enrolled agent, and who it is: `agent 001 web1 of https://...`.
fn agent_settings(file: &Path) -> anyhow::Result<(AgentSettings, String)> {
    let config: AgentConfig = config::load(file)?;
    config.validate()?;
    folder::expect_no_server(&config.data)?;
    let identity = IdentityFolder::new(&config.data);
    let Some(who) = identity.load()? else {
        bail!(
            "{}: not enrolled yet; make a token with `holdfast token` on the server, then run \
             `holdfast enroll --config {} --token TOKEN`",
            config.data.display(),
            file.display()
        );
    };
    identity.set_server_url(config.server.trim_end_matches('/'))?;
    let who = format!("agent {} {} of {}", who.id, who.name, config.server);
    Ok((config.into_settings(), who))
}
