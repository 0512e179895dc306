//! The audit log: who changed what, and how far that went. A change and its row are one transaction
//! where the change is one, so that neither is there without the other and both cost one wait for
//! the disk; of a change of several steps the row goes with the first.

use std::marker::PhantomData;

use state::registry::{AuditEntry, AuditOutcome};

use crate::{Registry, RegistryError};

/// A row that goes along with the first durable change of this thread, as begun; dropped without
/// [`PendingAudit::end`] it says that the server failed.
pub struct PendingAudit<'a> {
    registry: &'a Registry,
    ended: bool,
    /// It is this thread's.
    thread: PhantomData<*const ()>,
}

impl PendingAudit<'_> {
    /// What was begun has come to its end: the row says so.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end(mut self, outcome: AuditOutcome) -> Result<(), RegistryError> {
        self.ended = true;
        Ok(self.registry.inner.store.end_audit(outcome)?)
    }
}

impl PendingAudit<'_> {
    /// It changed nothing, as so much before of this user that the row is left out, where it is not
    /// written yet; else it says how it came to nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub fn leave_out(mut self, outcome: AuditOutcome) -> Result<(), RegistryError> {
        self.ended = true;
        Ok(self.registry.inner.store.leave_out_audit(outcome)?)
    }
}

impl Drop for PendingAudit<'_> {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.registry.inner.store.end_audit(AuditOutcome::Failed)
        {
            tracing::error!(%error, "a row of the audit log was not written");
        }
    }
}

impl Registry {
    /// Have the first durable change that this thread makes from now on write this row with it.
    pub fn begin_audit(&self, user: &str, action: &str, detail: &str) -> PendingAudit<'_> {
        self.inner.store.begin_audit(self.entry(user, action, detail, AuditOutcome::Begun));
        PendingAudit { registry: self, ended: false, thread: PhantomData }
    }

    /// Say more in the row that this thread has waiting, while no change has taken it along.
    pub fn amend_audit(&self, more: &str) {
        self.inner.store.amend_audit(more);
    }

    /// Write the row that this thread has waiting: what comes next is changed elsewhere. Durable
    /// when it returns.
    ///
    /// # Errors
    /// When the store fails; then nothing should be changed.
    pub fn write_audit(&self) -> Result<(), RegistryError> {
        Ok(self.inner.store.write_audit()?)
    }

    /// As [`Registry::begin_audit`] for a change that several threads make: the row is durable when
    /// this returns. Its number, for [`Registry::finish_audit`].
    ///
    /// # Errors
    /// When the store fails; then nothing should be changed.
    pub fn start_audit(
        &self,
        user: &str,
        action: &str,
        detail: &str,
    ) -> Result<u64, RegistryError> {
        Ok(self.inner.store.audit(&self.entry(user, action, detail, AuditOutcome::Begun))?)
    }

    /// What was begun with [`Registry::start_audit`] has come to its end.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish_audit(&self, id: u64, outcome: AuditOutcome) -> Result<(), RegistryError> {
        Ok(self.inner.store.finish_audit(id, outcome)?)
    }

    /// What was begun with [`Registry::start_audit`] was refused, as so much before of this user that
    /// its row is left out.
    ///
    /// # Errors
    /// When the store fails.
    pub fn leave_out_audit(&self, id: u64) -> Result<(), RegistryError> {
        Ok(self.inner.store.drop_audit(id)?)
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

    /// Append to the audit log what is done; durable when it returns.
    ///
    /// # Errors
    /// When the store fails.
    pub fn audit(&self, user: &str, action: &str, detail: &str) -> Result<(), RegistryError> {
        self.inner.store.audit(&self.entry(user, action, detail, AuditOutcome::Done))?;
        Ok(())
    }

    /// The audit log, newest first, below the row `before` where given.
    ///
    /// # Errors
    /// When the store fails.
    pub fn audit_log(
        &self,
        before: Option<u64>,
        limit: u64,
    ) -> Result<Vec<AuditEntry>, RegistryError> {
        Ok(self.inner.store.audit_log(before, limit)?)
    }
}
