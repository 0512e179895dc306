//! One error family per kind of operation.

use std::io;
use std::path::PathBuf;

/// Damage in a file of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: offset={offset}: {what}; restore the file", file.display())]
pub struct SeriesDamage {
    pub file: PathBuf,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The kind of damage.
    pub what: String,
}

/// The reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesOpenError {
    /// Another process, or another handle in this process, holds the lock.
    #[error("{}: the store is already open; stop the process that holds it", .0.display())]
    Locked(PathBuf),
    /// The last process did not close the store: records in its log are not in parts yet.
    #[error(
        "{}: was not closed cleanly, so opening it writes: open it, or a copy of it, where it may \
         be written", .0.display()
    )]
    NotClosed(PathBuf),
    /// A file was written by a newer version.
    #[error("{}: format version {found} is newer than {known}; use a newer program", file.display())]
    NewerVersion {
        file: PathBuf,
        found: u16,
        /// The newest version that this program reads.
        known: u16,
    },
    /// The manifest or the catalogue is damaged, the log lacks records or has a foreign one, or a
    /// file that is copied ends too early.
    #[error("{0}; `holdfast series verify` lists all damage")]
    Corrupt(#[from] SeriesDamage),
    /// The log could not be opened.
    #[error("journal: {0}")]
    Journal(#[from] journal::OpenError),
    /// The log could not be read.
    #[error("journal: {0}")]
    Replay(#[from] journal::ReadError),
    /// An option outside its limits.
    #[error("series option {name}={value} is outside {min}..={max}; choose one inside")]
    Option {
        name: &'static str,
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// An I/O operation failed.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        source: io::Error,
    },
}

/// The reason why a name was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name does not have the form `metric|metric tag=value tag=value`.
    #[error("series name {text:?}: {what}; write metric tag=value ...")]
    Malformed {
        /// The offending text, shortened.
        text: String,
        /// The reason.
        what: &'static str,
    },
    /// A limit of one name was exceeded.
    #[error("series name: {what}={value} is over the limit of {max}; shorten it")]
    TooLong {
        what: &'static str,
        /// The value found.
        value: usize,
        max: usize,
    },
    /// A new name has more tags than the store accepts.
    #[error("series name: {value} tags are over the limit of {max}; drop some or raise labels_max")]
    TooManyTags { value: usize, max: usize },
    /// The store has the maximum number of series.
    #[error(
        "series limit of {max} reached; remove tags with many values, delete old series (their \
         names are free within five minutes) or raise series_max"
    )]
    LimitReached { max: u64 },
    /// The series with this tag have reached their quota.
    #[error(
        "series limit of {max} reached by {tag}={value}; let it send fewer, delete old series \
         (their names are free within five minutes) or raise the limit"
    )]
    QuotaReached {
        /// Name of the tag.
        tag: String,
        value: String,
        max: u64,
    },
    /// The store was closed.
    #[error("the store is closed; open it again")]
    Closed,
}

/// The reason why a write or a change failed. Nothing of it was stored, unless stated otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The row handle belongs to another store, or its row was forgotten.
    #[error("row {0} is not known; ask for it by its name again")]
    UnknownRow(u32),
    /// The number of values differs from the number of metrics of the row series.
    #[error("row {row}: {found} values for {expected} metrics; give one each")]
    Shape {
        row: u32,
        found: usize,
        /// Number of metrics of the row.
        expected: usize,
    },
    /// A batch or an event exceeds its limit.
    #[error("{what}={value} is over the limit of {max}; split the batch")]
    TooLarge {
        what: &'static str,
        /// The value found.
        value: usize,
        max: usize,
    },
    /// The row is older than retention keeps.
    #[error("timestamp {time_ns} is older than retention keeps ({oldest_ns}); it was not stored")]
    TooOld {
        time_ns: i64,
        /// The oldest time accepted.
        oldest_ns: i64,
    },
    /// The row is further ahead of the clock than [`crate::AHEAD_MAX`].
    #[error(
        "timestamp {time_ns} is more than a day ahead of the clock (newest taken: {newest_ns}); \
         correct the sender's clock or its unit of time"
    )]
    TooNew {
        time_ns: i64,
        /// The newest time accepted.
        newest_ns: i64,
    },
    /// The timestamp is the largest that can be represented, which is reserved.
    #[error("timestamp {time_ns} is the last there is and cannot be stored; correct the clock")]
    EndOfTime { time_ns: i64 },
    /// There is no space on the disk. The same call may succeed later; reads continue.
    #[error("no room on the disk: {0}; free space or lower the retention, then try again")]
    Full(String),
    /// The log failed earlier; nothing is accepted until it is opened again. Whether the failed batch
    /// survives is unknown until then.
    #[error("the log failed: {0}; the store opens it again, at most three times an hour")]
    Failed(String),
    /// The store was closed.
    #[error("the store is closed; open it again")]
    Closed,
    /// An I/O operation failed that does not endanger stored data.
    #[error("{path}: {what}: {cause}")]
    Io {
        /// The file or folder.
        path: String,
        /// The operation that failed.
        what: &'static str,
        cause: String,
    },
    /// The operating system could not read data that the change needs.
    #[error("{path}: {what}: {cause}")]
    Unread {
        path: String,
        /// The operation that failed.
        what: &'static str,
        cause: String,
    },
    /// A file that the change needs is damaged.
    #[error("{0}; `holdfast series verify` lists all damage")]
    Corrupt(SeriesDamage),
}

/// The reason why a read failed. It applies only to the requested series.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesReadError {
    /// Damage in a part.
    #[error("{0}; `holdfast series verify` lists all damage")]
    Corrupt(#[from] SeriesDamage),
    /// An I/O operation failed.
    #[error("{}: {what}: {cause}", path.display())]
    Io {
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        cause: String,
    },
}

/// The readable portion of a series, with the error of the rest. Damage in one block or part
/// affects nothing else.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct Partial<T: std::fmt::Debug> {
    /// The readable portion.
    pub found: T,
    /// The first thing that could not be read.
    pub error: SeriesReadError,
}

/// The complete result of a read, or the readable portion with an error.
pub type Found<T> = Result<T, Box<Partial<T>>>;

/// Returns `found`, with the error if there was one.
pub(crate) fn partial<T: std::fmt::Debug>(found: T, torn: Option<SeriesReadError>) -> Found<T> {
    match torn {
        Some(error) => Err(Box::new(Partial { found, error })),
        None => Ok(found),
    }
}

impl From<SeriesReadError> for WriteError {
    fn from(e: SeriesReadError) -> Self {
        match e {
            SeriesReadError::Corrupt(damage) => Self::Corrupt(damage),
            SeriesReadError::Io { path, what, cause } => {
                Self::Unread { path: path.display().to_string(), what, cause }
            }
        }
    }
}

impl From<journal::AppendError> for WriteError {
    fn from(e: journal::AppendError) -> Self {
        match e {
            journal::AppendError::Full(why) => Self::Full(why),
            journal::AppendError::Poisoned(why) => Self::Failed(why),
            journal::AppendError::Closed => Self::Closed,
            journal::AppendError::TooLarge { bytes, bytes_max } => {
                Self::TooLarge { what: "batch_bytes", value: bytes, max: bytes_max }
            }
            // Nothing was written: the log stays usable.
            journal::AppendError::Io { path, what, cause } => Self::Io { path, what, cause },
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Converts an I/O error of a file other than the log.
pub(crate) fn refused(
    path: &std::path::Path,
    what: &'static str,
) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.display().to_string();
    move |e| match e.kind() {
        io::ErrorKind::StorageFull => WriteError::Full(format!("{path}: {what}")),
        _ => WriteError::Io { path, what, cause: e.to_string() },
    }
}

/// Converts an I/O error of a read that a change needs.
pub(crate) fn unread(
    path: &std::path::Path,
    what: &'static str,
) -> impl Fn(io::Error) -> SeriesReadError {
    let path = path.to_owned();
    move |e| SeriesReadError::Io { path: path.clone(), what, cause: e.to_string() }
}
