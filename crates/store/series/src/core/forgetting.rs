//! The state kept between two searches for rows to be forgotten.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use roaring::RoaringBitmap;

/// Looks for rows to be forgotten after samples went: a row that goes with them may have been asked
/// for just before.
const LOOKS: u32 = 3;

/// See the module.
#[derive(Default)]
pub(crate) struct Forgetting {
    /// Idle rows by the part in which a look found them.
    pub(crate) rows_in_parts: Mutex<HashMap<u64, RoaringBitmap>>,
    looks_due: AtomicU32,
    /// The catalogue's file still has the names of some rows that were forgotten.
    names_on_disk: AtomicBool,
}

impl Forgetting {
    /// Notes that samples went.
    pub(crate) fn samples_went(&self) {
        self.looks_due.store(LOOKS, Ordering::Release);
    }

    /// Takes one of the looks that are due. Returns false if there is none.
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
