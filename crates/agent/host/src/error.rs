//! Why there is no inventory.

use std::io;
use std::path::PathBuf;

use model::CoverageKind;

/// Why a package database gave no inventory. Nothing is known of any package then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    #[error("{path}: no package database there; mount it, or set inventory.packages = false")]
    Missing { path: PathBuf },
    /// It cannot be opened or read.
    #[error("{path}: {source}; the agent must be able to read it")]
    Unreadable { path: PathBuf, source: io::Error },
    /// It is not what dpkg writes.
    #[error("{path}: line {line}: {what}; compare it with its copy {path}-old")]
    Malformed {
        path: PathBuf,
        /// Where, from 1.
        line: u64,
        /// Description of the problem.
        what: String,
    },
    /// It is larger than what is read.
    #[error("{path}: line {line}: {what}, at most {max}; set inventory.packages = false")]
    Limit {
        path: PathBuf,
        /// Where, from 1.
        line: u64,
        /// The limited thing.
        what: &'static str,
        max: u64,
    },
    /// It was written in place while it was read.
    #[error("{path}: changed while it was read; it is read again with the next look")]
    Changing { path: PathBuf },
}

impl InventoryError {
    /// The kind of gap that this is.
    pub fn coverage(&self) -> CoverageKind {
        match self {
            Self::Missing { .. } => CoverageKind::RootGone,
            Self::Limit { .. } => CoverageKind::LimitReached,
            _ => CoverageKind::Unreadable,
        }
    }
}
