//! The audit log: every change with its user and its outcome. A caller that makes changes passes a
//! [`WriteContext`] through the calls of the registry; its row is written with the first durable
//! change.

use control::Reader;
use control::{AuditEntry, AuditOutcome, WriteContext};

use crate::{Registry, RegistryError};

impl Registry {
    /// Returns a context for changes by a user. The first durable change under it writes a row of
    /// the audit log in the same transaction, as begun; [`Registry::end_audit`] sets the outcome.
    pub fn audited(&self, reader: Reader, user: &str, action: &str, detail: &str) -> WriteContext {
        let entry = self.entry(user, action, detail, AuditOutcome::Begun);
        WriteContext::audited(reader, entry)
    }

    /// Writes the row of a context as begun, if no change has written it yet. Call this before
    /// changes that are made elsewhere or by several threads. Durable when it returns.
    ///
    /// # Errors
    /// Returns an error if the store fails; then nothing should be changed.
    pub fn write_audit(&self, context: &WriteContext) -> Result<(), RegistryError> {
        Ok(self.inner.store.write_audit(context)?)
    }

    /// Sets the outcome of a context's row; a row that no change has written is written now.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn end_audit(
        &self,
        context: &WriteContext,
        outcome: AuditOutcome,
    ) -> Result<(), RegistryError> {
        Ok(self.inner.store.end_audit(context, outcome)?)
    }

    /// Leaves out the row of a context under which nothing was changed, because the user has made
    /// too many of them. If something was changed, the row gets the outcome.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn leave_out_audit(
        &self,
        context: &WriteContext,
        outcome: AuditOutcome,
    ) -> Result<(), RegistryError> {
        Ok(self.inner.store.leave_out_audit(context, outcome)?)
    }

    fn entry(&self, user: &str, action: &str, detail: &str, outcome: AuditOutcome) -> AuditEntry {
        AuditEntry {
            id: 0,
            at_us: self.inner.clock.now_us(),
            user: user.to_owned(),
            action: action.to_owned(),
            detail: detail.to_owned(),
            outcome,
        }
    }

    /// Appends an action that was completed to the audit log; durable when it returns.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn audit(&self, user: &str, action: &str, detail: &str) -> Result<(), RegistryError> {
        Ok(self.inner.store.audit(&self.entry(user, action, detail, AuditOutcome::Done))?)
    }

    /// Returns the audit log, newest first, below the row `before` if given.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn audit_log(
        &self,
        reader: &Reader,
        before: Option<u64>,
        limit: u64,
    ) -> Result<Vec<AuditEntry>, RegistryError> {
        Ok(self.inner.store.audit_log(reader, before, limit)?)
    }
}
