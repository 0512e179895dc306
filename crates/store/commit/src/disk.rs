//! Free disk space: a warning before the disk is full, and a refusal before writes fail.

use std::io;
use std::path::Path;

/// Free space below which the operator is warned, bytes.
const DISK_LOW_BYTES: u64 = 1024 * 1024 * 1024;
/// Free space below which writes are refused, bytes.
const DISK_CRITICAL_BYTES: u64 = 128 * 1024 * 1024;

/// Thresholds of free space, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskThresholds {
    /// Below this the operator is warned.
    pub low_bytes: u64,
    /// Below this writes are refused.
    pub critical_bytes: u64,
}

impl Default for DiskThresholds {
    fn default() -> Self {
        Self { low_bytes: DISK_LOW_BYTES, critical_bytes: DISK_CRITICAL_BYTES }
    }
}

/// Free space of a folder's file system, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskState {
    Fine(u64),
    /// Low: warn.
    Low(u64),
    /// Too low: refuse writes.
    Critical(u64),
}

impl DiskState {
    /// Classifies a number of free bytes.
    pub fn of(free_bytes: u64, thresholds: &DiskThresholds) -> Self {
        if free_bytes < thresholds.critical_bytes {
            Self::Critical(free_bytes)
        } else if free_bytes < thresholds.low_bytes {
            Self::Low(free_bytes)
        } else {
            Self::Fine(free_bytes)
        }
    }

    pub fn free_bytes(self) -> u64 {
        match self {
            Self::Fine(free) | Self::Low(free) | Self::Critical(free) => free,
        }
    }
}

/// Asks the file system that holds `folder` for the space that this process may still use.
///
/// # Errors
/// Returns an error if the file system cannot be queried.
pub(crate) fn disk_state(folder: &Path, thresholds: &DiskThresholds) -> io::Result<DiskState> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(DiskState::of(stat.f_bavail.saturating_mul(stat.f_frsize), thresholds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_state_depends_on_free_space_thresholds() {
        let at = DiskThresholds { low_bytes: 100, critical_bytes: 10 };
        assert_eq!(DiskState::of(100, &at), DiskState::Fine(100));
        assert_eq!(DiskState::of(99, &at), DiskState::Low(99));
        assert_eq!(DiskState::of(10, &at), DiskState::Low(10));
        assert_eq!(DiskState::of(9, &at), DiskState::Critical(9));
    }

    #[test]
    fn disk_state_reports_free_bytes_of_an_existing_folder() {
        let dir = tempfile::tempdir().unwrap();
        assert!(disk_state(dir.path(), &DiskThresholds::default()).unwrap().free_bytes() > 0);
        assert!(disk_state(&dir.path().join("missing"), &DiskThresholds::default()).is_err());
    }
}
