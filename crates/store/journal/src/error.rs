//! One error family per kind of operation.

use std::io;
use std::path::PathBuf;

/// Damage that recovery does not repair on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Path of the damaged file.
    pub file: PathBuf,
    /// The first damaged block of that file, counted in 4 KiB from its beginning.
    pub block: u64,
    /// The first record that cannot be read.
    pub position: u64,
    /// The kind of damage.
    pub what: String,
    /// Minimum number of records at or after the damage, which cannot be read before a repair.
    pub records_lost_at_least: u64,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: block={} position={}: {}; at least {} records from there on are unreadable before a repair",
            self.file.display(),
            self.block,
            self.position,
            self.what,
            self.records_lost_at_least
        )
    }
}

/// The reason why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another handle in this process, holds the lock.
    #[error("{}: the journal is already open; stop the process that holds it", .0.display())]
    Locked(PathBuf),
    /// A file was written by a newer version.
    #[error("{}: format version {found} is newer than {known}; use a newer program", file.display())]
    NewerVersion {
        /// Path of the file with the newer version.
        file: PathBuf,
        /// The version in the file.
        found: u16,
        /// The newest version that this program reads.
        known: u16,
    },
    /// Damage below the durable horizon.
    #[error("{0}; see `holdfast journal verify` and `repair`")]
    Corrupt(Damage),
    /// The journal ends below a position that was acknowledged.
    #[error(
        "{}: ends at position {end}, below {expected} which {by} has seen: records are missing; \
         restore them or start with an empty folder",
        dir.display()
    )]
    EndsTooEarly {
        /// The journal's folder.
        dir: PathBuf,
        /// The last position found.
        end: u64,
        /// The position that should be there.
        expected: u64,
        /// The source of the expected position.
        by: String,
    },
    /// An option outside its limits.
    #[error("journal option {name}={value} is outside {min}..={max}")]
    Option {
        /// Name of the field in [`crate::Options`].
        name: &'static str,
        /// The value given.
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
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The reason why an append or a trim was rejected.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A write or a flush failed earlier; nothing is accepted any more. Whether the records of
    /// the failed group survive is unknown until the journal is opened again.
    #[error("the journal is poisoned by an earlier failure: {0}; open it again")]
    Poisoned(String),
    /// There is no space for another segment. Nothing was written; the same call may succeed later.
    #[error("no room for another segment: {0}; free space or trim, then try again")]
    Full(String),
    /// More bytes than one group can hold.
    #[error(
        "append of {bytes} bytes is over the limit of {bytes_max}; split it or use larger segments"
    )]
    TooLarge {
        /// Bytes requested.
        bytes: usize,
        /// Bytes one append can hold.
        bytes_max: usize,
    },
    /// An append without records.
    #[error("append_all without records; give at least one")]
    Empty,
    /// The journal was closed.
    #[error("the journal is closed; open it again")]
    Closed,
    /// An I/O operation failed that does not endanger the written data.
    #[error("{path}: {what}: {cause}")]
    Io {
        /// The file or folder.
        path: String,
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system, as text.
        cause: String,
    },
}

/// The reason why records could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The position was trimmed.
    #[error("position {position} was trimmed; the first one kept is {first}")]
    Trimmed {
        /// The position requested.
        position: u64,
        /// The first position kept.
        first: u64,
    },
    /// The stored data differs from what was written.
    #[error("{0}")]
    Corrupt(Damage),
    /// An I/O operation failed.
    #[error("{}: {what}: {cause}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system, as text.
        cause: String,
    },
}
