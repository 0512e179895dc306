//! Tickets: the results of queued batches.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::batch::Batch;
use crate::error::WriteError;
use crate::model::WriteOutcome;

#[derive(Default)]
struct State {
    result: Option<Result<WriteOutcome, WriteError>>,
    waker: Option<Waker>,
}

/// The slot in which the log thread stores the result of a batch.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

impl Slot {
    pub(crate) fn finish(&self, result: Result<WriteOutcome, WriteError>) {
        let mut state = self.state.lock();
        state.result = Some(result);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        drop(state);
        self.done.notify_all();
    }
}

/// A queued batch. Dropping the ticket does not cancel the batch.
pub struct QueuedBatch(pub(crate) Arc<Slot>);

impl std::fmt::Debug for QueuedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QueuedBatch(..)")
    }
}

impl QueuedBatch {
    /// Waits until the batch is as durable as requested, and in the head.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn wait(self) -> Result<WriteOutcome, WriteError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            self.0.done.wait(&mut state);
        }
    }
}

impl Future for QueuedBatch {
    type Output = Result<WriteOutcome, WriteError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The outcome of [`Store::try_submit`](crate::Store::try_submit).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a batch that comes back is moved, not allocated")]
pub enum TrySubmit {
    /// The batch is queued.
    Queued(QueuedBatch),
    /// There is no space, or others wait for space. Returns the batch.
    Full(Batch),
}
