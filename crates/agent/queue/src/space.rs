//! The space of a database: its size, unused pages, and checkpoints of the write-ahead log.

use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};

use crate::error::is_failed_flush;
use crate::schema;
use crate::writer::{Poison, Writer};

/// The size of a database.
pub(crate) struct Size {
    pub(crate) page_bytes: u64,
    pub(crate) pages: i64,
    pub(crate) unused: i64,
}

impl Size {
    pub(crate) fn of(conn: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            page_bytes: schema::pragma(conn, "page_size")? as u64,
            pages: schema::pragma(conn, "page_count")?,
            unused: schema::pragma(conn, "freelist_count")?,
        })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        (self.pages - self.unused) as u64 * self.page_bytes
    }
}

/// Gives back at most `pages` unused pages, or all if 0. Each step of the statement frees one page.
pub(crate) fn vacuum(conn: &Connection, pages: u32) -> rusqlite::Result<()> {
    let mut statement = conn.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Checkpoints the log and truncates it, as far as readers allow. Waits for readers.
pub(crate) fn fold(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Checkpoints the log without waiting for readers. A failure is only logged, and poisons the writer
/// if a flush failed.
pub(crate) fn fold_quietly(writer: &Writer) {
    if let Err(error) = fold_as_far_as_possible(&writer.conn) {
        if is_failed_flush(&error) {
            writer.poison(&error.to_string());
        }
        tracing::debug!(%error, "folding the log in");
    }
}

/// Checkpoints the log after each commit that leaves at least `pages_min` pages in it, if that is
/// not 0. SQLite's own automatic checkpoints ignore their errors; these log the first failure and
/// the next success. After a failed flush, further writes are refused: a later one that succeeds does
/// not cover what the failed one did not write. Replaces `wal_autocheckpoint`.
pub(crate) fn checkpoint_after_commits(
    conn: &mut Connection,
    path: &Path,
    pages_min: u32,
    poisoned: &Poison,
) -> rusqlite::Result<()> {
    let (path, poisoned, mut failing) = (path.to_path_buf(), Arc::clone(poisoned), false);
    let pages_min = c_int::try_from(pages_min).unwrap_or(c_int::MAX);
    let after_commit = move |log: &mut Wal, pages: c_int| {
        if pages_min == 0 || pages < pages_min {
            return Ok(());
        }
        let done = log.checkpoint();
        if let Err(error) = &done
            && is_failed_flush(error)
        {
            let _ = poisoned.set(error.to_string());
        }
        match done {
            Ok(()) if failing => {
                tracing::info!(path = %path.display(), "checkpoints work again");
                failing = false;
            }
            Err(error)
                if !failing && error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) =>
            {
                tracing::error!(path = %path.display(), %error,
                    "checkpoint failed: the write-ahead log grows until one succeeds; check the disk");
                failing = true;
            }
            _ => {}
        }
        // An error here would be reported as that of the commit, which is done.
        Ok(())
    };
    conn.wal_hook(Some(after_commit))
}

/// Part of the log that a checkpoint copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folded {
    All,
    /// A reader still needs the rest.
    Partly,
}

/// Checkpoints the log without waiting for readers. Returns how much was copied.
pub(crate) fn fold_as_far_as_possible(conn: &Connection) -> rusqlite::Result<Folded> {
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (busy, in_log, folded): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(if !busy && in_log == folded { Folded::All } else { Folded::Partly })
    })
}
