//! A folder whose files are in memory and whose writes and flushes fail as planned.
//!
//! A file system on a [`crate::Device`] decides by itself when a write reaches the device, and
//! answers a failed one at the next `fsync`, or not at all. Here each `write` and each `fsync` of a
//! program is one request, so that a test can fail every one of them in turn.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use crate::error::DeviceError;
use crate::fault::{DiskFault, each_fault};
use crate::files::{Content, ROOT, Tree};
use crate::fuse::{REMEMBERED, attributes};
use crate::host::{FuseMount, available_fuse};

/// Free space that the folder reports, blocks of 4 KiB: 16 GiB.
const FREE_BLOCKS: u64 = 4 << 20;

/// A folder with planned faults. Dropping it unmounts it and forgets its files.
///
/// Names and contents are visible at once, and nothing is ever lost: it shows what programs do with
/// an error, not what survives a power cut. A failed write has written its first half.
pub struct FaultyFolder {
    tree: Arc<Mutex<Tree>>,
    mount: FuseMount,
}

impl FaultyFolder {
    /// Makes an empty folder.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where this machine or user cannot have one.
    pub fn new() -> Result<Self, DeviceError> {
        available_fuse()?;
        let tree = Arc::new(Mutex::new(Tree::new()));
        let mount = FuseMount::new(ServedFiles(Arc::clone(&tree)))?;
        Ok(Self { tree, mount })
    }

    pub fn path(&self) -> &Path {
        self.mount.folder()
    }

    /// Plans a fault, in place of an earlier one. Its requests are counted from now on: writes,
    /// sizes and names are [`crate::FaultyRequest::Write`], `fsync` of files and folders is
    /// [`crate::FaultyRequest::Flush`].
    pub fn fail(&self, fault: DiskFault) {
        self.tree.lock().plan.set(fault);
    }

    /// Ends the fault.
    pub fn clear_fault(&self) {
        self.tree.lock().plan.clear();
    }

    /// Returns the number of requests that the last planned fault failed.
    pub fn failed_requests(&self) -> u64 {
        self.tree.lock().plan.failed()
    }

    /// Fails every `step`-th request of some work in turn, with each error, once and lasting, until
    /// the work ends before its fault. Each run has an empty folder: `prepare` fills it, `work` has
    /// the fault, and `check` runs when the fault has ended. Returns the number of runs.
    ///
    /// # Panics
    /// Panics if a folder cannot be made or removed.
    pub fn fail_each<T>(
        &self,
        step: usize,
        prepare: impl Fn(&Path) -> T,
        work: impl Fn(&Path, &mut T),
        check: impl Fn(&Path, &mut T),
    ) -> u64 {
        let folder = self.path().join("run");
        each_fault(step, |fault| {
            fs::create_dir(&folder).map_err(DeviceError::io(&folder))?;
            let mut held = prepare(&folder);
            self.fail(fault);
            work(&folder, &mut held);
            self.clear_fault();
            check(&folder, &mut held);
            fs::remove_dir_all(&folder).map_err(DeviceError::io(&folder))?;
            Ok(self.failed_requests())
        })
    }
}

/// The files as a FUSE file system.
struct ServedFiles(Arc<Mutex<Tree>>);

fn attributes_of(tree: &Tree, inode: u64) -> Result<FileAttr, Errno> {
    let node = tree.node(inode)?;
    let (kind, bytes) = match &node.content {
        Content::File(bytes) => (FileType::RegularFile, bytes.len() as u64),
        Content::Folder(_) => (FileType::Directory, 0),
    };
    let nlink = u32::from(node.named);
    Ok(FileAttr { nlink, perm: node.mode as u16, ..attributes(INodeNo(inode), kind, bytes) })
}

fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl ServedFiles {
    fn enter(&self, reply: ReplyEntry, find: impl FnOnce(&mut Tree) -> Result<u64, Errno>) {
        let mut tree = self.0.lock();
        match find(&mut tree).and_then(|inode| attributes_of(&tree, inode)) {
            Ok(attributes) => reply.entry(&REMEMBERED, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }
}

impl Filesystem for ServedFiles {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter(reply, |tree| tree.lookup(parent.0, name));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attributes_of(&self.0.lock(), inode.0) {
            Ok(attributes) => reply.attr(&REMEMBERED, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _created: Option<SystemTime>,
        _attributes_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.0.lock();
        let sized = size.map_or(Ok(()), |bytes| tree.resize(inode.0, bytes));
        let done = sized.and_then(|()| mode.map_or(Ok(()), |mode| tree.set_mode(inode.0, mode)));
        match done.and_then(|()| attributes_of(&tree, inode.0)) {
            Ok(attributes) => reply.attr(&REMEMBERED, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let empty = Content::Folder(std::collections::BTreeMap::new());
        self.enter(reply, |tree| tree.create(parent.0, name, empty, mode & !umask));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.0.lock().remove(parent.0, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.0.lock().remove(parent.0, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let keep = flags.bits() & libc::RENAME_NOREPLACE != 0;
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        answer(reply, self.0.lock().rename(from, to, keep));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut tree = self.0.lock();
        let empty = Content::File(Vec::new());
        let opened = tree.create(parent.0, name, empty, mode & !umask).and_then(|inode| {
            tree.open(inode)?;
            attributes_of(&tree, inode)
        });
        match opened {
            Ok(attributes) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&REMEMBERED, &attributes, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.0.lock().open(inode.0) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.lock().release(inode.0);
        reply.ok();
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
        match self.0.lock().read(inode.0, offset, size as usize) {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mapped = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        match self.0.lock().write(inode.0, offset, data, mapped) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _data: bool, reply: ReplyEmpty) {
        answer(reply, self.0.lock().flush());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _data: bool, reply: ReplyEmpty) {
        answer(reply, self.0.lock().flush());
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.0.lock();
        let names = match tree.names(inode.0) {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        let dots = [(OsStr::new("."), inode.0), (OsStr::new(".."), ROOT)];
        let all = dots.into_iter().chain(names.iter().map(|(name, inode)| (&**name, *inode)));
        for (place, (name, inode)) in (1..).zip(all).skip(offset as usize) {
            let kind = match tree.node(inode).map(|node| &node.content) {
                Ok(Content::File(_)) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(inode), place, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(2 * FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, 1 << 20, 1 << 20, 4096, 255, 4096);
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
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        answer(reply, self.0.lock().reserve(inode.0, offset + length));
    }
}
