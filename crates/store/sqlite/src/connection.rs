//! The settings of every connection.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ffi};

/// Returns true if the error is a failed flush: what the disk has of the file is unknown then.
pub fn is_failed_flush(error: &Error) -> bool {
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

/// Fails if SQLite opened the database read-only. It does so silently if the file could not be
/// opened for writing, whatever the cause; then every write fails later.
///
/// # Errors
/// Returns `SQLITE_READONLY` for a read-only connection.
pub fn expect_writable(conn: &Connection) -> rusqlite::Result<()> {
    if !conn.is_readonly("main")? {
        return Ok(());
    }
    let why = "the file could not be opened for writing (I/O error, permissions or a read-only \
               file system); see the kernel's log, check the disk, then start again";
    let code = ffi::Error::new(ffi::SQLITE_READONLY);
    Err(Error::SqliteFailure(code, Some(why.to_owned())))
}

#[cfg(test)]
mod tests {
    use rusqlite::OpenFlags;

    use super::*;

    #[test]
    fn connection_that_fell_back_to_read_only_is_refused() {
        let file = std::env::temp_dir().join(format!("sqlite-read-only-{}", std::process::id()));
        let writer = Connection::open(&file).unwrap();
        writer.execute_batch("CREATE TABLE t (n INTEGER)").unwrap();
        assert_eq!(expect_writable(&writer), Ok(()));
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let fallen = Connection::open_with_flags(&file, flags).unwrap();
        let refused = expect_writable(&fallen).unwrap_err();
        assert!(refused.to_string().contains("opened for writing"), "{refused}");
        std::fs::remove_file(&file).unwrap();
    }
}
