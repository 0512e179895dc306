//! Errors of calls on the control store.

use std::path::PathBuf;

use model::AgentId;

/// Error of a call on the control store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The database was written by a later version of the program.
    #[error(
        "registry.db has version {found}, this program knows up to {known}: \
         run the newer program, or restore a backup of this version"
    )]
    Newer {
        /// Version in the file.
        found: i64,
        /// Highest version known here.
        known: i64,
    },
    /// An enrolment token is unknown, used up, expired or revoked.
    #[error("the enrolment token is {0}: ask for a new one")]
    Token(&'static str),
    /// The number was given to another agent before, or may have been.
    #[error(
        "agent number {id}: was given before or lies below the next one, {next}: leave it out to \
         draw the next"
    )]
    NumberUsed {
        id: AgentId,
        /// The lowest free number.
        next: AgentId,
    },
    /// The caller could not record a removal, so nothing was changed.
    #[error("the removal could not be recorded: {0}")]
    Unrecorded(String),
    /// The name belongs to another agent.
    #[error(
        "an agent named {name} is already registered as {id}: remove it first, or choose another name"
    )]
    DuplicateName { name: String, id: AgentId },
    /// The object does not exist.
    #[error("no such {what}: {name}")]
    NotFound {
        /// `agent`, `group`, `user`, ...
        what: &'static str,
        /// The name or number that was requested.
        name: String,
    },
    /// An object with the same name or content exists.
    #[error("{what} {name} already exists")]
    Exists {
        /// `group`, `user`, ...
        what: &'static str,
        name: String,
    },
    /// The request breaks a rule.
    #[error("{0}")]
    Refused(String),
    /// The certificate could not be issued.
    #[error("the certificate could not be issued: {0}")]
    Certificate(String),
    /// A limit was reached.
    #[error("limit reached: {what} ({max})")]
    Limit {
        /// The limited thing.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// The file is no longer at its path, so what is written into it would be lost.
    #[error(
        "{}: the file is gone, or another one is in its place: put the data folder back, or restore a \
         backup there", .0.display()
    )]
    Gone(PathBuf),
    /// A write failed, so what the disk has is unknown. Every write fails until a restart.
    #[error("registry.db: closed after a failure ({0}): check the disk, then restart the server")]
    Poisoned(String),
    /// The decision could not be logged, so it was not made.
    #[error("the decision was not made, because it could not be logged: {0}")]
    NotLogged(String),
    /// The log no longer has all records that the database lacks.
    #[error(
        "registry.db: older than the journal next to it: it has the decisions up to record {applied}, \
         and the journal begins with record {first}"
    )]
    Behind {
        /// Position of the last record that the database has.
        applied: u64,
        /// Position of the first record that the log has.
        first: u64,
    },
    /// The database is from before the first rows in the log.
    #[error(
        "registry.db: older than the journal next to it: its decisions begin with record {first}, and the \
         database has none of them"
    )]
    BeforeJournal {
        /// Position of the first record of rows.
        first: u64,
    },
    /// The database has more than its log.
    #[error(
        "registry.db: newer than the journal next to it: it has the decisions up to record {applied}, and the \
         journal ends with record {end}"
    )]
    Ahead {
        /// Position of the last record that the database has.
        applied: u64,
        /// Position of the last record in the log.
        end: u64,
    },
    /// The log could not be read.
    #[error("the journal's decisions cannot be read: {0}")]
    Journal(String),
    /// Rows of a record do not fit the database.
    #[error("registry.db: record {position} of the journal cannot be applied: {cause}")]
    Record {
        position: u64,
        #[source]
        cause: rows::RowsError,
    },
    /// Rows could not be noted.
    #[error("registry.db: {0}")]
    Rows(#[from] rows::RowsError),
    /// Every connection for queries is in use.
    #[error("registry.db: all readers are in use: try again, or raise db.readers")]
    Busy,
    /// A stored value is not what this program writes.
    #[error("registry.db: {0}")]
    Corrupt(String),
    /// The operating system refused the file.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The database failed.
    #[error("registry.db: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl ControlError {
    /// Returns true if a query was interrupted because it took too long. Repeating it would fail
    /// again.
    pub fn is_too_long(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted)
    }

    /// Returns true if the same call may succeed later without a change: the disk is full, the file
    /// is gone, another process holds the database, all readers are in use, or a query took too
    /// long. The API answers it with 503.
    pub fn is_transient(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, OperationInterrupted};
        match self {
            Self::Busy | Self::Gone(_) | Self::NotLogged(_) => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(DatabaseBusy | DatabaseLocked | DiskFull | OperationInterrupted)
            ),
            _ => false,
        }
    }
}

/// Short for results of the control store.
pub type ControlResult<T> = Result<T, ControlError>;
