//! Errors of agent.db.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::traits::PortError;
use rusqlite::{ErrorCode, ffi};

/// An error of a queue operation. It can be cloned, because callers whose changes are committed
/// together also fail together. Clones share the cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum QueueError {
    /// Another process writes this database.
    #[error("{}: in use by another process: stop the other agent first", path.display())]
    Locked { path: PathBuf },
    /// The database was written by a later version of this program.
    #[error(
        "{}: format version {found} is newer than {known}, the newest this program knows: \
         use the program that wrote it, or move the file away",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: i64,
        /// The newest known version.
        known: i64,
    },
    /// The file is a valid `SQLite` database of another program.
    #[error("{}: not an agent database: choose another path or move the file away", path.display())]
    Foreign { path: PathBuf },
    /// The disk is full. The operation was rolled back; earlier ones are not affected.
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
        /// Description of the damage.
        detail: String,
    },
    /// An earlier write failed so that the disk's content is unknown.
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

/// Returns true if a flush failed: the content of the disk is unknown then.
pub(crate) fn is_failed_flush(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|cause| {
        matches!(cause.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
    })
}

/// Returns true if the error means damaged content.
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

/// Converts an error of SQLite.
pub(crate) fn classify(path: &Path, action: &'static str, error: rusqlite::Error) -> QueueError {
    let path = path.to_path_buf();
    if is_damage(&error) {
        return QueueError::Corrupt { path, detail: error.to_string() };
    }
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return QueueError::DiskFull { path, action };
    }
    // SQLite does not say why a file cannot be opened; the operating system says it again.
    if error.sqlite_error_code() == Some(ErrorCode::CannotOpen)
        && let Some(cause) = cannot_open(&path)
    {
        return io_error(&path, action, cause);
    }
    QueueError::Sqlite { path, action, source: Arc::new(error) }
}

/// Returns the error with which the files of a connection cannot be opened now, if there is one.
fn cannot_open(path: &Path) -> Option<std::io::Error> {
    // The database, its log, their shared index, and the folder.
    let opened: Result<Vec<_>, _> = (0..4).map(|_| std::fs::File::open(path)).collect();
    opened.err()
}

pub(crate) fn io_error(path: &Path, action: &'static str, source: std::io::Error) -> QueueError {
    if source.kind() == std::io::ErrorKind::StorageFull {
        return QueueError::DiskFull { path: path.to_path_buf(), action };
    }
    QueueError::Io { path: path.to_path_buf(), action, source: Arc::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_cannot_be_opened_is_reported_with_its_cause() {
        let engine = || rusqlite::Error::SqliteFailure(ffi::Error::new(14), Some("unable".into()));
        let missing = classify(Path::new("/nowhere/agent.db"), "open", engine()).to_string();
        assert!(missing.starts_with("/nowhere/agent.db: open: No such file"), "{missing}");
        let opened = classify(Path::new("/dev/null"), "open", engine());
        assert!(matches!(opened, QueueError::Sqlite { .. }), "{opened}");
    }
}
