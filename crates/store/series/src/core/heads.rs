//! The heads: batches and deletes are applied to the active head, which is closed when it is full.

use std::sync::Arc;

use super::Core;
use crate::batch::Batch;
use crate::head::HeadCell;
use crate::record::Tombstone;

/// Limit of the memory of all heads, in heads of the configured size. Above it writers wait for a
/// seal.
const HEADS_MAX: usize = 3;

impl Core {
    /// Applies a batch to the active head. Called in the order of positions.
    pub(crate) fn apply(&self, batch: &Batch, position: u64) {
        let Some(active) = self.live.read().heads.last().cloned() else { return };
        let mut head = active.head.write();
        head.apply(batch, &self.catalog.sharing());
        let bytes = head.bytes();
        drop(head);
        self.live.write().position = position;
        if bytes > self.options.head_bytes_max {
            self.close_head();
            self.measure_heads();
            self.upkeep.wake();
        }
    }

    /// Adds a tombstone, which hides all earlier samples in its range. Called in the order of
    /// positions.
    pub(crate) fn apply_delete(&self, tombstone: Tombstone) {
        self.close_head();
        let mut live = self.live.write();
        live.position = tombstone.position;
        if let Some(active) = live.heads.last_mut() {
            *active = Arc::new(HeadCell::new(tombstone.position + 1));
        }
        let mut tombstones = live.tombstones.to_vec();
        tombstones.push(tombstone);
        live.tombstones = Arc::new(tombstones);
    }

    /// Closes the active head, unless it is empty, and starts another. The caller holds the commit
    /// lock, or is the only user of the store.
    pub(crate) fn close_head(&self) {
        let mut live = self.live.write();
        let position = live.position;
        let Some(active) = live.heads.last() else { return };
        if active.head.read().is_empty() {
            return;
        }
        active.close(position);
        live.heads.push(Arc::new(HeadCell::new(position + 1)));
        drop(live);
        *self.upkeep.head_began.lock() = self.options.clock.monotonic();
    }

    /// Wakes waiting writers after heads became smaller, a seal failed or the folder changed.
    pub(crate) fn heads_changed(&self) {
        self.measure_heads();
        self.queue.wake_writers(self.queue.lock());
    }

    /// Records whether writers have to wait for a seal.
    fn measure_heads(&self) {
        // The lock is held until the result is stored, so that no head is closed or removed in
        // between and no thread overwrites a newer result with an older one.
        let live = self.live.read();
        let bytes: usize = live.heads.iter().map(|h| h.head.read().bytes()).sum();
        self.queue.set_heads_full(bytes > HEADS_MAX * self.options.head_bytes_max);
    }

    /// Returns true if a closed head waits for its seal, or the active one is old enough to be
    /// sealed.
    pub(crate) fn is_seal_due(&self) -> bool {
        let live = self.live.read();
        let closed = live.heads.len() > 1;
        let empty = live.heads.last().is_none_or(|h| h.head.read().is_empty());
        let below = live.heads.first().map_or(0, |active| active.first() - 1);
        drop(live);
        let age = self.upkeep.head_age(self.options.clock.monotonic());
        // Only deletes can follow an empty head. If the lock is taken, its holder may be sealing
        // them.
        let deletes = || self.manifest.try_lock().is_some_and(|manifest| below > manifest.sealed);
        let old = age >= self.options.seal_after;
        closed || (old && !empty) || ((old || self.catalog.is_nearly_full()) && deletes())
    }
}
