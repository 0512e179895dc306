//! The cache of opened parts: open files, the tops of indexes, and the blocks of indexes that were
//! read. It is bounded for all parts of a store together; the least recently used entry is dropped
//! first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use env::files::File;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::index::Top;
use crate::options::{OPEN_INDEX_BYTES_MAX, OPEN_PARTS_MAX};

/// The cached state of one part.
#[derive(Default)]
pub(crate) struct Slot {
    opened: Mutex<Option<Arc<Opened>>>,
    /// Set by a read, cleared when the cache looks for an entry to drop.
    read: AtomicBool,
}

impl Slot {
    /// Returns the opened part, if cached, and marks it as read.
    pub(crate) fn read(&self) -> Option<Arc<Opened>> {
        let opened = self.opened.lock().clone();
        if opened.is_some() {
            self.read.store(true, Ordering::Relaxed);
        }
        opened
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.lock().is_some()
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct OpenParts {
    slots: Mutex<VecDeque<Weak<Slot>>>,
    bytes: AtomicU64,
}

/// A cached part.
pub(crate) struct Opened {
    pub(crate) file: Arc<dyn File>,
    pub(crate) top: Top,
    blocks: Mutex<HashMap<usize, Arc<[u8]>>>,
    bytes: AtomicU64,
    open_parts: Arc<OpenParts>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.open_parts.bytes.fetch_sub(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Opened {
    /// Returns a cached block of the index.
    pub(crate) fn block(&self, at: usize) -> Option<Arc<[u8]>> {
        self.blocks.lock().get(&at).cloned()
    }

    /// Caches a block of the index.
    pub(crate) fn cache_block(&self, at: usize, block: &Arc<[u8]>) {
        if self.blocks.lock().insert(at, Arc::clone(block)).is_none() {
            self.bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
            self.open_parts.bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
            self.open_parts.bound();
        }
    }
}

impl OpenParts {
    /// Puts an opened part into its slot.
    pub(crate) fn insert_part(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        file: Arc<dyn File>,
        top: Top,
    ) -> Arc<Opened> {
        let bytes = top.bytes() as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let opened = Arc::new(Opened {
            file,
            top,
            blocks: Mutex::default(),
            bytes: AtomicU64::new(bytes),
            open_parts: Arc::clone(self),
        });
        *slot.opened.lock() = Some(Arc::clone(&opened));
        self.slots.lock().push_back(Arc::downgrade(slot));
        self.bound();
        opened
    }

    /// Returns the size of cached indexes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Drops entries until the cache is within its limits. Readers of a dropped part finish; the
    /// next reader opens it again.
    fn bound(&self) {
        let mut spared = self.slots.lock().len();
        loop {
            let mut slots = self.slots.lock();
            if slots.len() <= OPEN_PARTS_MAX && self.bytes() <= OPEN_INDEX_BYTES_MAX {
                return;
            }
            let Some(oldest) = slots.pop_front() else { return };
            let Some(slot) = oldest.upgrade() else { continue };
            if spared > 0 && slot.read.swap(false, Ordering::Relaxed) {
                spared -= 1;
                slots.push_back(oldest);
                continue;
            }
            drop(slots);
            let gone = slot.opened.lock().take();
            drop(gone);
        }
    }
}
