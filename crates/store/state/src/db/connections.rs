//! The connections to `state.db`: one that writes, one that checkpoints, and those for queries.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{Context, StateError};

/// Page cache of the writer, KiB: the largest batch fits.
const WRITER_CACHE_KIB: i64 = 64 * 1024;
/// Statements that the writer keeps prepared.
const WRITER_STATEMENTS: usize = 64;
/// Page cache of each reader, KiB.
const READER_CACHE_KIB: i64 = 8 * 1024;
/// Statements that each reader keeps prepared.
const READER_STATEMENTS: usize = 48;
/// Time that another process may lock the file before a write is refused.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(1);

/// Opens a connection that writes. The write-ahead log is truncated to `wal_bytes_max` when it
/// restarts.
pub(super) fn open_writer(file: &Path, wal_bytes_max: u64) -> Result<Connection, StateError> {
    let db = Connection::open(file).context("open state.db")?;
    let set = || {
        sqlite::expect_writable(&db)?;
        db.busy_timeout(BUSY_WAIT)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        db.pragma_update(None, "journal_size_limit", wal_bytes_max.cast_signed())
    };
    if let Err(error) = set() {
        let not_ours = error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase);
        if not_ours {
            return Err(StateError::NotOurs { path: file.to_owned(), reason: error.to_string() });
        }
        return Err(error).context("open state.db");
    }
    sqlite::configure(&db, WRITER_CACHE_KIB, WRITER_STATEMENTS).context("open state.db")?;
    Ok(db)
}

pub(super) fn open_reader(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    sqlite::configure(&db, READER_CACHE_KIB, READER_STATEMENTS)?;
    Ok(db)
}

pub(super) fn snapshot<T>(
    db: &Connection,
    what: &str,
    query: impl FnOnce(&Connection) -> Result<T, StateError>,
) -> Result<T, StateError> {
    // Dropped without a commit: a read transaction has nothing to store.
    let tx = db.unchecked_transaction().context(what)?;
    query(&tx)
}
