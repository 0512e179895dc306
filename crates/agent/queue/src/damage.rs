//! Damage that is met while the database is in use, and a disk in doubt: nothing more is written,
//! and the next opening looks at the whole file.

use std::sync::atomic::{AtomicBool, Ordering};

/// Reasons to distrust a database since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Content was met that is damaged.
    met: AtomicBool,
    /// A flush failed: the content of the disk is unknown.
    in_doubt: AtomicBool,
}

impl Damage {
    /// Damaged content was met.
    pub(crate) fn met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Returns true if only an opening can say how it stands.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.met.load(Ordering::Relaxed) || self.in_doubt.load(Ordering::Relaxed)
    }

    /// A flush failed.
    pub(crate) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    /// Returns true if damaged content was met.
    pub(crate) fn was_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }
}
