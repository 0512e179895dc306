//! Extended attributes, sorted and bounded. POSIX ACLs and file capabilities are among them.

use std::fmt::Write as _;
use std::os::fd::{AsRawFd, BorrowedFd};

use model::Xattr;
use model::limits::{XATTR_VALUE_BYTES_MAX, XATTRS_MAX};
use rustix::io::Errno;

use crate::digest;
use crate::limits::XATTR_LIST_BYTES_MAX;

/// Buffer size of the first attempt. It is small because the kernel allocates the size offered.
const SMALL_BYTES: usize = 512;

/// Name of the extra attribute that holds one digest of all attributes beyond [`XATTRS_MAX`].
const REST: &[u8] = b"holdfast.rest";

/// A reader of extended attributes that reuses its buffers.
#[derive(Debug, Default)]
pub struct XattrReader {
    list: Vec<u8>,
    value: Vec<u8>,
}

/// The entry whose attributes are read.
#[derive(Debug, Clone, Copy)]
pub enum XattrSource<'a> {
    /// An open file.
    Open(BorrowedFd<'a>),
    /// An entry of an open directory; a symbolic link is not followed.
    Entry(BorrowedFd<'a>, &'a [u8]),
}

impl XattrReader {
    /// Returns the extended attributes, sorted by name; an empty list if they cannot be listed.
    /// One more attribute holds a digest of those beyond [`XATTRS_MAX`]. A value longer than
    /// [`XATTR_VALUE_BYTES_MAX`] is replaced by its digest.
    pub fn read(&mut self, of: XattrSource<'_>) -> Vec<Xattr> {
        let entry;
        let at = match of {
            XattrSource::Open(fd) => XattrTarget::Open(fd),
            XattrSource::Entry(directory, name) => {
                // Older kernels have no call that takes a directory descriptor and a name.
                let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
                path.extend_from_slice(name);
                entry = path;
                XattrTarget::Path(&entry)
            }
        };
        let list = &mut self.list;
        let Ok(bytes) = growing(list, |buffer| at.list(buffer)) else { return Vec::new() };
        let list = list.get(..bytes).unwrap_or_default();
        let mut names: Vec<&[u8]> = list.split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        let mut found = Vec::with_capacity(names.len().min(XATTRS_MAX + 1));
        let mut rest = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let Some(value) = value(&mut self.value, at, name) else { continue };
            if i < XATTRS_MAX {
                found.push(Xattr { name: name.to_vec(), value: bounded(value) });
            } else {
                rest.extend_from_slice(&digest::sha256(name));
                rest.extend_from_slice(&digest::sha256(value));
            }
        }
        if !rest.is_empty() {
            found.push(Xattr { name: REST.to_vec(), value: bounded(&rest) });
            found.sort_unstable();
        }
        found
    }
}

#[derive(Clone, Copy)]
enum XattrTarget<'a> {
    Open(BorrowedFd<'a>),
    Path(&'a [u8]),
}

impl XattrTarget<'_> {
    fn list(self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, buffer),
            Self::Path(path) => rustix::fs::llistxattr(path, buffer),
        }
    }

    fn get(self, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, buffer),
            Self::Path(path) => rustix::fs::lgetxattr(path, name, buffer),
        }
    }
}

/// Calls with a small buffer; if that is too small, calls again with the largest size that the
/// kernel returns.
fn growing(
    buffer: &mut Vec<u8>,
    call: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    if buffer.is_empty() {
        buffer.resize(SMALL_BYTES, 0);
    }
    let small = buffer.len().min(SMALL_BYTES);
    match call(buffer.get_mut(..small).unwrap_or_default()) {
        Err(Errno::RANGE) => {
            buffer.resize(XATTR_LIST_BYTES_MAX, 0);
            call(buffer)
        }
        other => other,
    }
}

/// Returns the value, or `None` if the attribute was removed in between. The value of an attribute
/// that exists but cannot be read is `unreadable`.
fn value<'a>(buffer: &'a mut Vec<u8>, at: XattrTarget<'_>, name: &[u8]) -> Option<&'a [u8]> {
    match growing(buffer, |b| at.get(name, b)) {
        Ok(bytes) => buffer.get(..bytes),
        Err(Errno::NODATA | Errno::NOENT) => None,
        Err(_) => Some(b"unreadable"),
    }
}

/// Returns the value, or its SHA-256 as text if it is longer than [`XATTR_VALUE_BYTES_MAX`].
fn bounded(value: &[u8]) -> Vec<u8> {
    if value.len() <= XATTR_VALUE_BYTES_MAX {
        return value.to_vec();
    }
    let mut text = String::from("sha256:");
    for byte in digest::sha256(value) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into_bytes()
}
