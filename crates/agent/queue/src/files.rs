//! The files of a database: their names and sizes, and the lock of the writing process.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{QueueError, io_error};

/// Permissions of every file of the database.
pub(crate) const FILE_MODE: u32 = 0o640;

/// Returns the database's path with a suffix appended.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn lock(path: &Path) -> Result<File, QueueError> {
    let lock_path = with_suffix(path, ".lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(FILE_MODE)
        .open(&lock_path)
        .map_err(|error| io_error(&lock_path, "open", error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(QueueError::Locked { path: path.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(io_error(&lock_path, "lock", error)),
    }
}

/// Returns true if a process has the database open. Does not take the lock, so that a process that is
/// about to open the database is not refused.
///
/// # Errors
/// Returns an error if the locks of the system cannot be read.
pub fn is_open(path: &Path) -> Result<bool, QueueError> {
    let locks = Path::new("/proc/locks");
    let Ok(lock) = std::fs::metadata(with_suffix(path, ".lock")) else { return Ok(false) };
    let held = std::fs::read_to_string(locks).map_err(|error| io_error(locks, "read", error))?;
    // The fields: number, kind, mode, access, process, `major:minor:inode`, range. The device that a
    // file names is not the one here on every file system.
    let inode = format!(":{}", lock.ino());
    let is_held = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some("FLOCK") && fields.nth(3).is_some_and(|file| file.ends_with(&inode))
    };
    Ok(held.lines().any(is_held))
}

pub(crate) fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
