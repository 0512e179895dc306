//! Errors of a state store.

use std::path::PathBuf;

/// Failure of a state store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The database was written by a newer version of the program.
    #[error(
        "{path}: the database has version {found}, this program knows {known}: \
         use the newer program, or restore a backup made by this one",
        path = path.display()
    )]
    Newer {
        path: PathBuf,
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The file is not a state database.
    #[error("{path}: {reason}: restore a backup, or name another folder", path = path.display())]
    NotOurs {
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The disk is full; nothing of the call was stored.
    #[error("{what}: the disk is full: free space or lower the retention")]
    Full {
        /// The operation that failed.
        what: String,
    },
    /// The database returned an error.
    #[error("{what}: {source}")]
    Sqlite {
        /// The operation that failed.
        what: String,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A cursor that this store did not create.
    #[error("the cursor is not one of this store: start again without it")]
    Cursor,
    /// A query beyond the limits.
    #[error("{0}")]
    Query(String),
    /// No connection became free in time, or another process holds the database.
    #[error("{what}: too busy: try again later")]
    Busy {
        /// The operation that failed.
        what: String,
    },
    /// The query ran for too long.
    #[error("{what}: took too long: ask for less")]
    TooLong {
        /// The operation that failed.
        what: String,
    },
}

impl StateError {
    /// Returns true if the same call may succeed later without an operator's help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Busy { .. } | Self::TooLong { .. })
    }
}

/// Adds the name of the operation to an error of the database.
pub(crate) trait Context<T> {
    /// `what` names the operation, lower case.
    fn context(self, what: &str) -> Result<T, StateError>;
}

impl<T> Context<T> for Result<T, rusqlite::Error> {
    fn context(self, what: &str) -> Result<T, StateError> {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, OperationInterrupted};
        self.map_err(|source| match source.sqlite_error_code() {
            Some(DiskFull) => StateError::Full { what: what.to_owned() },
            Some(DatabaseBusy | DatabaseLocked) => StateError::Busy { what: what.to_owned() },
            Some(OperationInterrupted) => StateError::TooLong { what: what.to_owned() },
            _ => StateError::Sqlite { what: what.to_owned(), source },
        })
    }
}
