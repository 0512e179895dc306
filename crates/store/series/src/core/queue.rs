//! The commit queue: batches and deletes that wait for the log thread, and writers that wait for
//! space.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::pending::Pending;

/// Maximum size in bytes that the log adds to a record.
const RECORD_BYTES_ADDED: usize = 10;

#[derive(Default)]
pub(super) struct QueueState {
    pending: VecDeque<Pending>,
    /// Number of samples in `pending`.
    samples: usize,
    closed: bool,
    waiters: Waiters,
}

impl QueueState {
    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns true if a task waits for space.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_next(None)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct CommitQueue {
    state: Mutex<QueueState>,
    /// The log thread waits here for an entry or for the end of the queue.
    work: Condvar,
    /// Writers on threads of their own wait here for space.
    room: Condvar,
    /// Set while the heads use so much memory that writers wait for a seal.
    heads_full: AtomicBool,
}

impl CommitQueue {
    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    pub(super) fn heads_full(&self) -> bool {
        self.heads_full.load(Ordering::Acquire)
    }

    pub(super) fn set_heads_full(&self, full: bool) {
        self.heads_full.store(full, Ordering::Release);
    }

    pub(super) fn push(&self, mut queue: MutexGuard<'_, QueueState>, pending: Pending) {
        queue.samples += pending.write.samples();
        queue.pending.push_back(pending);
        drop(queue);
        self.work.notify_one();
    }

    /// Waits for entries and takes as many as are logged together. Returns `None` when the queue is
    /// closed and empty.
    pub(super) fn take_group(&self, bytes_max: usize) -> Option<Vec<Pending>> {
        let mut queue = self.state.lock();
        while queue.pending.is_empty() && !queue.closed {
            self.work.wait(&mut queue);
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(next) = queue.pending.front() {
            bytes += next.record.len() + RECORD_BYTES_ADDED;
            // A record too large for any group is taken alone and fails alone.
            if bytes > bytes_max && !group.is_empty() {
                break;
            }
            let Some(pending) = queue.pending.pop_front() else { break };
            queue.samples -= pending.write.samples();
            group.push(pending);
        }
        self.wake_writers(queue);
        (!group.is_empty()).then_some(group)
    }

    /// Blocks until there may be space.
    pub(super) fn wait_for_space(&self, queue: &mut MutexGuard<'_, QueueState>) {
        self.room.wait(queue);
    }

    /// Wakes the writers that wait for space.
    pub(super) fn wake_writers(&self, queue: MutexGuard<'_, QueueState>) {
        let first = queue.waiters.first();
        drop(queue);
        self.room.notify_all();
        first.into_iter().for_each(Waker::wake);
    }

    /// Closes the queue. Queued entries are still committed.
    pub(super) fn close(&self) {
        let mut queue = self.state.lock();
        queue.closed = true;
        self.work.notify_all();
        self.wake_writers(queue);
    }
}

/// A task's entry among the writers that wait for space. Removed when this is dropped, whether
/// space was found or not.
pub(super) struct WaitingWriter<'a> {
    queue: &'a CommitQueue,
    number: Option<u64>,
}

impl<'a> WaitingWriter<'a> {
    /// Creates the guard without an entry: a writer that finds space at once needs none.
    pub(super) fn new(queue: &'a CommitQueue) -> Self {
        Self { queue, number: None }
    }

    /// Returns true if no other task has waited longer.
    pub(super) fn is_next(&self, queue: &QueueState) -> bool {
        queue.waiters.is_next(self.number)
    }

    /// Waits behind the other tasks. A task that already has an entry keeps it.
    pub(super) fn wait(&mut self, queue: &mut QueueState, waker: &Waker) {
        self.number = Some(queue.waiters.wait(self.number, waker));
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut queue = self.queue.lock();
        queue.waiters.leave(number);
        let first = queue.waiters.first();
        drop(queue);
        first.into_iter().for_each(Waker::wake);
    }
}

/// Tasks that wait for space, in order of arrival.
#[derive(Default)]
struct Waiters {
    waiting: VecDeque<(u64, Waker)>,
    next: u64,
}

impl Waiters {
    /// Returns true if no other task waits before task `number`, or before a new task if `number`
    /// is `None`.
    fn is_next(&self, number: Option<u64>) -> bool {
        self.waiting.front().is_none_or(|(first, _)| Some(*first) == number)
    }

    /// Adds a task at the end, or updates the waker of its existing entry. Returns its number.
    fn wait(&mut self, number: Option<u64>, waker: &Waker) -> u64 {
        let known = self.waiting.iter_mut().find(|(own, _)| Some(*own) == number);
        if let Some((own, kept)) = known {
            kept.clone_from(waker);
            return *own;
        }
        self.next += 1;
        self.waiting.push_back((self.next, waker.clone()));
        self.next
    }

    fn leave(&mut self, number: u64) {
        self.waiting.retain(|(own, _)| *own != number);
    }

    fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_served_in_order_of_arrival() {
        let (mut waiters, waker) = (Waiters::default(), Waker::noop());
        assert!(waiters.is_next(None) && waiters.first().is_none());
        let [a, b, c] = [0; 3].map(|_| waiters.wait(None, waker));
        let next =
            |waiters: &Waiters| [None, Some(a), Some(b), Some(c)].map(|n| waiters.is_next(n));
        // A task that is woken without finding space keeps its entry.
        assert_eq!(waiters.wait(Some(a), waker), a);
        assert_eq!(next(&waiters), [false, true, false, false]);
        waiters.leave(b);
        waiters.leave(a);
        assert_eq!(next(&waiters), [false, false, false, true]);
        waiters.leave(c);
        assert!(waiters.is_next(None) && waiters.first().is_none());
    }
}
