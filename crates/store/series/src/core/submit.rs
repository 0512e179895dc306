//! What is sent without waiting for room: deletes, and batches of those that cannot wait.

use std::sync::Arc;

use super::Core;
use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::{Ack, TOMBSTONES_MAX};
use crate::pending::{Pending, What};
use crate::record::{self, Tombstone};
use crate::wait::Ticket;

impl Core {
    /// As [`Core::submit`], but where there is no room at once the batch comes back.
    pub(crate) fn try_submit(
        &self,
        batch: Batch,
        ack: Ack,
    ) -> Result<Result<Ticket, Batch>, WriteError> {
        let queue = self.queue.lock();
        let room = self.admit(&queue)? && queue.line.is_turn(None);
        drop(queue);
        if !room {
            return Ok(Err(batch));
        }
        let pending = self.pending(batch, ack)?;
        let queue = self.queue.lock();
        // It may be closed by now. If others took the room, this one batch is beyond it.
        self.admit(&queue)?;
        Ok(Ok(self.enqueue(queue, pending)))
    }

    /// Whether the store may hold one tombstone more.
    pub(crate) fn room_for_delete(&self) -> Result<(), WriteError> {
        let (what, max) = ("tombstones", TOMBSTONES_MAX);
        let full = self.live.read().tombstones.len() >= max;
        if full { Err(WriteError::TooLarge { what, value: max + 1, max }) } else { Ok(()) }
    }

    /// Send a delete on its way.
    pub(crate) fn submit_delete(&self, tombstone: Tombstone) -> Result<Ticket, WriteError> {
        self.room_for_delete()?;
        let record = record::delete(&tombstone);
        let what = What::Delete(tombstone);
        let queue = self.queue.lock();
        if queue.closed {
            return Err(WriteError::Closed);
        }
        let (ack, slot) = (Ack::Persisted, Arc::default());
        let pending = Pending { what, record, ack, slot, forgotten: 0 };
        Ok(self.enqueue(queue, pending))
    }
}
