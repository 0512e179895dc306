//! The leader's part of the protocol: steps 2 to 6 in the head of `group_commit.rs`.

use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

use super::group::{Done, FormingGroup};
use super::{GroupCommit, State};
use crate::error::AppendError;
use crate::pool::WriteError;
use crate::sync::MutexGuard;
use crate::writer::Writer;

/// The outcome of an operation on the writer.
pub(super) struct WriteOutcome<T> {
    pub(super) result: Result<T, WriteError>,
    /// Last position persisted after it.
    pub(super) persisted: u64,
}

impl GroupCommit {
    /// Writes the forming group and sets its result. The caller has checked `State::may_lead` under
    /// the lock that it passes, and gets the lock back.
    pub(super) fn lead_group<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        state.busy = true;
        state = self.gather_members(state);
        let next = FormingGroup::new(std::mem::take(&mut state.spare_body));
        let group = std::mem::replace(&mut state.forming, next);
        // Everything that the deadline covers is persisted by this write.
        let deadline = if group.persist { state.deadline.take() } else { None };
        state.writing_bytes += group.body.len();
        self.room.notify_all();
        let room_wakers = std::mem::take(&mut state.room_wakers);
        drop(state);
        room_wakers.into_iter().for_each(Waker::wake);

        let began = Instant::now();
        let written = self.write(&group);
        let took = began.elapsed();

        let mut state = self.state.lock();
        state.busy = false;
        state.last_members = group.members;
        state.last_write = took;
        if written.result.is_err() && state.deadline.is_none() {
            state.deadline = deadline;
        }
        let result = self.publish(&mut state, written);
        group.generation.finish(result);
        self.give_back(&mut state, group.body);
        self.hand_over(&state);
        state
    }

    /// Waits until the forming group has as many members as the group before it. Writers that
    /// append again as soon as they are woken thus share one write instead of two.
    fn gather_members<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let wanted = state.last_members;
        let alone = wanted <= 1 || !state.forming.persist;
        if alone || self.group_wait.is_zero() || state.forming.members >= wanted {
            return state;
        }
        // Waiting longer than a write takes costs more than a second write.
        let until = Instant::now() + self.group_wait.min(state.last_write);
        state.members_wanted = wanted;
        while state.forming.members < wanted {
            let woken = self.members.wait_until(state, until);
            state = woken.guard;
            if woken.timed_out {
                break;
            }
        }
        state.members_wanted = 0;
        state
    }

    /// Writes a group as soon as no concurrent flush or archive write prevents it.
    fn write(&self, group: &FormingGroup) -> WriteOutcome<Done> {
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
            self.left.store(writer.free_bytes(), Ordering::Relaxed);
            writer.pool.totals.group(group.records, group.payload);
            writer.pool.totals.cost(cost);
        }
        WriteOutcome {
            result: result.map(|cost| Done { first, records: group.records, cost }),
            persisted: writer.horizon.position,
        }
    }

    /// Runs an operation on the writer while no flush and no archive write is in progress.
    pub(super) fn with_writer<T>(
        &self,
        operation: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
    ) -> WriteOutcome<T> {
        let mut writer = self.writer.lock();
        while writer.is_archiving() || writer.flushing.is_some() {
            writer = self.beside.wait(writer);
        }
        WriteOutcome { result: operation(&mut writer), persisted: writer.horizon.position }
    }

    /// Publishes the persisted position after an operation, or poisons the group commit if it failed.
    pub(super) fn publish<T>(
        &self,
        state: &mut State,
        written: WriteOutcome<T>,
    ) -> Result<T, AppendError> {
        match written.result {
            Ok(done) => {
                // A flush that overlapped with a later group may end after it.
                let before = self.persisted.fetch_max(written.persisted, Ordering::AcqRel);
                if before < written.persisted {
                    self.more.notify_all();
                }
                Ok(done)
            }
            Err(WriteError::Refused(error)) => Err(error),
            Err(WriteError::Fatal(why)) => Err(self.poison(state, why)),
        }
    }

    /// Fails the forming group and wakes all waiters. Returns the error for the caller's own group.
    pub(super) fn poison(&self, state: &mut State, why: String) -> AppendError {
        state.poisoned.get_or_insert(why.clone());
        let error = AppendError::Poisoned(why);
        let forming = std::mem::replace(&mut state.forming, FormingGroup::new(Vec::new()));
        forming.generation.finish(Err(error.clone()));
        self.work.notify_all();
        self.idle.notify_all();
        self.wake_joiners(state);
        self.more.notify_all();
        error
    }

    /// Wakes all callers that wait for space in the forming group.
    pub(super) fn wake_joiners(&self, state: &mut State) {
        self.room.notify_all();
        state.room_wakers.drain(..).for_each(Waker::wake);
    }

    /// Keeps the buffer of a written group for reuse.
    fn give_back(&self, state: &mut State, mut body: Vec<u8>) {
        state.writing_bytes -= body.len();
        body.clear();
        body.shrink_to(self.in_flight_bytes_max);
        state.spare_body = body;
    }

    /// Wakes the threads that wait for exclusive access, and the next leader if one may be elected.
    pub(super) fn hand_over(&self, state: &State) {
        self.idle.notify_all();
        if state.forming.records == 0 || !state.may_lead() {
            return;
        }
        if state.forming.threads > 0 {
            state.forming.generation.done.notify_one();
        } else {
            self.work.notify_one();
        }
    }
}
