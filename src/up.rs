//! `holdfast up`: server and local agent in one process and one data folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use detect::Rules;
use model::AgentId;
use registry::{Registry, TokenTerms, WriteContext};
use run::{
    Agent, AgentSettings, EndReason, InventoryConfig, MetricsConfig, QueueConfig, RealtimeConfig,
    ScanConfig, SyncConfig,
};
use scan::absolute_path;
use service::Console;
use service::Notify;
use service::Stop;
use sync::{EnrollOptions, IdentityFolder};

use crate::cli::UpArgs;
use crate::config::{AgentsConfig, ApiConfig, SeriesConfig, ServerConfig};
use crate::roles::{first_login, rebuild_after};
use crate::series::print_ports;
use crate::server::{Server, Started};
use folder::DataFolder;

/// Heartbeat of the local agent: commands from the page are received within a second.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Interval at which the server stores its own metrics, as often as the agent those of the host.
const OWN_METRICS: Duration = Duration::from_secs(10);
/// Lifetime of the local agent's enrolment token, seconds.
const TOKEN_TTL_S: u64 = 60;

/// Runs until SIGINT or SIGTERM.
pub(crate) async fn run(args: UpArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let console = Console::new();
    let rules = rules(&args.watch)?;
    let data = client::own_data(args.data.as_deref())?;
    let config = server_config(&args, &data);
    config.validate()?;
    let notify = Notify::of_environment();
    let (server, started) = Server::start(&config).await?;
    print_started(&console, &started, &data)?;
    let watchdog = notify.ready();
    let folder = DataFolder::new(&data);
    // Opened before the agent runs, so that the first change is printed.
    let feed = client::ChangeFeed::open(&folder.socket()).await;
    let exits = args.failure.exit_on_failure || notify.is_connected();
    let (ended, failed) = tokio::select! {
        ended = local_agent(&args, &server, &started, rules, (&folder, &console), &mut stop) => {
            (ended, Ok(()))
        }
        failed = server.failed(exits) => (Ok(()), Err(failed)),
        () = print_changes(feed, &console) => (Ok(()), Ok(())),
    };
    notify.stopping();
    console.line("stopping");
    let stopped = server.stop_after(failed).await;
    drop(watchdog);
    ended.and(stopped)?;
    console.line("stopped");
    Ok(())
}

/// Prints the changes that arrive, for as long as the server runs.
async fn print_changes(feed: anyhow::Result<client::ChangeFeed>, console: &Console) {
    match feed {
        Ok(feed) => feed.print(console).await,
        Err(error) => {
            tracing::warn!("changes are not printed: {error:#}");
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the rules to watch.
fn rules(watch: &[PathBuf]) -> anyhow::Result<Rules> {
    if watch.is_empty() {
        return Ok(Rules::default_system());
    }
    let mut paths = Vec::new();
    for path in watch {
        // Relative paths are resolved against the current folder.
        paths.push(absolute_path(path)?);
    }
    let rules = Rules::of_paths(paths);
    rules.validate()?;
    Ok(rules)
}

fn server_config(args: &UpArgs, data: &Path) -> ServerConfig {
    ServerConfig {
        data: data.to_owned(),
        api: ApiConfig { listen: args.api, plain_http: args.plain_http, ..ApiConfig::default() },
        agents: AgentsConfig { listen: args.agents, ..AgentsConfig::default() },
        series: SeriesConfig { own_metrics: OWN_METRICS, ..SeriesConfig::default() }
            .with_ports(&args.series),
        ..ServerConfig::default()
    }
}

fn print_started(console: &Console, started: &Started, data: &Path) -> anyhow::Result<()> {
    console.line(&format!("page: {}", started.url));
    print_ports(console, &started.series);
    match &started.password {
        Some(password) => console.line(&first_login(password, data)?),
        None => console.line("log in: user admin, with the password set at first start"),
    }
    console.line(&format!("ready: {}", started.url));
    Ok(())
}

/// Runs the local agent until SIGINT or SIGTERM, or until it fails. It reloads its groups'
/// configuration, restarts on command, and after damage recreates its database.
async fn local_agent(
    args: &UpArgs,
    server: &Server,
    started: &Started,
    rules: Rules,
    (folder, console): (&DataFolder, &Console),
    stop: &mut Stop,
) -> anyhow::Result<()> {
    let Some(agents) = started.agents else { bail!("the agents' side does not listen") };
    let identity = IdentityFolder::new(folder.agent());
    enrol_once(server, &format!("https://{agents}"), identity, console).await?;
    let settings = AgentSettings {
        folder: folder.agent(),
        excluded: vec![folder.path().to_owned()],
        rules,
        scan: ScanConfig { interval: args.scan_interval, ..ScanConfig::default() },
        realtime: RealtimeConfig::default(),
        inventory: InventoryConfig {
            interval: args.scan_interval.unwrap_or(InventoryConfig::default().interval),
            root: args.system.clone(),
            ..InventoryConfig::default()
        },
        metrics: MetricsConfig::default(),
        queue: QueueConfig::default(),
        sync: SyncConfig { heartbeat: HEARTBEAT, ..SyncConfig::default() },
    };
    loop {
        let mut agent = Agent::start(&settings, console.clone())?;
        let ended = loop {
            let ended = tokio::select! {
                ended = agent.ended() => ended,
                () = stop.wait() => None,
            };
            if ended != Some(EndReason::Configured) {
                break ended;
            }
            agent = agent.reload(&settings).await?;
            console.line("the agent continues with its groups' configuration");
        };
        let ended_well = agent.stop().await;
        if ended == Some(EndReason::Damaged) {
            if !rebuild_after(ended_well, console, stop).await {
                return Ok(());
            }
            continue;
        }
        ended_well?;
        let Some(ended) = ended else { return Ok(()) };
        if let Some(error) = ended.error() {
            return Err(error);
        }
        console.line("the agent restarts on command");
    }
}

/// Creates the local agent's identity at first start. Later starts update the server's address,
/// whose port may change, and recreate a lost key or certificate. If the registry does not know the
/// agent, it is enrolled again.
async fn enrol_once(
    server: &Server,
    server_url: &str,
    identity: IdentityFolder,
    console: &Console,
) -> anyhow::Result<()> {
    let registry = server.registry.clone();
    if let Some(who) = identity.load()? {
        if registry.agent(who.id).is_some_and(|agent| agent.name == who.name) {
            let accepted =
                identity.certificate().is_some_and(|shown| registry.identify(&shown).is_ok());
            if !accepted {
                console.line(&match certify_again(&registry, who.id, &identity) {
                    Ok(()) => "the local agent's key or certificate was lost: recreated".into(),
                    Err(refused) => format!("local agent: {refused:#}"),
                });
            }
            return Ok(identity.set_server_url(server_url)?);
        }
        console.line(&format!(
            "agent {} {} is not registered here: it was enrolled again",
            who.id, who.name
        ));
    }
    let make = move || {
        registry.create_enrolment_token(&WriteContext::server(), &TokenTerms::new(1, TOKEN_TTL_S))
    };
    let options = EnrollOptions {
        server_url: server_url.to_owned(),
        token: tokio::task::spawn_blocking(make).await??,
        name: host::system::hostname(),
        groups: Vec::new(),
        folder: identity,
    };
    sync::enroll(&options).await.context("local agent")?;
    Ok(())
}

/// Creates a new key and has it certified by the registry of this process.
fn certify_again(
    registry: &Registry,
    agent: AgentId,
    identity: &IdentityFolder,
) -> anyhow::Result<()> {
    sync::certify_again(identity, |request| {
        let renewed = registry.renew(agent, request)?;
        Ok((renewed.certificate_pem, renewed.ca_pem))
    })
}
