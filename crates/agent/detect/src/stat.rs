//! Conversion of `statx` results.

use model::{Kind, Observation};
use rustix::fs::{FileType, Statx, StatxTimestamp};

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

    /// Returns an observation with this stat and without content.
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
