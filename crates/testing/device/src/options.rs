//! The options of a device.

use std::time::Duration;

/// Unit in which writes are counted, classified and kept, bytes.
pub const BLOCK_BYTES: usize = 4096;
/// Smallest device, in bytes: `mkfs.ext4` makes a journal from here on.
pub const DEVICE_BYTES_MIN: u64 = 16 << 20;
/// Largest device, in bytes.
pub const DEVICE_BYTES_MAX: u64 = 64 << 30;

/// A file system that can be made on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fs {
    /// `mkfs.ext4` with its defaults, blocks of 4 KiB.
    Ext4,
    /// `mkfs.xfs` with its defaults.
    Xfs,
    /// `mkfs.btrfs` with its defaults.
    Btrfs,
    /// btrfs, mounted with `compress=zstd`.
    BtrfsZstd,
}

/// The options of a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceOptions {
    /// Size in bytes, rounded up to whole blocks.
    pub bytes: u64,
    /// Time that each flush takes at least.
    pub flush_time: Duration,
    /// Compress each block at each flush, for [`crate::Device::report`]. Costs CPU time, later.
    pub measure: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self { bytes: 256 << 20, flush_time: Duration::ZERO, measure: false }
    }
}
