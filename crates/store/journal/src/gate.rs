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
//! - a thread in `append`, for the group that it joined, or for a full group that it could not join;
//! - the journal's thread (`serve`), for a group whose members are all tasks, or whose deadline has
//!   passed;
//! - a task in `append_async`, if the journal has no threads (`Options::background`);
//! - `close`, for the last group.
//!
//! A flush on request and the end of the journal need *exclusive access* to the writer: they wait
//! until `busy` is clear and set it themselves (`keep.rs`). No leader is elected while one of
//! them waits, or a steady stream of appends would keep it waiting for ever. The flush needs
//! exclusive access only to begin. Its fsync runs while groups are written; a group that cannot be
//! written next to it waits for its end (`Writer::must_wait`).
//!
//! # Failure
//! If the disk refuses a group without harm (no room for another segment), its members get the
//! error and the next group tries again. A failed write or fsync poisons the gate: the members of
//! that group, the members of the forming group and every later caller get
//! [`AppendError::Poisoned`], and nothing is acknowledged any more.
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
//! while the previous group is written. `busy` protects the order of groups in the meantime: from
//! while the previous group is written. `busy` protects the order of groups in the meantime: from
//! step 3 to step 5 no other caller takes a group, so groups reach the writer in the order in which
//! they write no group.
//!
//! No wake-up is lost. A thread looks for its result and at `busy` under `state`, and waits on
//! `done` under the same lock; the leader sets the result, clears `busy` and notifies in one
//! critical section of `state`. A task registers its waker first and then looks for the result
//! again.
//!
//! Callers must not hold the lock of the catalog, which the writer takes. Wakers are called with
//! `state` locked: a waker must not call into the journal, nor take a lock that another thread holds
//! while calling into it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

mod group;
mod keep;
mod lead;
#[cfg(all(test, loom))]
mod model;

use group::{Forming, Ticket};

use crate::error::AppendError;
use crate::meter::AppendOutcome;
use crate::options::Durability;
use crate::sync::{Condvar, Mutex};
use crate::writer::Writer;

/// A segment with less room than this, in bytes, counts as full.
const LEFT_BYTES_MIN: u64 = 4 << 10;

struct State {
    /// The group that takes appends now.
    forming: Forming,
    /// A leader, or an operation with exclusive access, is at work.
    busy: bool,
    /// Callers that wait for exclusive access. No leader is elected while there are any.
    exclusive_waiters: u32,
    /// Number of members that a leader waits for, 0 if none waits.
    members_wanted: u32,
    /// Number of members of the last group.
    last_members: u32,
    /// Time that the write of the last group took.
    last_write: Duration,
    /// The failure after which nothing is accepted.
    poisoned: Option<String>,
    closed: bool,
    /// When everything appended so far must be persisted at the latest.
    deadline: Option<Instant>,
    /// Buffer of the last group, to be used for the next one.
    spare_body: Vec<u8>,
    /// Bytes of the group that is being written.
    writing_bytes: usize,
    /// Tasks that wait for room in the forming group.
    room_wakers: Vec<Waker>,
}

/// The group commit of one open journal. See the module.
pub(crate) struct Gate {
    state: Mutex<State>,
    writer: Mutex<Writer>,
    flush: Mutex<()>,
    /// Threads wait for room in the forming group.
    room: Condvar,
    /// A leader waits for more members.
    members: Condvar,
    /// The journal's thread waits for a group to lead or a deadline.
    work: Condvar,
    /// Callers wait for exclusive access: for the end of `busy`.
    idle: Condvar,
    /// Readers wait for more to be persisted.
    more: Condvar,
    /// The archive's thread waits for a piece to move.
    archive: Condvar,
    /// Users of the writer wait here for the end of an operation that runs concurrently with appends:
    /// a flush, or a piece of the archive.
    beside: Condvar,
    /// Last position persisted and published to readers.
    persisted: AtomicU64,
    /// Last position appended.
    appended: AtomicU64,
    /// Room in the active segment, in bytes.
    left: AtomicU64,
    /// See `Options::in_flight_bytes_max`.
    in_flight_bytes_max: usize,
    append_bytes_max: usize,
    /// See `Options::group_wait`.
    group_wait: Duration,
    /// The journal has threads of its own, see `Options::background`.
    threaded: bool,
}

impl State {
    fn new() -> Self {
        Self {
            forming: Forming::new(Vec::new()),
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

    /// Returns the error of a journal that takes no appends.
    fn usable(&self) -> Result<(), AppendError> {
        match &self.poisoned {
            Some(why) => Err(AppendError::Poisoned(why.clone())),
            None if self.closed => Err(AppendError::Closed),
            None => Ok(()),
        }
    }
}

impl Gate {
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

    /// Returns true if a record of that size fits in the active segment, together with what else
    /// its group may hold.
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

    /// Appends records from a thread. Returns when the group is as durable as asked for.
    pub(crate) fn append(
        &self,
        records: &[impl AsRef<[u8]>],
        durability: Durability,
    ) -> Result<AppendOutcome, AppendError> {
        let bytes = self.admit(records)?;
        let mut state = self.state.lock();
        loop {
            state.usable()?;
            if self.has_room(&state, bytes) {
                break;
            }
            state = if state.may_lead() { self.lead(state) } else { self.room.wait(state) };
        }
        let ticket = self.join(&mut state, records, durability);
        state.forming.threads += 1;
        loop {
            if let Some(result) = ticket.generation.result() {
                return ticket.outcome(result);
            }
            // Another leader may have taken the group: its result comes without our help.
            let still_forms = Arc::ptr_eq(&state.forming.generation, &ticket.generation);
            state = if still_forms && state.may_lead() {
                self.lead(state)
            } else {
                ticket.generation.done.wait(state)
            };
        }
    }

    /// Appends records from a task. No thread waits.
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

    /// Puts an append of a task into the forming group and registers the task with it, or registers
    /// it for room.
    fn poll_join(
        &self,
        cx: &Context<'_>,
        records: &[Vec<u8>],
        bytes: usize,
        durability: Durability,
    ) -> Poll<Result<Ticket, AppendError>> {
        let mut state = self.state.lock();
        if let Err(e) = state.usable() {
            return Poll::Ready(Err(e));
        }
        if !self.has_room(&state, bytes) {
            state.room_wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        let ticket = self.join(&mut state, records, durability);
        ticket.generation.register(cx.waker());
        if state.may_lead() && !self.threaded {
            drop(self.lead(state));
        } else if state.may_lead() && state.forming.members == 1 {
            // Later members need no wake-up: the journal's thread was notified already. If a leader is busy,
            // it hands over when it is done.
            self.work.notify_one();
        }
        Poll::Ready(Ok(ticket))
    }

    /// Returns the bytes that an append takes in a group, or why it can never be taken.
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

    /// Returns true if the forming group takes an append of that size. An empty group takes any.
    fn has_room(&self, state: &State, bytes: usize) -> bool {
        let bytes_max = self.in_flight_bytes_max.min(self.append_bytes_max);
        state.forming.records == 0 || state.forming.body.len() + bytes <= bytes_max
    }

    /// Puts records into the forming group.
    fn join(
        &self,
        state: &mut State,
        records: &[impl AsRef<[u8]>],
        durability: Durability,
    ) -> Ticket {
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
