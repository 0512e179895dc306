//! Leading: one group to the medium, and its waiters told.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::group::{Done, Forming};
use super::{Gate, State, wake_all};
use crate::error::AppendError;
use crate::pool::WriteError;
use crate::sync::MutexGuard;
use crate::writer::Writer;

impl Gate {
    /// Whether somebody may start to lead.
    pub(super) fn may_lead(&self, state: &State) -> bool {
        !state.leading && state.waiting == 0
    }

    /// Write the forming group. Called when somebody may lead; its waiters are told before it
    /// returns.
    pub(super) fn lead(&self, mut state: MutexGuard<'_, State>) {
        state.leading = true;
        let mut state = self.wait_for_others(state);
        let buffer = std::mem::take(&mut state.buffer);
        let group = std::mem::replace(&mut state.forming, Forming::new(buffer));
        let deadline = if group.persist { state.deadline.take() } else { None };
        state.writing_bytes += group.body.len();
        self.room.notify_all();
        let room_wakers = std::mem::take(&mut state.room_wakers);
        drop(state);
        wake_all(room_wakers);

        let began = Instant::now();
        let written = self.write(&group);
        self.alone(group, deadline, written, began.elapsed());
    }

    /// Run an operation on the writer that wants it for itself alone. Gives the last position
    /// persisted, too.
    pub(super) fn with_writer<T>(
        &self,
        operation: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
    ) -> (Result<T, WriteError>, u64) {
        let mut writer = self.writer.lock();
        while writer.is_archiving() || writer.flushing.is_some() {
            writer = self.beside.wait(writer);
        }
        (operation(&mut writer), writer.horizon.position)
    }

    fn wait_for_others<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let wanted = state.last_members;
        let alone = wanted <= 1 || !state.forming.persist;
        if alone || self.wait.is_zero() || state.forming.members >= wanted {
            return state;
        }
        let until = Instant::now() + self.wait.min(state.last_write);
        state.wanted = wanted;
        while state.forming.members < wanted {
            let over;
            (state, over) = self.gather.wait_until(state, until);
            if over {
                break;
            }
        }
        state.wanted = 0;
        state
    }

    /// The write itself, and the last position persisted after it.
    fn write(&self, group: &Forming) -> (Result<Done, WriteError>, u64) {
        let mut writer = self.writer.lock();
        while writer.must_wait(group.batch()) {
            writer = self.beside.wait(writer);
        }
        let first = writer.next_position;
        let result = writer.group(group.batch());
        if writer.is_archive_due() {
            self.archive.notify_one();
        }
        if let Ok(cost) = &result {
            self.appended.store(writer.next_position - 1, Ordering::Release);
            self.left.store(writer.room(), Ordering::Relaxed);
            writer.pool.totals.group(group.records, group.payload);
            writer.pool.totals.cost(cost);
        }
        let done = result.map(|cost| Done { first, records: group.records, cost });
        (done, writer.horizon.position)
    }

    /// A group was written with nothing beside it: tell it, and let the next one be led.
    fn alone(
        &self,
        group: Forming,
        deadline: Option<Instant>,
        (result, persisted): (Result<Done, WriteError>, u64),
        took: Duration,
    ) {
        let mut state = self.state.lock();
        state.leading = false;
        state.last_members = group.members;
        state.last_write = took;
        if result.is_err() && state.deadline.is_none() {
            state.deadline = deadline;
        }
        let result = self.settle(&mut state, result, persisted);
        group.generation.finish(result);
        self.give_back(&mut state, group.body);
        self.hand_over(&state);
    }

    /// Publish what is persisted, or the poison.
    pub(super) fn settle<T>(
        &self,
        state: &mut MutexGuard<'_, State>,
        result: Result<T, WriteError>,
        persisted: u64,
    ) -> Result<T, AppendError> {
        match result {
            Ok(done) => {
                self.publish(state, persisted);
                Ok(done)
            }
            Err(WriteError::Refused(error)) => Err(error),
            Err(WriteError::Fatal(why)) => {
                state.poisoned.get_or_insert(why.clone());
                let error = AppendError::Poisoned(why);
                self.fail_all(state, &error);
                Err(error)
            }
        }
    }

    fn publish(&self, state: &mut MutexGuard<'_, State>, position: u64) {
        if self.persisted.fetch_max(position, Ordering::AcqRel) < position {
            self.more.notify_all();
            for waker in state.tail_wakers.drain(..) {
                waker.wake();
            }
        }
    }

    /// Nothing is acknowledged any more: also not what forms.
    fn fail_all(&self, state: &mut MutexGuard<'_, State>, error: &AppendError) {
        let forming = std::mem::replace(&mut state.forming, Forming::new(Vec::new()));
        forming.generation.finish(Err(error.clone()));
        self.room.notify_all();
        self.more.notify_all();
        self.work.notify_all();
        self.idle.notify_all();
        wake_all(std::mem::take(&mut state.room_wakers));
        for waker in state.tail_wakers.drain(..) {
            waker.wake();
        }
    }

    /// A group is written, whatever became of it: its buffer can be used again.
    fn give_back(&self, state: &mut MutexGuard<'_, State>, mut body: Vec<u8>) {
        state.writing_bytes -= body.len();
        body.clear();
        body.shrink_to(self.limit);
        state.buffer = body;
    }

    /// Somebody else leads the group that formed meanwhile.
    pub(super) fn hand_over(&self, state: &State) {
        self.idle.notify_all();
        if state.forming.records == 0 || !self.may_lead(state) {
            return;
        }
        if state.forming.threads > 0 {
            state.forming.generation.done.notify_one();
        } else {
            self.work.notify_one();
        }
    }
}
