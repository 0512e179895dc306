//! The connections: one writer, a few readers, one reader for who somebody is and what they may do (so
//! that nobody's lists keep others from logging in), one that checkpoints.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::{counters, list, users};
use crate::lend::{Held, Readers};
use crate::limits::READ_TIME_MAX;
use crate::meter;
use crate::registry::audit::{self, Pending};
use crate::registry::{AgentQuery, RegistryStoreError, StoreResult, schema};

/// Connections for readers unless told otherwise; each holds its own page cache.
const READERS: usize = 3;
/// How long a connection waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept per connection.
const STATEMENTS_MAX: usize = 256;
/// Virtual machine steps between two looks at the clock.
const STEPS_PER_CHECK: i32 = 20_000;
/// Page cache of one connection, KiB.
const CACHE_KIB: i64 = 8 * 1024;
/// A commit checkpoints by itself only beyond this many pages of log (64 MiB): otherwise that is
/// the checkpoint of [`crate::registry::RegistryStore`]'s, and nobody who waits for a commit waits for it too.
const CHECKPOINT_PAGES: i64 = 16 * 1024;

/// `registry.db`.
pub struct SqliteRegistry {
    path: PathBuf,
    pub(super) writer: Mutex<Connection>,
    readers: Readers<Reader>,
    /// For users, roles, policies and settings, each looked up by its key.
    keyed: Readers<Reader>,
    started: Instant,
    checkpointer: Mutex<Connection>,
}

/// A connection for one query at a time.
pub(super) struct Reader {
    pub(super) conn: Connection,
    /// When its query is interrupted, microseconds after `SqliteRegistry::started`; 0: never.
    until_us: Arc<AtomicU64>,
}

impl Reader {
    fn open(path: &Path, started: Instant) -> StoreResult<Self> {
        let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.pragma_update(None, "query_only", true)?;
        let until_us = Arc::new(AtomicU64::new(0));
        let limit = Arc::clone(&until_us);
        let over = move || {
            let until = limit.load(Ordering::Relaxed);
            until != 0 && started.elapsed().as_micros() as u64 > until
        };
        conn.progress_handler(STEPS_PER_CHECK, Some(over))?;
        Ok(Self { conn, until_us })
    }
}

impl SqliteRegistry {
    /// Open or create the database at `path` (mode 0600: it holds password hashes) and bring it
    /// to this program's version.
    ///
    /// # Errors
    /// `Newer` when a later program wrote it; `Corrupt` when it is no registry.
    pub fn open(path: &Path) -> StoreResult<Self> {
        Self::open_with(path, READERS)
    }

    /// As [`SqliteRegistry::open`], with so many connections for readers, at least one.
    ///
    /// # Errors
    /// As [`SqliteRegistry::open`].
    pub fn open_with(path: &Path, readers: usize) -> StoreResult<Self> {
        create_private(path)?;
        let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        schema::migrate(&mut writer)?;
        let started = Instant::now();
        let open = |n| -> StoreResult<_> {
            let readers: StoreResult<_> = (0..n).map(|_| Reader::open(path, started)).collect();
            Ok(Readers::new(readers?))
        };
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: open(readers.max(1))?,
            keyed: open(1)?,
            started,
            checkpointer: Mutex::new(connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?),
        })
    }

    /// Have every reader run what lists and counters ask, so that the first requests find their
    /// statements prepared and their pages at hand.
    ///
    /// # Errors
    /// When the database fails.
    pub fn warm(&self) -> StoreResult<()> {
        let page = AgentQuery { limit: 1, ..AgentQuery::default() };
        self.readers.each(|reader| {
            let tx = reader.conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
            counters::summary(&tx)?;
            counters::overview(&tx)?;
            list::page(&tx, &page, 0)?;
            list::ids(&tx, &AgentQuery::default(), 0).map(drop)
        })
    }

    /// Have a test look at the connections of requests.
    #[cfg(test)]
    pub(super) fn watched(&self, mut watch: impl FnMut(&mut Connection)) {
        watch(&mut self.writer.lock());
        for readers in [&self.readers, &self.keyed] {
            let _ = readers.each(|reader| {
                watch(&mut reader.conn);
                Ok::<(), ()>(())
            });
        }
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Journal mode and `synchronous` level (1 NORMAL, 2 FULL) of the last transaction.
    ///
    /// # Errors
    /// When the database fails.
    pub fn durability(&self) -> StoreResult<(String, i64)> {
        let conn = self.writer.lock();
        let journal = conn.query_row("PRAGMA journal_mode", [], |r| r.get(0))?;
        Ok((journal, conn.query_row("PRAGMA synchronous", [], |r| r.get(0))?))
    }

    /// One durable transaction, with the row for the audit log that this thread has waiting.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let (out, written) = self.transact("FULL", |tx| {
            let out = work(tx)?;
            let written = audit::waiting(|entry| users::audit(tx, entry)).transpose()?;
            Ok((out, written))
        })?;
        if let Some(id) = written {
            audit::set(Pending::Written(id));
        }
        Ok(out)
    }

    /// Whether the work could be done: it is done and taken back.
    pub(super) fn try_out(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let mut conn = self.writer.lock();
        work(&conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    /// Copy the log into the database, as far as no reader needs it. Holds up no write.
    pub(super) fn copy_log(&self) -> StoreResult<()> {
        let conn = self.checkpointer.lock();
        Ok(conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }

    /// One transaction that survives a killed process, and a power cut once a later durable write
    /// or a checkpoint has followed: both persist the whole log up to their own end.
    pub(super) fn write_soft<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.transact("NORMAL", work)
    }

    /// The level is set for each transaction anew, so that none inherits another's.
    fn transact<T>(
        &self,
        synchronous: &str,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut conn = self.writer.lock();
        conn.pragma_update(None, "synchronous", synchronous)?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let out = work(&tx)?;
        tx.commit()?;
        Ok(out)
    }

    /// One snapshot for all that `work` reads, for a bounded time: a reader keeps the log from
    /// being copied.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.read_with(self.take_reader()?, work)
    }

    /// As [`SqliteRegistry::read`], of rows by their keys, where nobody waits behind a list.
    pub(super) fn read_keyed<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.read_with(self.keyed.take().ok_or(RegistryStoreError::Busy)?, work)
    }

    fn read_with<T>(
        &self,
        mut held: Held<'_, Reader>,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let Some(reader) = held.reader.as_mut() else { return Err(RegistryStoreError::Busy) };
        let until = self.started.elapsed() + READ_TIME_MAX;
        reader.until_us.store(until.as_micros() as u64, Ordering::Relaxed);
        let tx = reader.conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let done = work(&tx);
        drop(tx);
        reader.until_us.store(0, Ordering::Relaxed);
        done
    }

    /// The first reader that is free.
    pub(super) fn take_reader(&self) -> StoreResult<Held<'_, Reader>> {
        self.readers.take().ok_or(RegistryStoreError::Busy)
    }
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> StoreResult<Connection> {
    let mut conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // One plan for whatever values: else SQLite prepares some statements anew when a value differs.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    rusqlite::vtab::array::load_module(&conn)?;
    meter::attach(&mut conn)?;
    Ok(conn)
}

fn create_private(path: &Path) -> StoreResult<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|e| RegistryStoreError::Corrupt(format!("{}: {e}", path.display())))
}
