//! Connections for the queries of one database. Their number is fixed. Each is used by one query at
//! a time and for a bounded time, because a query keeps the write-ahead log from being
//! checkpointed.
//!
//! # Locking
//! See [`crate::fair_readers`]. A query holds its connection and no lock; only `each`, which runs before
//! requests are served, visits all free readers with the lock held. The writer of the same database
//! is behind a mutex of its own. The work of `paused` may take it, so a caller that holds the
//! writer takes no connection here, and a query does not take the writer: then none of them waits
//! for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::fair_readers::Readers;
use crate::limits::READ_TIME_MAX;
use crate::meter::Meter;
use crate::reader::Reader;

/// Virtual machine steps between two checks of the time.
const STEPS_PER_CHECK: i32 = 20_000;

/// The connections for queries.
pub struct ReaderPool {
    readers: Readers<Timed>,
    started: Instant,
    time_max: Duration,
}

/// A connection whose queries are measured and interrupted.
struct Timed {
    conn: Connection,
    meter: Meter,
    /// Time at which the query is interrupted, microseconds after [`ReaderPool::started`]; 0 means
    /// never.
    until_us: Arc<AtomicU64>,
}

impl ReaderPool {
    /// Opens connections for queries, at least one.
    pub fn open<E: From<rusqlite::Error>>(
        count: usize,
        connect: impl Fn() -> Result<Connection, E>,
    ) -> Result<Self, E> {
        let started = Instant::now();
        let readers: Result<_, E> =
            (0..count.max(1)).map(|_| Ok(Timed::new(connect()?, started)?)).collect();
        Ok(Self { readers: Readers::new(readers?), started, time_max: READ_TIME_MAX })
    }

    /// Runs a query on a connection; `None` if none became free in time. The query is interrupted
    /// after [`READ_TIME_MAX`].
    pub fn read<T>(&self, reader: &Reader, query: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let run =
            |timed: &mut Timed| timed.run(reader, self.started.elapsed() + self.time_max, query);
        self.readers.with(reader, run)
    }

    /// Runs work while no query runs: new queries wait, and those that run are waited for. `None`
    /// if one of them ran for longer than `wait`; the work did not run.
    pub fn paused<T>(&self, wait: Duration, work: impl FnOnce() -> T) -> Option<T> {
        self.readers.paused(wait, work)
    }

    /// Runs a query once on every free connection.
    pub fn each<E>(
        &self,
        mut query: impl FnMut(&mut Connection) -> Result<(), E>,
    ) -> Result<(), E> {
        self.readers.each(|timed| query(&mut timed.conn))
    }
}

impl Timed {
    fn new(mut conn: Connection, started: Instant) -> rusqlite::Result<Self> {
        let meter = Meter::attach(&mut conn)?;
        let until_us = Arc::new(AtomicU64::new(0));
        let limit = Arc::clone(&until_us);
        let over = move || {
            let until = limit.load(Ordering::Relaxed);
            until != 0 && started.elapsed().as_micros() as u64 > until
        };
        conn.progress_handler(STEPS_PER_CHECK, Some(over))?;
        Ok(Self { conn, meter, until_us })
    }

    fn run<T>(
        &mut self,
        reader: &Reader,
        until: Duration,
        query: impl FnOnce(&mut Connection) -> T,
    ) -> T {
        let _charge = self.meter.charge(reader);
        self.until_us.store(until.as_micros() as u64, Ordering::Relaxed);
        let answer = query(&mut self.conn);
        self.until_us.store(0, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_query_is_interrupted_and_connection_is_reusable() {
        let open = || Connection::open_in_memory();
        let mut pool = ReaderPool::open(1, open).unwrap();
        pool.time_max = Duration::from_millis(20);
        let count = |sql: &str| {
            let query = |conn: &mut Connection| conn.query_row(sql, [], |r| r.get::<_, i64>(0));
            pool.read(&Reader::server(), query).unwrap()
        };
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT count(*) FROM n";
        let error = count(endless).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::OperationInterrupted));
        assert_eq!(count("SELECT 7"), Ok(7));
    }
}
