//! Submits batches and deletes to the commit queue.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::MutexGuard;

use super::Core;
use super::queue::{QueueState, WaitingWriter};
use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::{Ack, TOMBSTONES_MAX};
use crate::pending::{Pending, Write};
use crate::record::{self, Tombstone};
use crate::ticket::{QueuedBatch, TrySubmit};

/// The space in the queue for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueSpace {
    Free,
    /// The writer waits until the log thread or a seal frees space.
    None,
}

impl Core {
    /// Queues a batch. Blocks until there is space.
    pub(crate) fn submit(&self, batch: Batch, ack: Ack) -> Result<QueuedBatch, WriteError> {
        let pending = self.prepare(batch, ack)?;
        let mut queue = self.queue.lock();
        while self.check_space(&queue)? == QueueSpace::None {
            self.queue.wait_for_space(&mut queue);
        }
        Ok(self.enqueue(queue, pending))
    }

    /// Queues a batch. The task waits until there is space and all earlier tasks have been served.
    pub(crate) async fn submit_async(
        &self,
        batch: Batch,
        ack: Ack,
    ) -> Result<QueuedBatch, WriteError> {
        let pending = self.prepare(batch, ack)?;
        let mut place = WaitingWriter::new(&self.queue);
        let queue = poll_fn(|cx| self.poll_space(&mut place, cx)).await?;
        Ok(self.enqueue(queue, pending))
    }

    fn poll_space(
        &self,
        place: &mut WaitingWriter<'_>,
        cx: &Context<'_>,
    ) -> Poll<Result<MutexGuard<'_, QueueState>, WriteError>> {
        let mut queue = self.queue.lock();
        if self.check_space(&queue)? == QueueSpace::Free && place.is_next(&queue) {
            return Poll::Ready(Ok(queue));
        }
        place.wait(&mut queue, cx.waker());
        Poll::Pending
    }

    /// Queues a batch if there is space and no other writer waits for space.
    pub(crate) fn try_submit(&self, batch: Batch, ack: Ack) -> Result<TrySubmit, WriteError> {
        let queue = self.queue.lock();
        let room = self.check_space(&queue)?;
        if room == QueueSpace::None || queue.has_waiters() {
            return Ok(TrySubmit::Full(batch));
        }
        drop(queue);
        let pending = self.prepare(batch, ack)?;
        let queue = self.queue.lock();
        // The queue may have been closed. If others took the space, this one batch exceeds the
        // limit.
        self.check_space(&queue)?;
        Ok(TrySubmit::Queued(self.enqueue(queue, pending)))
    }

    /// Queues a delete, which needs no space.
    pub(crate) fn submit_delete(&self, tombstone: Tombstone) -> Result<QueuedBatch, WriteError> {
        self.check_tombstones()?;
        let record = record::delete(&tombstone);
        let (write, ack, slot) = (Write::Delete(tombstone), Ack::Persisted, Arc::default());
        let queue = self.queue.lock();
        if queue.is_closed() {
            return Err(WriteError::Closed);
        }
        Ok(self.enqueue(queue, Pending { write, record, ack, slot, forgotten: 0 }))
    }

    /// Returns an error if the store has the maximum number of tombstones.
    pub(crate) fn check_tombstones(&self) -> Result<(), WriteError> {
        let (what, max) = ("tombstones", TOMBSTONES_MAX);
        let full = self.live.read().tombstones.len() >= max;
        if full { Err(WriteError::TooLarge { what, value: max + 1, max }) } else { Ok(()) }
    }

    /// Checks a batch, and encodes its record on the writer's thread.
    fn prepare(&self, batch: Batch, ack: Ack) -> Result<Pending, WriteError> {
        // Read before the rows are looked up: if a row is forgotten in between, the log thread sees
        // a changed count and checks the rows again.
        let forgotten = self.catalog.forgotten();
        self.catalog.check(&batch)?;
        let times = || batch.times.iter().chain(&batch.event_times);
        if let Some(time_ns) = times().copied().find(|t| *t == i64::MAX) {
            return Err(WriteError::EndOfTime { time_ns });
        }
        let oldest_ns = self.oldest_ns();
        if let Some(time) = times().find(|t| **t < oldest_ns) {
            return Err(WriteError::TooOld { time_ns: *time, oldest_ns });
        }
        let logged = self.journal.read().is_some();
        let record = if logged { self.spares.record(&batch) } else { Vec::new() };
        Ok(Pending { write: Write::Batch(batch), record, ack, slot: Arc::default(), forgotten })
    }

    /// Returns whether there is space for a batch, or an error if there never will be.
    fn check_space(&self, queue: &QueueState) -> Result<QueueSpace, WriteError> {
        if queue.is_closed() {
            return Err(WriteError::Closed);
        }
        if self.folder.is_lost() {
            let dir = self.dir.display();
            return Err(WriteError::Failed(format!("{dir} is gone: put it back")));
        }
        if !self.options.background {
            return Ok(QueueSpace::Free);
        }
        if self.queue.heads_full() {
            return self.unsealed().map_or(Ok(QueueSpace::None), |why| Err(WriteError::Full(why)));
        }
        let free = queue.samples() < self.options.queued_samples_max;
        Ok(if free { QueueSpace::Free } else { QueueSpace::None })
    }

    /// Returns why writes are refused, if the disk is full.
    pub(crate) fn disk_full(&self) -> Option<String> {
        let unmarked = || format!("{} had no space when it was opened", self.dir.display());
        let refused = self.unsealed().or_else(|| self.upkeep.disk_full.lock().clone());
        refused.or_else(|| self.folder.is_unmarked().then(unmarked))
    }

    /// Returns why a full head cannot be sealed, if that is so.
    fn unsealed(&self) -> Option<String> {
        let trouble = self.upkeep.trouble.lock();
        let why = trouble.as_ref().filter(|_| self.queue.heads_full())?;
        Some(format!("the head is full and cannot be sealed: {why}"))
    }

    /// Closes the queue. Queued entries are still committed.
    pub(crate) fn close_queue(&self) {
        self.queue.close();
    }
}
