//! The copies of a server's files that a follower begins with.

use std::fs;
use std::path::Path;

/// Prefix of the name of a folder that holds a seed's copies.
pub(crate) const SCRATCH_PREFIX: &str = "seed-";

/// The part of a data folder to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything that a new follower needs.
    All,
    /// The keys: files, which are not in the journal.
    Keys,
}

/// Makes consistent copies of a server's files while they are in use.
pub trait SeedSource: Send + Sync {
    /// Copies files into the folder `to`, which exists and is empty; returns their names relative to it.
    ///
    /// # Errors
    /// A description, when a file cannot be copied.
    fn copy(&self, part: Part, to: &Path) -> Result<Vec<String>, String>;
}

/// Removes the scratch folders that a killed server left.
pub(crate) fn clear_scratch(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(SCRATCH_PREFIX);
        if is_scratch && entry.path().is_dir() {
            // A folder that cannot be removed does no harm; removal is retried at the next start.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
