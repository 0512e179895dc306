//! The state shared by all handles of one database, and reads on its connections. The locks and
//! their order are described in [`crate::writer`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use env::clock::Clock;
use model::{Dataset, ItemKey};
use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;

use crate::catalog::Catalog;
use crate::damage::Damage;
use crate::error::{QueueError, classify, is_damage};
use crate::head::Head;
use crate::job::{Job, Submitted};
use crate::lease::Buffers;
use crate::options::QueueOptions;
use crate::readers::Reading;
use crate::schema;
use crate::writer::Writer;
use writers::WriterQueue;

/// Most read connections kept for reuse.
const READERS_MAX: usize = 4;

/// The parts of an opened database.
pub(crate) struct Parts {
    pub(crate) lock: File,
    pub(crate) writer: Writer,
    pub(crate) catalog: Catalog,
}

/// The state shared by all handles of one database.
pub(crate) struct Inner {
    pub(crate) path: PathBuf,
    pub(crate) options: QueueOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// Mirrors each commit. Changed only by the holder of `writer`.
    pub(crate) catalog: RwLock<Catalog>,
    /// The writing connection; `None` once closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    /// Jobs waiting for the writer.
    pub(crate) line: WriterQueue<Job, Submitted>,
    /// Time since which a reader has kept the log above its limit, microseconds since the epoch; 0
    /// if none does.
    pub(crate) log_held_us: AtomicU64,
    /// Running read transactions.
    pub(crate) reading: Arc<Reading>,
    /// Reasons to distrust the file since it was opened.
    pub(crate) damage: Damage,
    pub(crate) readers: Mutex<Vec<Connection>>,
    /// Buffers of the last answered lease, for reuse.
    pub(crate) lease_buffers: Mutex<Buffers>,
    pub(crate) lock: Mutex<Option<File>>,
}

impl Inner {
    pub(crate) fn new(
        path: &Path,
        options: QueueOptions,
        clock: Arc<dyn Clock>,
        parts: Parts,
    ) -> Self {
        Self {
            path: path.to_path_buf(),
            options,
            clock,
            catalog: RwLock::new(parts.catalog),
            writer: Mutex::new(Some(parts.writer)),
            line: WriterQueue::default(),
            log_held_us: AtomicU64::new(0),
            reading: Arc::default(),
            damage: Damage::default(),
            readers: Mutex::default(),
            lease_buffers: Mutex::default(),
            lock: Mutex::new(Some(parts.lock)),
        }
    }

    pub(crate) fn closed(&self) -> QueueError {
        QueueError::Closed { path: self.path.clone() }
    }

    /// Returns the progress of the dataset's cycles.
    pub(crate) fn head(&self, id: i64, dataset: &Dataset) -> Result<Head, QueueError> {
        let catalog = self.catalog.read();
        let state = catalog.datasets.get(&id);
        state
            .map(|state| state.head.clone())
            .ok_or_else(|| QueueError::NoCycle { dataset: dataset.to_string() })
    }

    pub(crate) fn set_head(&self, id: i64, head: &Head) {
        if let Some(state) = self.catalog.write().datasets.get_mut(&id) {
            state.head = head.clone();
        }
    }

    pub(crate) fn open_reader(&self) -> Result<Connection, QueueError> {
        schema::open_reader(&self.path).map_err(|e| self.classify("open for reading", e))
    }

    /// Runs `read` on a read connection.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, QueueError> {
        if self.lock.lock().is_none() {
            return Err(self.closed());
        }
        let kept = self.readers.lock().pop();
        let conn = kept.map_or_else(|| self.open_reader(), Ok)?;
        let reads = self.reading.begin_read(&*self.clock);
        let value = read(&conn).map_err(|e| self.classify("read", e))?;
        drop(reads);
        let mut readers = self.readers.lock();
        if readers.len() < READERS_MAX {
            readers.push(conn);
        }
        Ok(value)
    }

    pub(crate) fn classify(&self, action: &'static str, error: rusqlite::Error) -> QueueError {
        if is_damage(&error) {
            self.damage.met();
        }
        classify(&self.path, action, error)
    }

    pub(crate) fn undecodable(&self, key: &ItemKey) -> QueueError {
        let name = model::path::show_terminal(&key.path());
        self.damage.met();
        QueueError::Corrupt { path: self.path.clone(), detail: format!("content of {name}") }
    }
}
