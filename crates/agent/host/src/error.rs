//! The errors of reading an inventory.

use std::io;
use std::path::PathBuf;

use model::CoverageKind;

/// An error of reading the package database. Nothing is then known about any package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    #[error("{path}: no package database there; mount it, or set inventory.packages = false")]
    Missing { path: PathBuf },
    /// It cannot be opened or read.
    #[error("{path}: {source}; the agent must be able to read it")]
    Unreadable { path: PathBuf, source: io::Error },
    /// It is not in the format that dpkg writes.
    #[error("{path}: line {line}: {what}; compare it with its copy {path}-old")]
    Malformed {
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Description of the problem.
        what: String,
    },
    /// It exceeds a limit.
    #[error("{path}: line {line}: {what}, at most {max}; set inventory.packages = false")]
    Limit {
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Description of the exceeded limit.
        what: &'static str,
        max: u64,
    },
    /// It was written in place while it was read.
    #[error("{path}: changed while it was read; it is read again with the next look")]
    Changing { path: PathBuf },
}

impl InventoryError {
    /// Returns the kind of coverage event that reports this error.
    pub fn coverage(&self) -> CoverageKind {
        match self {
            Self::Missing { .. } => CoverageKind::RootGone,
            Self::Limit { .. } => CoverageKind::LimitReached,
            _ => CoverageKind::Unreadable,
        }
    }
}
