//! Reading of notifications by two threads: the reader, and the one that keeps the process table.
//!
//! A notification has no time. It was caused after the last moment at which the queue was known to
//! be empty, which is the beginning of its interval. After each exec the thread of the process table
//! calls [`Intake::note_exec`]: if the queue is empty then, everything that is notified later was
//! caused by a program in force since that exec. Otherwise the thread takes what the queue has, and
//! the reader applies it.
//!
//! **Locking.** One lock, held during a read; the reader waits for it, the thread of the process
//! table never does. Times are taken with the lock held and before the read: else a notification
//! would get the beginning of a later interval, and the name of a wrong program.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dirty::ReadTimes;
use env::clock::{Clock as _, SystemClock};
use parking_lot::Mutex;

use crate::fanotify::Group;
use crate::shared::{monotonic_ns, signal};

/// Bytes of one read: about 2,500 notifications.
const BUFFER_BYTES: usize = 256 << 10;
/// Shortest time between two reads at an exec, nanoseconds: the kernel merges repeats in its queue.
const EXEC_PACE_NS: u64 = 1_000_000;
/// Bytes of notifications that wait for the reader, above which only the reader uses the queue.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Notifications of one read.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) times: ReadTimes,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Intake {
    state: Mutex<IntakeState>,
}

#[derive(Debug)]
struct IntakeState {
    group: Option<Arc<Group>>,
    /// Last time at which the queue was known to be empty, nanoseconds of `CLOCK_MONOTONIC`.
    empty_ns: u64,
    /// Time of the last read at an exec.
    exec_read_ns: u64,
    waiting: VecDeque<Batch>,
    waiting_bytes: usize,
    buffer: Vec<u8>,
    clock: SystemClock,
}

/// The result of a read by the reader.
#[derive(Debug)]
pub(crate) struct ReadOutcome {
    /// In the order in which they were read.
    pub(crate) batches: VecDeque<Batch>,
    /// True if the queue was empty.
    pub(crate) is_empty: bool,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(IntakeState {
                group: None,
                empty_ns: monotonic_ns(),
                exec_read_ns: 0,
                waiting: VecDeque::new(),
                waiting_bytes: 0,
                buffer: vec![0; BUFFER_BYTES],
                clock: SystemClock::new(),
            }),
        }
    }

    /// Sets the group, which was opened after `opened_ns`. What the former one had is lost.
    pub(crate) fn set_group(&self, group: Option<Arc<Group>>, opened_ns: u64) {
        let mut state = self.state.lock();
        state.group = group;
        // The new group may have a notification that is older than a time taken from the former one.
        state.empty_ns = opened_ns;
    }

    /// Reads once, and takes what was read at execs before.
    pub(crate) fn read(&self) -> io::Result<ReadOutcome> {
        let mut state = self.state.lock();
        let read = match state.group.clone() {
            Some(group) => state.read(&group)?,
            None => 0,
        };
        state.waiting_bytes = 0;
        Ok(ReadOutcome { batches: std::mem::take(&mut state.waiting), is_empty: read == 0 })
    }

    /// Notes that a program was executed before this call. Does not wait: while the reader reads,
    /// nothing is gained.
    pub(crate) fn note_exec(&self, reader_wake: &OwnedFd) {
        let Some(mut state) = self.state.try_lock() else { return };
        let Some(group) = state.group.clone() else { return };
        // The kernel counts a queue entry by entry: that of a reader that is behind is long.
        if state.waiting_bytes > WAITING_BYTES_MAX {
            return;
        }
        let now = monotonic_ns();
        match group.pending() {
            Ok(0) => state.empty_ns = now,
            Ok(_) if now < state.exec_read_ns + EXEC_PACE_NS => {}
            Ok(_) => {
                state.exec_read_ns = now;
                // An error meets the reader as well, which reports it.
                while state.read(&group).is_ok_and(|bytes| bytes > 0)
                    && state.waiting_bytes <= WAITING_BYTES_MAX
                {}
                drop(state);
                signal(reader_wake);
            }
            Err(_) => {}
        }
    }
}

impl IntakeState {
    /// Reads once. Returns the number of bytes: 0 if the queue is empty.
    fn read(&mut self, group: &Group) -> io::Result<usize> {
        let before_ns = monotonic_ns();
        let bytes = group.read(&mut self.buffer)?;
        if bytes == 0 {
            self.empty_ns = before_ns;
            return Ok(0);
        }
        let (to_ns, wall_us) = (monotonic_ns(), self.clock.now_us());
        let times = ReadTimes { from_ns: self.empty_ns, to_ns, wall_us };
        let read = self.buffer.get(..bytes).unwrap_or_default().to_vec();
        self.waiting_bytes += bytes;
        self.waiting.push_back(Batch { bytes: read, times });
        Ok(bytes)
    }
}
