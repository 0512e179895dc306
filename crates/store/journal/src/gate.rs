//! Group commit: who writes, who waits, who is woken.
//!
//! Appends put their records into the *forming* group. Whoever finds no leader becomes it: takes
//! the forming group, writes it, and wakes exactly that group's waiters. The group that formed
//! meanwhile is led by one of its own waiters, or, if only tasks wait, by the journal's thread.
//! Each generation has its own condition variable, so that nobody wakes for another group.
//!
//! A failed write or flush poisons the gate: the group that failed, the one that forms and every
//! later append learn of it at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

mod keep;

use crate::bytes::push_varint;
use crate::error::AppendError;
use crate::meter::{Cost, Outcome};
use crate::options::Durability;
use crate::pool::WriteError;
use crate::writer::{Batch, Writer};

/// What a group's members learn.
#[derive(Debug, Clone, Copy)]
struct Done {
    first: u64,
    records: u32,
    cost: Cost,
}

/// One group and those who wait for it.
struct Generation {
    done: Condvar,
    result: OnceLock<Result<Done, AppendError>>,
    wakers: Mutex<Vec<Waker>>,
}

impl Generation {
    fn new() -> Arc<Self> {
        let (done, result) = (Condvar::new(), OnceLock::new());
        Arc::new(Self { done, result, wakers: Mutex::new(Vec::new()) })
    }

    fn finish(&self, result: Result<Done, AppendError>) {
        let _ = self.result.set(result);
        self.done.notify_all();
        for waker in self.wakers.lock().drain(..) {
            waker.wake();
        }
    }
}

/// The group that takes records now.
struct Forming {
    generation: Arc<Generation>,
    /// Records, each after its length.
    body: Vec<u8>,
    /// Width of the first record's length.
    first_width: usize,
    records: u32,
    payload: u64,
    members: u32,
    /// Members that wait on a thread of their own, and so can lead.
    threads: u32,
    persist: bool,
}

impl Forming {
    fn new(body: Vec<u8>) -> Self {
        Self {
            generation: Generation::new(),
            body,
            first_width: 0,
            records: 0,
            payload: 0,
            members: 0,
            threads: 0,
            persist: false,
        }
    }
}

struct State {
    forming: Forming,
    /// Somebody writes, or is about to.
    leading: bool,
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
    persisted: AtomicU64,
    appended: AtomicU64,
    limit: usize,
    append_bytes_max: usize,
    wait: Duration,
    threaded: bool,
}

/// An append that has been taken into a group.
struct Ticket {
    generation: Arc<Generation>,
    /// Records of the group before this append's, and its own.
    before: u32,
    records: u32,
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
            room: Condvar::new(),
            gather: Condvar::new(),
            work: Condvar::new(),
            idle: Condvar::new(),
            more: Condvar::new(),
            persisted: AtomicU64::new(last),
            appended: AtomicU64::new(last),
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
            if state.leading {
                self.room.wait(&mut state);
            } else {
                state = self.lead(state);
            }
        }
        let ticket = self.join(&mut state, records, durability);
        state.forming.threads += 1;
        loop {
            if let Some(result) = ticket.generation.result.get() {
                return ticket.outcome(result);
            }
            if !state.leading && Arc::ptr_eq(&state.forming.generation, &ticket.generation) {
                state = self.lead(state);
            } else {
                ticket.generation.done.wait(&mut state);
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
        let ticket = poll_fn(|cx| self.poll_join(cx, records, bytes, durability)).await?;
        let mut registered: Option<Waker> = None;
        poll_fn(|cx| {
            if let Some(result) = ticket.generation.result.get() {
                return Poll::Ready(ticket.outcome(result));
            }
            if registered.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
                registered = Some(cx.waker().clone());
                ticket.generation.wakers.lock().push(cx.waker().clone());
            }
            match ticket.generation.result.get() {
                Some(result) => Poll::Ready(ticket.outcome(result)),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn poll_join(
        &self,
        cx: &Context<'_>,
        records: &[Vec<u8>],
        bytes: usize,
        durability: Durability,
    ) -> Poll<Result<Ticket, AppendError>> {
        let mut state = self.state.lock();
        if let Err(e) = usable(&state) {
            return Poll::Ready(Err(e));
        }
        if !self.has_room(&state, bytes) {
            state.room_wakers.push_back(cx.waker().clone());
            return Poll::Pending;
        }
        let ticket = self.join(&mut state, records, durability);
        if !state.leading {
            if self.threaded {
                self.work.notify_one();
            } else {
                drop(self.lead(state));
            }
        }
        Poll::Ready(Ok(ticket))
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
        let forming = &mut state.forming;
        let before = forming.records;
        for record in records {
            let record = record.as_ref();
            let begin = forming.body.len();
            push_varint(&mut forming.body, record.len() as u32);
            if forming.records == 0 {
                forming.first_width = forming.body.len() - begin;
            }
            forming.body.extend_from_slice(record);
            forming.records += 1;
            forming.payload += record.len() as u64;
        }
        forming.members += 1;
        match durability {
            Durability::Persist => forming.persist = true,
            Durability::Within(time) => {
                let deadline = Instant::now() + time;
                state.deadline = Some(state.deadline.map_or(deadline, |d| d.min(deadline)));
                self.work.notify_one();
            }
            Durability::Flush => {}
        }
        if state.wanted > 0 && forming.members >= state.wanted {
            self.gather.notify_one();
        }
        let generation = Arc::clone(&forming.generation);
        Ticket { generation, before, records: records.len() as u32 }
    }

    /// Write the forming group. Called without a leader; returns without one.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.leading = true;
        self.wait_for_others(&mut state);
        let buffer = std::mem::take(&mut state.buffer);
        let group = std::mem::replace(&mut state.forming, Forming::new(buffer));
        let deadline = if group.persist { state.deadline.take() } else { None };
        state.writing_bytes = group.body.len();
        self.room.notify_all();
        wake_all(&mut state.room_wakers);
        drop(state);

        let began = Instant::now();
        let (result, persisted) = self.write(&group);
        let took = began.elapsed();

        let mut state = self.state.lock();
        state.leading = false;
        state.writing_bytes = 0;
        state.last_members = group.members;
        state.last_write = took;
        if result.is_err() && state.deadline.is_none() {
            state.deadline = deadline;
        }
        let result = self.settle(&mut state, result, persisted);
        group.generation.finish(result);
        let mut body = group.body;
        body.clear();
        body.shrink_to(self.limit);
        state.buffer = body;
        self.hand_over(&state);
        state
    }

    fn wait_for_others(&self, state: &mut MutexGuard<'_, State>) {
        let wanted = state.last_members;
        let alone = wanted <= 1 || !state.forming.persist;
        if alone || self.wait.is_zero() || state.forming.members >= wanted {
            return;
        }
        let until = Instant::now() + self.wait.min(state.last_write);
        state.wanted = wanted;
        while state.forming.members < wanted {
            if self.gather.wait_until(state, until).timed_out() {
                break;
            }
        }
        state.wanted = 0;
    }

    /// The write itself, and the last position persisted after it.
    fn write(&self, group: &Forming) -> (Result<Done, WriteError>, u64) {
        let mut writer = self.writer.lock();
        let single = group.records == 1;
        let body = if single { group.body.get(group.first_width..) } else { Some(&*group.body) };
        let batch = Batch {
            body: body.unwrap_or_default(),
            single,
            records: group.records,
            persist: group.persist,
        };
        let first = writer.next_position;
        let result = writer.group(batch);
        if let Ok(cost) = &result {
            self.appended.store(writer.next_position - 1, Ordering::Release);
            writer.pool.totals.group(group.records, group.payload);
            writer.pool.totals.cost(cost);
        }
        let persisted = writer.persisted_position;
        let done = result.map(|cost| Done { first, records: group.records, cost });
        (done, persisted)
    }

    /// Publish what is persisted, or the poison.
    fn settle<T>(
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
                self.fail_forming(state, &error);
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

    fn fail_forming(&self, state: &mut MutexGuard<'_, State>, error: &AppendError) {
        let forming = std::mem::replace(&mut state.forming, Forming::new(Vec::new()));
        forming.generation.finish(Err(error.clone()));
        self.room.notify_all();
        self.more.notify_all();
        self.work.notify_all();
        wake_all(&mut state.room_wakers);
        for waker in state.tail_wakers.drain(..) {
            waker.wake();
        }
    }

    /// Somebody else leads the group that formed meanwhile.
    fn hand_over(&self, state: &State) {
        self.idle.notify_all();
        if state.forming.records == 0 {
            return;
        }
        if state.forming.threads > 0 {
            state.forming.generation.done.notify_one();
        } else {
            self.work.notify_one();
        }
    }
}

impl Ticket {
    /// What this append gets of its group's result.
    fn outcome(&self, result: &Result<Done, AppendError>) -> Result<Outcome, AppendError> {
        let done = result.as_ref().map_err(Clone::clone)?;
        let first = done.first + u64::from(self.before);
        Ok(Outcome {
            position: first + u64::from(self.records) - 1,
            first,
            group_records: done.records,
            bytes_written: done.cost.bytes,
            blocks: done.cost.blocks() as u32,
            flushes: done.cost.flushes,
            compressed_bytes: done.cost.compressed,
        })
    }
}

fn usable(state: &State) -> Result<(), AppendError> {
    match &state.poisoned {
        Some(why) => Err(AppendError::Poisoned(why.clone())),
        None if state.closed => Err(AppendError::Closed),
        None => Ok(()),
    }
}

fn wake_all(wakers: &mut VecDeque<Waker>) {
    for waker in wakers.drain(..) {
        waker.wake();
    }
}
