//! Starting, stopping, and what all requests share.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::http::HeaderMap;
use commit::Commit;
use link::Limits;
use model::{AgentId, Incarnation};
use registry::{Reader, Registry};
use state::{StateError, StateStore};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tracing::info;

use crate::admit::Budget;
use crate::answer::Refusal;
use crate::error::SessionsError;
use crate::identity::{Caller, Peer, identify};
use crate::lanes::Lanes;
use crate::meter::Meter;
use crate::options::{ENROLMENTS_MAX, LANES_MAX, SessionsOptions};
use crate::reports::{ReportKind, Reports};
use crate::seats::Seats;
use crate::{listen, router, tls, unix};

/// What all requests share.
pub(crate) struct App {
    pub(crate) options: SessionsOptions,
    pub(crate) commit: Arc<Commit>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) registry: Registry,
    pub(crate) budget: Budget,
    pub(crate) lanes: Lanes,
    pub(crate) meter: Meter,
    pub(crate) reports: Reports,
    pub(crate) enrolments: Semaphore,
    /// Connections over TLS.
    pub(crate) connections: AtomicUsize,
    /// Connections over TLS made so far.
    pub(crate) connections_seen: AtomicU64,
    /// Who speaks as which agent.
    pub(crate) seats: Seats,
    /// The store's name, in every answer to agents.
    pub(crate) store: String,
}

impl App {
    /// Who a request is from.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Refusal> {
        identify(peer, headers, &self.registry)
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.registry.options().cluster_name
    }

    /// What a session may hold.
    pub(crate) fn session_limits(&self) -> Limits {
        Limits {
            bytes_max: self.options.limits.session_bytes_max,
            values_max: self.options.limits.session_values_max,
        }
    }

    /// A refusal because of a limit that passes by itself.
    pub(crate) fn busy(&self, what: &str) -> Refusal {
        Refusal::busy(what, self.options.limits.retry_after_s)
    }

    /// Ask the store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&dyn StateStore) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let state = Arc::clone(&self.state);
        Ok(tokio::task::spawn_blocking(move || query(state.as_ref())).await??)
    }

    /// Ask the registry on a thread that may block.
    pub(crate) async fn decide<T, E>(
        &self,
        call: impl FnOnce(&Registry) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        E: Into<Refusal> + Send + 'static,
    {
        let registry = self.registry.clone();
        tokio::task::spawn_blocking(move || call(&registry)).await?.map_err(Into::into)
    }

    /// The last session of the agent that the store has applied.
    pub(crate) async fn last_session(&self, caller: &Caller) -> Result<Option<String>, Refusal> {
        let (agent, life) = (caller.agent, caller.incarnation);
        if let Some(last) = self.lanes.session(agent, life) {
            return Ok(last.id);
        }
        let session = self.read(move |state| state.last_session(&Reader::server(), agent)).await?;
        self.lanes.remember(agent, life, session.as_deref());
        Ok(session)
    }

    pub(crate) fn counters(&self) -> serde_json::Value {
        let gauges = [
            ("sync.inflight.bytes", self.budget.used()),
            ("sync.connections", self.connections.load(Ordering::Relaxed)),
            ("sync.seats", self.seats.count()),
            ("sync.reports", self.reports.count()),
        ];
        let made = self.connections_seen.load(Ordering::Relaxed);
        let totals = (self.commit.stats().batches, made);
        self.meter.to_json(self.options.clock.now_us(), &gauges, totals)
    }
}

/// The agents' side of the server.
#[derive(Debug)]
pub struct Sessions;

impl Sessions {
    /// Listen and serve until [`SessionsHandle::shutdown`]. To be called inside a tokio runtime
    /// with time and I/O enabled.
    ///
    /// # Errors
    /// When no listener is configured, one cannot be made, or the certificate cannot be issued.
    /// Then nothing is left running.
    pub fn start(
        options: SessionsOptions,
        commit: Arc<Commit>,
        state: Arc<dyn StateStore>,
        registry: Registry,
    ) -> Result<SessionsHandle, SessionsError> {
        if options.https.is_none() && options.unix.is_none() {
            return Err(SessionsError::NoListener);
        }
        let https = match options.https {
            Some(address) => {
                let config = tls::server_config(&registry, &options.names)?;
                Some((listen::bind(address)?, config))
            }
            None => None,
        };
        let local = options.unix.as_deref().map(unix::bind).transpose()?;
        let address = https.as_ref().and_then(|(l, _)| l.local_addr().ok());

        let limits = options.limits;
        let app = Arc::new(App {
            budget: Budget::new(limits.in_flight_bytes_max),
            lanes: Lanes::new(LANES_MAX, limits.agent_requests_max),
            meter: Meter::default(),
            reports: Reports::default(),
            enrolments: Semaphore::new(ENROLMENTS_MAX),
            connections: AtomicUsize::new(0),
            connections_seen: AtomicU64::new(0),
            seats: Seats::default(),
            store: state.store_id(),
            options,
            commit,
            state,
            registry,
        });
        let weak = Arc::downgrade(&app);
        app.registry.when_removed(move |agent| {
            if let Some(app) = weak.upgrade() {
                app.reports.forget(agent);
                app.seats.forget(agent);
            }
        });
        let (stop, stopped) = watch::channel(false);
        let routes = router::router(Arc::clone(&app));
        let mut loops = Vec::new();
        if let Some((listener, config)) = https {
            info!(address = address.map(tracing::field::display), "taking agents over https");
            let (app, routes, stopped) = (Arc::clone(&app), routes.clone(), stopped.clone());
            loops.push(tokio::spawn(listen::tls(app, listener, config, routes, stopped)));
        }
        if let Some(socket) = local {
            info!(path = %socket.path().display(), "taking local callers");
            loops.push(tokio::spawn(listen::local(Arc::clone(&app), socket, routes, stopped)));
        }
        Ok(SessionsHandle { app, address, stop, loops })
    }
}

/// A running sessions side. Dropping it stops taking connections; [`SessionsHandle::shutdown`]
/// also waits.
pub struct SessionsHandle {
    app: Arc<App>,
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    loops: Vec<JoinHandle<()>>,
}

impl SessionsHandle {
    /// Where agents are taken over TLS.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where local callers are taken.
    pub fn unix_path(&self) -> Option<&Path> {
        self.app.options.unix.as_deref()
    }

    /// What an agent last reported of itself, as JSON; nothing of one that was removed.
    pub fn report(&self, agent: AgentId, kind: ReportKind) -> Option<Vec<u8>> {
        let life = self.app.registry.agent(agent).map_or(Incarnation(0), |a| a.incarnation);
        self.app.reports.get(agent, life, kind)
    }

    /// This side's own counters: `{"name","timestamp","metrics":[{"name","type","value"}]}`.
    pub fn counters(&self) -> serde_json::Value {
        self.app.counters()
    }

    /// Stop taking connections, let requests in work finish within
    /// [`crate::Timeouts::shutdown`], close the rest, remove the unix socket.
    pub async fn shutdown(self) {
        let _ = self.stop.send(true);
        for task in self.loops {
            let _ = task.await;
        }
    }
}

impl std::fmt::Debug for SessionsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionsHandle")
            .field("https", &self.address)
            .field("unix", &self.unix_path())
            .finish_non_exhaustive()
    }
}
