//! The write-ahead log of `state.db`, and the bound on its size.
//!
//! A checkpoint copies the log into the database. After a complete copy the log is overwritten from
//! its beginning, but only once no query reads from it. Queries that overlap without a pause would
//! let it grow, and what a killed process left behind would be appended to. So the log is truncated
//! at opening and at a clean stop, and above twice its limit a checkpoint holds new queries back
//! for a moment and truncates it.
//!
//! A running backup reads outside the pool: the log grows until the backup ends.
//!
//! # Locking
//! `checkpointer`, then the pool (held back by [`sqlite::ReaderPool::paused`]), then `writer`. No
//! call that holds the writer takes a connection of the pool, so a pause never waits for itself.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::Position;
use rusqlite::Connection;

use super::StateStore;
use super::connections::BUSY_WAIT;
use crate::error::{Context, StateError};

/// Time for which new queries wait while the log is truncated.
const PAUSE: Duration = Duration::from_millis(50);
/// The log is truncated above this multiple of its limit.
const TRUNCATED_ABOVE: u64 = 2;
/// Above this multiple of the limit every running query is waited for. Each is interrupted after
/// [`sqlite::READ_TIME_MAX`], so the log has a bound however long queries run.
const DRAINED_ABOVE: u64 = 8;
/// Name of the operation in errors.
const WHAT: &str = "checkpoint the state";

impl StateStore {
    /// Makes applied records survive a power cut, and truncates the write-ahead log if it is too
    /// large. Returns the position up to which that holds, which is lower than the applied one when
    /// a reader kept the checkpoint from completing.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn checkpoint(&self) -> Result<Position, StateError> {
        // Most of the work is done without holding the writer; the second checkpoint then copies
        // the few pages written in the meantime, so that the log can restart with the next write.
        checkpoint(&self.checkpointer.lock())?;
        {
            let db = self.writer.lock();
            let position = self.applied.load(Ordering::Acquire);
            if checkpoint(&db)? {
                self.persisted.fetch_max(position, Ordering::AcqRel);
            }
        }
        let size = bytes(&self.file) / self.wal_bytes_max.max(1);
        if size >= DRAINED_ABOVE {
            self.truncate_wal(sqlite::READ_TIME_MAX + PAUSE)?;
        } else if size >= TRUNCATED_ABOVE {
            self.truncate_wal(PAUSE)?;
        }
        Ok(Position(self.persisted.load(Ordering::Acquire)))
    }

    /// Returns true if the write-ahead log is so large that a checkpoint is due.
    pub fn checkpoint_due(&self) -> bool {
        self.log_bytes() > self.wal_bytes_max
    }

    /// Returns the size of the write-ahead log, bytes: what a checkpoint moves out of it.
    pub fn log_bytes(&self) -> u64 {
        bytes(&self.file)
    }

    /// Makes a checkpoint and gives the space of the write-ahead log back to the file system.
    /// Returns false if a query that is running prevents it; the log then stays for now.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn shrink(&self) -> Result<bool, StateError> {
        self.truncate_wal(PAUSE)
    }

    /// Makes a checkpoint and truncates the log while no query runs. Waits for those that run for
    /// at most `wait`; returns false if one runs for longer, or a backup is running.
    fn truncate_wal(&self, wait: Duration) -> Result<bool, StateError> {
        let checkpointer = self.checkpointer.lock();
        // Copied before the queries are held back, so that the pause is short.
        checkpoint(&checkpointer)?;
        let truncated = self.readers.paused(wait, || {
            let db = self.writer.lock();
            let position = self.applied.load(Ordering::Acquire);
            let truncated = truncate(&db)?;
            if truncated {
                self.persisted.fetch_max(position, Ordering::AcqRel);
            }
            Ok(truncated)
        });
        truncated.unwrap_or(Ok(false))
    }
}

/// Returns the size of a database's log, bytes.
fn bytes(database: &Path) -> u64 {
    let mut log = OsString::from(database);
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |log| log.len())
}

/// Copies the log into the database and flushes both. Returns true if all of it was copied.
pub(super) fn checkpoint(db: &Connection) -> Result<bool, StateError> {
    run(db, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Truncates the log that the last process left behind. On a full disk it stays, and the database opens:
/// the server reports the full disk itself.
pub(super) fn truncate_left_behind(db: &Connection) -> Result<(), StateError> {
    match truncate(db) {
        Err(StateError::Full { .. }) => Ok(()),
        truncated => truncated.map(drop),
    }
}

/// Copies the log into the database and truncates it. Returns false if a reader or another process
/// prevents it for longer than [`PAUSE`].
fn truncate(db: &Connection) -> Result<bool, StateError> {
    db.busy_timeout(PAUSE).context(WHAT)?;
    let truncated = run(db, "PRAGMA wal_checkpoint(TRUNCATE)");
    db.busy_timeout(BUSY_WAIT).context(WHAT)?;
    truncated
}

fn run(db: &Connection, sql: &str) -> Result<bool, StateError> {
    db.query_row(sql, [], |r| {
        let (busy, log, copied): (i64, i64, i64) = (r.get(0)?, r.get(1)?, r.get(2)?);
        Ok(busy == 0 && log == copied)
    })
    .context(WHAT)
}
