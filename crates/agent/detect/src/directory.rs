//! One directory's entries with their stat, in buffers that are used again for the next one.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use model::{Kind, Observation};
use rustix::fs::{FileType, RawDir, Statx, StatxTimestamp};
use rustix::io::Errno;

use crate::limits;
use crate::open;

/// The stat part of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) links: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
}

impl Stat {
    pub(crate) fn of(s: &Statx) -> Self {
        let mode = u32::from(s.stx_mode);
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::RegularFile | FileType::Unknown => Kind::File,
        };
        Self {
            kind,
            device: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
            inode: s.stx_ino,
            links: u64::from(s.stx_nlink),
            mode: mode & 0o7777,
            uid: s.stx_uid,
            gid: s.stx_gid,
            size: s.stx_size,
            mtime_ns: nanoseconds(s.stx_mtime),
            ctime_ns: nanoseconds(s.stx_ctime),
        }
    }

    /// An observation with this stat and nothing read.
    pub(crate) fn observation(&self, racy_from_ns: i64) -> Observation {
        let mut o = Observation::empty(self.kind);
        o.device = self.device;
        o.inode = self.inode;
        o.links = self.links;
        o.mode = self.mode;
        o.uid = self.uid;
        o.gid = self.gid;
        o.size = self.size;
        o.mtime_ns = self.mtime_ns;
        o.ctime_ns = self.ctime_ns;
        o.racy = self.ctime_ns >= racy_from_ns;
        o
    }
}

fn nanoseconds(t: StatxTimestamp) -> i64 {
    t.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(t.tv_nsec))
}

/// One entry of a [`Listing`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    start: usize,
    /// Without the NUL that follows.
    length: usize,
    inode: u64,
    /// Its stat, or why there is none.
    pub(crate) stat: Result<Stat, Errno>,
}

/// The entries of one directory, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    names: Vec<u8>,
    entries: Vec<Entry>,
    raw: Vec<u8>,
}

impl Listing {
    /// Read the names and the stat of each. An entry that vanishes meanwhile is left out.
    pub(crate) fn read(&mut self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
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

    /// In the order of inodes, which is the order on most disks; then by name again.
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

    /// The `i`-th in the order of names.
    pub(crate) fn get(&self, i: usize) -> Option<(&[u8], &Entry)> {
        let entry = self.entries.get(i)?;
        Some((name_in(&self.names, entry), entry))
    }
}

fn name_in<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    names.get(entry.start..entry.start + entry.length).unwrap_or_default()
}
