//! An admitted request: its caller and parameters, the stores, and the context of its changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::HeaderValue;
use bytes::Bytes;
use commit::Commit;
use listener::Source;
use model::AgentId;
use registry::{Permitted, Reader, Registry, WriteContext};
use serde::de::DeserializeOwned;
use state::StateStore;

use crate::access::authentication;
use crate::access::caller::Caller;
use crate::access::quota::Share;
use crate::code::Code;
use crate::error::Failure;
use crate::http::api::Api;
use crate::http::parameters::Parameters;

/// The body of a request, with its share of the quota of bodies; dropping it releases the share.
#[derive(Debug, Default)]
pub struct Body {
    pub bytes: Bytes,
    pub share: Option<Share>,
}

impl std::ops::Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An admitted request.
pub struct Call {
    pub api: Arc<Api>,
    pub caller: Caller,
    pub source: Option<Source>,
    /// The `Authorization` header, for the login.
    pub authorization: Option<String>,
    pub parameters: Parameters,
    pub body: Body,
    /// `Content-Encoding` of the body, for the routes of the series store.
    pub encodings: Vec<HeaderValue>,
    /// The operation's action; empty when it has none.
    pub action: &'static str,
    /// The time at which the client stops waiting for the answer.
    pub deadline: Option<Instant>,
    /// The context of the operation's changes in the registry: its reader and its row of the audit log.
    pub context: WriteContext,
    pub effect: Effect,
}

/// The effect of an operation as reported by its code, where the answer does not show it.
#[derive(Debug, Default)]
pub struct Effect {
    unchanged: AtomicBool,
    begun: AtomicBool,
}

impl Effect {
    /// Marks the operation as having changed nothing that others see.
    pub fn set_unchanged(&self) {
        self.unchanged.store(true, Ordering::Relaxed);
    }

    /// Marks the operation as possibly carried out in part although the answer is a refusal or a
    /// failure.
    pub fn set_begun(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Returns true if the operation changed nothing that others see.
    pub fn is_unchanged(&self) -> bool {
        self.unchanged.load(Ordering::Relaxed)
    }

    /// Returns true if an operation that was refused or failed may have been carried out in part.
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Call {
    /// Fails if the deadline has passed. Long operations call this between their steps.
    pub fn in_time(&self) -> Result<(), Failure> {
        match self.deadline {
            Some(end) if Instant::now() > end => Err(Failure::code(Code::Timeout)),
            _ => Ok(()),
        }
    }

    /// Returns the store of administrators' decisions: agents, groups, users, roles.
    pub fn registry(&self) -> &Registry {
        &self.api.registry
    }

    /// Returns the store of the agents' reports.
    pub fn state(&self) -> &StateStore {
        self.api.state.as_ref()
    }

    /// Returns the ingestion pipeline; the API reads its counters and its readiness only.
    pub fn commit(&self) -> &Commit {
        &self.api.commit
    }

    /// Returns the identity under which the stores are queried.
    pub fn reader(&self) -> &Reader {
        self.context.reader()
    }

    /// Runs blocking code on behalf of an operation that waits.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let own = Arc::clone(self);
        let work = move || work(&own);
        tokio::task::spawn_blocking(work).await.map_err(|e| Failure::internal(&e))
    }

    /// Makes the audit log row durable, with its outcome pending, before a change outside of the
    /// registry. Changes in the registry write the row in their own transaction.
    pub fn begun(&self) -> Result<(), Failure> {
        self.registry().write_audit(&self.context)?;
        self.context.set_changed();
        Ok(())
    }

    /// Returns the agents on which the caller may perform the operation. Implicit lists are silently
    /// reduced to them; in an explicit list, all other agents fail with 4000.
    pub fn scope(&self) -> Permitted {
        self.scope_of(self.action)
    }

    /// Returns the agents on which the caller may perform an action other than the operation's.
    pub fn scope_of(&self, action: &str) -> Permitted {
        self.caller.scope(self.registry(), action)
    }

    /// Returns true if the caller may perform an action on one resource: `("security:read", "user:id",
    /// "100")`.
    pub fn may(&self, action: &str, kind: &str, value: &str) -> bool {
        self.caller.may(self.registry(), action, kind, value)
    }

    /// Returns true if a caller may perform the operation on an agent that has been removed.
    pub fn may_gone(&self, caller: &Caller, id: AgentId) -> bool {
        caller.may_gone(self.action, id)
    }

    /// Refuses the whole request with 4000 unless the caller may perform the action on the resource.
    pub fn require(&self, action: &str, kind: &str, value: &str) -> Result<(), Failure> {
        if self.may(action, kind, value) {
            return Ok(());
        }
        Err(Failure::denied_on(kind, &[value.to_owned()]))
    }

    /// Returns the caller with the current permissions of its roles, verifying its token again. Reads
    /// memory only if they are cached.
    pub fn caller_now(&self) -> Result<Caller, Failure> {
        match (&self.caller, &self.authorization) {
            (Caller::User { .. }, Some(header)) => {
                let (tokens, now_s) = (&self.api.tokens, self.now_s());
                let claims = authentication::claims(tokens, self.registry(), Some(header), now_s)?;
                authentication::recognise(self.registry(), self.reader(), claims)
            }
            (caller, _) => Ok(caller.clone()),
        }
    }

    /// Parses the JSON body.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|e| Failure::bad(format!("body: {e}")))
    }

    /// Returns the guarded time, seconds since the epoch.
    pub fn now_s(&self) -> i64 {
        self.api.now_s()
    }
}
