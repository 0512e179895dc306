//! Removal of ephemeral agents: machines that a cloud makes and ends.

use model::{AgentId, Record};
use registry::{AuditOutcome, Life, Reader, RegistryError};
use tracing::{info, warn};

use crate::{Inner, NAMED_MAX};

/// Most agents that one sweep removes.
const REMOVED_MAX: usize = 1_000;

impl Inner {
    /// Removes the ephemeral agents that were silent for their time. What could not be removed is
    /// due again with the next sweep; what is known of their changes stays.
    pub(crate) async fn remove_ephemeral(&self) {
        let mut due = self.registry.ephemeral_due();
        due.truncate(REMOVED_MAX);
        if due.is_empty() || self.commit.available().is_err() {
            return;
        }
        let named = due.iter().take(NAMED_MAX).map(|agent| self.describe(*agent));
        let mut names = named.collect::<Vec<String>>().join(", ");
        if due.len() > NAMED_MAX {
            names.push_str(", ...");
        }
        match self.remove(due, &names).await {
            Ok(removed) => info!(removed, %names, "silent ephemeral agents were removed"),
            Err(error) => warn!(%error, %names, "silent ephemeral agents could not be removed"),
        }
    }

    /// Revokes the agents, writes the records of their removal, and removes them. Returns their
    /// number.
    async fn remove(&self, agents: Vec<AgentId>, names: &str) -> Result<usize, String> {
        let registry = self.registry.clone();
        let detail = format!("ephemeral agents, silent for their time: {names}");
        let context = registry.audited(Reader::server(), "server", "agent:delete", &detail);
        let (context, lives) = blocking(move || {
            let lives = registry.revoke_agents(&context, &agents)?;
            Ok((context, lives))
        })
        .await?;
        let mut recorded: Vec<Life> = Vec::new();
        let at_us = self.clock.guarded_us();
        for life in lives {
            let Life { agent, incarnation } = life;
            let record = Record::AgentRemoved { agent, incarnation, at_us };
            self.commit.submit(record).await.map_err(|error| error.to_string())?;
            recorded.push(life);
        }
        let registry = self.registry.clone();
        blocking(move || {
            let gone = registry.remove_agents(&context, &recorded)?;
            registry.end_audit(&context, AuditOutcome::Done)?;
            Ok(gone.len())
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, String> {
    let called =
        tokio::task::spawn_blocking(call).await.map_err(|panicked| panicked.to_string())?;
    called.map_err(|error| error.to_string())
}
