//! Settings that every connection has.

use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// Sets the size of a connection's page cache, in KiB, and the number of statements it keeps prepared,
/// and loads what queries with lists of values need.
///
/// # Errors
/// Returns an error if SQLite refuses a setting.
pub fn configure(conn: &Connection, cache_kib: i64, statements: usize) -> rusqlite::Result<()> {
    // Otherwise a bound LIMIT makes SQLite prepare a statement again for each value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "cache_size", -cache_kib)?;
    conn.set_prepared_statement_cache_capacity(statements);
    rusqlite::vtab::array::load_module(conn)
}
