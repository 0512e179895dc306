//! The heads: batches and deletes are applied to the active one, which is closed when it is full.

use std::sync::Arc;

use super::Core;
use crate::batch::Batch;
use crate::head::HeadCell;
use crate::record::Tombstone;

/// Memory of all heads at which writers wait for a seal, in heads of the configured size.
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

    /// Puts a tombstone in force: it hides all that came before. Called in the order of positions.
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

    /// Closes the active head, unless it is empty, and begins another. The caller holds the commit
    /// lock, or is alone.
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

    /// Called when heads became smaller, or sealing them failed: writers that wait look again.
    pub(crate) fn heads_changed(&self) {
        self.measure_heads();
        self.queue.wake_writers(self.queue.lock());
    }

    /// Notes whether writers have to wait for a seal.
    fn measure_heads(&self) {
        // Locked until it is noted: no head is closed or goes in between, so that what is noted
        // last is not older than what another thread noted before.
        let live = self.live.read();
        let bytes: usize = live.heads.iter().map(|h| h.head.read().bytes()).sum();
        self.queue.set_heads_full(bytes > HEADS_MAX * self.options.head_bytes_max);
    }

    /// Returns true if the head is old or large enough to be sealed.
    pub(crate) fn is_seal_due(&self) -> bool {
        let live = self.live.read();
        let closed = live.heads.len() > 1;
        let empty = live.heads.last().is_none_or(|h| h.head.read().is_empty());
        let below = live.heads.first().map_or(0, |active| active.first() - 1);
        drop(live);
        let age = self.upkeep.head_age(self.options.clock.monotonic());
        // Only deletes can follow an empty head; the thread that has the manifest may be sealing
        // them.
        let deletes = || self.manifest.try_lock().is_some_and(|manifest| below > manifest.sealed);
        closed || (age >= self.options.seal_after && (!empty || deletes()))
    }
}
