//! The files of a database: their names and sizes, and the lock of the writing process.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{QueueError, io_error};

/// Permissions of every file of the database.
pub(crate) const FILE_MODE: u32 = 0o640;

/// Returns the database's path with a suffix appended.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn lock(path: &Path) -> Result<File, QueueError> {
    let lock_path = beside(path, ".lock");
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

pub(crate) fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
