//! A registry that may be older than the state in the same folder: a copy without its log file, or
//! that of a promoted follower. It would give numbers of agents that the state knows to new agents,
//! and accept tokens that were revoked since.

use control::{Reader, WriteContext};
use model::AgentId;

use crate::{Registry, RegistryError};

impl Registry {
    /// Returns the number that the next new agent gets.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn next_agent(&self, reader: &Reader) -> Result<AgentId, RegistryError> {
        Ok(self.inner.store.next_agent(reader)?)
    }

    /// Makes a registry safe that may be older than the state: numbers up to `used`, the highest that
    /// the state knows, are not given again, and every token of users and every enrolment token is
    /// revoked. Returns the number that the next new agent gets.
    ///
    /// # Errors
    /// Returns an error if the store fails; it may be repeated.
    pub fn accept_older(
        &self,
        context: &WriteContext,
        used: AgentId,
    ) -> Result<AgentId, RegistryError> {
        let next = self.inner.store.raise_next_agent(context, used)?;
        self.change_security_config(context, None, None)?;
        for token in self.enrolment_tokens(context.reader())? {
            self.revoke_enrolment_token(context, &token.digest)?;
        }
        Ok(next)
    }
}
