//! The mounts of this process, from `/proc/self/mountinfo`, which becomes readable with POLLPRI
//! when they change.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd};

/// A mount: its number, the device and the path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mount {
    number: Vec<u8>,
    device: Vec<u8>,
    pub(crate) path: Vec<u8>,
}

/// The table of mounts, as it was at the last read.
#[derive(Debug)]
pub(crate) struct Mounts {
    file: File,
    known: BTreeSet<Mount>,
}

impl Mounts {
    pub(crate) fn open() -> io::Result<Self> {
        let mut mounts = Self { file: File::open("/proc/self/mountinfo")?, known: BTreeSet::new() };
        mounts.changes()?;
        Ok(mounts)
    }

    /// Reads the table and returns the paths of mounts that appeared or disappeared since the last
    /// read.
    pub(crate) fn changes(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut text = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut text)?;
        let now: BTreeSet<Mount> = text.split(|b| *b == b'\n').filter_map(mount).collect();
        let changed = now.symmetric_difference(&self.known).map(|mount| mount.path.clone());
        let changed = changed.collect();
        self.known = now;
        Ok(changed)
    }
}

impl AsFd for Mounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads a line such as `36 35 98:0 /mnt1 /mnt/parent rw,noatime - ext3 /dev/root rw`.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let number = fields.next()?.to_vec();
    let device = fields.nth(1)?.to_vec();
    let path = unescape(fields.nth(1)?);
    Some(Mount { number, device, path })
}

/// Replaces the octal escapes of space, tab, newline and backslash.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let octal = after.first_chunk::<3>().filter(|_| *byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                rest = after.get(3..).unwrap_or_default();
            }
            None => plain.push(*byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_line_is_read_with_escapes() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b\134 rw,noatime master:1 - ext3 /dev/root rw";
        let found = mount(line).unwrap();
        assert_eq!((&*found.number, &*found.device), (&b"36"[..], &b"98:0"[..]));
        assert_eq!(found.path, b"/mnt/a b\\");
        assert_eq!(mount(b"36 35"), None);
        assert_eq!(mount(b""), None);
    }

    #[test]
    fn unchanged_table_has_no_changes() {
        let mut mounts = Mounts::open().unwrap();
        assert!(mounts.known.iter().any(|mount| mount.path == b"/proc"));
        mounts.known.retain(|mount| mount.path != b"/proc");
        assert_eq!(mounts.changes().unwrap(), [b"/proc".to_vec()]);
    }
}
