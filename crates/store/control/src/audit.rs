//! Rows of the audit log. The row of a change is written with its first step and says `begun` until
//! the last is done: what a crash cut short stands there as that.

use parking_lot::Mutex;
use serde::Serialize;

use sqlite::Reader;

/// Outcome of the action that a row of the audit log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// Some of it is done; whether the rest is, was not written any more.
    Begun,
    Done,
    /// All of it is done, and nothing that others see is another than before.
    Unchanged,
    /// Some of what was asked for was refused.
    Partly,
    /// Nothing was done: it may not be, or cannot.
    Refused,
    /// The server failed; what was done before that stays.
    Failed,
}

impl AuditOutcome {
    pub const ALL: [Self; 6] =
        [Self::Begun, Self::Done, Self::Unchanged, Self::Partly, Self::Refused, Self::Failed];

    /// Returns true if it left everything as it was: such rows are the first to go.
    pub fn is_idle(self) -> bool {
        matches!(self, Self::Unchanged | Self::Refused)
    }

    /// The word in the database and in the API.
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

    /// The outcome of a word; of an unknown one that nothing is known beyond its beginning.
    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|known| known.name() == name).unwrap_or(Self::Begun)
    }
}

/// One row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Its number; ignored when appending.
    pub id: u64,
    /// When, microseconds since the epoch.
    pub at_us: u64,
    pub user: String,
    /// The action, for example `agent:delete`.
    pub action: String,
    /// On what, with which values; secrets masked by the caller.
    pub detail: String,
    /// The outcome of the action.
    pub outcome: AuditOutcome,
}

/// The reader on whose behalf a change is made, and the row of the audit log that is written with it.
///
/// The row is written as begun in the transaction of the first durable change under the context, so that
/// neither is there without the other and both cost one wait for the disk.
/// [`super::ControlStore::end_audit`] then sets the outcome.
///
/// # Locking
/// The mutex guards the row's state only. The writer of the store looks at it under its own lock; nothing
/// else is locked under it.
#[derive(Debug, Default)]
pub struct WriteContext {
    reader: Reader,
    audit: Mutex<PendingAudit>,
}

/// State of the audit row of a [`WriteContext`].
#[derive(Debug, Clone, Default)]
pub enum PendingAudit {
    /// There is none, or it has its outcome.
    #[default]
    None,
    /// It is written with the first durable change.
    Waiting(AuditEntry),
    Written {
        id: u64,
        /// Something was changed under the context, so the row stays.
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

    /// The reader for what must be read before the change.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Extends the detail of a row that is not written yet.
    pub fn amend(&self, more: &str) {
        if let PendingAudit::Waiting(entry) = &mut *self.audit.lock() {
            entry.detail.push_str(more);
        }
    }

    /// Keeps a row that is written: something is changed outside of the control store.
    pub fn set_changed(&self) {
        if let PendingAudit::Written { changed, .. } = &mut *self.audit.lock() {
            *changed = true;
        }
    }

    /// The state of the row, for stores.
    pub fn pending(&self) -> PendingAudit {
        self.audit.lock().clone()
    }

    /// Sets the state of the row, for stores. They call this once the transaction has committed.
    pub fn set_pending(&self, pending: PendingAudit) {
        *self.audit.lock() = pending;
    }
}
