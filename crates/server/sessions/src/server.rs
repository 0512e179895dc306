//! Starts and stops the sessions side.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use commit::Commit;
use registry::Registry;
use silence::Silence;
use state::StateStore;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tracing::info;

use crate::admit::Admission;
use crate::agent_queues::AgentQueues;
use crate::app::App;
use crate::error::SessionsError;
use crate::leases::Leases;
use crate::meter::Meter;
use crate::options::{ENROLMENTS_MAX, QUEUES_MAX, SessionsOptions};
use crate::{listen, router, tls, unix};

/// The agents' side of the server.
#[derive(Debug)]
pub struct Sessions;

impl Sessions {
    /// Listens and serves until [`SessionsHandle::shutdown`]. Call this inside a tokio runtime
    /// with time and I/O enabled.
    ///
    /// # Errors
    /// Returns an error if no listener is configured, one cannot be created, or the certificate
    /// cannot be issued. Nothing is left running in that case.
    pub fn start(
        options: SessionsOptions,
        commit: Arc<Commit>,
        state: Arc<StateStore>,
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

        let silence = Silence::open(
            options.silence,
            options.clock.clone(),
            commit.clone(),
            state.clone(),
            registry.clone(),
        )?;
        let limits = options.limits;
        let app = Arc::new(App {
            in_flight: Admission::new(&limits),
            queues: AgentQueues::new(QUEUES_MAX, limits.agent_requests_max),
            meter: Meter::default(),
            enrolments: Semaphore::new(ENROLMENTS_MAX),
            connections: AtomicUsize::new(0),
            connections_seen: AtomicU64::new(0),
            leases: Leases::default(),
            silence,
            refusals: parking_lot::Mutex::default(),
            refused_agents: parking_lot::Mutex::default(),
            store: state.store_id(),
            options,
            commit,
            state,
            registry,
        });
        let weak = Arc::downgrade(&app);
        app.registry.when_removed(move |agent| {
            if let Some(app) = weak.upgrade() {
                app.leases.remove(agent);
                app.silence.remove(agent);
            }
        });
        let (stop, stopped) = watch::channel(false);
        let routes = router::router(Arc::clone(&app));
        let mut loops = vec![tokio::spawn(app.silence.clone().run(stopped.clone()))];
        if let Some((listener, config)) = https {
            info!(address = address.map(tracing::field::display), "accepting agents over https");
            let (app, routes, stopped) = (Arc::clone(&app), routes.clone(), stopped.clone());
            loops.push(tokio::spawn(listen::tls(app, listener, config, routes, stopped)));
        }
        if let Some(socket) = local {
            info!(path = %socket.path().display(), "accepting local callers");
            loops.push(tokio::spawn(listen::local(Arc::clone(&app), socket, routes, stopped)));
        }
        Ok(SessionsHandle { app, address, stop, loops })
    }
}

/// A running sessions side. Dropping it stops accepting connections; [`SessionsHandle::shutdown`]
/// also waits.
pub struct SessionsHandle {
    app: Arc<App>,
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    loops: Vec<JoinHandle<()>>,
}

impl SessionsHandle {
    /// Returns the address on which agents connect over TLS.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the path of the unix socket for local callers.
    pub fn unix_path(&self) -> Option<&Path> {
        self.app.options.unix.as_deref()
    }

    /// Returns this side's own counters:
    /// `{"name","timestamp","metrics":[{"name","type","value"}]}`.
    pub fn counters(&self) -> serde_json::Value {
        self.app.counters()
    }

    /// Stops accepting connections, lets running requests finish within
    /// [`crate::Timeouts::shutdown`], closes the rest and removes the unix socket.
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
