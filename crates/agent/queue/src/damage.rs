//! Damage that is met while the database is in use, and failed flushes, after which the content of
//! the disk is unknown. In both cases the database is not marked as cleanly closed, so the next
//! open checks the whole file.

use std::sync::atomic::{AtomicBool, Ordering};

/// Reasons to distrust a database since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Damaged content was read.
    met: AtomicBool,
    /// A flush failed: the content of the disk is unknown.
    in_doubt: AtomicBool,
}

impl Damage {
    /// Records that damaged content was read.
    pub(crate) fn met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Returns true if damage was met or a flush failed.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.met.load(Ordering::Relaxed) || self.in_doubt.load(Ordering::Relaxed)
    }

    /// Records that a flush failed.
    pub(crate) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    /// Returns true if damaged content was read.
    pub(crate) fn was_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }
}
