//! The operating system's page cache after a failed flush.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Drops the cached pages of a SQLite database and its log, if a log was left behind, so that what
/// is read next is what the disk has.
///
/// Linux marks a page as clean even if it could not be written. A reader then finds data that a
/// power cut takes away, and on ext4 a page of a file that had grown may not reach the disk even
/// when it is written and flushed again.
///
/// Call it before the database is opened: closing a file releases the locks that SQLite holds on
/// it in this process.
pub fn drop_cached_pages(database: &Path) {
    let mut log = OsString::from(database);
    log.push("-wal");
    let log = Path::new(&log);
    if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        for path in [database, log] {
            // An error costs nothing but the doubt: the advice is not a condition of opening.
            let _ = File::open(path).map(|file| fadvise(&file, 0, None, Advice::DontNeed));
        }
    }
}
