//! The handle.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::consumer::Consumer;
use crate::core::Core;
use crate::error::{AppendError, OpenError, ReadError};
use crate::meter::{AppendOutcome, Recovery, Stats, TrimOutcome};
use crate::options::{Durability, Layout, Options};
use crate::reader::JournalReader;
use crate::recover::refused;

/// A journal, open for appends. Cheap to clone; all clones are the same journal. It is closed by
/// [`Journal::close`], or when the last clone is dropped.
#[derive(Clone)]
pub struct Journal(Arc<Handle>);

struct Handle {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A failure here occurs again at the next open, which reports it.
        let _ = self.close();
    }
}

impl Handle {
    fn close(&self) -> Result<(), AppendError> {
        let closed = self.core.close();
        for thread in self.threads.lock().drain(..) {
            // A panicked thread poisons nothing: callers do its work when they need it.
            let _ = thread.join();
        }
        self.core.unlock();
        closed
    }
}

impl Journal {
    /// Opens the journal in `dir`, creating it if there is none, and recovers its content.
    ///
    /// # Errors
    /// See [`OpenError`]. A torn tail is not an error: it is cut and reported. Other damage is.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Recovery), OpenError> {
        let (core, recovery) = Core::open(dir, options)?;
        let journal = Self(Arc::new(Handle { core, threads: Mutex::default() }));
        if journal.0.core.options.background {
            journal.start_threads().map_err(refused(dir, "cannot start a thread"))?;
        }
        Ok((journal, recovery))
    }

    fn start_threads(&self) -> std::io::Result<()> {
        let core = &self.0.core;
        let mut threads = self.0.threads.lock();
        let group = Arc::clone(core);
        threads.push(start("journal-group", move || group.gate.serve())?);
        let (pool, size) = (Arc::clone(&core.pool), core.options.segment_bytes);
        threads.push(start("journal-fill", move || pool.serve(size))?);
        if core.options.layout == Layout::Ring {
            let core = Arc::clone(core);
            threads.push(start("journal-archive", move || core.gate.serve_archive())?);
        }
        Ok(())
    }

    /// Appends one record. Returns when it is as durable as requested.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn append(
        &self,
        record: &[u8],
        durability: Durability,
    ) -> Result<AppendOutcome, AppendError> {
        self.0.core.gate.append(&[record], durability)
    }

    /// Appends several records atomically: either all of them survive or none.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn append_all(
        &self,
        records: &[&[u8]],
        durability: Durability,
    ) -> Result<AppendOutcome, AppendError> {
        self.0.core.gate.append(records, durability)
    }

    /// Does the same as [`Journal::append_all`] without blocking a thread. If the future is
    /// dropped, the records may or may not be appended.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append_async(
        &self,
        records: Vec<Vec<u8>>,
        durability: Durability,
    ) -> Result<AppendOutcome, AppendError> {
        self.0.core.gate.append_async(&records, durability).await
    }

    /// Persists everything appended so far, whatever its durability. During the flush, appends
    /// continue unless they must be persisted themselves or begin a segment. Appends to a ring
    /// wait, and so do appends of tasks if the flush is for a deadline.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn persist(&self) -> Result<(), AppendError> {
        self.0.core.gate.persist().map(|_| ())
    }

    /// Reads persisted records from `position` on; 0 means from the oldest record kept.
    ///
    /// # Errors
    /// Returns [`ReadError::Trimmed`] if the position was trimmed.
    pub fn read_from(&self, position: u64) -> Result<JournalReader, ReadError> {
        let position = if position == 0 { self.0.core.beginning() } else { position };
        JournalReader::new(Arc::clone(&self.0.core), position)
    }

    /// Returns the consumer called `name`, adding it if there is none.
    ///
    /// # Errors
    /// Returns an error if the name is invalid, or an I/O operation fails.
    pub fn consumer(&self, name: &str) -> Result<Consumer, AppendError> {
        Consumer::open(&self.0.core, name)
    }

    /// Returns the oldest position kept; 0 if there is none.
    pub fn first_position(&self) -> u64 {
        self.0.core.first_position()
    }

    /// Returns the last position persisted; 0 if there is none.
    pub fn persisted_position(&self) -> u64 {
        self.0.core.gate.persisted()
    }

    /// Returns true if an append would have to wait for a write. Flushes on request do not count.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.core.gate.is_busy()
    }

    /// Returns true if `bytes` of records fit in the active segment, without beginning a new one.
    #[must_use]
    pub fn has_space(&self, bytes: u64) -> bool {
        self.0.core.gate.has_left(bytes)
    }

    /// Removes records below `below`, in whole segments, as far as no consumer needs them.
    ///
    /// # Errors
    /// Returns an error if an I/O operation fails; the journal stays usable.
    pub fn trim(&self, below: u64) -> Result<TrimOutcome, AppendError> {
        self.0.core.trim(below)
    }

    /// Returns the totals since the journal was opened, and its current state.
    pub fn stats(&self) -> Stats {
        self.0.core.stats()
    }

    /// Rejects further appends, persists the pending ones, and marks the journal as closed cleanly.
    /// Clones that still exist return [`AppendError::Closed`].
    ///
    /// # Errors
    /// Returns an error if the last flush fails, or the journal was poisoned before.
    pub fn close(self) -> Result<(), AppendError> {
        self.0.close()
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}
