//! The location of a file's blocks on its device (the FIEMAP ioctl).

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::error::DeviceError;
use crate::options::BLOCK_BYTES;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: u64 = 0xC020_660B;
/// Write out delayed allocations first.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// The last extent of the file.
const FIEMAP_EXTENT_LAST: u32 = 1;
/// Extents asked for at a time.
const EXTENTS_MAX: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_MAX],
}

/// Returns the ranges of block numbers that contain the file. Asks in batches until the last
/// extent.
pub(crate) fn extents(path: &Path) -> Result<Vec<Range<u64>>, DeviceError> {
    let file = File::open(path).map_err(DeviceError::io(path))?;
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Request {
            start,
            length: u64::MAX - start,
            flags: FIEMAP_FLAG_SYNC,
            mapped_extents: 0,
            extent_count: EXTENTS_MAX as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS_MAX],
        };
        request_extents(&file, &mut request).map_err(DeviceError::io(path))?;
        let mapped = request.extents.get(..request.mapped_extents as usize).unwrap_or_default();
        let block = BLOCK_BYTES as u64;
        found.extend(
            mapped.iter().map(|e| e.physical / block..(e.physical + e.length).div_ceil(block)),
        );
        match mapped.last() {
            Some(last) if last.flags & FIEMAP_EXTENT_LAST == 0 => {
                start = last.logical + last.length;
            }
            _ => return Ok(found),
        }
    }
}

fn request_extents(file: &File, request: &mut Request) -> std::io::Result<()> {
    #[expect(unsafe_code, reason = "no safe binding has this ioctl")]
    // SAFETY: the kernel writes at most `extent_count` extents behind the header, and there is room
    // for as many; the descriptor is open for the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, request) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
