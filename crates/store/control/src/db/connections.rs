//! The connections: one writer, a few readers, one reader for users and permissions (so that long
//! lists do not delay logins), and one that checkpoints.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use env::files::{FileIdentity, drop_cached_pages};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::checkpointer::Checkpointer;
use super::decisions::{Kind, Open};
use super::failures::{Failures, RegistryFailure};
use super::logged::{self, Logged, Logging};
use crate::log::RowLog;
use crate::{ControlError, ControlResult, WriteContext, defaults, schema};
use sqlite::{Meter, Reader, ReaderPool};

/// Default number of connections for readers; each has its own page cache.
const READERS: usize = 3;
/// Time that a connection waits for another process that locks the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept per connection.
const STATEMENTS_MAX: usize = 256;
/// Page cache of one connection, KiB.
const CACHE_KIB: i64 = 8 * 1024;
/// The registry's durable side: `registry.db`. The crate's head says what survives what.
pub struct ControlStore {
    path: PathBuf,
    /// The file that was opened.
    file: Option<FileIdentity>,
    pub(super) writer: Mutex<Writer>,
    /// Calls that wait for the writer.
    pub(super) waiting: AtomicUsize,
    pub(super) readers: ReaderPool,
    /// For users, roles, policies and settings, each looked up by its key.
    keyed: ReaderPool,
    failures: Arc<Failures>,
    /// Dropped last: the last connection that is closed would copy the log into the database.
    checkpointer: Arc<Checkpointer>,
    checkpoints: Option<JoinHandle<()>>,
}

impl Drop for ControlStore {
    fn drop(&mut self) {
        self.checkpointer.stop();
        if let Some(thread) = self.checkpoints.take() {
            // Its panic is logged already.
            let _ = thread.join();
        }
        if self.failures.expect_none().is_err() {
            self.checkpointer.keep_log();
        }
    }
}

/// The writing connection, and the meter of its cost.
pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) meter: Meter,
    pub(super) failures: Arc<Failures>,
    /// `None` without a log: then each durable transaction is flushed.
    pub(super) log: Option<Logged>,
    /// The transaction that is open.
    pub(super) open: Option<Open>,
}

impl ControlStore {
    /// Opens or creates the database at `path` (mode 0600: it holds password hashes) and brings it
    /// to this program's version. Its rows are not logged, and each durable call flushes the disk.
    ///
    /// # Errors
    /// `Newer` when a later program wrote it; `Corrupt` when it is not a registry.
    pub fn open(path: &Path) -> ControlResult<Self> {
        Self::open_with(path, READERS)
    }

    /// Opens the database whose rows are logged, with `readers` connections for queries, at least one:
    /// applies the records that it lacks, and brings it to this program's version.
    ///
    /// # Errors
    /// As [`ControlStore::open`]; `Behind` if the log no longer has all records that it lacks, `Record`
    /// if one does not fit.
    pub fn open_logged(path: &Path, readers: usize, log: Arc<dyn RowLog>) -> ControlResult<Self> {
        create_private(path)?;
        drop_cached_pages(path);
        logged::replay(path, &*log)?;
        Self::open_file(path, readers, Logging::To(log))
    }

    /// Opens the database although its log cannot be opened: each durable call flushes the disk, and the
    /// changed rows are logged once the log is there again.
    ///
    /// # Errors
    /// As [`ControlStore::open`].
    pub fn open_without_log(path: &Path) -> ControlResult<Self> {
        Self::open_file(path, READERS, Logging::Later)
    }

    /// Opens the database as [`ControlStore::open`] does, with `readers` connections for queries,
    /// at least one.
    ///
    /// # Errors
    /// See [`ControlStore::open`].
    pub fn open_with(path: &Path, readers: usize) -> ControlResult<Self> {
        Self::open_file(path, readers, Logging::Never)
    }

    fn open_file(path: &Path, readers: usize, log: Logging) -> ControlResult<Self> {
        create_private(path)?;
        drop_cached_pages(path);
        let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        sqlite::expect_writable(&conn)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        schema::migrate(&mut conn)?;
        let failures = Failures::new(path);
        let checkpoints = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let checkpointer = Checkpointer::new(checkpoints, Arc::clone(&failures));
        checkpointer.watch(&mut conn)?;
        let log = match log {
            Logging::Never => None,
            Logging::Later => Some(Logged::start(&conn, None)?),
            Logging::To(log) => Some(Logged::start(&conn, Some(log))?),
        };
        let checkpoints = log.as_ref().map(|_| checkpointer.start()).transpose();
        let checkpoints =
            checkpoints.map_err(|source| ControlError::Io { path: path.to_owned(), source })?;
        let meter = Meter::attach(&mut conn)?;
        let writer = Writer { conn, meter, failures: Arc::clone(&failures), log, open: None };
        let store = Self {
            path: path.to_owned(),
            file: FileIdentity::of(path),
            writer: Mutex::new(writer),
            waiting: AtomicUsize::new(0),
            readers: ReaderPool::open(readers, || open_reader(path))?,
            keyed: ReaderPool::open(1, || open_reader(path))?,
            failures,
            checkpointer,
            checkpoints,
        };
        // A decision like others, so that it is logged.
        store.write(&WriteContext::server(), defaults::refresh)?;
        Ok(store)
    }

    /// Passes the connections that serve requests to a test.
    #[cfg(test)]
    pub(super) fn watched(&self, mut watch: impl FnMut(&mut Connection)) {
        watch(&mut self.writer.lock().conn);
        for readers in [&self.readers, &self.keyed] {
            let _ = readers.each(|conn| {
                watch(conn);
                Ok::<(), ()>(())
            });
        }
    }

    /// Path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the journal mode and the `synchronous` level (1 NORMAL, 2 FULL) of the last
    /// transaction.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn durability(&self) -> ControlResult<(String, i64)> {
        let conn = &self.writer.lock().conn;
        let journal = conn.query_row("PRAGMA journal_mode", [], |r| r.get(0))?;
        Ok((journal, conn.query_row("PRAGMA synchronous", [], |r| r.get(0))?))
    }

    /// Returns the failure because of which no decision is accepted until the database is opened
    /// again.
    pub fn failure(&self) -> Option<RegistryFailure> {
        self.failures.get()
    }

    /// Returns an error if the database file was replaced or removed: SQLite would go on writing into
    /// a file without a name, which ends with the process.
    pub(super) fn expect_file(&self) -> ControlResult<()> {
        if FileIdentity::of(&self.path) == self.file {
            return Ok(());
        }
        Err(ControlError::Gone(self.path.clone()))
    }

    /// Runs the work and rolls it back, to find out whether it would succeed.
    pub(super) fn try_out(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Connection) -> ControlResult<()>,
    ) -> ControlResult<()> {
        self.decide(reader, Kind::Trial, work)
    }

    /// Runs one transaction that survives a killed process, and a power cut once a later durable
    /// write or checkpoint has followed: both persist the log up to their own end.
    pub(super) fn write_soft<T>(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        self.decide(reader, Kind::Soft, work)
    }

    /// Runs a query on one snapshot.
    pub(super) fn read<T>(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        read_from(&self.readers, reader, work)
    }

    /// As [`ControlStore::read`], for rows found by key. Such a query does not wait for a list.
    pub(super) fn read_keyed<T>(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        read_from(&self.keyed, reader, work)
    }
}

impl ControlStore {
    /// Copies the whole database to a new file while it is in use; the copy is consistent.
    ///
    /// # Errors
    /// `Exists` if the file exists.
    pub fn backup_to(&self, file: &Path) -> ControlResult<()> {
        let name = file.display().to_string();
        if file.exists() {
            return Err(ControlError::Exists { what: "file", name });
        }
        // A separate connection, so that no reader waits for the copy.
        let conn = connect(self.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.execute("VACUUM INTO ?1", [&name])?;
        File::open(file)
            .and_then(|f| {
                f.set_permissions(Permissions::from_mode(0o600)).and_then(|()| f.sync_all())
            })
            .map_err(|e| ControlError::Corrupt(format!("{name}: {e}")))
    }

    /// Makes everything written so far survive a power cut, and checkpoints the write-ahead log.
    /// Does not block writers.
    pub fn checkpoint(&self) -> ControlResult<()> {
        self.checkpointer.checkpoint()
    }
}

fn read_from<T>(
    pool: &ReaderPool,
    reader: &Reader,
    work: impl FnOnce(&Connection) -> ControlResult<T>,
) -> ControlResult<T> {
    let answer = pool.read(reader, |conn| {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
        work(&tx)
    });
    answer.unwrap_or(Err(ControlError::Busy))
}

fn open_reader(path: &Path) -> ControlResult<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> ControlResult<Connection> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    sqlite::configure(&conn, CACHE_KIB, STATEMENTS_MAX)?;
    Ok(conn)
}

fn create_private(path: &Path) -> ControlResult<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|source| ControlError::Io { path: path.to_owned(), source })
}
