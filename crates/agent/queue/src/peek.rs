//! Reads the state of a database that another process may have open, for `queue status`.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};

use crate::error::QueueError;
use crate::events::oldest_event_us;
use crate::options::{QueueDurability, Transaction};
use crate::schema;
use crate::space::Size;

/// The state of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DatasetSummary {
    /// The dataset's name.
    pub name: String,
    /// Number of rows, including deleted items.
    pub items: u64,
    /// Pending items.
    pub pending: u64,
    /// Time of the oldest pending change, microseconds since the epoch.
    pub oldest_pending_us: Option<u64>,
    /// Items that the server refused.
    pub exceptions: u64,
    /// Time at which the last cycle ended, microseconds since the epoch.
    pub last_cycle_us: Option<u64>,
}

/// The state of a database.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DatabaseSummary {
    /// Every dataset, in the order of their creation.
    pub datasets: Vec<DatasetSummary>,
    /// Events queued.
    pub events: u64,
    /// Events dropped by the byte limit since the database was created.
    pub events_dropped: u64,
    /// Bytes of the database file.
    pub file_bytes: u64,
    /// Bytes of the write-ahead log file.
    pub wal_bytes: u64,
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Bytes of the database in use.
    pub bytes: u64,
    /// Time of the oldest event, microseconds since the epoch.
    pub oldest_event_us: Option<u64>,
    /// See [`crate::QueueOptions::durability`]. This and the following settings are those of the
    /// process that opened the database last.
    pub durability: QueueDurability,
    /// See [`crate::QueueOptions::transaction`].
    pub transaction: Transaction,
    /// See [`crate::QueueOptions::checkpoint_pages`].
    pub wal_autocheckpoint_pages: u64,
    /// See [`crate::QueueOptions::journal_size_limit_bytes`].
    pub journal_size_limit_bytes: u64,
    /// Time since which a reader has kept the log above its limit, microseconds since the epoch.
    pub wal_held_since_us: Option<u64>,
    /// True if the last use ended with a clean close; false while it is in use.
    pub closed: bool,
}

/// Reads the state of a database in one read transaction. Another process may have it open.
///
/// # Errors
/// Returns an error if it cannot be read, is not an agent's, or was written by a newer version.
pub fn peek(path: &Path) -> Result<DatabaseSummary, QueueError> {
    let failed = |source| QueueError::Sqlite {
        path: path.to_owned(),
        action: "reading",
        source: std::sync::Arc::new(source),
    };
    let conn = open(path)?;
    let size = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |m| m.len())
    };
    let number = |key| Ok::<_, rusqlite::Error>(schema::meta(&conn, key)?.unwrap_or(0) as u64);
    let read = || -> rusqlite::Result<DatabaseSummary> {
        Ok(DatabaseSummary {
            datasets: datasets(&conn)?,
            events: conn.query_row("SELECT count(*) FROM event", [], |row| row.get::<_, i64>(0))?
                as u64,
            events_dropped: schema::meta(&conn, schema::META_DROPPED)?.unwrap_or(0) as u64,
            file_bytes: size(""),
            wal_bytes: size("-wal"),
            page_bytes: schema::pragma(&conn, "page_size")? as u64,
            bytes: Size::of(&conn)?.used_bytes(),
            oldest_event_us: oldest_event_us(&conn)?,
            durability: match number(schema::META_POWER)? {
                1 => QueueDurability::Power,
                _ => QueueDurability::Process,
            },
            transaction: match number(schema::META_PER_EVENT)? {
                1 => Transaction::PerEvent,
                _ => Transaction::Group,
            },
            wal_autocheckpoint_pages: number(schema::META_CHECKPOINT)?,
            journal_size_limit_bytes: number(schema::META_LOG_LIMIT)?,
            wal_held_since_us: Some(number(schema::META_LOG_HELD)?).filter(|us| *us > 0),
            closed: schema::meta(&conn, schema::META_CLEAN)? == Some(1),
        })
    };
    read().map_err(failed)
}

/// Returns a note; see [`crate::Queue::meta_get`].
///
/// # Errors
/// Returns an error if the database cannot be read.
pub fn peek_note(path: &Path, name: &str) -> Result<Option<Vec<u8>>, QueueError> {
    let read = || -> rusqlite::Result<Option<Vec<u8>>> {
        schema::open_reader(path)?
            .query_row("SELECT value FROM note WHERE name = ?1", [name], |row| {
                Ok(row.get_ref(0)?.as_bytes()?.to_vec())
            })
            .optional()
    };
    read().map_err(|source| QueueError::Sqlite {
        path: path.to_owned(),
        action: "reading",
        source: std::sync::Arc::new(source),
    })
}

/// Opens a database for reading and begins a read transaction. Checks that this program knows its
/// version.
pub(crate) fn open(path: &Path) -> Result<Connection, QueueError> {
    let failed = |source| QueueError::Sqlite {
        path: path.to_owned(),
        action: "reading",
        source: std::sync::Arc::new(source),
    };
    let conn = schema::open_reader(path).map_err(failed)?;
    if schema::pragma(&conn, "application_id").map_err(failed)? != schema::APPLICATION_ID {
        return Err(QueueError::Foreign { path: path.to_owned() });
    }
    let found = schema::pragma(&conn, "user_version").map_err(failed)?;
    if found > schema::VERSION {
        let known = schema::VERSION;
        return Err(QueueError::Newer { path: path.to_owned(), found, known });
    }
    conn.execute_batch("BEGIN").map_err(failed)?;
    Ok(conn)
}

fn datasets(conn: &Connection) -> rusqlite::Result<Vec<DatasetSummary>> {
    // One pass over all items is acceptable here: it is run by hand, and WAL readers do not slow
    // the agent's writer.
    let mut select = conn.prepare(
        "SELECT d.name, count(i.seen), coalesce(sum(i.seen > d.told), 0), \
                min(CASE WHEN i.seen > d.told THEN i.seen END), \
                (SELECT count(*) FROM exception e WHERE e.dataset = d.id), d.last_cycle_us \
         FROM dataset d LEFT JOIN item i ON i.dataset = d.id GROUP BY d.id ORDER BY d.id",
    )?;
    let rows = select.query_map([], |row| {
        Ok(DatasetSummary {
            name: row.get(0)?,
            items: row.get::<_, i64>(1)? as u64,
            pending: row.get::<_, i64>(2)? as u64,
            oldest_pending_us: row.get::<_, Option<i64>>(3)?.map(|us| us as u64),
            exceptions: row.get::<_, i64>(4)? as u64,
            last_cycle_us: row.get::<_, Option<i64>>(5)?.map(|us| us as u64),
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Queue, QueueOptions};
    use env::clock::ManualClock;
    use env::random::SeededRandom;
    use model::Dataset;
    use std::sync::Arc;

    #[test]
    fn peek_reads_database_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let clock = Arc::new(ManualClock::at(1_000_000));
        let random = Arc::new(SeededRandom::new(1));
        let (queue, _) = Queue::open(&path, QueueOptions::default(), clock, random).unwrap();
        let packages = Dataset::new("inventory-packages");
        queue.put_document(&packages, b"bash", b"{}").unwrap();
        queue.meta_set("n", b"v").unwrap();
        let seen = peek(&path).unwrap();
        assert_eq!(seen.datasets.len(), 1);
        assert_eq!((seen.datasets[0].items, seen.datasets[0].pending), (1, 1));
        assert!(!seen.closed);
        assert_eq!(peek_note(&path, "n").unwrap().as_deref(), Some(&b"v"[..]));
        queue.close().unwrap();
        assert!(peek(&path).unwrap().closed);
    }

    #[test]
    fn peek_rejects_foreign_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t(a)").unwrap();
        assert!(matches!(peek(&path), Err(QueueError::Foreign { .. })));
    }
}
