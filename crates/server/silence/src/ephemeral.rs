//! Removal of ephemeral agents: machines that a cloud makes and ends.

use std::sync::Arc;
use std::time::Duration;

use model::{AgentId, Record};
use registry::{AuditOutcome, Life, Reader, RegistryError, WriteContext};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::{Inner, now};

/// Most agents that one sweep removes. Their records are submitted at once.
const REMOVED_MAX: usize = 256;
/// Pause after a removal that failed.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

impl Inner {
    /// Removes the ephemeral agents that were silent for their time: those that have a gap, and those
    /// that never connected. What could not be removed is tried again after a minute; what is known of
    /// their changes stays.
    pub(crate) async fn remove_ephemeral(&self) {
        let (at, mut due) = (now(&*self.clock), self.registry.ephemeral_due());
        if due.is_empty() || at.monotonic < *self.removal_from.lock() {
            return;
        }
        {
            let watch = self.watch.lock();
            due.retain(|(agent, silence)| watch.is_away(*agent, *silence, at));
        }
        due.truncate(REMOVED_MAX);
        if due.is_empty() || self.commit.available().is_err() {
            return;
        }
        let agents: Vec<AgentId> = due.into_iter().map(|(agent, _)| agent).collect();
        let names = self.describe_all(agents.iter().copied());
        let detail = format!("ephemeral agents, silent for their time: {names}");
        let context = self.registry.audited(Reader::server(), "server", "agent:delete", &detail);
        let context = Arc::new(context);
        let removed = self.remove(&context, agents).await;
        let outcome = if removed.is_ok() { AuditOutcome::Done } else { AuditOutcome::Failed };
        let registry = self.registry.clone();
        let ended = blocking(move || registry.end_audit(&context, outcome)).await;
        match removed.and_then(|removed| ended.map(|()| removed)) {
            Ok(removed) => info!(removed, %names, "silent ephemeral agents were removed"),
            Err(error) => {
                *self.removal_from.lock() = at.monotonic + AGAIN_AFTER;
                warn!(%error, %names, "silent ephemeral agents could not be removed");
            }
        }
    }

    /// Revokes the agents, writes the records of their removal, and removes those that have one.
    /// Returns their number.
    async fn remove(
        &self,
        context: &Arc<WriteContext>,
        agents: Vec<AgentId>,
    ) -> Result<usize, String> {
        let (registry, held) = (self.registry.clone(), Arc::clone(context));
        let lives = blocking(move || registry.revoke_agents(&held, &agents)).await?;
        let at_us = self.clock.guarded_us();
        let mut records = JoinSet::new();
        for life in lives {
            let (commit, Life { agent, incarnation }) = (Arc::clone(&self.commit), life);
            let record = Record::AgentRemoved { agent, incarnation, at_us };
            records.spawn(async move { (life, commit.submit(record).await.map(drop)) });
        }
        let (mut recorded, mut failed) = (Vec::new(), None);
        while let Some(done) = records.join_next().await {
            match done.map_err(|panicked| panicked.to_string())? {
                (life, Ok(())) => recorded.push(life),
                (_, Err(error)) => failed = Some(error.to_string()),
            }
        }
        let (registry, held) = (self.registry.clone(), Arc::clone(context));
        let gone = blocking(move || registry.remove_agents(&held, &recorded)).await?;
        failed.map_or(Ok(gone.len()), Err)
    }
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, String> {
    let called =
        tokio::task::spawn_blocking(call).await.map_err(|panicked| panicked.to_string())?;
    called.map_err(|error| error.to_string())
}
