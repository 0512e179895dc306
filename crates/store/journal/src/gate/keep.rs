//! What is not an append: flushing on request and by deadline, closing, and waiting for more.

use std::task::{Context, Poll};
use std::time::Instant;

use super::{Gate, usable, wake_all};
use crate::error::AppendError;
use crate::meter::Cost;
use crate::pool::WriteError;
use crate::writer::Writer;

impl Gate {
    /// Run an operation on the writer that is not an append, when nobody leads.
    fn exclusively<T>(
        &self,
        operation: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
    ) -> Result<T, AppendError> {
        let mut state = self.state.lock();
        while state.leading {
            self.idle.wait(&mut state);
        }
        if let Some(why) = &state.poisoned {
            return Err(AppendError::Poisoned(why.clone()));
        }
        state.leading = true;
        drop(state);
        let (result, persisted) = {
            let mut writer = self.writer.lock();
            (operation(&mut writer), writer.persisted_position)
        };
        let mut state = self.state.lock();
        state.leading = false;
        let result = self.settle(&mut state, result, persisted);
        self.hand_over(&state);
        result
    }

    /// Persist what is written.
    pub(crate) fn persist(&self) -> Result<Cost, AppendError> {
        self.exclusively(|writer| {
            let cost = writer.persist()?;
            writer.pool.totals.cost(&cost);
            Ok(cost)
        })
    }

    /// Take no more appends, write those that were taken, persist, and say so in the journal.
    pub(crate) fn close(&self) -> Result<(), AppendError> {
        let mut state = self.state.lock();
        if state.closed {
            return Ok(());
        }
        state.closed = true;
        self.room.notify_all();
        self.more.notify_all();
        wake_all(&mut state.room_wakers);
        for waker in state.tail_wakers.drain(..) {
            waker.wake();
        }
        loop {
            if state.leading {
                self.idle.wait(&mut state);
            } else if state.forming.records > 0 && state.poisoned.is_none() {
                state = self.lead(state);
            } else {
                break;
            }
        }
        self.work.notify_all();
        drop(state);
        self.exclusively(Writer::close).map(|_| ())
    }

    /// The journal's thread: leads groups for which only tasks wait, and keeps deadlines.
    pub(crate) fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let pending = state.forming.records > 0;
            if state.poisoned.is_some() || (state.closed && !pending) {
                return;
            }
            let due = state.deadline.is_some_and(|d| d <= Instant::now());
            if due && pending {
                state.forming.persist = true;
            }
            if pending && !state.leading && (due || state.forming.threads == 0) {
                state = self.lead(state);
            } else if due && !state.leading {
                state.deadline = None;
                drop(state);
                // A failure poisons; everybody else learns of it by that.
                let _ = self.persist();
                state = self.state.lock();
            } else if due {
                self.idle.wait(&mut state);
            } else if let Some(deadline) = state.deadline {
                self.work.wait_until(&mut state, deadline);
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Wait until more than `position` is persisted, the journal ends, or the time is over.
    pub(crate) fn wait_beyond(&self, position: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while self.persisted() <= position && usable(&state).is_ok() {
            if self.more.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        self.persisted() > position
    }

    /// As [`Gate::wait_beyond`], for a task: ready when there is more or the journal ended.
    pub(crate) fn poll_beyond(&self, cx: &Context<'_>, position: u64) -> Poll<bool> {
        let mut state = self.state.lock();
        if self.persisted() > position {
            return Poll::Ready(true);
        }
        if usable(&state).is_err() {
            return Poll::Ready(false);
        }
        if !state.tail_wakers.iter().any(|w| w.will_wake(cx.waker())) {
            state.tail_wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
