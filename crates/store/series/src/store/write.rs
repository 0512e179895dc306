//! The handle, for those that write.

use super::Store;
use crate::batch::Batch;
use crate::error::WriteError;
use crate::model::WriteOutcome;
use crate::options::Ack;
use crate::ticket::{Ticket, TrySubmit};

impl Store {
    /// Bytes up to which [`Batch::bytes_max`] may go so that the log takes the batch, whatever it
    /// takes with it.
    pub fn batch_bytes_max(&self) -> usize {
        usize::try_from(self.0.core.options.segment_bytes / 2).unwrap_or(usize::MAX)
    }

    /// An empty batch, with the memory of one that was stored before where there is one.
    pub fn batch(&self) -> Batch {
        self.0.core.spares.batch()
    }

    /// Keeps the memory of a batch that is not stored.
    pub fn spare(&self, batch: Batch) {
        self.0.core.spares.give(batch, Vec::new());
    }

    /// Stores a batch. Returns when it is as durable as asked for, and in the head.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, batch: Batch, ack: Ack) -> Result<WriteOutcome, WriteError> {
        self.submit(batch, ack)?.wait()
    }

    /// As [`Store::write`], from a task: no thread waits.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write_async(&self, batch: Batch, ack: Ack) -> Result<WriteOutcome, WriteError> {
        self.submit_async(batch, ack).await?.await
    }

    /// Sends a batch on its way; waits only while too much waits for the log already. Drop the
    /// ticket to fire and forget: what fails then is counted in
    /// [`batches_failed`](crate::StoreStats::batches_failed).
    ///
    /// # Errors
    /// Returns an error if the batch is not acceptable, or the store takes nothing any more.
    pub fn submit(&self, batch: Batch, ack: Ack) -> Result<Ticket, WriteError> {
        self.0.core.ensure_marked()?;
        self.0.core.submit(batch, ack)
    }

    /// As [`Store::submit`], from a task: no thread waits.
    ///
    /// # Errors
    /// See [`Store::submit`].
    pub async fn submit_async(&self, batch: Batch, ack: Ack) -> Result<Ticket, WriteError> {
        self.0.core.ensure_marked()?;
        self.0.core.submit_async(batch, ack).await
    }

    /// As [`Store::submit`], but nothing waits: where there is no room at once, or others wait for
    /// some, the batch comes back.
    ///
    /// # Errors
    /// See [`Store::submit`].
    pub fn try_submit(&self, batch: Batch, ack: Ack) -> Result<TrySubmit, WriteError> {
        self.0.core.ensure_marked()?;
        self.0.core.try_submit(batch, ack)
    }
}
