//! Errors of agent.db.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::traits::PortError;
use rusqlite::ErrorCode;

/// Why an operation of the queue failed. Clones share their cause, because callers whose changes
/// were committed together also fail together.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum QueueError {
    /// Another process writes this database.
    #[error("{}: in use by another process: stop the other agent first", path.display())]
    Locked { path: PathBuf },
    /// Written by a later version of this program.
    #[error(
        "{}: format version {found} is newer than {known}, the newest this program knows: \
         use the program that wrote it, or move the file away",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: i64,
        /// The newest known one.
        known: i64,
    },
    /// A valid `SQLite` file of another program.
    #[error("{}: not an agent database: choose another path or move the file away", path.display())]
    Foreign { path: PathBuf },
    /// The disk is full. Nothing of the operation was kept; everything before it was.
    #[error("{}: disk full while {action}: nothing committed was lost, free some space", path.display())]
    DiskFull {
        path: PathBuf,
        /// The attempted operation.
        action: &'static str,
    },
    /// Damaged content was found while running. The next opening drops what cannot be decoded, or
    /// moves the file aside.
    #[error("{}: damaged ({detail}): restart the agent to repair or rebuild it", path.display())]
    Corrupt {
        path: PathBuf,
        /// The value found.
        detail: String,
    },
    /// An earlier write failed in a way that leaves doubt about the disk's content.
    #[error("{}: closed after an earlier failure ({detail}): restart the agent", path.display())]
    Poisoned {
        path: PathBuf,
        /// The first failure.
        detail: String,
    },
    /// The queue was closed.
    #[error("{}: closed", path.display())]
    Closed { path: PathBuf },
    /// The lease was already answered, or its cycle is over.
    #[error("{dataset}: the lease is no longer current: lease again")]
    StaleLease { dataset: String },
    /// There is no cycle to lease from or to end.
    #[error("{dataset}: no cycle has begun")]
    NoCycle { dataset: String },
    /// Some items of this cycle are not acknowledged yet.
    #[error("{dataset}: the cycle is not finished: lease and acknowledge the rest first")]
    CycleUnfinished { dataset: String },
    /// A document or key is larger than its limit.
    #[error("{dataset}: {what} of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        dataset: String,
        /// `key` or `document`.
        what: &'static str,
        bytes: usize,
        bytes_max: usize,
    },
    /// The operating system refused a file operation.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// The attempted operation.
        action: &'static str,
        source: Arc<std::io::Error>,
    },
    /// Any other failure of the database engine.
    #[error("{}: {action}: {source}", path.display())]
    Sqlite {
        path: PathBuf,
        /// The attempted operation.
        action: &'static str,
        source: Arc<rusqlite::Error>,
    },
}

impl QueueError {
    /// Returns true if the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }
}

impl From<QueueError> for PortError {
    fn from(error: QueueError) -> Self {
        Self(error.to_string())
    }
}

/// Returns true if the error speaks of damaged content.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(cause, _) => {
            matches!(cause.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::FromSqlConversionFailure(..) => true,
        _ => false,
    }
}

/// The engine's error in this crate's words.
pub(crate) fn classify(path: &Path, action: &'static str, error: rusqlite::Error) -> QueueError {
    let path = path.to_path_buf();
    if is_damage(&error) {
        return QueueError::Corrupt { path, detail: error.to_string() };
    }
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return QueueError::DiskFull { path, action };
    }
    QueueError::Sqlite { path, action, source: Arc::new(error) }
}

pub(crate) fn io_error(path: &Path, action: &'static str, source: std::io::Error) -> QueueError {
    if source.kind() == std::io::ErrorKind::StorageFull {
        return QueueError::DiskFull { path: path.to_path_buf(), action };
    }
    QueueError::Io { path: path.to_path_buf(), action, source: Arc::new(source) }
}
