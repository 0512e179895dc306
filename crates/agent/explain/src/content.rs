//! MD5 of a file as it was observed.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use md5::{Digest as _, Md5 as Hasher};
use model::{Change, Kind, Observation};
use rustix::fs::OFlags;

use crate::limits;
use crate::status::Md5;

const BUFFER_BYTES: usize = 64 * 1024;

/// Returns the MD5 of the file of a change; `None` if it is no file, too large, or no longer the
/// one that was observed.
pub(crate) fn md5(change: &Change) -> Option<Md5> {
    let seen = change.after.as_ref().filter(|seen| seen.kind == Kind::File)?;
    if seen.hashes.md5.is_some() || seen.error.is_some() {
        return seen.hashes.md5;
    }
    if seen.size > limits::CONTENT_BYTES_MAX {
        return None;
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME;
    let path = change.key.path();
    let path = OsStr::from_bytes(&path);
    let open = |flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    };
    // Only the owner and root may leave the access time alone.
    let mut file = open(flags).or_else(|_| open(flags - OFlags::NOATIME)).ok()?;
    is_same(&file.metadata().ok()?, seen).then_some(())?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = seen.size;
    while left > 0 {
        let read = file.read(&mut buffer).ok().filter(|read| *read > 0)?;
        hasher.update(buffer.get(..read)?);
        left = left.saturating_sub(read as u64);
    }
    // A write in between changes the times.
    is_same(&file.metadata().ok()?, seen).then(|| hasher.finalize().into())
}

fn is_same(found: &std::fs::Metadata, seen: &Observation) -> bool {
    let ctime_ns = found.ctime().saturating_mul(1_000_000_000) + found.ctime_nsec();
    found.is_file()
        && (found.ino(), found.size(), ctime_ns) == (seen.inode, seen.size, seen.ctime_ns)
}
