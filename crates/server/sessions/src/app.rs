//! The state that all requests share, and calls into the stores and the registry.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::http::HeaderMap;
use commit::Commit;
use env::budget::ExceededLimit;
use env::sources::{LogLimit, RepeatLog};
use link::Limits;
use model::AgentId;
use parking_lot::Mutex;
use registry::{Reader, Registry};
use silence::Silence;
use state::{StateError, StateStore};
use tokio::sync::Semaphore;

use crate::admit::{Admission, Charge};
use crate::agent_queues::{AgentQueues, RequestPermit};
use crate::answer::Refusal;
use crate::identity::{Caller, Peer, identify};
use crate::leases::Leases;
use crate::meter::{ExternalGauges, Meter};
use crate::options::SessionsOptions;

/// The state shared by all requests.
pub(crate) struct App {
    pub(crate) options: SessionsOptions,
    pub(crate) commit: Arc<Commit>,
    pub(crate) state: Arc<StateStore>,
    pub(crate) registry: Registry,
    pub(crate) in_flight: Admission,
    pub(crate) queues: AgentQueues,
    pub(crate) meter: Meter,
    pub(crate) enrolments: Semaphore,
    /// Number of open connections over TLS.
    pub(crate) connections: AtomicUsize,
    /// Number of connections over TLS made so far.
    pub(crate) connections_seen: AtomicU64,
    pub(crate) leases: Leases,
    pub(crate) silence: Silence,
    /// Limits the log lines about refused requests.
    pub(crate) refusals: Mutex<LogLimit>,
    /// Limits the log lines about agents that are refused for the same reason again and again.
    pub(crate) refused_agents: Mutex<RepeatLog>,
    /// The store's name, sent in every answer to agents.
    pub(crate) store: String,
}

impl App {
    /// Returns the sender of a request.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Refusal> {
        identify(peer, headers, &self.registry)
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.registry.options().cluster_name
    }

    /// Returns the number of refusals that were not logged since the last line, if a refusal of
    /// this source may be logged now. `None` is this machine.
    pub(crate) fn refusal_line(&self, source: Option<IpAddr>) -> Option<u64> {
        self.refusals.lock().line(source, self.options.clock.monotonic())
    }

    /// As [`App::refusal_line`], for the holder of a certificate that is refused as this agent: one
    /// line for each certificate and reason, then a count each hour.
    pub(crate) fn refused_agent_line(&self, certificate: &[u8], refusal: &Refusal) -> Option<u64> {
        let key = [certificate, refusal.error.as_bytes()].concat();
        self.refused_agents.lock().line(key, self.options.clock.monotonic())
    }

    /// Returns the limits of a session.
    pub(crate) fn session_limits(&self) -> Limits {
        Limits {
            bytes_max: self.options.limits.session_bytes_max,
            values_max: self.options.limits.session_values_max,
        }
    }

    /// Returns the refusal for a temporary limit.
    pub(crate) fn busy(&self, what: &str) -> Refusal {
        Refusal::busy(what, self.options.limits.retry_after_s)
    }

    /// Takes a permit for one more request of an agent.
    pub(crate) fn take_permit(&self, agent: AgentId) -> Result<RequestPermit, Refusal> {
        let permit = self.queues.take_permit(agent);
        permit.ok_or_else(|| self.busy("too many requests of this agent at once"))
    }

    /// Charges the bytes of an answer before it is prepared.
    pub(crate) fn reserve(&self, caller: &Caller, bytes: usize) -> Result<Charge, Refusal> {
        self.in_flight.reserve(caller, bytes).map_err(|spent| self.spent(spent))
    }

    /// Returns the refusal for a spent budget of bytes in flight.
    pub(crate) fn spent(&self, spent: ExceededLimit) -> Refusal {
        self.busy(match spent {
            ExceededLimit::Budget => "too many bytes in flight",
            ExceededLimit::Share => "too many bytes of this sender in flight",
        })
    }

    /// Reads from the state store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&StateStore) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let state = Arc::clone(&self.state);
        Ok(tokio::task::spawn_blocking(move || query(state.as_ref())).await??)
    }

    /// Calls the registry on a thread that may block.
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

    /// Returns the last session of the agent that the store has applied.
    pub(crate) async fn last_session(&self, caller: &Caller) -> Result<Option<String>, Refusal> {
        let Caller { agent, incarnation, .. } = *caller;
        if let Some(last) = self.queues.last_session(agent, incarnation) {
            return Ok(last.id);
        }
        let session = self.read(move |state| state.last_session(&Reader::server(), agent)).await?;
        self.queues.cache_last_session(agent, incarnation, session.as_deref());
        Ok(session)
    }

    pub(crate) fn counters(&self) -> serde_json::Value {
        let readings = ExternalGauges {
            in_flight_bytes: self.in_flight.used(),
            connections: self.connections.load(Ordering::Relaxed),
            leases: self.leases.count(),
            journal_batches: self.commit.stats().batches,
            connections_seen: self.connections_seen.load(Ordering::Relaxed),
        };
        self.meter.to_json(self.options.clock.now_us(), &readings)
    }
}
