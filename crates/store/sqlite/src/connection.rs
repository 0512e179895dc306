//! The settings of every connection.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ffi};

/// Returns true if the error is a failed flush: what the disk has of the file is unknown then.
pub fn is_failed_flush(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|cause| {
        matches!(cause.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
    })
}

/// Leaves the log as it is when the connection is closed. Otherwise the last connection copies it
/// into the database and removes it, which loses its content if the copy does not reach the disk.
pub fn keep_log(conn: &Connection) {
    let set = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    debug_assert!(set.is_ok(), "{set:?}");
}

/// Sets the size of a connection's page cache, in KiB, and the number of statements that it keeps
/// prepared, and loads the module for parameters that are lists.
///
/// # Errors
/// Returns an error if SQLite refuses a setting.
pub fn configure(conn: &Connection, cache_kib: i64, statements: usize) -> rusqlite::Result<()> {
    // Without this, SQLite prepares a statement again for each value of a bound LIMIT.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "cache_size", -cache_kib)?;
    conn.set_prepared_statement_cache_capacity(statements);
    rusqlite::vtab::array::load_module(conn)
}
