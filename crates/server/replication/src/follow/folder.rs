//! The paths in a folder that follows a server.

use std::path::PathBuf;

/// Paths in a data folder.
#[derive(Debug, Clone)]
pub struct FollowerFolder {
    /// The folder itself.
    pub path: PathBuf,
    pub journal: PathBuf,
    pub state_db: PathBuf,
    pub registry_db: PathBuf,
    pub keys: PathBuf,
    /// File that says that the state was restored from a backup and continues without its old
    /// journal.
    pub restored_marker: PathBuf,
}
