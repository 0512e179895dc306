//! Connections for queries: a fixed number, each used by one query at a time and for a bounded
//! time, because a reader pins the write-ahead log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::error::{Context, StateError};
use crate::lend::Readers;
use crate::limits::READ_TIME_MAX;

/// Virtual machine steps between two looks at the clock.
const STEPS_PER_CHECK: i32 = 20_000;
/// Pages that each reader may cache, as `PRAGMA cache_size` takes it: 8 MiB.
const READER_CACHE: i64 = -8 * 1024;
/// Statements that each reader keeps prepared.
const READER_STATEMENTS: usize = 32;

struct Reader {
    db: Connection,
    /// When its query is interrupted, microseconds after `Pool::started`; 0: never.
    until_us: Arc<AtomicU64>,
}

/// The connections for queries.
pub(super) struct Pool {
    file: PathBuf,
    readers: Readers<Reader>,
    started: Instant,
    read_time_max: Duration,
}

impl Pool {
    pub(super) fn open(file: &Path, readers: usize) -> Result<Self, StateError> {
        let started = Instant::now();
        let free = (0..readers.max(1))
            .map(|_| Reader::open(file, started))
            .collect::<Result<_, _>>()
            .context("open state.db for queries")?;
        Ok(Self {
            file: file.to_owned(),
            readers: Readers::new(free),
            started,
            read_time_max: READ_TIME_MAX,
        })
    }

    /// Run a query on one snapshot.
    pub(super) fn read<T>(
        &self,
        what: &str,
        query: impl FnOnce(&Connection) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let held = self.readers.take();
        let reader = held.as_ref().and_then(|held| held.reader.as_ref());
        let reader = reader.ok_or_else(|| StateError::Busy { what: what.to_owned() })?;
        let until = self.started.elapsed() + self.read_time_max;
        reader.until_us.store(until.as_micros() as u64, Ordering::Relaxed);
        let answer = snapshot(&reader.db, what, query);
        reader.until_us.store(0, Ordering::Relaxed);
        answer
    }

    /// Have every free connection run `query` once.
    pub(super) fn each(
        &self,
        what: &str,
        query: impl Fn(&Connection) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        self.readers.each(|reader| snapshot(&reader.db, what, &query))
    }

    /// A connection of one's own, without a limit on its time.
    pub(super) fn detached(&self) -> Result<Connection, StateError> {
        Reader::open(&self.file, self.started).map(|r| r.db).context("open state.db for a copy")
    }

    /// Have a test look at the free connections.
    #[cfg(test)]
    pub(super) fn watched(&self, mut watch: impl FnMut(&mut Connection)) {
        let _ = self.readers.each(|reader| {
            watch(&mut reader.db);
            Ok::<(), ()>(())
        });
    }
}

fn snapshot<T>(
    db: &Connection,
    what: &str,
    query: impl FnOnce(&Connection) -> Result<T, StateError>,
) -> Result<T, StateError> {
    // Dropped without a commit: a read has nothing to keep.
    let tx = db.unchecked_transaction().context(what)?;
    query(&tx)
}

impl Reader {
    fn open(file: &Path, started: Instant) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(file, flags)?;
        crate::meter::attach(&mut db)?;
        super::keep_plans(&db)?;
        db.pragma_update(None, "cache_size", READER_CACHE)?;
        db.set_prepared_statement_cache_capacity(READER_STATEMENTS);
        let until_us = Arc::new(AtomicU64::new(0));
        let limit = Arc::clone(&until_us);
        rusqlite::vtab::array::load_module(&db)?;
        db.progress_handler(
            STEPS_PER_CHECK,
            Some(move || {
                let until = limit.load(Ordering::Relaxed);
                until != 0 && started.elapsed().as_micros() as u64 > until
            }),
        )?;
        Ok(Self { db, until_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_runs_for_too_long_is_interrupted_and_the_reader_lives() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.db");
        Connection::open(&file).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
        let mut pool = Pool::open(&file, 1).unwrap();
        pool.read_time_max = Duration::from_millis(20);
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT count(*) FROM n";
        let error = pool
            .read("count", |db| db.query_row(endless, [], |r| r.get::<_, i64>(0)).context("count"))
            .unwrap_err();
        assert!(matches!(error, StateError::TooLong { .. }), "{error}");
        let one = pool
            .read("count", |db| {
                db.query_row("SELECT count(*) FROM a", [], |r| r.get::<_, i64>(0)).context("count")
            })
            .unwrap();
        assert_eq!(one, 0);
    }
}
