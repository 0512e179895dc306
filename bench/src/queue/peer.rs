//! The published design: one SQLite table; every event rewrites the row of its item, in a
//! transaction of its own; rows are marked when they are fetched and deleted when they were
//! accepted. Statements are prepared again for every call, as in the original. The later release
//! gathers up to 100 events or 500 ms in memory and runs without any flush.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

/// Number of items marked by one statement.
const MARK_IDS: usize = 500;
/// Longest time that a gathered event waits in memory.
const GATHER: Duration = Duration::from_millis(500);

/// The operation of an event on its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum Operation {
    /// The item is new.
    Create = 0,
    /// The item changed.
    Modify = 1,
    /// The item was deleted.
    Delete = 2,
}

const NOTHING_SENT: i64 = 3;
const PENDING: i64 = 0;
const SYNCING: i64 = 1;
const SYNCING_UPDATED: i64 = 2;
const EXISTING: i64 = 0;
const NEW: i64 = 1;
const NEW_DELETED: i64 = 2;

/// One event, with the item's document to be stored.
#[derive(Debug, Clone)]
pub struct Event {
    /// The document's id.
    pub id: String,
    /// JSON.
    pub document: String,
    /// The operation.
    pub operation: Operation,
    /// The document's version.
    pub version: i64,
}

/// Journal mode, synchronous level, and number of events per transaction.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// `WAL` or `DELETE`.
    pub journal: &'static str,
    /// `OFF`, `NORMAL` or `FULL`.
    pub synchronous: &'static str,
    /// Events per transaction.
    pub events: usize,
}

/// An open queue of the published design.
pub struct Peer {
    conn: Connection,
    mode: Mode,
    gathered: Vec<Event>,
    since: Instant,
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS persistent_queue(
    id TEXT PRIMARY KEY, idx TEXT NOT NULL, data TEXT NOT NULL, operation INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 0, sync_status INTEGER NOT NULL DEFAULT 0,
    create_status INTEGER NOT NULL DEFAULT 0, operation_syncing INTEGER NOT NULL DEFAULT 3,
    is_data_context INTEGER NOT NULL DEFAULT 0)";

impl Peer {
    pub fn open(path: &Path, mode: Mode) -> anyhow::Result<Self> {
        let conn = Connection::open(path)?;
        conn.pragma_update(None, "synchronous", mode.synchronous)?;
        conn.pragma_update(None, "journal_mode", mode.journal)?;
        conn.execute_batch(TABLE)?;
        Ok(Self { conn, mode, gathered: Vec::new(), since: Instant::now() })
    }

    /// Takes one event. It is durable, as far as the mode allows, once this returns; gathered
    /// events are durable once the transaction is full.
    pub fn submit(&mut self, event: Event) -> anyhow::Result<()> {
        if self.mode.events <= 1 {
            return self.transaction(|conn| store(conn, &event));
        }
        if self.gathered.is_empty() {
            self.since = Instant::now();
        }
        self.gathered.push(event);
        if self.gathered.len() >= self.mode.events || self.since.elapsed() >= GATHER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let events = std::mem::take(&mut self.gathered);
        if events.is_empty() {
            return Ok(());
        }
        self.transaction(|conn| events.iter().try_for_each(|event| store(conn, event)))
    }

    fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> anyhow::Result<T> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        match work(&self.conn) {
            Ok(value) => {
                self.conn.execute_batch("COMMIT")?;
                Ok(value)
            }
            Err(error) => {
                let _ = self.conn.execute_batch("ROLLBACK");
                Err(error.into())
            }
        }
    }

    /// Returns everything pending, oldest first, and marks it as being sent: id, index, document,
    /// operation, version.
    pub fn fetch_and_mark(&mut self) -> anyhow::Result<Vec<(String, String, String, i64, i64)>> {
        self.flush()?;
        self.transaction(|conn| {
            let found = conn
                .prepare(
                    "SELECT id, idx, data, operation, version FROM persistent_queue \
                     WHERE sync_status = ?1 ORDER BY rowid ASC",
                )?
                .query_map([PENDING], |r| {
                    Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?))
                })?
                .collect::<rusqlite::Result<Vec<(String, String, String, i64, i64)>>>()?;
            for chunk in found.chunks(MARK_IDS) {
                let places = vec!["?"; chunk.len()].join(",");
                let sql = format!(
                    "UPDATE persistent_queue SET sync_status = {SYNCING} WHERE id IN ({places})"
                );
                conn.prepare(&sql)?.execute(params_from_iter(chunk.iter().map(|row| &row.0)))?;
            }
            Ok(found)
        })
    }

    /// Deletes the rows of an accepted session.
    pub fn remove_synced(&mut self) -> anyhow::Result<()> {
        self.transaction(|conn| {
            conn.prepare("DELETE FROM persistent_queue WHERE sync_status = ?1")?
                .execute([SYNCING])?;
            conn.prepare(
                "DELETE FROM persistent_queue WHERE create_status = ?1 \
                 AND operation_syncing IN (?2, ?3)",
            )?
            .execute([NEW_DELETED, NOTHING_SENT, Operation::Delete as i64])?;
            conn.prepare(
                "UPDATE persistent_queue SET sync_status = ?1, create_status = ?2, \
                 operation_syncing = ?3 WHERE sync_status = ?4",
            )?
            .execute([PENDING, EXISTING, NOTHING_SENT, SYNCING_UPDATED])
            .map(drop)
        })
    }

    /// Flushes gathered events and closes; SQLite checkpoints its log.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.conn.close().map_err(|(_, error)| error).context("close")
    }
}

/// Inserts the item's row or coalesces the event into it.
fn store(conn: &Connection, event: &Event) -> rusqlite::Result<()> {
    let row = conn
        .prepare(
            "SELECT operation, sync_status, create_status, operation_syncing \
             FROM persistent_queue WHERE id = ?1",
        )?
        .query_row([&event.id], |r| Ok([r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?]))
        .optional()?;
    let text = |s: &str| Value::from(s.to_owned());
    let operation = event.operation as i64;
    let Some([held, sync, create, sent]) = row else {
        let create = if event.operation == Operation::Create { NEW } else { EXISTING };
        return conn
            .prepare(
                "INSERT INTO persistent_queue(id, idx, data, operation, version, sync_status, \
                 create_status, operation_syncing, is_data_context) \
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)",
            )?
            .execute(params_from_iter([
                text(&event.id),
                text(INDEX),
                text(&event.document),
                operation.into(),
                event.version.into(),
                PENDING.into(),
                create.into(),
                NOTHING_SENT.into(),
            ]))
            .map(drop);
    };
    if event.operation == Operation::Delete && sync == PENDING && create == NEW {
        // The server never received the item.
        return conn
            .prepare("DELETE FROM persistent_queue WHERE id = ?1")?
            .execute([&event.id])
            .map(drop);
    }
    let create = match (event.operation, create) {
        (Operation::Delete, NEW) => NEW_DELETED,
        (Operation::Create | Operation::Modify, NEW_DELETED) => NEW,
        _ => create,
    };
    let (sync, sent) = match sync {
        SYNCING => (SYNCING_UPDATED, held),
        _ => (sync, sent),
    };
    conn.prepare(
        "UPDATE persistent_queue SET idx = ?2, data = ?3, operation = ?4, version = ?5, \
         sync_status = ?6, create_status = ?7, operation_syncing = ?8, is_data_context = 0 \
         WHERE id = ?1",
    )?
    .execute(params_from_iter([
        text(&event.id),
        text(INDEX),
        text(&event.document),
        operation.into(),
        event.version.into(),
        sync.into(),
        create.into(),
        sent.into(),
    ]))
    .map(drop)
}

/// The index of file documents.
const INDEX: &str = "wazuh-states-fim-files";
