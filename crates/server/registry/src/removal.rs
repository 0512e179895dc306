//! Removal of agents.
//!
//! A removal takes three steps: the registry revokes the certificates, the caller writes removal
//! records to the journal, and the registry deletes the rows. After a crash between two steps the
//! rows still exist, and a repeated removal completes the rest.

use std::sync::Arc;

use control::{AgentRow, WriteContext};
use model::AgentId;

use crate::insertion::Life;
use crate::{Registry, RegistryError};

impl Life {
    pub(crate) fn of(row: &AgentRow) -> Self {
        Self { agent: row.record.id, incarnation: row.record.incarnation }
    }
}

impl Registry {
    /// Removes the agent: its certificates are revoked, and its number is not assigned
    /// automatically again. Returns the life that ended, for the journal's removal record, or
    /// `None` if there is no such agent.
    ///
    /// # Errors
    /// `Store(Refused)` for 000.
    pub fn remove_agent(
        &self,
        context: &WriteContext,
        id: AgentId,
    ) -> Result<Option<Life>, RegistryError> {
        let now_s = self.now().s;
        let _order = self.inner.decisions.lock();
        let row = self.inner.store.remove_agent(context, id, now_s)?;
        let life = row.as_ref().map(Life::of);
        self.forget_removed(life.as_slice(), now_s);
        Ok(life)
    }

    /// Revokes every certificate of the agent. Returns the number of those that were valid.
    ///
    /// # Errors
    /// Returns an error if the store fails; then none is revoked.
    pub fn revoke(&self, context: &WriteContext, id: AgentId) -> Result<u64, RegistryError> {
        let now_s = self.now().s;
        let _order = self.inner.decisions.lock();
        let n = self.inner.store.revoke_certificates(context, &[id], now_s)?;
        self.inner.certificates.write().revoke(id, now_s);
        Ok(n)
    }

    /// Revokes every certificate of these agents in one durable step. Returns the lives of those
    /// that exist, for the journal's removal records.
    ///
    /// # Errors
    /// Returns an error if the store fails; then none is revoked.
    pub fn revoke_agents(
        &self,
        context: &WriteContext,
        ids: &[AgentId],
    ) -> Result<Vec<Life>, RegistryError> {
        let now_s = self.now().s;
        let _order = self.inner.decisions.lock();
        let lives = self.lives_of(ids);
        let ids: Vec<AgentId> = lives.iter().map(|life| life.agent).collect();
        self.inner.store.revoke_certificates(context, &ids, now_s)?;
        let mut certificates = self.inner.certificates.write();
        for id in &ids {
            certificates.revoke(*id, now_s);
        }
        Ok(lives)
    }

    /// Removes agents in one durable step, as [`Registry::remove_agent`] does. An agent whose
    /// number has begun another life since is not removed. Returns the numbers of the removed
    /// agents.
    ///
    /// # Errors
    /// Returns an error if the store fails; then none is removed.
    pub fn remove_agents(
        &self,
        context: &WriteContext,
        lives: &[Life],
    ) -> Result<Vec<AgentId>, RegistryError> {
        let now_s = self.now().s;
        let _order = self.inner.decisions.lock();
        let rows = self.inner.store.remove_agents(context, &self.still_current(lives), now_s)?;
        let gone: Vec<Life> = rows.iter().map(Life::of).collect();
        Ok(self.forget_removed(&gone, now_s))
    }

    /// Releases the numbers of removed agents, so that new agents may request them. Call this when
    /// everything stored under them is deleted.
    ///
    /// # Errors
    /// Returns an error if the store fails; then none is released.
    pub fn free_numbers(
        &self,
        context: &WriteContext,
        ids: &[AgentId],
    ) -> Result<(), RegistryError> {
        Ok(self.inner.store.free_numbers(context, ids)?)
    }

    /// Returns a guard to hold while an agent's metrics are stored. Take it before checking that
    /// the agent is neither removed nor revoked, and hold it until the metrics are stored.
    pub async fn storing_metrics(&self) -> impl Send + use<> {
        Arc::clone(&self.inner.storing).read_owned().await
    }

    /// Waits until the metrics that are being stored at the moment are stored. Afterwards, nothing
    /// more is stored for agents that were revoked or removed before the call.
    pub async fn metrics_stored(&self) {
        drop(self.inner.storing.write().await);
    }

    /// Returns the current lives of these agents.
    pub(crate) fn lives_of(&self, ids: &[AgentId]) -> Vec<Life> {
        let fleet = self.inner.fleet.read();
        let life = |id: &AgentId| {
            fleet.get(*id).map(|now| Life { agent: *id, incarnation: now.incarnation })
        };
        ids.iter().filter_map(life).collect()
    }

    /// Returns the agents of those lives that have not ended.
    pub(crate) fn still_current(&self, lives: &[Life]) -> Vec<AgentId> {
        let fleet = self.inner.fleet.read();
        let same = |life: &&Life| {
            fleet.get(life.agent).is_some_and(|now| now.incarnation == life.incarnation)
        };
        lives.iter().filter(same).map(|life| life.agent).collect()
    }

    /// Forgets agents that are removed from the store, and calls the listeners for removed agents.
    /// The caller holds `decisions`, so no other life of their numbers begins before every listener
    /// has returned.
    pub(crate) fn forget_removed(&self, gone: &[Life], now_s: i64) -> Vec<AgentId> {
        let mut ids: Vec<AgentId> = gone.iter().map(|life| life.agent).collect();
        ids.sort_unstable();
        self.inner.outstanding.lock().forget(&ids);
        self.inner.reports.forget(&ids);
        let mut certificates = self.inner.certificates.write();
        let mut fleet = self.inner.fleet.write();
        for id in &ids {
            certificates.revoke(*id, now_s);
            fleet.remove(*id);
        }
        drop((certificates, fleet));
        self.notify_removed(&ids);
        ids
    }
}
