//! Operations on the group commit other than appends: exclusive access, flushes on request and by deadline,
//! close, the journal's threads, and readers that wait for more records.

use std::time::Instant;

use super::GroupCommit;
use super::leader::WriteOutcome;
use crate::error::AppendError;
use crate::meter::Cost;
use crate::pool::WriteError;
use crate::writer::Writer;

impl GroupCommit {
    /// Runs an operation on the writer with exclusive access. Afterwards hands over to the group
    /// that formed during it.
    fn exclusively<T>(
        &self,
        operation: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
    ) -> Result<T, AppendError> {
        let mut state = self.state.lock();
        state.exclusive_waiters += 1;
        while state.busy {
            state = self.idle.wait(state);
        }
        state.exclusive_waiters -= 1;
        if let Some(why) = &state.poisoned {
            // `close` may wait for `exclusive_waiters` to become zero.
            self.idle.notify_all();
            return Err(AppendError::Poisoned(why.clone()));
        }
        state.busy = true;
        drop(state);
        let written = self.with_writer(operation);
        let mut state = self.state.lock();
        state.busy = false;
        let result = self.publish(&mut state, written);
        self.hand_over(&state);
        result
    }

    /// Persists everything appended so far. Appends continue during the flush, except those that
    /// must be persisted themselves.
    pub(crate) fn persist(&self) -> Result<Cost, AppendError> {
        let wanted = self.appended();
        let _one_at_a_time = self.flush.lock();
        // The previous flush, whose lock this call waited for, may have persisted it.
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
        let result = writer.end_flush(&flush, flushed);
        let written = WriteOutcome { result, persisted: writer.horizon.position };
        drop(writer);
        self.beside.notify_all();
        self.publish(&mut self.state.lock(), written)
    }

    /// Rejects further appends, writes and persists the pending ones, and marks the journal as
    /// closed.
    pub(crate) fn close(&self) -> Result<(), AppendError> {
        let mut state = self.state.lock();
        if state.closed {
            return Ok(());
        }
        state.closed = true;
        self.wake_joiners(&mut state);
        self.more.notify_all();
        loop {
            // A thread notifies `idle` when it clears `busy`, or when it finds the group commit poisoned
            // after it waited for exclusive access.
            if state.busy || state.exclusive_waiters > 0 {
                state = self.idle.wait(state);
            } else if state.forming.records > 0 && state.poisoned.is_none() {
                state = self.lead_group(state);
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

    /// Runs the journal's thread: leads groups whose members are all tasks, and meets deadlines.
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
            if pending && state.may_lead() && (due || state.forming.threads == 0) {
                state = self.lead_group(state);
            } else if due && !state.busy {
                state.deadline = None;
                drop(state);
                // A failure poisons the group commit, which reports it to all other callers.
                let _ = self.persist();
                state = self.state.lock();
            } else if due {
                state = self.idle.wait(state);
            } else if let Some(deadline) = state.deadline {
                state = self.work.wait_until(state, deadline).guard;
            } else {
                state = self.work.wait(state);
            }
        }
    }

    /// Runs the archive's thread: moves groups from the ring to the archive before an append needs
    /// their blocks.
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
            // The append that needs the blocks repeats a refused write and reports its error.
            if let Err(WriteError::Fatal(why)) = result {
                drop(writer);
                self.poison(&mut self.state.lock(), why);
                return;
            }
        }
    }

    /// Waits until more than `position` is persisted, the journal ends, or `until` is reached.
    /// Returns true if more is persisted.
    pub(crate) fn wait_beyond(&self, position: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while self.persisted() <= position && state.usable().is_ok() {
            let woken = self.more.wait_until(state, until);
            state = woken.guard;
            if woken.timed_out {
                break;
            }
        }
        self.persisted() > position
    }
}
