//! Rows of the audit log. The row of a change is written with the first step of the change and has
//! the outcome `begun` until the last step is done. After a crash in between it keeps that outcome.

use parking_lot::Mutex;
use serde::Serialize;

use sqlite::Reader;

/// Outcome of the action that a row of the audit log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// Some of it was done. Whether the rest was done is not recorded.
    Begun,
    Done,
    /// All of it was done, and it changed nothing that others can see.
    Unchanged,
    /// Part of the request was refused.
    Partly,
    /// Nothing was done: the request was not permitted, or could not be carried out.
    Refused,
    /// The server failed. What was done before the failure remains.
    Failed,
}

impl AuditOutcome {
    pub const ALL: [Self; 6] =
        [Self::Begun, Self::Done, Self::Unchanged, Self::Partly, Self::Refused, Self::Failed];

    /// Returns true if the action changed nothing. Such rows are deleted first.
    pub fn is_idle(self) -> bool {
        matches!(self, Self::Unchanged | Self::Refused)
    }

    /// Returns the word in the database and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::Partly => "partly",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    /// Returns the outcome named by a word; [`AuditOutcome::Begun`] for an unknown one.
    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|known| known.name() == name).unwrap_or(Self::Begun)
    }
}

/// One row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Its number; ignored when appending.
    pub id: u64,
    /// Time of the action, microseconds since the epoch.
    pub at_us: u64,
    pub user: String,
    /// The action, for example `agent:delete`.
    pub action: String,
    /// The object and the values, with secrets masked by the caller.
    pub detail: String,
    /// The outcome of the action.
    pub outcome: AuditOutcome,
}

/// The reader on whose behalf a change is made, and the row of the audit log that is written with
/// it.
///
/// The row is written as begun in the transaction of the first durable change under the context, so
/// that neither exists without the other and both cost one wait for the disk.
/// [`super::ControlStore::end_audit`] then sets the outcome.
///
/// # Locking
/// The mutex guards the row's state only. The store reads the state while it holds its own writer
/// lock; no other lock is taken under this mutex.
#[derive(Debug, Default)]
pub struct WriteContext {
    reader: Reader,
    audit: Mutex<PendingAudit>,
}

/// State of the audit row of a [`WriteContext`].
#[derive(Debug, Clone, Default)]
pub enum PendingAudit {
    /// There is no row, or its outcome is set.
    #[default]
    None,
    /// The row is written with the first durable change.
    Waiting(AuditEntry),
    Written {
        id: u64,
        /// True if something was changed under the context, so that the row is kept.
        changed: bool,
    },
}

impl WriteContext {
    /// Returns a context of the server itself, without a row of the audit log.
    pub fn server() -> Self {
        Self::default()
    }

    /// Returns a context without a row of the audit log.
    pub fn unaudited(reader: Reader) -> Self {
        Self { reader, audit: Mutex::default() }
    }

    /// Returns a context whose first durable change writes `entry`.
    pub fn audited(reader: Reader, entry: AuditEntry) -> Self {
        Self { reader, audit: Mutex::new(PendingAudit::Waiting(entry)) }
    }

    /// Returns the reader, for what must be read before the change.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Extends the detail of a row that has not been written yet.
    pub fn amend(&self, more: &str) {
        if let PendingAudit::Waiting(entry) = &mut *self.audit.lock() {
            entry.detail.push_str(more);
        }
    }

    /// Keeps a written row, because something outside the control store is changed.
    pub fn set_changed(&self) {
        if let PendingAudit::Written { changed, .. } = &mut *self.audit.lock() {
            *changed = true;
        }
    }

    /// Returns the state of the row. Stores call this.
    pub fn pending(&self) -> PendingAudit {
        self.audit.lock().clone()
    }

    /// Sets the state of the row. Stores call this once the transaction has committed.
    pub fn set_pending(&self, pending: PendingAudit) {
        *self.audit.lock() = pending;
    }
}
