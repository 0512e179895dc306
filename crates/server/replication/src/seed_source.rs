//! The copies of a server's files that a follower begins with.

use std::fs;
use std::path::Path;

/// What the folder of a seed's copies begins with.
pub(crate) const SCRATCH_PREFIX: &str = "seed-";

/// What of a data folder is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything that a follower begins with.
    All,
    /// What people decide: it is not in the journal.
    Registry,
}

/// Makes consistent copies of a server's files while they are in use.
pub trait SeedSource: Send + Sync {
    /// Copy into the folder `to`, which exists and is empty; the copies' names relative to it.
    ///
    /// # Errors
    /// In words, when a file cannot be copied.
    fn copy(&self, part: Part, to: &Path) -> Result<Vec<String>, String>;
}

/// Remove what a killed server left of a seed.
pub(crate) fn clear_scratch(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(SCRATCH_PREFIX);
        if is_scratch && entry.path().is_dir() {
            // What cannot be removed now is in nobody's way, and is tried again at the next start.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
