//! One request that has been admitted: its caller and parameters, the stores to ask, and the context of
//! what it changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::HeaderValue;
use bytes::Bytes;
use commit::Commit;
use model::AgentId;
use registry::{Permitted, Reader, Registry, WriteContext};
use serde::de::DeserializeOwned;
use state::StateStore;

use crate::access::authentication;
use crate::access::caller::{Caller, Source};
use crate::access::room::Share;
use crate::code::Code;
use crate::error::Failure;
use crate::http::api::Api;
use crate::http::parameters::Parameters;

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

/// One admitted request.
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
    /// The context of what the operation changes in the registry: its reader and its row of the audit log.
    pub(crate) context: WriteContext,
    pub(crate) effect: Effect,
}

/// What an operation's code says of its effect, where the answer does not.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    unchanged: AtomicBool,
    begun: AtomicBool,
}

impl Effect {
    /// Notes that the operation changes nothing that others see.
    pub(crate) fn set_unchanged(&self) {
        self.unchanged.store(true, Ordering::Relaxed);
    }

    /// Notes that some of the operation may be done although it is answered with a refusal or a failure.
    pub(crate) fn set_begun(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Returns true if nothing that others see was changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.unchanged.load(Ordering::Relaxed)
    }

    /// Returns true if some of what was refused, or failed, may be done.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Call {
    /// Fails if the deadline is over. Called between steps of what may take long.
    pub(crate) fn in_time(&self) -> Result<(), Failure> {
        match self.deadline {
            Some(end) if Instant::now() > end => Err(Failure::code(Code::Timeout)),
            _ => Ok(()),
        }
    }

    /// What people decide.
    pub(crate) fn registry(&self) -> &Registry {
        &self.api.registry
    }

    /// What agents report.
    pub(crate) fn state(&self) -> &dyn StateStore {
        self.api.state.as_ref()
    }

    /// The way in; only its counters and its readiness are read here.
    pub(crate) fn commit(&self) -> &Commit {
        &self.api.commit
    }

    /// On whose behalf the stores are asked.
    pub(crate) fn reader(&self) -> &Reader {
        self.context.reader()
    }

    /// Runs what blocks for an operation that waits.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let own = Arc::clone(self);
        let work = move || work(&own);
        tokio::task::spawn_blocking(work).await.map_err(|e| Failure::internal(&e))
    }

    /// Makes the row of the audit log durable, as begun, before something is changed outside of the
    /// registry. The registry's own changes write it in their transaction.
    pub(crate) fn begun(&self) -> Result<(), Failure> {
        self.registry().write_audit(&self.context)?;
        self.context.set_changed();
        Ok(())
    }

    /// The agents that this operation may touch for its caller. Implicit lists are narrowed to them without
    /// a word; of an explicit list, what is not in it fails with 4000.
    pub(crate) fn scope(&self) -> Permitted {
        self.scope_of(self.action)
    }

    /// The agents that the caller may touch with another action than the operation's.
    pub(crate) fn scope_of(&self, action: &str) -> Permitted {
        self.caller.scope(self.registry(), action)
    }

    /// Returns true if the caller may do this to one thing: `("security:read", "user:id", "100")`.
    pub(crate) fn may(&self, action: &str, kind: &str, value: &str) -> bool {
        self.caller.may(self.registry(), action, kind, value)
    }

    /// Returns true if somebody may do what the operation does to an agent that is gone.
    pub(crate) fn may_gone(&self, caller: &Caller, id: AgentId) -> bool {
        caller.may_gone(self.action, id)
    }

    /// Refuses the whole request with 4000 unless the caller may do this to one thing.
    pub(crate) fn require(&self, action: &str, kind: &str, value: &str) -> Result<(), Failure> {
        if self.may(action, kind, value) {
            return Ok(());
        }
        Err(Failure::denied_on(kind, &[value.to_owned()]))
    }

    /// Returns the caller as of now, from its token and what its roles may do at present. Memory only if
    /// that is cached.
    pub(crate) fn caller_now(&self) -> Result<Caller, Failure> {
        match (&self.caller, &self.authorization) {
            (Caller::User { .. }, Some(header)) => {
                let (tokens, now_s) = (&self.api.tokens, self.now_s());
                let claims = authentication::claims(tokens, self.registry(), Some(header), now_s)?;
                authentication::recognise(self.registry(), self.reader(), claims)
            }
            (caller, _) => Ok(caller.clone()),
        }
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
