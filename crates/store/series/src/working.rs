//! Writers at work: those that take apart what they are about to store, or store it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A writer at work, until it is dropped: see [`Store::working`](crate::Store::working).
pub struct Working(Arc<AtomicUsize>);

impl Working {
    pub(crate) fn beside(others: &Arc<AtomicUsize>) -> Self {
        others.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(others))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Working {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Working(..)")
    }
}
