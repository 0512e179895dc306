//! placeholder
/// Sector.
pub const SECTOR_BYTES: usize = 512;
/// Disk.
pub struct SimDisk;
/// Fault.
pub struct Fault;
/// Failure.
pub struct Failure;
