//! The state kept between two searches for rows to be forgotten.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use roaring::RoaringBitmap;

/// Number of searches for rows to be forgotten after samples were removed. The first may be too
/// early: a row without samples may have been requested shortly before.
const LOOKS: u32 = 3;

/// See the module.
#[derive(Default)]
pub(crate) struct ForgetQueue {
    /// Idle rows by the part in which a search found them.
    pub(crate) rows_in_parts: Mutex<HashMap<u64, RoaringBitmap>>,
    looks_due: AtomicU32,
    /// True if the catalogue's file still contains names of forgotten rows.
    names_on_disk: AtomicBool,
}

impl ForgetQueue {
    /// Records that samples were removed.
    pub(crate) fn samples_went(&self) {
        self.looks_due.store(LOOKS, Ordering::Release);
    }

    /// Takes one of the pending searches. Returns false if there is none.
    pub(crate) fn take_look(&self) -> bool {
        let due = self.looks_due.load(Ordering::Acquire);
        self.looks_due.store(due.saturating_sub(1), Ordering::Release);
        due > 0
    }

    pub(crate) fn has_names_on_disk(&self) -> bool {
        self.names_on_disk.load(Ordering::Acquire)
    }

    pub(crate) fn set_names_on_disk(&self, there: bool) {
        self.names_on_disk.store(there, Ordering::Release);
    }
}
