//! Group commit: who writes, who waits, who is woken.
//!
//! Appends put their records into the *forming* group. Whoever finds no leader becomes it: takes
//! the forming group, writes it, and wakes exactly that group's waiters. The group that formed
//! meanwhile is led by one of its own waiters, or, if only tasks wait, by the journal's thread.
//! Each generation has its own condition variable, so that nobody wakes for another group.
//!
//! A flush on request takes the lead only to begin; groups are written beside it, but for those to be
//! persisted themselves or to begin a segment, which wait for its end.
//!
//! A failed write or flush poisons the gate: the group that is written, the one that forms and every
//! later append learn of it at once.

use std::collections::VecDeque;
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
use crate::meter::Outcome;
use crate::options::Durability;
use crate::sync::{Condvar, Mutex};
use crate::writer::Writer;

/// A segment with less room than this, in bytes, is full to those who ask.
const LEFT_BYTES_MIN: u64 = 4 << 10;

struct State {
    forming: Forming,
    /// Somebody writes, or is about to.
    leading: bool,
    /// So many wait to have the writer for themselves: nobody leads before them.
    waiting: u32,
    /// A leader waits for this many members.
    wanted: u32,
    last_members: u32,
    last_write: Duration,
    poisoned: Option<String>,
    closed: bool,
    /// When what is written must be persisted at the latest.
    deadline: Option<Instant>,
    /// A buffer for the next group.
    buffer: Vec<u8>,
    writing_bytes: usize,
    room_wakers: VecDeque<Waker>,
    tail_wakers: Vec<Waker>,
}

/// See the module.
pub(crate) struct Gate {
    state: Mutex<State>,
    writer: Mutex<Writer>,
    /// Room in the forming group.
    room: Condvar,
    /// More members for a leader that waits.
    gather: Condvar,
    /// Work for the journal's thread.
    work: Condvar,
    /// Nobody leads any more.
    idle: Condvar,
    /// More is persisted.
    more: Condvar,
    /// Work for the archive's thread; with the writer's lock.
    archive: Condvar,
    /// The end of a piece of the archive, or of a flush beside appends; with the writer's lock.
    beside: Condvar,
    /// Held by who flushes beside appends.
    flush: Mutex<()>,
    persisted: AtomicU64,
    appended: AtomicU64,
    /// Room in the segment, in bytes.
    left: AtomicU64,
    limit: usize,
    append_bytes_max: usize,
    wait: Duration,
    threaded: bool,
}

impl Gate {
    pub(crate) fn new(writer: Writer, append_bytes_max: usize) -> Self {
        let last = writer.next_position - 1;
        let options = &writer.options;
        let (limit, wait) = (options.in_flight_bytes_max, options.group_wait);
        let threaded = options.background;
        let state = State {
            forming: Forming::new(Vec::new()),
            leading: false,
            waiting: 0,
            wanted: 0,
            last_members: 0,
            last_write: Duration::ZERO,
            poisoned: None,
            closed: false,
            deadline: None,
            buffer: Vec::new(),
            writing_bytes: 0,
            room_wakers: VecDeque::new(),
            tail_wakers: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            writer: Mutex::new(writer),
            room: Condvar::default(),
            gather: Condvar::default(),
            work: Condvar::default(),
            idle: Condvar::default(),
            more: Condvar::default(),
            archive: Condvar::default(),
            beside: Condvar::default(),
            flush: Mutex::new(()),
            persisted: AtomicU64::new(last),
            appended: AtomicU64::new(last),
            left: AtomicU64::new(0),
            limit,
            append_bytes_max,
            wait,
            threaded,
        }
    }

    pub(crate) fn persisted(&self) -> u64 {
        self.persisted.load(Ordering::Acquire)
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Whether the segment takes so many bytes more, whatever is added to them.
    pub(crate) fn has_left(&self, bytes: u64) -> bool {
        self.left.load(Ordering::Relaxed) > 2 * bytes + LEFT_BYTES_MIN
    }

    pub(crate) fn poisoned(&self) -> Option<String> {
        self.state.lock().poisoned.clone()
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.forming.body.len() + state.writing_bytes) as u64
    }

    /// Append from a thread: returns when the group is as durable as asked for.
    pub(crate) fn append(
        &self,
        records: &[impl AsRef<[u8]>],
        durability: Durability,
    ) -> Result<Outcome, AppendError> {
        let bytes = self.admissible(records)?;
        let mut state = self.state.lock();
        loop {
            usable(&state)?;
            if self.has_room(&state, bytes) {
                break;
            }
            if self.may_lead(&state) {
                self.lead(state);
                state = self.state.lock();
            } else {
                state = self.room.wait(state);
            }
        }
        let ticket = self.join(&mut state, records, durability);
        state.forming.threads += 1;
        loop {
            if let Some(result) = ticket.generation.result() {
                return ticket.outcome(result);
            }
            if self.may_lead(&state) && Arc::ptr_eq(&state.forming.generation, &ticket.generation) {
                self.lead(state);
                state = self.state.lock();
            } else {
                state = ticket.generation.done.wait(state);
            }
        }
    }

    /// Append from a task: nothing but the task waits.
    pub(crate) async fn append_async(
        &self,
        records: &[Vec<u8>],
        durability: Durability,
    ) -> Result<Outcome, AppendError> {
        let bytes = self.admissible(records)?;
        let joined = poll_fn(|cx| self.poll_join(cx, records, bytes, durability)).await?;
        let (ticket, mut registered) = joined;
        poll_fn(|cx| {
            if let Some(result) = ticket.generation.result() {
                return Poll::Ready(ticket.outcome(result));
            }
            if !registered.will_wake(cx.waker()) {
                registered.clone_from(cx.waker());
                ticket.generation.register(cx.waker());
            }
            match ticket.generation.result() {
                Some(result) => Poll::Ready(ticket.outcome(result)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Take an append of a task into the forming group; the task is registered with it.
    fn poll_join(
        &self,
        cx: &Context<'_>,
        records: &[Vec<u8>],
        bytes: usize,
        durability: Durability,
    ) -> Poll<Result<(Ticket, Waker), AppendError>> {
        let mut state = self.state.lock();
        if let Err(e) = usable(&state) {
            return Poll::Ready(Err(e));
        }
        if !self.has_room(&state, bytes) {
            state.room_wakers.push_back(cx.waker().clone());
            return Poll::Pending;
        }
        let ticket = self.join(&mut state, records, durability);
        ticket.generation.register(cx.waker());
        if !self.may_lead(&state) {
            // Whoever leads hands the lead over.
        } else if !self.threaded {
            self.lead(state);
        } else if state.forming.members == 1 {
            // Later members find it called already.
            self.work.notify_one();
        }
        Poll::Ready(Ok((ticket, cx.waker().clone())))
    }

    /// The bytes of an append, if it can be taken at all.
    fn admissible(&self, records: &[impl AsRef<[u8]>]) -> Result<usize, AppendError> {
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

    fn has_room(&self, state: &State, bytes: usize) -> bool {
        let limit = self.limit.min(self.append_bytes_max);
        state.forming.records == 0 || state.forming.body.len() + bytes <= limit
    }

    /// Put records into the forming group.
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
                // Whoever keeps a deadline that comes first keeps this one with it.
                if state.deadline.is_none_or(|first| deadline < first) {
                    state.deadline = Some(deadline);
                    self.work.notify_one();
                }
            }
            Durability::Flush => {}
        }
        if state.wanted > 0 && state.forming.members >= state.wanted {
            self.gather.notify_one();
        }
        ticket
    }
}

fn usable(state: &State) -> Result<(), AppendError> {
    match &state.poisoned {
        Some(why) => Err(AppendError::Poisoned(why.clone())),
        None if state.closed => Err(AppendError::Closed),
        None => Ok(()),
    }
}

fn wake_all(wakers: VecDeque<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
