//! Batches that nobody waits for to have room: pieces of what is still being read.

use super::Core;
use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::Ack;
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
}
