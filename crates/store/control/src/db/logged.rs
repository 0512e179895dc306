//! The rows of the database as records of a log: what is applied when the database is opened, and what
//! keeps the log from being trimmed.

use std::path::Path;
use std::sync::Arc;

use rows::{Applier, Capture, Rows};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior};

use super::connections::{ControlStore, Writer, connect};
use super::decisions::Kind;
use crate::log::{EXCLUDED, RowLog};
use crate::{ControlError, ControlResult, schema};
use sqlite::Reader;

/// Name of the setting that changes whenever a file of the folder `keys` has changed.
pub const KEYS_SETTING: &str = "keys";
/// Records applied in one transaction.
const RECORDS_PER_TRANSACTION: usize = 4_096;
/// Their bytes.
const BYTES_PER_TRANSACTION: usize = 16 * 1024 * 1024;

/// The log of a writer.
pub(super) struct Logged {
    pub(super) capture: Capture,
    /// `None` while the log cannot be opened: then changes wait in `unlogged`.
    pub(super) rows: Option<Arc<dyn RowLog>>,
    /// The position that [`ControlStore::floor`] stored last.
    floor: u64,
}

/// The way in which changes are logged.
pub(super) enum Logging {
    Never,
    /// They are noted, and logged by a later process.
    Later,
    To(Arc<dyn RowLog>),
}

impl Logged {
    /// Starts to note changes of the writer, whose transactions are FULL until then.
    pub(super) fn start(conn: &Connection, rows: Option<Arc<dyn RowLog>>) -> ControlResult<Self> {
        if let Some(rows) = &rows {
            // A new database, one of an older program, or one whose position was forgotten: everything
            // up to the end of the log is in it. If this were lost in a power cut after records were
            // appended, the next start would take the new end of the log for the position, and leave
            // them out.
            conn.execute(
                "INSERT INTO progress VALUES (0, ?1) ON CONFLICT (id)
                 DO UPDATE SET applied = excluded.applied WHERE applied = -1",
                [rows.end().cast_signed()],
            )?;
        }
        let capture = Capture::start(conn, &EXCLUDED)?;
        if rows.is_some() {
            conn.pragma_update(None, "synchronous", "NORMAL")?;
        }
        Ok(Self { capture, rows, floor: 0 })
    }
}

impl ControlStore {
    /// Logs the reports that no record has yet.
    ///
    /// # Errors
    /// Returns an error if the log or the database fails; a later call tries again.
    pub fn log_reports(&self) -> ControlResult<()> {
        loop {
            self.decide(&Reader::server(), Kind::Reports, |_| Ok(()))?;
            let writer = self.writer.lock();
            let log = writer.log.as_ref().filter(|log| log.rows.is_some());
            if !log.is_some_and(|log| log.capture.has_waiting()) {
                return Ok(());
            }
        }
    }

    /// Makes everything up to the end of the log durable here, and returns that position: the log may
    /// be trimmed below it. `u64::MAX` without a log.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn floor(&self) -> ControlResult<u64> {
        let mut writer = self.writer.lock();
        writer.settle();
        writer.failures.expect_none()?;
        let Writer { conn, log, failures, .. } = &mut *writer;
        let Some(Logged { rows: Some(rows), floor, .. }) = log else { return Ok(u64::MAX) };
        // Rows are appended under the writer's lock, so none are on their way.
        let end = rows.end();
        if end == *floor {
            return Ok(end);
        }
        // A checkpoint would not do: it leaves the log unflushed while a reader holds it up. Nor would an
        // update that changes nothing: SQLite writes no page then, and flushes nothing.
        conn.pragma_update(None, "synchronous", "FULL")?;
        let done = store_floor(conn, end.cast_signed());
        conn.pragma_update(None, "synchronous", "NORMAL")?;
        failures.note(&done);
        done?;
        *floor = end;
        Ok(end)
    }

    /// Returns the position that [`ControlStore::floor`] returned last, which stays durable.
    pub fn last_floor(&self) -> u64 {
        self.writer.lock().log.as_ref().map_or(u64::MAX, |log| log.floor)
    }

    /// Forgets which records a database has, durably: when it is opened next, it counts as having all of
    /// the log's. For a database of another moment than the log next to it. No server may run.
    ///
    /// # Errors
    /// Returns an error if the database cannot be written.
    pub fn forget_position(path: &Path) -> ControlResult<()> {
        let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        // An older version has no table for it.
        schema::migrate(&mut conn)?;
        conn.execute("INSERT OR REPLACE INTO progress VALUES (0, -1)", [])?;
        Ok(())
    }

    /// Returns a setting of a database that may belong to a follower.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn setting_of(path: &Path, name: &str) -> ControlResult<Option<String>> {
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let sql = "SELECT value FROM setting WHERE name = ?1";
        Ok(conn.query_row(sql, [name], |row| row.get(0)).optional()?)
    }

    /// Returns the position of the last record whose rows a database has; `None` if none were ever
    /// logged.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn position_of(path: &Path) -> ControlResult<Option<u64>> {
        Ok(applied(&connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?)?.get())
    }
}

/// Stores the position in a transaction that writes a page in any case.
fn store_floor(conn: &mut Connection, end: i64) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for applied in [-1, end] {
        tx.execute("UPDATE progress SET applied = ?1", [applied])?;
    }
    tx.commit()
}

/// The position that a database stored.
#[derive(Clone, Copy)]
enum Position {
    /// None yet: no rows of it were ever logged.
    None,
    /// It counts as having everything.
    Forgotten,
    At(u64),
}

impl Position {
    fn get(self) -> Option<u64> {
        match self {
            Self::At(position) => Some(position),
            Self::None | Self::Forgotten => None,
        }
    }
}

fn applied(conn: &Connection) -> ControlResult<Position> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE name = 'progress'";
    if conn.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(Position::None);
    }
    let applied = conn.query_row("SELECT applied FROM progress", [], |r| r.get::<_, i64>(0));
    Ok(match applied.optional()? {
        None => Position::None,
        Some(applied) => u64::try_from(applied).map_or(Position::Forgotten, Position::At),
    })
}

/// Applies the records after the position that the database stored, before it is migrated: rows fit
/// the schema that made them. A database that has more than the log is one of another journal, and keeps
/// what it has.
pub(super) fn replay(path: &Path, log: &dyn RowLog) -> ControlResult<()> {
    if let Some(applied) = ControlStore::position_of(path)?.filter(|applied| *applied > log.end()) {
        tracing::warn!(applied, end = log.end(), database = %path.display(),
            "the journal ends before what the registry has: it goes on with that");
        return ControlStore::forget_position(path);
    }
    ControlStore::catch_up(path, log).map(drop)
}

impl ControlStore {
    /// Applies the records of a log that a database lacks, durably, and stores the end of the log as its
    /// position: for a copy of another server's database. Returns the number of records applied.
    ///
    /// # Errors
    /// As [`ControlStore::open_logged`].
    pub fn catch_up(path: &Path, log: &dyn RowLog) -> ControlResult<usize> {
        let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        sqlite::expect_writable(&conn)?;
        schema::expect_known(&conn)?;
        let end = log.end();
        let applied = match applied(&conn)? {
            Position::At(applied) if applied < end => applied,
            Position::At(_) | Position::Forgotten => return Ok(0),
            Position::None => {
                // The journal of an older program has no rows.
                log.read(log.start(), &mut |first, _| Err(ControlError::BeforeJournal { first }))?;
                return Ok(0);
            }
        };
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        let mut batch = Vec::new();
        let (mut count, mut size) = (0, 0);
        log.read(applied, &mut |position, bytes| {
            let rows = Rows::decode(bytes);
            let rows = rows.map_err(|cause| ControlError::Record { position, cause })?;
            batch.push((position, rows));
            count += 1;
            size += bytes.len();
            if batch.len() < RECORDS_PER_TRANSACTION && size < BYTES_PER_TRANSACTION {
                return Ok(());
            }
            size = 0;
            apply(&mut conn, std::mem::take(&mut batch))
        })?;
        apply(&mut conn, batch)?;
        conn.execute("UPDATE progress SET applied = max(applied, ?1)", [end.cast_signed()])?;
        if count > 0 {
            tracing::info!(records = count, from = applied, "decisions replayed");
        }
        Ok(count)
    }
}

/// Applies records, and stores the position of the last. A record of a later schema than the database
/// has says that its server was upgraded there.
fn apply(conn: &mut Connection, batch: Vec<(u64, Rows)>) -> ControlResult<()> {
    let mut rest = batch.into_iter().peekable();
    while let Some((position, first)) = rest.peek() {
        let known = schema::expect_known(conn)?;
        if i64::from(first.schema) > known {
            schema::expect_version(first.schema)
                .map_err(|cause| ControlError::Record { position: *position, cause })?;
            schema::migrate(conn)?;
            continue;
        }
        let mut applier = Applier::new(conn, &EXCLUDED)?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut last = 0;
        while let Some((position, rows)) = rest.next_if(|(_, rows)| i64::from(rows.schema) <= known)
        {
            let applied = applier.apply(&tx, &rows);
            applied.map_err(|cause| ControlError::Record { position, cause })?;
            last = position;
        }
        tx.execute("UPDATE progress SET applied = ?1", [last.cast_signed()])?;
        tx.commit()?;
    }
    Ok(())
}
