//! The connections: one writer, a few readers, one reader for users and permissions (so that long
//! lists do not delay logins), and one that checkpoints.

use std::ffi::c_int;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use env::clock::{Clock as _, SystemClock};
use env::files::{FileIdentity, drop_cached_pages};
use parking_lot::Mutex;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::{ControlError, ControlResult, schema};
use sqlite::{Meter, Reader, ReaderPool, is_failed_flush, keep_log};

/// Default number of connections for readers; each has its own page cache.
const READERS: usize = 3;
/// Time that a connection waits for another process that locks the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept per connection.
const STATEMENTS_MAX: usize = 256;
/// Page cache of one connection, KiB.
const CACHE_KIB: i64 = 8 * 1024;
/// Pages of log (64 MiB) above which a commit checkpoints by itself. Below it, only
/// [`crate::ControlStore::checkpoint`] does, so that a commit does not wait for a checkpoint.
const CHECKPOINT_PAGES: c_int = 16 * 1024;

/// The failures of the database's disk.
struct DiskFailures {
    path: PathBuf,
    checkpoints_fail: AtomicBool,
    /// The first failed flush. A later flush that succeeds would not cover what the failed one did
    /// not write.
    flush: Mutex<Option<RegistryFailure>>,
}

/// The reason why the registry accepts no decision until it is opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryFailure {
    pub cause: String,
    /// Time of the failure, microseconds since the epoch.
    pub at_us: u64,
}

impl DiskFailures {
    fn new(path: &Path) -> Arc<Self> {
        let (checkpoints_fail, flush) = (AtomicBool::new(false), Mutex::new(None));
        Arc::new(Self { path: path.to_owned(), checkpoints_fail, flush })
    }

    /// Logs the first checkpoint that fails, and the next that succeeds.
    fn note_checkpoint(&self, done: &rusqlite::Result<()>) {
        let path = self.path.display();
        match done {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return,
            Err(error) if !self.checkpoints_fail.swap(true, Ordering::Relaxed) => {
                tracing::error!(%path, %error,
                    "checkpoint failed: the write-ahead log grows until one succeeds; check the disk");
            }
            Ok(()) if self.checkpoints_fail.swap(false, Ordering::Relaxed) => {
                tracing::info!(%path, "checkpoints work again");
            }
            _ => {}
        }
        self.note(done);
    }

    /// Records a failed flush.
    fn note(&self, done: &rusqlite::Result<()>) {
        if let Err(error) = done
            && is_failed_flush(error)
        {
            self.flush.lock().get_or_insert_with(|| {
                tracing::error!(path = %self.path.display(), %error,
                    "flush failed: no decision is accepted until the server is restarted; check the disk");
                RegistryFailure { cause: error.to_string(), at_us: SystemClock::new().now_us() }
            });
        }
    }

    /// Returns an error if a flush has failed.
    fn expect_none(&self) -> ControlResult<()> {
        let failure = self.flush.lock().clone();
        failure.map_or(Ok(()), |failure| Err(ControlError::Poisoned(failure.cause)))
    }
}

/// The registry's durable side: `registry.db`. The crate's head says what survives what.
pub struct ControlStore {
    path: PathBuf,
    /// The file that was opened.
    file: Option<FileIdentity>,
    pub(super) writer: Mutex<Writer>,
    pub(super) readers: ReaderPool,
    /// For users, roles, policies and settings, each looked up by its key.
    keyed: ReaderPool,
    /// Dropped last: the last connection that is closed would copy the log into the database.
    checkpointer: Mutex<Connection>,
    failures: Arc<DiskFailures>,
}

impl Drop for ControlStore {
    fn drop(&mut self) {
        if self.failures.expect_none().is_err() {
            keep_log(self.checkpointer.get_mut());
        }
    }
}

/// The writing connection, and the meter of its cost.
pub(super) struct Writer {
    pub(super) conn: Connection,
    meter: Meter,
    failures: Arc<DiskFailures>,
}

impl ControlStore {
    /// Opens or creates the database at `path` (mode 0600: it holds password hashes) and brings it
    /// to this program's version.
    ///
    /// # Errors
    /// `Newer` when a later program wrote it; `Corrupt` when it is not a registry.
    pub fn open(path: &Path) -> ControlResult<Self> {
        Self::open_with(path, READERS)
    }

    /// Opens the database as [`ControlStore::open`] does, with `readers` connections for queries,
    /// at least one.
    ///
    /// # Errors
    /// See [`ControlStore::open`].
    pub fn open_with(path: &Path, readers: usize) -> ControlResult<Self> {
        create_private(path)?;
        drop_cached_pages(path);
        let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        sqlite::expect_writable(&writer)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        schema::migrate(&mut writer)?;
        let failures = DiskFailures::new(path);
        checkpoint_after_commits(&mut writer, &failures)?;
        let meter = Meter::attach(&mut writer)?;
        Ok(Self {
            path: path.to_owned(),
            file: FileIdentity::of(path),
            writer: Mutex::new(Writer { conn: writer, meter, failures: Arc::clone(&failures) }),
            readers: ReaderPool::open(readers, || open_reader(path))?,
            keyed: ReaderPool::open(1, || open_reader(path))?,
            checkpointer: Mutex::new(connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?),
            failures,
        })
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
        self.failures.flush.lock().clone()
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
        work: impl FnOnce(&Transaction<'_>) -> ControlResult<()>,
    ) -> ControlResult<()> {
        let mut writer = self.writer.lock();
        let Writer { conn, meter, .. } = &mut *writer;
        let _charge = meter.charge(reader);
        work(&conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    /// Runs one transaction that survives a killed process, and a power cut once a later durable
    /// write or checkpoint has followed: both persist the log up to their own end.
    pub(super) fn write_soft<T>(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Transaction<'_>) -> ControlResult<T>,
    ) -> ControlResult<T> {
        transact(&mut self.writer.lock(), reader, "NORMAL", work)
    }

    /// Runs a query on one snapshot.
    pub(super) fn read<T>(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Transaction<'_>) -> ControlResult<T>,
    ) -> ControlResult<T> {
        read_from(&self.readers, reader, work)
    }

    /// As [`ControlStore::read`], for rows found by key. Such a query does not wait for a list.
    pub(super) fn read_keyed<T>(
        &self,
        reader: &Reader,
        work: impl FnOnce(&Transaction<'_>) -> ControlResult<T>,
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
        let conn = self.checkpointer.lock();
        let copied = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        self.failures.note_checkpoint(&copied);
        Ok(copied?)
    }
}

fn read_from<T>(
    pool: &ReaderPool,
    reader: &Reader,
    work: impl FnOnce(&Transaction<'_>) -> ControlResult<T>,
) -> ControlResult<T> {
    let answer = pool
        .read(reader, |conn| work(&conn.transaction_with_behavior(TransactionBehavior::Deferred)?));
    answer.unwrap_or(Err(ControlError::Busy))
}

/// Runs one transaction at a level of `synchronous`. The level is set each time, so that none
/// inherits the level of another.
pub(super) fn transact<T>(
    writer: &mut Writer,
    reader: &Reader,
    synchronous: &str,
    work: impl FnOnce(&Transaction<'_>) -> ControlResult<T>,
) -> ControlResult<T> {
    let Writer { conn, meter, failures } = writer;
    failures.expect_none()?;
    let _charge = meter.charge(reader);
    conn.pragma_update(None, "synchronous", synchronous)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let out = work(&tx)?;
    let committed = tx.commit();
    failures.note(&committed);
    committed?;
    Ok(out)
}

/// Checkpoints after a commit that leaves more than [`CHECKPOINT_PAGES`] in the log. SQLite's own
/// automatic checkpoints would ignore their errors.
fn checkpoint_after_commits(
    writer: &mut Connection,
    failures: &Arc<DiskFailures>,
) -> rusqlite::Result<()> {
    let failures = Arc::clone(failures);
    writer.wal_hook(Some(move |wal: &mut Wal, pages: c_int| {
        if pages >= CHECKPOINT_PAGES {
            failures.note_checkpoint(&wal.checkpoint());
        }
        // An error here would be reported as that of the commit, which is done. If it is a failed
        // flush, the next write is refused.
        Ok(())
    }))
}

fn open_reader(path: &Path) -> ControlResult<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

fn connect(path: &Path, flags: OpenFlags) -> ControlResult<Connection> {
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
