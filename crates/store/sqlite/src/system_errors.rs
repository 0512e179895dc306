//! Failed calls of the operating system, as SQLite reports them to its log.
//!
//! An error of SQLite says that a file could not be opened or read, but not why. The log has the
//! call, the file and the cause (<https://sqlite.org/errlog.html>).

use std::ffi::c_int;
use std::io;
use std::sync::LazyLock;
use std::time::Instant;

use env::sources::LogLimit;
use parking_lot::Mutex;
use rusqlite::ffi;

static LINES: LazyLock<(Instant, Mutex<LogLimit>)> =
    LazyLock::new(|| (Instant::now(), Mutex::default()));

/// Logs failed calls of the operating system from now on, at most ten a minute. Call this before a
/// database is opened, and while no other thread uses SQLite.
pub fn log_system_errors() {
    #[expect(unsafe_code, reason = "the setting is not thread-safe")]
    // SAFETY: the caller guarantees that no other thread uses SQLite. The callback makes no call of
    // SQLite and is thread-safe.
    let set = unsafe { rusqlite::trace::config_log(Some(note)) };
    if let Err(error) = set {
        tracing::warn!("errors of SQLite are logged without their cause: {error}");
    }
}

fn note(code: c_int, text: &str) {
    let Some(text) = cause(code, text) else { return };
    let (begun, lines) = &*LINES;
    if let Some(suppressed) = lines.lock().line(None, begun.elapsed()) {
        tracing::warn!(suppressed, "sqlite: {text}");
    }
}

/// Returns the failed call with its file and cause. A file that does not exist is no failure: its
/// absence is reported by the caller, where it matters.
fn cause(code: c_int, text: &str) -> Option<String> {
    if !matches!(code & 0xff, ffi::SQLITE_CANTOPEN | ffi::SQLITE_IOERR) {
        return None;
    }
    // The form is `os_unix.c:LINE: (ERRNO) CALL(FILE) - TEXT`; the text may be empty.
    let (_, text) = text.strip_prefix("os_unix.c:")?.split_once(": (")?;
    let (number, call) = text.split_once(") ")?;
    let cause = io::Error::from_raw_os_error(number.parse().ok()?);
    let (call, _) = call.rsplit_once(" - ")?;
    (cause.kind() != io::ErrorKind::NotFound).then(|| format!("{call}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_is_reported_with_file_and_cause() {
        let full = "os_unix.c:45123: (24) open(/d/registry.db-wal) - ";
        let shown = Some("open(/d/registry.db-wal): Too many open files (os error 24)".to_owned());
        assert_eq!(cause(ffi::SQLITE_CANTOPEN, full), shown);
        assert_eq!(cause(ffi::SQLITE_IOERR | 4 << 8, full), shown);
        assert_eq!(cause(ffi::SQLITE_NOTICE, full), None);
        let missing = "os_unix.c:45123: (2) open(/d/registry.db) - No such file or directory";
        assert_eq!(cause(ffi::SQLITE_CANTOPEN, missing), None);
    }
}
