//! The tables of agent.db and how its connections are set up (`docs/format/agent-db.md`).

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::options::{QueueDurability, QueueOptions, Transaction};

/// `PRAGMA application_id`: "HFAG".
pub(crate) const APPLICATION_ID: i64 = 0x4846_4147;
/// `PRAGMA user_version` of this program's format. Version 2 has the flags of files in observations;
/// everything of version 1 is valid in it.
pub(crate) const VERSION: i64 = 2;
/// Time that a connection waits for a lock of another process, such as a backup, milliseconds.
const BUSY_TIMEOUT_MS: u64 = 10_000;
/// Most prepared statements that a connection caches.
const STATEMENTS_MAX: usize = 48;

/// Creates the tables.
const CREATE: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE note(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE dataset(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    leased INTEGER NOT NULL DEFAULT 0, told INTEGER NOT NULL DEFAULT 0,
    reached INTEGER NOT NULL DEFAULT 0, unfinished INTEGER NOT NULL DEFAULT 0,
    cycle INTEGER NOT NULL DEFAULT 0,
    cursor_directory INTEGER NOT NULL DEFAULT 0, cursor_name BLOB NOT NULL DEFAULT x'',
    last_cycle_us INTEGER);
CREATE TABLE directory(id INTEGER PRIMARY KEY, dataset INTEGER NOT NULL, path BLOB NOT NULL);
CREATE TABLE item(
    dataset INTEGER NOT NULL, directory INTEGER NOT NULL, name BLOB NOT NULL,
    seen INTEGER NOT NULL, known INTEGER NOT NULL, gone INTEGER NOT NULL,
    observation BLOB NOT NULL,
    PRIMARY KEY(dataset, directory, name)) WITHOUT ROWID;
CREATE TABLE exception(
    dataset INTEGER NOT NULL, directory INTEGER NOT NULL, name BLOB NOT NULL,
    seen INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY(dataset, directory, name)) WITHOUT ROWID;
CREATE TABLE event(seq INTEGER PRIMARY KEY AUTOINCREMENT, dataset INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE epoch(first_seq INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);
";

/// Opens the writing connection, without changing the file or its settings.
pub(crate) fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    prepare(&conn)?;
    Ok(conn)
}

/// Applies the settings of both reading and writing connections.
fn prepare(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // With QPSG, plans do not depend on bound values. Otherwise each bound range is planned again.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Applies the settings that must be made before the first table exists.
pub(crate) fn shape(conn: &Connection, options: &QueueOptions) -> rusqlite::Result<()> {
    conn.pragma_update(None, "page_size", options.page_bytes)?;
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

/// Applies the settings of a writing connection.
pub(crate) fn configure(conn: &Connection, options: &QueueOptions) -> rusqlite::Result<()> {
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "wal_autocheckpoint", options.checkpoint_pages())?;
    let limit = i64::try_from(options.journal_size_limit_bytes).unwrap_or(i64::MAX);
    conn.pragma_update(None, "journal_size_limit", limit)?;
    conn.pragma_update(None, "cache_size", -i64::from(options.cache_bytes / 1024))?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "synchronous", "FULL")
}

/// Sets the durability of commits. Until this is called, a writing connection uses FULL.
pub(crate) fn set_durability(
    conn: &Connection,
    durability: QueueDurability,
) -> rusqlite::Result<()> {
    let synchronous = match durability {
        QueueDurability::Process => "NORMAL",
        QueueDurability::Power => "FULL",
    };
    conn.pragma_update(None, "synchronous", synchronous)
}

pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    prepare(&conn)?;
    Ok(conn)
}

/// Creates the tables in one transaction.
pub(crate) fn create(conn: &mut Connection) -> rusqlite::Result<()> {
    let tx = conn.transaction()?;
    tx.execute_batch(CREATE)?;
    set_meta(&tx, META_CLEAN, 1)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", VERSION)?;
    tx.commit()
}

/// Returns the number of a pragma.
pub(crate) fn pragma(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.pragma_query_value(None, name, |row| row.get(0))
}

/// Returns a number of the `meta` table; `None` if it does not exist or is no integer.
pub(crate) fn meta(conn: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    use rusqlite::OptionalExtension as _;
    conn.prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| Ok(row.get_ref(0)?.as_i64().ok()))
        .optional()
        .map(Option::flatten)
}

/// Sets a number of the `meta` table.
pub(crate) fn set_meta(conn: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES(?1, ?2)")?
        .execute((key, value))
        .map(drop)
}

/// Stores the settings of this process, for inspection by another process.
pub(crate) fn set_settings(conn: &Connection, options: &QueueOptions) -> rusqlite::Result<()> {
    let limit = i64::try_from(options.journal_size_limit_bytes).unwrap_or(i64::MAX);
    set_meta(conn, META_POWER, i64::from(options.durability == QueueDurability::Power))?;
    set_meta(conn, META_PER_EVENT, i64::from(options.transaction == Transaction::PerEvent))?;
    set_meta(conn, META_CHECKPOINT, i64::from(options.checkpoint_pages()))?;
    set_meta(conn, META_LOG_LIMIT, limit)?;
    set_meta(conn, META_LOG_HELD, 0)
}

/// `meta`: 1 while no process has the database open and the last one closed it.
pub(crate) const META_CLEAN: &str = "clean";
/// `meta`: the clock. It is not below any version whose row was removed.
pub(crate) const META_CLOCK: &str = "clock";
/// `meta`: events dropped by the byte limit.
pub(crate) const META_DROPPED: &str = "events_dropped";
/// `meta`: number of consecutive runs that met damage.
pub(crate) const META_DAMAGE_MET: &str = "damage_met";
/// `meta`: 1 with [`QueueDurability::Power`].
pub(crate) const META_POWER: &str = "power";
/// `meta`: 1 with [`Transaction::PerEvent`].
pub(crate) const META_PER_EVENT: &str = "per_event";
/// `meta`: [`QueueOptions::checkpoint_pages`].
pub(crate) const META_CHECKPOINT: &str = "wal_autocheckpoint";
/// `meta`: [`QueueOptions::journal_size_limit_bytes`].
pub(crate) const META_LOG_LIMIT: &str = "journal_size_limit";
/// `meta`: time since which a reader has kept the log above its limit, microseconds since the
/// epoch; 0 if none does.
pub(crate) const META_LOG_HELD: &str = "wal_held_since";
