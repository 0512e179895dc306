//! Group commit: appends of many callers become groups, and one group is written at a time.
//!
//! # Protocol
//! An append puts its records into the *forming* group and waits for the result of that group. The
//! caller that writes the group is its *leader*:
//!
//! 1. A caller may become the leader if there is none (`State::busy`) and no caller waits for
//!    exclusive access (`State::exclusive_waiters`). It sets `busy`.
//! 2. If the forming group has fewer members than the group before it, the leader waits for more,
//!    for at most the time that the last write took (`gather_members`).
//! 3. It takes the forming group and leaves an empty one in its place, which takes the appends
//!    that come from now on. It unlocks the state.
//! 4. It locks the writer, writes the group, and unlocks the writer.
//! 5. It locks the state, clears `busy`, publishes what is persisted, and sets the result of the
//!    group. That wakes the members of this group and no others: each group has a condition
//!    variable of its own (`Generation`).
//! 6. It hands over: it wakes one thread that waits for the forming group, or the journal's thread
//!    if only tasks wait for it. The woken thread starts at step 1.
//!
//! The leader is one of these:
//! - a thread in `append`, for the group that it joined or a full group that it could not join;
//! - the journal's thread (`serve`), for a group whose members are all tasks, or whose deadline has
//!   passed;
//! - a task in `append_async`, if the journal has no threads (`Options::background`);
//! - `close`, for the last group.
//!
//! A flush on request and the close of the journal need *exclusive access* to the writer: they wait
//! until `busy` is clear and set it themselves (`keep.rs`). While one of them waits, no leader is
//! elected; otherwise a steady stream of appends would keep it waiting for ever. The flush needs
//! exclusive access only to begin. Its fsync runs while groups are written; a group that cannot be
//! written next to it waits for its end (`Writer::must_wait`).
//!
//! # Failure
//! If a group is refused before any of it was written, for lack of space or because a new segment
//! cannot be prepared, its members get the error and the next group tries again. A failed write or
//! fsync poisons the group commit: the members of that group, the members of the forming group and every
//! later caller get [`AppendError::Poisoned`], and nothing is acknowledged any more.
//!
//! # Locking
//! - `flush` is held through one flush on request, its fsync included.
//! - `writer` is held while a group is written. The condition variables `archive` and `beside`
//!   belong to it.
//! - `state` is held for short operations in memory, never during I/O. The condition variables
//!   `room`, `members`, `work`, `idle` and `more`, and `done` of each generation, belong to it.
//! - `wakers` of a generation is held to add or take wakers.
//!
//! They are taken in this order: `flush`, `writer`, the locks of the catalog and the pool, `state`,
//! `wakers`. `writer` and `state` are never held together, so that appends join the forming group
//! while the previous group is written. `busy` protects the order of groups: from step 3 to step 5
//! no other caller takes a group, so groups reach the writer in the order in which they formed. The
//! archive's thread and the end of a flush lock the writer without `busy`; they write no group.
//!
//! No wake-up is lost. A thread checks its result and `busy` under `state`, and waits on `done`
//! under the same lock; the leader sets the result, clears `busy` and notifies in one critical
//! section of `state`. A task registers its waker first and then checks the result again.
//!
//! Callers must not hold the lock of the catalog, which the writer takes. Wakers may be called with
//! `state` locked: a waker must not call into the journal, nor take a lock that another thread
//! holds while calling into it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

mod group;
mod keep;
mod leader;
#[cfg(all(test, feature = "loom"))]
mod model;

use group::{FormingGroup, JoinedAppend};

use crate::error::AppendError;
use crate::meter::AppendOutcome;
use crate::options::Durability;
use crate::sync::{Condvar, Mutex};
use crate::writer::Writer;

/// A segment with less free space than this, in bytes, counts as full.
const LEFT_BYTES_MIN: u64 = 4 << 10;

struct State {
    /// The group that takes appends now.
    forming: FormingGroup,
    /// Set while a leader, or an operation with exclusive access, uses the writer.
    busy: bool,
    /// Number of callers waiting for exclusive access. No leader is elected while it is above zero.
    exclusive_waiters: u32,
    /// Number of members that a leader waits for, 0 if none waits.
    members_wanted: u32,
    /// Number of members of the last group.
    last_members: u32,
    /// Duration of the last write of a group.
    last_write: Duration,
    /// The error that poisoned the journal.
    poisoned: Option<String>,
    closed: bool,
    /// Time by which everything appended so far must be persisted.
    deadline: Option<Instant>,
    /// Buffer of the last group, reused for the next one.
    spare_body: Vec<u8>,
    /// Bytes of the group that is being written.
    writing_bytes: usize,
    /// Tasks that wait for space in the forming group.
    room_wakers: Vec<Waker>,
}

/// The group commit of one open journal. See the module.
pub(crate) struct GroupCommit {
    state: Mutex<State>,
    writer: Mutex<Writer>,
    flush: Mutex<()>,
    /// Threads wait here for space in the forming group.
    room: Condvar,
    /// A leader waits here for more members.
    members: Condvar,
    /// The journal's thread waits here for a group to lead or a deadline.
    work: Condvar,
    /// Callers wait here for exclusive access: until `busy` is clear.
    idle: Condvar,
    /// Readers wait here for more persisted records.
    more: Condvar,
    /// The archive's thread waits here until a piece is due.
    archive: Condvar,
    /// Users of the writer wait here until a concurrent flush or archive write ends.
    beside: Condvar,
    /// Last position persisted and published to readers.
    persisted: AtomicU64,
    /// Last position appended.
    appended: AtomicU64,
    /// Free space in the active segment, in bytes.
    left: AtomicU64,
    /// See `Options::in_flight_bytes_max`.
    in_flight_bytes_max: usize,
    append_bytes_max: usize,
    /// See `Options::group_wait`.
    group_wait: Duration,
    /// True if the journal has its own threads. See `Options::background`.
    threaded: bool,
}

impl State {
    fn new() -> Self {
        Self {
            forming: FormingGroup::new(Vec::new()),
            busy: false,
            exclusive_waiters: 0,
            members_wanted: 0,
            last_members: 0,
            last_write: Duration::ZERO,
            poisoned: None,
            closed: false,
            deadline: None,
            spare_body: Vec::new(),
            writing_bytes: 0,
            room_wakers: Vec::new(),
        }
    }

    /// Returns true if the caller may become the leader.
    fn may_lead(&self) -> bool {
        !self.busy && self.exclusive_waiters == 0
    }

    /// Returns an error if the journal is poisoned or closed.
    fn usable(&self) -> Result<(), AppendError> {
        match &self.poisoned {
            Some(why) => Err(AppendError::Poisoned(why.clone())),
            None if self.closed => Err(AppendError::Closed),
            None => Ok(()),
        }
    }
}

impl GroupCommit {
    pub(crate) fn new(writer: Writer, append_bytes_max: usize) -> Self {
        let last = writer.next_position - 1;
        let options = &writer.options;
        Self {
            in_flight_bytes_max: options.in_flight_bytes_max,
            append_bytes_max,
            group_wait: options.group_wait,
            threaded: options.background,
            state: Mutex::new(State::new()),
            writer: Mutex::new(writer),
            flush: Mutex::new(()),
            room: Condvar::default(),
            members: Condvar::default(),
            work: Condvar::default(),
            idle: Condvar::default(),
            more: Condvar::default(),
            archive: Condvar::default(),
            beside: Condvar::default(),
            persisted: AtomicU64::new(last),
            appended: AtomicU64::new(last),
            left: AtomicU64::new(0),
        }
    }

    pub(crate) fn persisted(&self) -> u64 {
        self.persisted.load(Ordering::Acquire)
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Returns true if a record of `bytes` and the rest of its group fit in the active segment.
    pub(crate) fn has_left(&self, bytes: u64) -> bool {
        self.left.load(Ordering::Relaxed) > 2 * bytes + LEFT_BYTES_MIN
    }

    pub(crate) fn poisoned(&self) -> Option<String> {
        self.state.lock().poisoned.clone()
    }

    /// Returns true while a leader or an operation with exclusive access is at work.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().busy
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.forming.body.len() + state.writing_bytes) as u64
    }

    /// Appends records from a thread. Returns when the group is as durable as requested.
    pub(crate) fn append(
        &self,
        records: &[impl AsRef<[u8]>],
        durability: Durability,
    ) -> Result<AppendOutcome, AppendError> {
        let bytes = self.admit(records)?;
        let mut state = self.state.lock();
        loop {
            state.usable()?;
            if self.has_space(&state, bytes) {
                break;
            }
            state = if state.may_lead() { self.lead_group(state) } else { self.room.wait(state) };
        }
        let ticket = self.join(&mut state, records, durability);
        state.forming.threads += 1;
        loop {
            if let Some(result) = ticket.generation.result() {
                return ticket.outcome(result);
            }
            // Another leader may have taken the group: that leader sets the result.
            let still_forms = Arc::ptr_eq(&state.forming.generation, &ticket.generation);
            state = if still_forms && state.may_lead() {
                self.lead_group(state)
            } else {
                ticket.generation.done.wait(state)
            };
        }
    }

    /// Appends records from a task, without blocking a thread.
    pub(crate) async fn append_async(
        &self,
        records: &[Vec<u8>],
        durability: Durability,
    ) -> Result<AppendOutcome, AppendError> {
        let bytes = self.admit(records)?;
        let mut registered = Waker::noop().clone();
        let ticket = poll_fn(|cx| {
            registered.clone_from(cx.waker());
            self.poll_join(cx, records, bytes, durability)
        })
        .await?;
        poll_fn(|cx| {
            if let Some(result) = ticket.generation.result() {
                return Poll::Ready(ticket.outcome(result));
            }
            if !registered.will_wake(cx.waker()) {
                registered.clone_from(cx.waker());
                ticket.generation.register(cx.waker());
            }
            // The result may have come before the waker was registered.
            match ticket.generation.result() {
                Some(result) => Poll::Ready(ticket.outcome(result)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Adds an append of a task to the forming group and registers its waker there. If the group is
    /// full, registers the waker for free space.
    fn poll_join(
        &self,
        cx: &Context<'_>,
        records: &[Vec<u8>],
        bytes: usize,
        durability: Durability,
    ) -> Poll<Result<JoinedAppend, AppendError>> {
        let mut state = self.state.lock();
        if let Err(e) = state.usable() {
            return Poll::Ready(Err(e));
        }
        if !self.has_space(&state, bytes) {
            state.room_wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        let ticket = self.join(&mut state, records, durability);
        ticket.generation.register(cx.waker());
        if state.may_lead() && !self.threaded {
            drop(self.lead_group(state));
        } else if state.may_lead() && state.forming.members == 1 {
            // Only the first member notifies the journal's thread. If a leader is busy, it hands
            // over when it is done.
            self.work.notify_one();
        }
        Poll::Ready(Ok(ticket))
    }

    /// Returns the bytes that an append takes in a group, or an error if it can never fit.
    fn admit(&self, records: &[impl AsRef<[u8]>]) -> Result<usize, AppendError> {
        if records.is_empty() {
            return Err(AppendError::Empty);
        }
        let lengths = records.len() * crate::bytes::VARINT_BYTES_MAX;
        let bytes = records.iter().map(|r| r.as_ref().len()).sum::<usize>() + lengths;
        if bytes > self.append_bytes_max {
            return Err(AppendError::TooLarge { bytes, bytes_max: self.append_bytes_max });
        }
        Ok(bytes)
    }

    /// Returns true if the forming group has space for an append of `bytes`. An empty one has.
    fn has_space(&self, state: &State, bytes: usize) -> bool {
        let bytes_max = self.in_flight_bytes_max.min(self.append_bytes_max);
        state.forming.records == 0 || state.forming.body.len() + bytes <= bytes_max
    }

    /// Adds records to the forming group.
    fn join(
        &self,
        state: &mut State,
        records: &[impl AsRef<[u8]>],
        durability: Durability,
    ) -> JoinedAppend {
        let ticket = state.forming.push(records);
        match durability {
            Durability::Persist => state.forming.persist = true,
            Durability::Within(time) => {
                let deadline = Instant::now() + time;
                // A flush persists everything before it, so the first deadline serves later ones.
                if state.deadline.is_none_or(|first| deadline < first) {
                    state.deadline = Some(deadline);
                    self.work.notify_one();
                }
            }
            Durability::Flush => {}
        }
        if state.members_wanted > 0 && state.forming.members >= state.members_wanted {
            self.members.notify_one();
        }
        ticket
    }
}
