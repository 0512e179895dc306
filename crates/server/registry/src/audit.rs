//! The audit log: who changed what. A change and its row are one transaction where the change is
//! one, so that neither is there without the other and both cost one wait for the disk.

use std::marker::PhantomData;

use state::registry::AuditEntry;

use crate::{Registry, RegistryError};

/// A row that goes along with the first durable change of this thread; dropped without
/// [`PendingAudit::end`] it is not written unless a change took it.
pub struct PendingAudit<'a> {
    registry: &'a Registry,
    /// It is this thread's.
    thread: PhantomData<*const ()>,
}

impl PendingAudit<'_> {
    /// The change is done: its row is durable when this returns, whatever the change was of.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end(self) -> Result<(), RegistryError> {
        if let Some(entry) = self.registry.inner.store.end_audit() {
            self.registry.inner.store.audit(&entry)?;
        }
        Ok(())
    }
}

impl Drop for PendingAudit<'_> {
    fn drop(&mut self) {
        self.registry.inner.store.end_audit();
    }
}

impl Registry {
    /// Have the first durable change that this thread makes from now on write this row with it.
    pub fn begin_audit(&self, user: &str, action: &str, detail: &str) -> PendingAudit<'_> {
        self.inner.store.begin_audit(self.entry(user, action, detail));
        PendingAudit { registry: self, thread: PhantomData }
    }

    fn entry(&self, user: &str, action: &str, detail: &str) -> AuditEntry {
        AuditEntry {
            id: 0,
            at_us: self.inner.clock.now_us(),
            user: user.to_owned(),
            action: action.to_owned(),
            detail: detail.to_owned(),
        }
    }

    /// Append to the audit log; durable when it returns.
    ///
    /// # Errors
    /// When the store fails.
    pub fn audit(&self, user: &str, action: &str, detail: &str) -> Result<(), RegistryError> {
        self.inner.store.audit(&self.entry(user, action, detail))?;
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
