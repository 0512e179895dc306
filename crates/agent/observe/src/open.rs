//! Opens and stats entries. No path is resolved through a symbolic link, except where a function
//! says so.
//!
//! Every function returns the error of the system call that failed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::stat::Stat;

/// Fields requested from `statx`: those of an observation, which has no access time.
const MASK: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::NLINK)
    .union(StatxFlags::UID)
    .union(StatxFlags::GID)
    .union(StatxFlags::INO)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME);

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Number of retries of a resolution that raced with a rename.
const RACES_MAX: u32 = 8;

/// Opens the entry at an absolute path with `O_PATH`. No component except the last may be a link.
pub fn root(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {
            let slash = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            by_component(slash.as_fd(), path, flags)
        }
        other => other,
    }
}

/// Opens the directory at `relative` below `base` for reading. If `relative` is empty, opens `base`
/// itself. No component may be a link.
pub fn directory_below(base: BorrowedFd<'_>, relative: &[u8]) -> Result<OwnedFd, Errno> {
    let relative = if relative.is_empty() { b"." } else { relative };
    with_noatime(DIRECTORY, |flags| below(base, relative, flags))
}

/// Opens the directory that the link `name` in `parent` points to.
pub fn directory_behind(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    with_noatime(DIRECTORY.difference(OFlags::NOFOLLOW), |flags| {
        rustix::fs::openat(parent, name, flags, Mode::empty())
    })
}

/// Opens the regular file `name` in `parent` for reading. The caller must know from a stat that it
/// is a regular file, and must stat the descriptor again. With `follow`, a link is resolved.
pub fn file(
    parent: BorrowedFd<'_>,
    name: &[u8],
    owner: u32,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let flags = if follow { FILE } else { FILE | OFlags::NOFOLLOW };
    let open = |flags| rustix::fs::openat(parent, name, flags, Mode::empty());
    if may_leave_atime(owner) { with_noatime(flags, open) } else { open(flags) }
}

/// Returns true if `O_NOATIME` is likely to be granted: to the owner and to root. For other users
/// the attempt would cost one failed call per file.
fn may_leave_atime(owner: u32) -> bool {
    static EUID: OnceLock<u32> = OnceLock::new();
    let euid = *EUID.get_or_init(|| rustix::process::geteuid().as_raw());
    euid == 0 || euid == owner
}

fn with_noatime(
    flags: OFlags,
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    }
}

fn below(base: BorrowedFd<'_>, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RACES_MAX {
        match rustix::fs::openat2(base, relative, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => break,
            other => return other,
        }
    }
    by_component(base, relative, flags)
}

/// Opens a path one component at a time, for kernels and sandboxes without `openat2`.
fn by_component(base: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).peekable();
    let mut held: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let at = held.as_ref().map_or(base, OwnedFd::as_fd);
        let last = parts.peek().is_none();
        let flags = if last { flags } else { step };
        let next = rustix::fs::openat(at, part, flags, Mode::empty())?;
        if last {
            return Ok(next);
        }
        held = Some(next);
    }
    rustix::fs::openat(base, ".", flags, Mode::empty())
}

/// Returns the stat of an open descriptor.
pub fn stat_of(fd: BorrowedFd<'_>) -> Result<Stat, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, MASK).map(|s| Stat::of(&s))
}

/// Returns the stat of `name` in `parent`. An automounter is not triggered. With `follow`, a link is resolved.
pub fn stat_at<P: rustix::path::Arg>(
    parent: BorrowedFd<'_>,
    name: P,
    follow: bool,
) -> Result<Stat, Errno> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    rustix::fs::statx(parent, name, flags | AtFlags::NO_AUTOMOUNT, MASK).map(|s| Stat::of(&s))
}

/// Returns the raw target of the link `name` in `parent`.
pub fn link(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(parent, name, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// Returns the path of an open descriptor as the kernel names it.
pub fn path_of(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(name, Vec::new()).map(std::ffi::CString::into_bytes)
}
