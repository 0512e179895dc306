//! Conversion of `statx` results.

use model::{Flags, Kind, Observation};
use rustix::fs::{FileType, Statx, StatxTimestamp};

/// The stat part of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The kind of entry.
    pub kind: Kind,
    /// The number of the device that holds it.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// Number of hard links.
    pub links: u64,
    /// Permission bits with setuid, setgid and sticky, without the kind.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Size, bytes.
    pub size: u64,
    /// Time of the last change of content, nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// Time of the last change of the inode, nanoseconds since the epoch.
    pub ctime_ns: i64,
    /// Flags such as immutable, where the file system has them.
    pub flags: Option<Flags>,
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
            flags: Flags::of_statx(s.stx_attributes.bits(), s.stx_attributes_mask.bits()),
        }
    }

    /// Returns an observation with this stat and without content. It is racy if the inode changed at
    /// or after `racy_from_ns`, nanoseconds since the epoch: it may change again without a new
    /// timestamp.
    pub fn observation(&self, racy_from_ns: i64) -> Observation {
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
        o.flags = self.flags;
        o.racy = self.ctime_ns >= racy_from_ns;
        o
    }
}

fn nanoseconds(t: StatxTimestamp) -> i64 {
    t.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(t.tv_nsec))
}
