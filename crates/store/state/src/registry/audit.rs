//! Rows of the audit log. The row of a change is written with its first step and says `begun` until
//! the last is done: what a crash cut short stands there as that.

use std::cell::RefCell;

use serde::Serialize;

/// How far what a row tells of went.
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

    /// Whether it left everything as it was: such rows are the first to go.
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
    /// What, e.g. `agent:delete`.
    pub action: String,
    /// On what, with which values; secrets masked by the caller.
    pub detail: String,
    /// How far it went.
    pub outcome: AuditOutcome,
}

/// What a thread has to say of the change that it makes.
#[derive(Debug, Default)]
pub(super) enum Pending {
    #[default]
    None,
    /// This, with the first durable write.
    Waiting(AuditEntry),
    /// The row of this number is written.
    Written(u64),
}

thread_local! {
    static PENDING: RefCell<Pending> = const { RefCell::new(Pending::None) };
}

/// Do something with what waits for the first durable write of this thread.
pub(super) fn waiting<T>(work: impl FnOnce(&AuditEntry) -> T) -> Option<T> {
    PENDING.with_borrow(|pending| match pending {
        Pending::Waiting(entry) => Some(work(entry)),
        Pending::None | Pending::Written(_) => None,
    })
}

/// Say more of what is waiting.
pub(super) fn amend(more: &str) {
    PENDING.with_borrow_mut(|pending| {
        if let Pending::Waiting(entry) = pending {
            entry.detail.push_str(more);
        }
    });
}

/// What this thread has to say, which is then nothing.
pub(super) fn take() -> Pending {
    PENDING.take()
}

/// Have this thread say this.
pub(super) fn set(pending: Pending) {
    PENDING.set(pending);
}
