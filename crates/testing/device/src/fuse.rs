//! The image as the one file of a FUSE file system.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use crate::image::{Image, Refused, name_of};
use crate::options::BLOCK_BYTES;

/// Time for which the kernel may cache names and attributes: none.
pub(crate) const REMEMBERED: Duration = Duration::ZERO;
/// Inode of the file of life 0; the others follow.
const FIRST_INODE: u64 = 2;
/// `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE`.
const ZEROING: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;

/// See the module.
pub(crate) struct Served(pub(crate) Arc<Image>);

impl Served {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        if inode == INodeNo::ROOT {
            attributes(inode, FileType::Directory, 0)
        } else {
            attributes(inode, FileType::RegularFile, self.0.bytes())
        }
    }
}

/// Returns the attributes of a file or folder that only its owner may use.
pub(crate) fn attributes(inode: INodeNo, kind: FileType, size: u64) -> FileAttr {
    FileAttr {
        ino: inode,
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

fn generation(inode: INodeNo) -> u64 {
    u64::from(inode).wrapping_sub(FIRST_INODE)
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let generation = self.0.generation();
        if name == OsStr::new(&name_of(generation)) {
            let attributes = self.attributes(INodeNo(FIRST_INODE + generation));
            reply.entry(&REMEMBERED, &attributes, Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&REMEMBERED, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(generation(inode), offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(Refused(error)) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(generation(inode), offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(Refused(error)) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _data: bool, reply: ReplyEmpty) {
        match self.0.flush(generation(inode)) {
            Ok(()) => reply.ok(),
            Err(Refused(error)) => reply.error(error.into()),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & ZEROING == 0 {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        match self.0.discard(generation(inode), offset, length) {
            Ok(()) => reply.ok(),
            Err(Refused(error)) => reply.error(error.into()),
        }
    }
}
