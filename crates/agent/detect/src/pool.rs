//! Threads that read content while the walk continues. The walk submits chunks of files. The number
//! of waiting chunks, of files in a chunk and of directories kept open is bounded.
//!
//! **Locking.** One mutex guards the queue, the results and the counters; no thread holds it while
//! it reads a file. `work` wakes readers, `progress` wakes the walk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

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
    pub(crate) fn submit(&mut self, chunk: Chunk, into: &mut Vec<Done>) -> Result<(), ScanError> {
        if self.threads.len() < self.readers {
            self.start()?;
        }
        let most = self.readers * CHUNKS_WAITING_PER_READER;
        let mut state = self.shared.state.lock();
        while state.waiting.len() >= most && !state.failed {
            self.shared.progress.wait(&mut state);
        }
        if state.failed {
            return Err(ScanError::Reader);
        }
        state.waiting.push_back(chunk);
        state.in_hand += 1;
        into.append(&mut state.done);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Waits until all submitted chunks are done. Moves their results to `into`.
    pub(crate) fn drain(&mut self, into: &mut Vec<Done>) -> Result<(), ScanError> {
        let mut state = self.shared.state.lock();
        while state.in_hand > 0 && !state.failed {
            self.shared.progress.wait(&mut state);
        }
        if state.failed {
            return Err(ScanError::Reader);
        }
        into.append(&mut state.done);
        Ok(())
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
