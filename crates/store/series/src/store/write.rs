//! Writes through the handle of a store.

use super::Store;
use crate::batch::Batch;
use crate::error::WriteError;
use crate::model::WriteOutcome;
use crate::options::Ack;
use crate::ticket::{QueuedBatch, TrySubmit};

impl Store {
    /// Returns the limit of [`Batch::bytes_max`] below which the log accepts any batch, including
    /// the definitions of its rows.
    pub fn batch_bytes_max(&self) -> usize {
        usize::try_from(self.0.core.options.segment_bytes / 2).unwrap_or(usize::MAX)
    }

    /// Returns an empty batch, with the memory of a stored one if there is any.
    pub fn batch(&self) -> Batch {
        self.0.core.spares.batch()
    }

    /// Keeps the memory of a batch that is not stored for reuse.
    pub fn spare(&self, batch: Batch) {
        self.0.core.spares.give(batch, Vec::new());
    }

    /// Stores a batch. Returns when it is as durable as requested, and in the head.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, batch: Batch, ack: Ack) -> Result<WriteOutcome, WriteError> {
        self.submit(batch, ack)?.wait()
    }

    /// Does the same as [`Store::write`] without blocking a thread.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write_async(&self, batch: Batch, ack: Ack) -> Result<WriteOutcome, WriteError> {
        self.submit_async(batch, ack).await?.await
    }

    /// Queues a batch. Waits only while the queue is full. The ticket may be dropped; a failure is
    /// then only counted in [`batches_failed`](crate::StoreStats::batches_failed).
    ///
    /// # Errors
    /// Returns an error if the batch is invalid, or the store accepts no writes.
    pub fn submit(&self, batch: Batch, ack: Ack) -> Result<QueuedBatch, WriteError> {
        self.0.core.ensure_marked()?;
        self.0.core.submit(batch, ack)
    }

    /// Does the same as [`Store::submit`] without blocking a thread.
    ///
    /// # Errors
    /// See [`Store::submit`].
    pub async fn submit_async(&self, batch: Batch, ack: Ack) -> Result<QueuedBatch, WriteError> {
        self.0.core.ensure_marked()?;
        self.0.core.submit_async(batch, ack).await
    }

    /// Does the same as [`Store::submit`] without waiting. Returns the batch if there is no space,
    /// or if other writers wait for space.
    ///
    /// # Errors
    /// See [`Store::submit`].
    pub fn try_submit(&self, batch: Batch, ack: Ack) -> Result<TrySubmit, WriteError> {
        self.0.core.ensure_marked()?;
        self.0.core.try_submit(batch, ack)
    }

    /// Checks that a delete would be accepted now. Callers use it before they begin work that ends
    /// with a delete. Writes an empty batch, which goes through the log and is persisted, so the
    /// check covers the whole path.
    ///
    /// # Errors
    /// See [`Store::delete`].
    pub fn can_delete(&self) -> Result<(), WriteError> {
        self.core().check_tombstones()?;
        if let Some(why) = self.stats().trouble {
            return Err(WriteError::Failed(why));
        }
        self.write(Batch::new(), Ack::Persisted).map(drop)
    }
}
