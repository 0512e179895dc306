//! One request on its way through an operation: who asks, with what, and the stores to ask.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::HeaderValue;
use bytes::Bytes;
use commit::Commit;
use model::AgentId;
use parking_lot::Mutex;
use registry::{Grants, Permitted, Registry};
use serde::de::DeserializeOwned;
use state::StateStore;
use state::lend;
use state::meter::{self, Cost};

use crate::api::Api;
use crate::error::Failure;
use crate::parameters::Parameters;
use crate::room::{Owner, Share};
use crate::token::Claims;

/// Where a request comes from; the server puts it on every request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A TCP connection.
    Tcp(SocketAddr),
    /// A TCP connection of a proxy that is trusted, which names this address; never this machine.
    Proxied(IpAddr),
    /// The unix socket, with the peer's user id as the kernel names it; already admitted.
    Unix {
        /// User id of the peer.
        uid: u32,
    },
}

impl Source {
    /// Whether it comes from this machine.
    pub fn is_local(self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Proxied(_) => false,
            Self::Unix { .. } => true,
        }
    }

    /// The peer's address.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_canonical()),
            Self::Proxied(ip) => Some(ip.to_canonical()),
            Self::Unix { .. } => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Nobody in particular.
    Anyone,
    /// Whoever has the unix socket: an administrator.
    Local { uid: u32 },
    /// A logged in user, what the token says, and what the roles may do.
    User { id: u32, name: String, claims: Arc<Claims>, grants: Arc<Grants> },
}

impl Caller {
    /// Whether the caller may do this to one thing.
    pub(crate) fn may(&self, api: &Api, action: &str, kind: &str, value: &str) -> bool {
        match (self, value.parse::<AgentId>()) {
            (Self::Local { .. }, _) => true,
            (Self::User { grants, .. }, Ok(id)) if kind == "agent:id" => {
                api.registry.permits_agent(grants, action, id)
            }
            (Self::User { grants, .. }, _) => grants.permit(action, &[(kind, value)]),
            (Self::Anyone, _) => false,
        }
    }

    /// The name for logs and the audit.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Anyone => "-".into(),
            Self::Local { uid } => format!("uid:{uid}"),
            Self::User { name, .. } => name.clone(),
        }
    }
}

/// The body of a request with its share of what bodies may take in memory, given back with it.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    pub(crate) _room: Option<Share>,
}

impl std::ops::Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One request, checked and admitted.
pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    pub(crate) caller: Caller,
    pub(crate) source: Option<Source>,
    /// `Authorization`, for the login.
    pub(crate) authorization: Option<String>,
    pub(crate) parameters: Parameters,
    pub(crate) body: Body,
    /// `Content-Encoding` of the body, for the routes of the series store.
    pub(crate) encodings: Vec<HeaderValue>,
    /// The operation's action; empty when it has none.
    pub(crate) action: &'static str,
    /// When nobody waits for the answer any more.
    pub(crate) deadline: Option<Instant>,
    cost: Mutex<Cost>,
    unchanged: AtomicBool,
    begun: AtomicBool,
}

impl Call {
    pub(crate) fn new(
        api: Arc<Api>,
        caller: Caller,
        source: Option<Source>,
        authorization: Option<String>,
        parameters: Parameters,
        body: Body,
        action: &'static str,
    ) -> Self {
        let (encodings, deadline, cost, unchanged, begun) = Default::default();
        Self {
            api,
            caller,
            source,
            authorization,
            parameters,
            body,
            encodings,
            action,
            deadline,
            cost,
            unchanged,
            begun,
        }
    }

    /// What is done changes nothing that others see.
    pub(crate) fn set_unchanged(&self) {
        self.unchanged.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        self.unchanged.load(Ordering::Relaxed)
    }

    /// Some of what is answered with a refusal or a failure may be done all the same, and the row of the
    /// audit log did not go along with it.
    pub(crate) fn set_begun(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether somebody still waits for the answer: asked between steps of what may take long.
    pub(crate) fn in_time(&self) -> Result<(), Failure> {
        match self.deadline {
            Some(end) if Instant::now() > end => Err(Failure::code(3021)),
            _ => Ok(()),
        }
    }

    /// What people decide.
    pub(crate) fn registry(&self) -> &Registry {
        &self.api.registry
    }

    /// What agents tell.
    pub(crate) fn state(&self) -> &dyn StateStore {
        self.api.state.as_ref()
    }

    /// The way in; only its counters and its readiness are read here.
    pub(crate) fn commit(&self) -> &Commit {
        &self.api.commit
    }

    /// Run what blocks for an operation that waits; what its statements cost counts as the call's.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let own = Arc::clone(self);
        let counted = move || {
            // What an earlier request on this thread left behind is not this one's.
            meter::take();
            let done = own.asks(|| work(&own));
            own.spend(meter::take());
            done
        };
        tokio::task::spawn_blocking(counted).await.map_err(|e| Failure::internal(&e))
    }

    /// Do something whose queries the caller asks.
    pub(crate) fn asks<T>(&self, work: impl FnOnce() -> T) -> T {
        lend::asked_by(Owner::who(&self.caller, self.source).name(), work)
    }

    /// Statements were run for it on other threads.
    pub(crate) fn spend(&self, cost: Cost) {
        let mut all = self.cost.lock();
        all.queries += cost.queries;
        all.rows += cost.rows;
    }

    /// What an operation that waits has spent so far.
    pub(crate) fn cost(&self) -> Cost {
        *self.cost.lock()
    }

    /// Which agents this operation may touch for its caller. Implicit lists are narrowed to them
    /// without a word; of an explicit list, what is not in it fails with 4000.
    pub(crate) fn scope(&self) -> Permitted {
        self.scope_of(self.action)
    }

    /// Which agents the caller may touch with another action than the operation's.
    pub(crate) fn scope_of(&self, action: &str) -> Permitted {
        self.scope_as(&self.caller, action)
    }

    /// Who the caller is by now, from its token and what its roles may do at present. Memory only
    /// where that is kept.
    pub(crate) fn caller_now(&self) -> Result<Caller, Failure> {
        match (&self.caller, &self.authorization) {
            (Caller::User { .. }, Some(header)) => crate::pipeline::logged_in(&self.api, header),
            (caller, _) => Ok(caller.clone()),
        }
    }

    /// Which agents somebody may touch with an action.
    pub(crate) fn scope_as(&self, caller: &Caller, action: &str) -> Permitted {
        match caller {
            Caller::Local { .. } => Permitted::All,
            Caller::User { grants, .. } => self.api.registry.permitted_agents(grants, action),
            Caller::Anyone => Permitted::none(),
        }
    }

    /// Whether somebody may do this to an agent that is gone, of which only its number is known.
    pub(crate) fn may_gone(&self, caller: &Caller, id: AgentId) -> bool {
        match caller {
            Caller::Local { .. } => true,
            Caller::User { grants, .. } => grants.permit_gone(self.action, id),
            Caller::Anyone => false,
        }
    }

    /// Whether the caller may do this to one thing: `("security:read", "user:id", "100")`.
    pub(crate) fn may(&self, action: &str, kind: &str, value: &str) -> bool {
        self.caller.may(&self.api, action, kind, value)
    }

    /// Refuse the whole request with 4000 unless the caller may do this to one thing.
    pub(crate) fn require(&self, action: &str, kind: &str, value: &str) -> Result<(), Failure> {
        if self.may(action, kind, value) {
            return Ok(());
        }
        Err(Failure::denied_on(kind, &[value.to_owned()]))
    }

    /// The row of the audit log is durable, as begun, before anything is changed that is not the
    /// registry's; the registry's own changes take it along.
    pub(crate) fn begun(&self) -> Result<(), Failure> {
        Ok(self.api.registry.write_audit()?)
    }

    /// The JSON body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|e| Failure::bad(format!("body: {e}")))
    }

    /// Guarded time, seconds since the epoch.
    pub(crate) fn now_s(&self) -> i64 {
        self.api.now_s()
    }
}
