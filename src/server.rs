//! Assembly of the server: journal, state and registry, the commit pipeline that writes them, and
//! the listeners for agents and for the API.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::extract::Request;
use axum::middleware::map_request;
use commit::{Commit, CommitOptions};
use env::clock::Clock;
use env::guard::GuardedClock;
use env::random::{Random, SystemRandom};
use journal::{Journal, Options};
use model::Position;
use registry::{ControlError, ControlStore, Registry, RegistryOptions};
use replication::follow::Marker;
use replication::{ShipOptions, Shipping};
use rustls::server::ResolvesServerCert;
use sessions::{LocalCaller, Sessions, SessionsHandle, SessionsOptions, SilenceOptions, Timeouts};
use sigma::RuleFolder;
use state::{Retention, StateError, StateOptions, StateStore};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::config::{Layout, ServerConfig, names_of};
use crate::series::{Ports, Secrets, certificate_files, store_names, store_own};
use folder::ServerFiles;
use folder::Upkeep;
use folder::clock::{FolderClock, STORE_EVERY};
use folder::{DataFolder, is_there};

mod failure;
mod folder_registry;
mod rows_log;
mod web;

pub(crate) use failure::StoreFailed;
pub(crate) use folder_registry::{
    accept_registry, expect_own, registry_alone, registry_despite_journal, registry_for_command,
};
pub(crate) use web::shown_address;
use web::{api_router, serve_api};

/// Name of the environment variable that gives the first administrator's password.
const ADMIN_PASSWORD: &str = "HOLDFAST_ADMIN_PASSWORD";

/// A running server.
pub(crate) struct Server {
    pub(crate) registry: Registry,
    commit: Arc<Commit>,
    sessions: SessionsHandle,
    api: listener::Server,
    stop: watch::Sender<bool>,
    upkeep: JoinHandle<()>,
    shipping: Shipping,
    series: Option<series::Store>,
    ports: Ports,
    _lock: File,
}

/// The addresses of a started server.
#[derive(Debug)]
pub(crate) struct Started {
    /// URL of the page and the API.
    pub(crate) url: String,
    /// Listen address for agents.
    pub(crate) agents: Option<SocketAddr>,
    /// The administrator's password if it was just created.
    pub(crate) password: Option<String>,
    /// The series store's own ports: name and address.
    pub(crate) series: Vec<(&'static str, SocketAddr)>,
}

impl Server {
    /// Opens the folder, replays the journal and starts to listen.
    pub(crate) async fn start(config: &ServerConfig) -> anyhow::Result<(Self, Started)> {
        let config = &crate::open_files::fit_server(config)?;
        let folder = DataFolder::new(&config.data);
        let lock = folder.claim()?;
        config.file.as_deref().map_or(Ok(()), |file| folder.record_config(file))?;
        let own_clock = Arc::new(FolderClock::open(&folder, &ages(config)));
        let guard = own_clock.clock.clone();
        let clock: Arc<dyn Clock> = guard.clone();
        let opening = (config.clone(), folder.clone(), guard.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let (config, folder, guard) = opening;
            Stores::open(&config, &folder, guard)
        });
        let Stores { state, commit, registry, shipping, series } = opened.await??;
        let ready = Arc::new(AtomicBool::new(false));
        let rules = open_rules(config, &folder, &clock)?;
        let stores = (&state, &commit, series.as_ref());
        let memory = config.series.query_memory();
        let router =
            api_router(config, (&registry, rules), stores, memory.clone(), &own_clock, &ready)?;
        metrics::gauge!("holdfast_series_open").set(f64::from(u8::from(series.is_some())));
        let router = replication::router(shipping.clone()).fallback_service(router);
        let sessions = Sessions::start(
            SessionsOptions {
                series: series.clone(),
                ..sessions_options(config, &folder, &clock, router.clone())
            },
            commit.clone(),
            state.clone(),
            registry.clone(),
        )
        .context("agents' side")?;
        let secrets = series_secrets(config, &registry)?;
        let api = serve_api(config, &registry, router.clone()).await?;
        let ports = Ports::open(series.as_ref(), &config.series, &secrets, memory).await?;
        // Create the password last: it is shown only once, so the start must have succeeded.
        let password = first_password(&registry)?;
        ready.store(true, Ordering::Release);
        let (url, agents) = (url(config, &api), sessions.local_addr());
        let started = Started { url, agents, password, series: ports.open.clone() };
        let (stop, stopped) = watch::channel(false);
        let upkeep = Upkeep {
            registry: registry.clone(),
            state,
            commit: commit.clone(),
            clock: own_clock,
            retention: retention(config),
            shipping: shipping.clone(),
        };
        if let Some(series) = series.clone() {
            tokio::spawn(store_names(series, registry.clone(), stopped.clone()));
        }
        let every = config.series.own_metrics;
        if let (Some(series), true) = (series.clone(), every > Duration::ZERO) {
            tokio::spawn(store_own(series, router, every, stopped.clone()));
        }
        let upkeep = tokio::spawn(upkeep.run(stopped));
        let server = Self {
            registry,
            commit,
            sessions,
            api,
            stop,
            upkeep,
            shipping,
            series,
            ports,
            _lock: lock,
        };
        Ok((server, started))
    }

    /// Stops listening, finishes requests in progress and persists everything.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        // Streams to followers end only when shipping stops.
        self.shipping.stop();
        self.api.shutdown().await;
        self.sessions.shutdown().await;
        let _ = self.upkeep.await;
        self.ports.close().await;
        let close = move || self.series.map_or(Ok(()), series::Store::close);
        let series = tokio::task::spawn_blocking(close).await?;
        // Close each store even if closing another one fails. The registry's last rows go to the journal.
        let registry = self.registry.clone();
        let registry = tokio::task::spawn_blocking(move || registry.close()).await?;
        let commit = self.commit.close().await.context("commit");
        commit.and(registry.context("registry")).and(series.context("series"))
    }
}

/// The stores of a server.
struct Stores {
    state: Arc<StateStore>,
    commit: Arc<Commit>,
    registry: Registry,
    shipping: Shipping,
    series: Option<series::Store>,
}

impl Stores {
    /// Opens everything, replaying the journal. Blocks.
    fn open(
        config: &ServerConfig,
        folder: &DataFolder,
        guard: Arc<GuardedClock>,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = guard.clone();
        let (state, commit, journal) = open_stores(config, folder, &clock)?;
        let store = rows_log::open_control(config, folder, Some(commit.clone()))?;
        rows_log::keep_for_registry(&commit, &store);
        let registry = open_registry(config, folder, store, guard, Arc::new(SystemRandom))?;
        folder_registry::expect_registry_of_state(folder, &registry)?;
        if let Some(problem) = registry.authority_problem() {
            warn!("{problem}");
        }
        registry.warm_logins();
        let shipping =
            open_shipping(config, folder, (journal, &commit, &state), &registry, clock.clone())?;
        let series = open_series(config, folder, &clock)?;
        Ok(Self { state, commit, registry, shipping, series })
    }
}

/// Returns the address of page and API.
fn url(config: &ServerConfig, api: &listener::Server) -> String {
    let scheme = if config.api.plain_http { "http" } else { "https" };
    format!("{scheme}://{}/", shown_address(api.local_addr().unwrap_or(config.api.listen)))
}

fn open_stores(
    config: &ServerConfig,
    folder: &DataFolder,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(Arc<StateStore>, Arc<Commit>, Journal)> {
    if let Some(following) = Marker::load(folder.path())? {
        let (folder, from) = (folder.path().display(), following.from);
        bail!(
            "{folder}: follows {from}; `holdfast journal promote {folder}` makes it a server's folder"
        );
    }
    folder.expect_registry()?;
    let restored = folder.restored_marker();
    if restored.exists() {
        let state = folder.state_db();
        let prepared = if is_there(&folder.journal())? {
            StateStore::prepare_promoted(&state)
        } else {
            // Only the state of an older version's backup may continue without its journal; below, a
            // lost journal is an error.
            StateStore::prepare_restored(&state, Position(0))
        };
        prepared.context("restored state")?;
    }
    let options = StateOptions {
        readers: config.db.readers,
        wal_bytes_max: config.db.wal_mib * 1024 * 1024,
        ..StateOptions::default()
    };
    let state = StateStore::open(&folder.state_db(), options)
        .and_then(|state| state.warm().map(|()| state))
        .map_err(|e| database(&folder.state_db(), e.into()))?;
    let state: Arc<StateStore> = Arc::new(state);
    let options = Options {
        layout: match config.journal.layout {
            Layout::Packed => journal::Layout::Packed,
            Layout::Sparse => journal::Layout::Sparse,
            Layout::Ring => journal::Layout::Ring,
        },
        segment_bytes: u64::from(config.journal.segment_mib) * 1024 * 1024,
        // Checked before a torn tail is cut, so that a journal that lost its end is not changed.
        position_expected: rows_log::position_expected(folder, &state, restored.exists())?,
        ..Options::default()
    };
    let (journal, recovery) = Journal::open(&folder.journal(), options).map_err(|e| match e {
        journal::OpenError::NewerVersion { .. } => anyhow::Error::new(e).context("journal"),
        e => anyhow::Error::new(e).context(format!(
            "journal; `holdfast journal verify {0}` says what is wrong, `holdfast journal repair \
                 {0}` lets the state, which keeps what it has applied, go on without what is lost",
            folder.journal().display()
        )),
    })?;
    if let Some(cut) = &recovery.cut {
        warn!(?cut, "the journal's torn tail was cut; nothing acknowledged was in it");
    }
    let options = CommitOptions {
        folders: folder.watched(),
        clock: clock.clone(),
        shared_journal: true,
        ..CommitOptions::default()
    };
    let opened = Commit::open(journal.clone(), state.clone(), options);
    let (commit, replay) = opened.context("commit")?;
    if restored.exists() {
        // Sync the folder: if the marker reappeared after a power cut, the position would be reset
        // again.
        std::fs::remove_file(&restored)
            .and_then(|()| File::open(folder.path())?.sync_all())
            .with_context(|| restored.display().to_string())?;
    }
    if replay.records > 0 {
        info!(records = replay.records, from = replay.from.0, to = replay.to.0, "replayed");
    }
    Ok((state, commit, journal))
}

/// Opens the series store. Fails if another process has it open or an option is wrong. Any other
/// error is logged and gives `None`: damaged metrics must not prevent the server from recording
/// file changes.
fn open_series(
    config: &ServerConfig,
    folder: &DataFolder,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<series::Store>> {
    let dir = folder.series();
    let options = series::StoreOptions { clock: clock.clone(), ..config.series.store_options() };
    match series::Store::open(&dir, options) {
        Ok((store, _)) => Ok(Some(store)),
        // Both need an administrator: another process has the store open, or an option is wrong.
        Err(e @ (series::SeriesOpenError::Locked(_) | series::SeriesOpenError::Option { .. })) => {
            Err(e).context("series")
        }
        Err(e @ series::SeriesOpenError::NewerVersion { .. }) => {
            let dir = dir.display();
            error!("{dir}: the server runs without its series store, its ports and metrics: {e}");
            Ok(None)
        }
        Err(e) => {
            let (dir, data) = (dir.display(), folder.path().display());
            error!(
                "{dir}: the server runs without its series store, its ports and metrics: {e}; stop \
                 it, then `holdfast series verify --data {data}` says what is wrong, and `holdfast \
                 series delete --all --data {data}` starts an empty one"
            );
            Ok(None)
        }
    }
}

fn open_shipping(
    config: &ServerConfig,
    folder: &DataFolder,
    (journal, commit, state): (Journal, &Arc<Commit>, &Arc<StateStore>),
    registry: &Registry,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Shipping> {
    let options = ShipOptions {
        journal_dir: folder.journal(),
        folder: folder.path().to_owned(),
        token_file: folder.make_follower_token()?,
        held_bytes_max: config.journal.follow_bytes_max,
        clock,
        seed: Arc::new(ServerFiles {
            folder: folder.clone(),
            state: state.clone(),
            registry: registry.clone(),
        }),
    };
    Shipping::open(journal, commit.clone(), state.store_id(), options).context("followers")
}

fn open_registry(
    config: &ServerConfig,
    folder: &DataFolder,
    store: Arc<ControlStore>,
    clock: Arc<GuardedClock>,
    random: Arc<dyn Random>,
) -> anyhow::Result<Registry> {
    let options = RegistryOptions {
        cluster_name: config.cluster_name.clone(),
        node_name: config.node_name.clone(),
        disconnection_s: config.agents.disconnection_time.as_secs(),
        token_ttl_s: config.api.token_timeout.as_secs(),
        login_workers: config.auth.workers,
        login_attempts_max: config.auth.max_login_attempts,
        login_block_s: config.auth.block_time.as_secs(),
        cache_ttl: config.cache.ttl,
        tokens_until_s: Some(tokens_until_s(&clock)),
        first_password_file: Some(folder.first_password()),
        ..RegistryOptions::default()
    };
    folder.make_keys()?;
    Registry::open(store, &folder.keys(), clock, random, options).context("registry")
}

/// Returns the latest time at which earlier processes may have issued tokens. It is a little after
/// the last persisted time.
fn tokens_until_s(clock: &GuardedClock) -> i64 {
    let resumed_s = i64::try_from(clock.resumed_us() / 1_000_000).unwrap_or(i64::MAX);
    resumed_s.saturating_add_unsigned(STORE_EVERY.as_secs() + 30)
}

/// Returns the error for a database that cannot be opened. It has the remedy for a damaged file, unless
/// the system refused a call.
fn database(file: &Path, error: anyhow::Error) -> anyhow::Error {
    use rusqlite::ErrorCode::{CannotOpen, OutOfMemory, SystemIoFailure};
    let code = |e: &rusqlite::Error| e.sqlite_error_code();
    let codes = error.chain().filter_map(|cause| cause.downcast_ref().and_then(code));
    let is_refused = |code| matches!(code, CannotOpen | OutOfMemory | SystemIoFailure);
    let io = error.chain().any(<dyn std::error::Error>::is::<std::io::Error>);
    let file = file.display();
    let is_newer = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(StateError::Newer { .. }))
            || matches!(cause.downcast_ref(), Some(ControlError::Newer { .. }))
    };
    if error.chain().any(is_newer) {
        return error;
    }
    if io || codes.into_iter().any(is_refused) {
        let hint = "the system refused a call; a line above names it if the database made it";
        return error.context(format!("{file}: {hint}"));
    }
    error.context(format!(
        "{file}; if it is damaged, move the data folder away and put the last backup in its place with \
         `holdfast restore`"
    ))
}

fn first_password(registry: &Registry) -> anyhow::Result<Option<String>> {
    let preset = std::env::var(ADMIN_PASSWORD).ok().filter(|p| !p.is_empty());
    registry.ensure_admin(preset.as_deref()).context("first administrator")
}

fn sessions_options(
    config: &ServerConfig,
    folder: &DataFolder,
    clock: &Arc<dyn Clock>,
    local: axum::Router,
) -> SessionsOptions {
    let defaults = SessionsOptions::default();
    let allowed_uids = [&defaults.operator_uids[..], &config.agents.allowed_uids].concat();
    SessionsOptions {
        limits: config.agents.limits(),
        agent_series_max: config.series.agent_series_max,
        timeouts: Timeouts { idle: config.agents.idle_time, ..defaults.timeouts },
        https: Some(config.agents.listen),
        names: names_of(config.agents.listen, &config.agents.names),
        unix: Some(folder.path().join(&config.agents.socket)),
        allowed_uids,
        silence: SilenceOptions {
            quiet_start: config.agents.quiet_start,
            ..SilenceOptions::default()
        },
        clock: clock.clone(),
        boot: sync::Machine::of_host().boot,
        local: Some(local.layer(map_request(as_local_source))),
        ..defaults
    }
}

/// Passes the user id, which the kernel reported for the connection, to the API as the source.
async fn as_local_source(mut request: Request) -> Request {
    if let Some(caller) = request.extensions().get::<LocalCaller>().copied() {
        request.extensions_mut().insert(listener::Source::Unix { uid: caller.uid });
        request.extensions_mut().insert(replication::LocalFollower);
    }
    request
}

fn open_rules(
    config: &ServerConfig,
    folder: &DataFolder,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<RuleFolder>> {
    let rules = RuleFolder::open(&folder.rules(), config.cache.ttl, clock.clone());
    Ok(Arc::new(rules.context("rules files")?))
}

/// Returns the certificate and the token of the series store's ports if any port needs them.
fn series_secrets(config: &ServerConfig, registry: &Registry) -> anyhow::Result<Secrets> {
    if !Ports::need_token(&config.series) {
        return Ok(Secrets::default());
    }
    let certificate: Option<Arc<dyn ResolvesServerCert>> =
        if !Ports::need_certificate(&config.series) {
            None
        } else if config.series.tls_cert.as_os_str().is_empty() {
            Some(Arc::new(registry.server_certificate(&config.series.names)?))
        } else {
            Some(certificate_files(&config.series.tls_cert, &config.series.tls_key)?)
        };
    let token = DataFolder::new(&config.data).series_token()?;
    Ok(Secrets { certificate, token: Some(token) })
}

/// Returns the ages at which data is deleted.
fn ages(config: &ServerConfig) -> Vec<Duration> {
    [&[config.retention.events_age][..], &config.series.ages()].concat()
}

fn retention(config: &ServerConfig) -> Retention {
    let age_us_max = config.retention.events_age.as_micros() as u64;
    Retention { age_us_max, event_bytes_max: u64::from(config.retention.events_gib) << 30 }
}
