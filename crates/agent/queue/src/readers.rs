//! Readers of the database. Read transactions of this process are recorded with their age. Those of
//! other processes are found by their locks on the index of the write-ahead log (`agent.db-shm`;
//! file format: sqlite.org/walformat.html). A checkpoint cannot go beyond the state that a reader
//! sees.
//!
//! **Locking.** The mutex of [`Reading`] is a leaf: it is held to add, remove or count a read
//! transaction, never while one runs. The same holds for the pool of connections in
//! `Inner::readers`; a read takes a connection out of it, runs without any lock, and puts it back.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::clock::Clock;
use parking_lot::Mutex;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use crate::error::{QueueError, io_error};
use crate::files::with_suffix;

/// Offset of the log's last valid frame in the index.
const LAST_FRAME_AT: u64 = 16;
/// Offset of the first read mark.
const MARKS_AT: u64 = 100;
/// Offset of the first reader's lock.
const LOCKS_AT: u64 = 123;
/// Number of read marks.
const MARKS: u64 = 5;

/// A process with a read transaction. If several share a read mark, the first one found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ReaderProcess {
    /// Process id; 0 if it is in another container.
    pub pid: i32,
    /// Number of pages written since its transaction began.
    pub pages_behind: u64,
}

/// Lists the read transactions of other processes, the oldest first. Must not be called by a
/// process that has the database open, because closing the index would release that process's
/// locks.
///
/// # Errors
/// Returns an error if the index cannot be read.
pub fn readers(path: &Path) -> Result<Vec<ReaderProcess>, QueueError> {
    let index = with_suffix(path, "-shm");
    let failed = |error| io_error(&index, "read", error);
    let file = match File::open(&index) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(failed)?,
    };
    let number = |at: u64| -> std::io::Result<u64> {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from(u32::from_ne_bytes(bytes)))
    };
    let last = match number(LAST_FRAME_AT) {
        // No index has been written yet.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(Vec::new()),
        last => last.map_err(failed)?,
    };
    let mut found = Vec::new();
    for mark in 0..MARKS {
        let lock = Flock {
            start: LOCKS_AT + mark,
            length: 1,
            pid: None,
            typ: FlockType::WriteLock,
            offset_type: FlockOffsetType::Set,
        };
        let Some(held) = fcntl_getlk(&file, &lock).map_err(|e| failed(e.into()))? else { continue };
        let pid = held.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
        let seen = number(MARKS_AT + 4 * mark).map_err(failed)?;
        found.push(ReaderProcess { pid, pages_behind: last.saturating_sub(seen.min(last)) });
    }
    found.sort_by_key(|reader| std::cmp::Reverse(reader.pages_behind));
    Ok(found)
}

/// Read transactions of this process.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    state: Mutex<ReadingState>,
}

#[derive(Debug, Default)]
struct ReadingState {
    /// Number of the last read transaction.
    last: u64,
    /// Monotonic start time of each running one, by its number.
    since: BTreeMap<u64, Duration>,
}

/// The guard of a read transaction. Dropping it ends the record.
#[derive(Debug)]
pub(crate) struct ReadGuard {
    reading: Arc<Reading>,
    number: u64,
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.reading.state.lock().since.remove(&self.number);
    }
}

impl Reading {
    pub(crate) fn begin_read(self: &Arc<Self>, clock: &dyn Clock) -> ReadGuard {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.since.insert(number, clock.monotonic());
        ReadGuard { reading: Arc::clone(self), number }
    }

    /// Returns the age of the oldest read transaction.
    pub(crate) fn oldest(&self, clock: &dyn Clock) -> Option<Duration> {
        let state = self.state.lock();
        state.since.values().min().map(|since| clock.monotonic().saturating_sub(*since))
    }
}
