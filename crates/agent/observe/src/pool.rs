//! Threads that read content while the caller continues. The caller submits chunks of files. The
//! number of waiting chunks, of files in a chunk and of directories kept open is bounded. The caller
//! can wait for a limited time, to do something else before it waits again.
//!
//! **Locking.** One mutex guards the queue, the results and the counters; no thread holds it while
//! it reads a file. `work` wakes readers, `progress` wakes the caller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::reader::{ReadJob, ReadOptions, ReadResult, Reader, ReaderContext};
use crate::{budget, limits};

/// An error that ends the work of a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A reader thread could not be started.
    #[error("a reader thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// A reader thread ended with a panic.
    #[error("a reader thread stopped unexpectedly: this is a defect, please report it")]
    Panicked,
}

/// Files that one reader takes at once.
#[derive(Debug)]
pub struct Chunk {
    jobs: Vec<ReadJob>,
    options: Arc<ReadOptions>,
    /// Sum of the sizes of its files, bytes.
    bytes: u64,
    /// Number of directories that its jobs keep open.
    directories: usize,
}

impl Chunk {
    /// Returns an empty chunk, whose files are read with `options`.
    pub fn new(options: Arc<ReadOptions>) -> Self {
        Self { jobs: Vec::new(), options, bytes: 0, directories: 0 }
    }

    /// Adds a file. Add the files of one directory one after the other.
    pub fn push(&mut self, job: ReadJob) {
        let last = self.jobs.last();
        let new = last.is_none_or(|last| !Arc::ptr_eq(&last.directory, &job.directory));
        self.directories += usize::from(new);
        self.bytes += job.stat.size;
        self.jobs.push(job);
    }

    /// Returns true if the chunk has reached a limit and is to be submitted.
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= limits::CHUNK_FILES
            || self.bytes >= limits::CHUNK_BYTES
            || self.directories >= limits::CHUNK_DIRECTORIES
    }

    /// Returns true if the chunk holds no file.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the chunk and leaves an empty one with the same options.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = Self::new(Arc::clone(&self.options));
        std::mem::replace(self, empty)
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Chunk>,
    done: Vec<ReadResult>,
    /// Chunks submitted and not yet done.
    in_hand: usize,
    closed: bool,
    /// A reader panicked, so its chunk will never be done.
    failed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    progress: Condvar,
}

impl Shared {
    /// Waits until a reader has made progress. Returns false after `patience`.
    fn wait(&self, state: &mut MutexGuard<'_, State>, patience: Duration) -> bool {
        !self.progress.wait_for(state, patience).timed_out()
    }
}

/// Reader threads. One is started with each of the first chunks, so a pool that reads nothing starts
/// none. Dropping it drops the chunks that wait, and waits for those that are being read.
pub struct ReadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    readers: usize,
    background: bool,
    context: Arc<ReaderContext>,
}

impl ReadPool {
    /// Returns a pool of `readers` threads, 1 to [`limits::READERS_MAX`]. With `background`, they run
    /// at the lowest priority for CPU and disk.
    pub fn new(readers: usize, background: bool, context: Arc<ReaderContext>) -> Self {
        let readers = readers.clamp(1, limits::READERS_MAX);
        Self { shared: Arc::default(), threads: Vec::new(), readers, background, context }
    }

    /// Submits a chunk, after waiting while the queue is full. Moves finished results to `into`.
    /// Returns the chunk if there was no room within `patience`.
    ///
    /// # Errors
    /// Returns an error if a reader thread cannot be started or has panicked.
    pub fn submit(
        &mut self,
        chunk: Chunk,
        into: &mut Vec<ReadResult>,
        patience: Duration,
    ) -> Result<Option<Chunk>, PoolError> {
        if self.threads.len() < self.readers {
            self.start()?;
        }
        let most = self.readers * limits::CHUNKS_WAITING_PER_READER;
        let mut state = self.shared.state.lock();
        while state.waiting.len() >= most && !state.failed {
            if !self.shared.wait(&mut state, patience) {
                return Ok(Some(chunk));
            }
        }
        if state.failed {
            return Err(PoolError::Panicked);
        }
        state.waiting.push_back(chunk);
        state.in_hand += 1;
        into.append(&mut state.done);
        drop(state);
        self.shared.work.notify_one();
        Ok(None)
    }

    /// Waits until all submitted chunks are done, at most for `patience`. Moves the results so far
    /// to `into`. Returns true if all are done.
    ///
    /// # Errors
    /// Returns an error if a reader thread has panicked.
    pub fn drain(
        &mut self,
        into: &mut Vec<ReadResult>,
        patience: Duration,
    ) -> Result<bool, PoolError> {
        let mut state = self.shared.state.lock();
        while state.in_hand > 0 && !state.failed {
            if !self.shared.wait(&mut state, patience) {
                break;
            }
        }
        if state.failed {
            return Err(PoolError::Panicked);
        }
        into.append(&mut state.done);
        Ok(state.in_hand == 0)
    }

    /// Returns true if no submitted chunk is waiting or being read, and all results were taken.
    pub fn is_idle(&self) -> bool {
        let state = self.shared.state.lock();
        state.in_hand == 0 && state.done.is_empty()
    }

    fn start(&mut self) -> Result<(), PoolError> {
        let shared = Arc::clone(&self.shared);
        let context = Arc::clone(&self.context);
        let background = self.background;
        let thread = std::thread::Builder::new()
            .name(format!("reader-{}", self.threads.len()))
            .spawn(move || {
                if background {
                    budget::step_back();
                }
                work(&shared, Reader::new(context));
            })
            .map_err(PoolError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was reported through `failed`.
            let _ = thread.join();
        }
    }
}

/// Sets `failed` and wakes the caller if a reader panics.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().failed = true;
            self.0.progress.notify_all();
        }
    }
}

fn work(shared: &Shared, mut reader: Reader) {
    let _guard = Guard(shared);
    let mut done = Vec::new();
    loop {
        let mut state = shared.state.lock();
        let chunk = loop {
            if let Some(chunk) = state.waiting.pop_front() {
                break chunk;
            }
            if state.closed {
                return;
            }
            shared.work.wait(&mut state);
        };
        drop(state);
        shared.progress.notify_one();
        let options = chunk.options;
        done.extend(chunk.jobs.into_iter().map(|job| reader.run(job, &options)));
        let mut state = shared.state.lock();
        state.done.append(&mut done);
        state.in_hand -= 1;
        drop(state);
        shared.progress.notify_one();
    }
}
