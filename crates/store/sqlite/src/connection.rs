//! The settings of every connection.

use rusqlite::Connection;
use rusqlite::config::DbConfig;

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
