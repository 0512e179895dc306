//! The quota of the dictionaries of a port.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most names in the dictionaries of all connections of a port.
pub const DICTIONARIES_ENTRIES_MAX: usize = 4 << 20;

/// The remaining quota of dictionary entries of a port: [`DICTIONARIES_ENTRIES_MAX`] for all its
/// connections. Clones share the quota.
#[derive(Debug, Clone)]
pub struct DictionaryQuota(Arc<AtomicUsize>);

impl Default for DictionaryQuota {
    fn default() -> Self {
        Self::new(DICTIONARIES_ENTRIES_MAX)
    }
}

impl DictionaryQuota {
    /// Creates a quota of `entries` entries.
    pub fn new(entries: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(entries)))
    }

    pub(super) fn acquire(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    /// Gives back the entries of a dictionary.
    pub(super) fn release(&self, entries: usize) {
        self.0.fetch_add(entries, Ordering::Relaxed);
    }
}
