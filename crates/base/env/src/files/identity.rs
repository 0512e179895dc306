//! The identity of a file or folder, independent of its name.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The identity of a file or folder. A path that is removed and created again, or mounted over,
/// leads to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns the identity of what is at a path, or `None` if its metadata cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}
