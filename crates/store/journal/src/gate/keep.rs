//! What is not an append: flushing on request and by deadline, closing, and waiting for more.

use std::task::{Context, Poll};
use std::time::Instant;

use super::{Gate, usable, wake_all};
use crate::error::AppendError;
use crate::meter::Cost;
use crate::pool::WriteError;
use crate::writer::Writer;

impl Gate {
    /// Run an operation on the writer that is not an append, when nobody leads. Groups that form
    /// meanwhile are led after it, however many appends come.
    fn exclusively<T>(
        &self,
        operation: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
    ) -> Result<T, AppendError> {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.leading {
            state = self.idle.wait(state);
        }
        state.waiting -= 1;
        if let Some(why) = &state.poisoned {
            self.idle.notify_all();
            return Err(AppendError::Poisoned(why.clone()));
        }
        state.leading = true;
        drop(state);
        let (result, persisted) = self.with_writer(operation);
        let mut state = self.state.lock();
        state.leading = false;
        let result = self.settle(&mut state, result, persisted);
        self.hand_over(&state);
        result
    }

    /// Whether somebody leads.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().leading
    }

    /// Persist what is written. Appends go on meanwhile, but for those to be persisted themselves.
    pub(crate) fn persist(&self) -> Result<Cost, AppendError> {
        let wanted = self.appended();
        let _one_at_a_time = self.flush.lock();
        // Who waited for the flush of another may be served by it.
        if self.persisted() >= wanted && self.poisoned().is_none() {
            return Ok(Cost::default());
        }
        let mut begun = None;
        let cost = self.exclusively(|writer| {
            begun = writer.begin_flush()?;
            if begun.is_some() {
                return Ok(Cost::default());
            }
            let cost = writer.persist()?;
            writer.pool.totals.cost(&cost);
            Ok(cost)
        })?;
        let Some(flush) = begun else { return Ok(cost) };
        let flushed = flush.run();
        let mut writer = self.writer.lock();
        let ended = writer.end_flush(&flush, flushed);
        let persisted = writer.horizon.position;
        drop(writer);
        self.beside.notify_all();
        self.settle(&mut self.state.lock(), ended, persisted)
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
        wake_all(std::mem::take(&mut state.room_wakers));
        for waker in state.tail_wakers.drain(..) {
            waker.wake();
        }
        loop {
            if state.leading {
                state = self.idle.wait(state);
            } else if state.waiting > 0 {
                // Whoever waits says when it is done.
                state = self.idle.wait(state);
            } else if state.forming.records > 0 && state.poisoned.is_none() {
                self.lead(state);
                state = self.state.lock();
            } else {
                break;
            }
        }
        self.work.notify_all();
        drop(state);
        self.writer.lock().stop_archiving();
        self.archive.notify_all();
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
            if pending && self.may_lead(&state) && (due || state.forming.threads == 0) {
                self.lead(state);
                state = self.state.lock();
            } else if due && !state.leading {
                state.deadline = None;
                drop(state);
                // A failure poisons; everybody else learns of it by that.
                let _ = self.persist();
                state = self.state.lock();
            } else if due {
                state = self.idle.wait(state);
            } else if let Some(deadline) = state.deadline {
                state = self.work.wait_until(state, deadline).0;
            } else {
                state = self.work.wait(state);
            }
        }
    }

    /// The archive's thread: moves what only the ring has to the archive before there is need.
    pub(crate) fn serve_archive(&self) {
        let mut writer = self.writer.lock();
        while !writer.archiving_ends() {
            let begun = if writer.is_archive_due() { writer.begin_archive() } else { Ok(None) };
            let result = match begun {
                Ok(Some(mut archival)) => {
                    drop(writer);
                    let written = archival.write();
                    writer = self.writer.lock();
                    let ended = written.map(|cost| writer.end_archive(archival, cost));
                    writer.archiving(false);
                    self.beside.notify_all();
                    ended
                }
                Ok(None) => {
                    writer = self.archive.wait(writer);
                    Ok(())
                }
                Err(e) => Err(e),
            };
            // What was refused is tried again, and answered, when the ring is full.
            if let Err(e @ WriteError::Fatal(_)) = result {
                drop(writer);
                return drop(self.settle::<()>(&mut self.state.lock(), Err(e), 0));
            }
        }
    }

    /// Wait until more than `position` is persisted, the journal ends, or the time is over.
    pub(crate) fn wait_beyond(&self, position: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while self.persisted() <= position && usable(&state).is_ok() {
            let over;
            (state, over) = self.more.wait_until(state, until);
            if over {
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
