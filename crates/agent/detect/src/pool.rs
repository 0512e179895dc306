//! Threads that read content while the walk continues. The walk submits chunks of files. The number
//! of waiting chunks, of files in a chunk and of directories kept open is bounded. The walk can wait
//! for a limited time, to do something else before it waits again.
//!
//! **Locking.** One mutex guards the queue, the results and the counters; no thread holds it while
//! it reads a file. `work` wakes readers, `progress` wakes the walk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::budget;
use crate::limits::CHUNKS_WAITING_PER_READER;
use crate::observe::{Around, Done, Job, Reader, Recipe};
use crate::report::ScanError;

/// Files that one reader takes at once.
pub(crate) struct Chunk {
    pub(crate) jobs: Vec<Job>,
    pub(crate) recipe: Arc<Recipe>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Chunk>,
    done: Vec<Done>,
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

/// The reader threads. One is started with each of the first chunks, so a scan that reads nothing
/// starts none.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    readers: usize,
    background: bool,
    around: Arc<Around>,
}

impl Pool {
    pub(crate) fn new(readers: usize, background: bool, around: Arc<Around>) -> Self {
        Self { shared: Arc::default(), threads: Vec::new(), readers, background, around }
    }

    /// Submits a chunk, after waiting while the queue is full. Moves finished results to `into`.
    /// Returns the chunk if there was no room within `patience`.
    pub(crate) fn submit(
        &mut self,
        chunk: Chunk,
        into: &mut Vec<Done>,
        patience: Duration,
    ) -> Result<Option<Chunk>, ScanError> {
        if self.threads.len() < self.readers {
            self.start()?;
        }
        let most = self.readers * CHUNKS_WAITING_PER_READER;
        let mut state = self.shared.state.lock();
        while state.waiting.len() >= most && !state.failed {
            if !self.shared.wait(&mut state, patience) {
                return Ok(Some(chunk));
            }
        }
        if state.failed {
            return Err(ScanError::Reader);
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
    pub(crate) fn drain(
        &mut self,
        into: &mut Vec<Done>,
        patience: Duration,
    ) -> Result<bool, ScanError> {
        let mut state = self.shared.state.lock();
        while state.in_hand > 0 && !state.failed {
            if !self.shared.wait(&mut state, patience) {
                break;
            }
        }
        if state.failed {
            return Err(ScanError::Reader);
        }
        into.append(&mut state.done);
        Ok(state.in_hand == 0)
    }

    /// Returns true if no submitted chunk is waiting or being read.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.shared.state.lock();
        state.in_hand == 0 && state.done.is_empty()
    }

    fn start(&mut self) -> Result<(), ScanError> {
        let shared = Arc::clone(&self.shared);
        let around = Arc::clone(&self.around);
        let background = self.background;
        let thread = std::thread::Builder::new()
            .name(format!("reader-{}", self.threads.len()))
            .spawn(move || {
                if background {
                    budget::step_back();
                }
                work(&shared, Reader::new(around));
            })
            .map_err(ScanError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Pool {
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

/// Sets `failed` and wakes the walk if a reader panics.
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
        let recipe = chunk.recipe;
        done.extend(chunk.jobs.into_iter().map(|job| reader.run(job, &recipe)));
        let mut state = shared.state.lock();
        state.done.append(&mut done);
        state.in_hand -= 1;
        drop(state);
        shared.progress.notify_one();
    }
}
