//! Reads the entries of a directory with their stat, into buffers that are reused.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::RawDir;
use rustix::io::Errno;

use crate::stat::Stat;
use crate::{limits, open};

/// An open directory. It stays open while files in it wait to be read.
#[derive(Debug)]
pub struct Directory {
    /// The descriptor, open for reading or with `O_PATH`.
    pub fd: OwnedFd,
    /// Its absolute path, raw. Entries are not resolved through it.
    pub path: Vec<u8>,
    /// The number of the device that it is on.
    pub device: u64,
    /// The device number in its last observation, if there is one.
    pub device_before: Option<u64>,
}

/// One entry of a [`Listing`].
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    start: usize,
    /// Length of the name without the NUL that follows.
    length: usize,
    inode: u64,
    /// Its stat, or why there is none.
    pub stat: Result<Stat, Errno>,
}

/// The entries of one directory, sorted by name.
#[derive(Debug, Default)]
pub struct Listing {
    names: Vec<u8>,
    entries: Vec<Entry>,
    raw: Vec<u8>,
}

impl Listing {
    /// Reads the names and the stat of each. An entry that vanishes in between is left out.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read. The error of one entry is in its `stat`.
    pub fn read(&mut self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        self.names.clear();
        self.entries.clear();
        self.raw.reserve(limits::ENTRIES_BYTES);
        let mut raw = RawDir::new(directory, self.raw.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes_with_nul();
            if matches!(name, b".\0" | b"..\0") {
                continue;
            }
            let start = self.names.len();
            self.names.extend_from_slice(name);
            let length = name.len() - 1;
            let stat = Err(Errno::NOENT);
            self.entries.push(Entry { start, length, inode: entry.ino(), stat });
        }
        self.stat(directory);
        Ok(())
    }

    /// Reads the stat of each entry in the order of inodes, which is the order on most disks. Then
    /// sorts the entries by name.
    fn stat(&mut self, directory: BorrowedFd<'_>) {
        let names = &self.names;
        self.entries.sort_unstable_by_key(|e| e.inode);
        for entry in &mut self.entries {
            let name = names.get(entry.start..=entry.start + entry.length).unwrap_or_default();
            entry.stat = match CStr::from_bytes_with_nul(name) {
                Ok(name) => open::stat_at(directory, name, false),
                Err(_) => Err(Errno::INVAL),
            };
        }
        self.entries.retain(|e| e.stat != Err(Errno::NOENT));
        self.entries.sort_unstable_by(|a, b| name_in(names, a).cmp(name_in(names, b)));
        // A rename during the listing can show a name twice.
        self.entries.dedup_by(|a, b| name_in(names, a) == name_in(names, b));
    }

    /// Returns the `i`-th entry in the order of names, from 0.
    pub fn get(&self, i: usize) -> Option<(&[u8], &Entry)> {
        let entry = self.entries.get(i)?;
        Some((name_in(&self.names, entry), entry))
    }
}

fn name_in<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    names.get(entry.start..entry.start + entry.length).unwrap_or_default()
}
