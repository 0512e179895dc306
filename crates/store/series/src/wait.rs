//! Batches on their way: the line before the queue, the ticket a writer holds, and the slot where
//! its result appears.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::error::WriteError;
use crate::model::Outcome;

#[derive(Default)]
struct State {
    result: Option<Result<Outcome, WriteError>>,
    waker: Option<Waker>,
}

/// Where a result appears.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

impl Slot {
    pub(crate) fn finish(&self, result: Result<Outcome, WriteError>) {
        let mut state = self.state.lock();
        state.result = Some(result);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        drop(state);
        self.done.notify_all();
    }
}

/// A batch on its way. Dropping it does not call the batch back.
pub struct Ticket(pub(crate) Arc<Slot>);

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(..)")
    }
}

impl Ticket {
    /// Wait until the batch is as durable as asked for, and in the head.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn wait(self) -> Result<Outcome, WriteError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            self.0.done.wait(&mut state);
        }
    }
}

impl Future for Ticket {
    type Output = Result<Outcome, WriteError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Writers that wait for room, in the order in which they came: nobody who comes later goes first.
#[derive(Default)]
pub(crate) struct Line {
    waiting: VecDeque<(u64, Waker)>,
    next: u64,
}

impl Line {
    /// Whether nobody is before the writer of that number, or before one that has none yet.
    pub(crate) fn is_turn(&self, number: Option<u64>) -> bool {
        self.waiting.front().is_none_or(|(first, _)| Some(*first) == number)
    }

    /// Wait, at the end of the line or where the writer waits already. Its number.
    pub(crate) fn wait(&mut self, number: Option<u64>, waker: &Waker) -> u64 {
        let known = self.waiting.iter_mut().find(|(own, _)| Some(*own) == number);
        if let Some((own, kept)) = known {
            kept.clone_from(waker);
            return *own;
        }
        self.next += 1;
        self.waiting.push_back((self.next, waker.clone()));
        self.next
    }

    /// Wait no more.
    pub(crate) fn leave(&mut self, number: u64) {
        self.waiting.retain(|(own, _)| *own != number);
    }

    /// Wakes whose turn it is.
    pub(crate) fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_longest_is_first_and_keeps_its_place() {
        let (mut line, waker) = (Line::default(), Waker::noop());
        assert!(line.is_turn(None) && line.first().is_none());
        let (a, b, c) = (line.wait(None, waker), line.wait(None, waker), line.wait(None, waker));
        let turns = |line: &Line| [None, Some(a), Some(b), Some(c)].map(|n| line.is_turn(n));
        // Woken without room it waits where it was.
        assert_eq!(line.wait(Some(a), waker), a);
        assert_eq!(turns(&line), [false, true, false, false]);
        line.leave(b);
        line.leave(a);
        assert_eq!(turns(&line), [false, false, false, true]);
        line.leave(c);
        assert!(line.is_turn(None) && line.first().is_none());
    }
}
