//! Files and folders in memory: the content of a [`crate::FaultyFolder`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use fuser::Errno;

use crate::fault::{FaultError, FaultyRequest, Plan};

/// Inode of the root.
pub(crate) const ROOT: u64 = 1;

pub(crate) enum Content {
    File(Vec<u8>),
    Folder(BTreeMap<OsString, u64>),
}

/// A file or folder.
pub(crate) struct Node {
    pub(crate) content: Content,
    pub(crate) mode: u32,
    /// False once its name was removed. It is kept while it is open.
    pub(crate) named: bool,
    opens: u64,
}

/// All files, and the plan of faults.
pub(crate) struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    pub(crate) plan: Plan,
}

impl From<FaultError> for Errno {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::Io => Self::EIO,
            FaultError::Full => Self::ENOSPC,
        }
    }
}

impl Tree {
    pub(crate) fn new() -> Self {
        let root = Node::new(Content::Folder(BTreeMap::new()), 0o700);
        Self { nodes: [(ROOT, root)].into(), next: ROOT + 1, plan: Plan::default() }
    }

    pub(crate) fn node(&self, inode: u64) -> Result<&Node, Errno> {
        self.nodes.get(&inode).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, inode: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&inode).ok_or(Errno::ENOENT)
    }

    pub(crate) fn names(&self, folder: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.node(folder)?.content {
            Content::Folder(names) => Ok(names),
            Content::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn names_mut(&mut self, folder: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.node_mut(folder)?.content {
            Content::Folder(names) => Ok(names),
            Content::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn file_mut(&mut self, inode: u64) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.node_mut(inode)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Folder(_) => Err(Errno::EISDIR),
        }
    }

    pub(crate) fn lookup(&self, folder: u64, name: &OsStr) -> Result<u64, Errno> {
        self.names(folder)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(crate) fn create(
        &mut self,
        folder: u64,
        name: &OsStr,
        content: Content,
        mode: u32,
    ) -> Result<u64, Errno> {
        self.plan.admit(FaultyRequest::Write)?;
        let inode = self.next;
        self.names_mut(folder)?.insert(name.to_owned(), inode);
        self.nodes.insert(inode, Node::new(content, mode));
        self.next += 1;
        Ok(inode)
    }

    /// Removes a name. On a full disk this succeeds, as on most file systems.
    pub(crate) fn remove(&mut self, folder: u64, name: &OsStr) -> Result<(), Errno> {
        let inode = self.lookup(folder, name)?;
        if self.names(inode).is_ok_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.freeing()?;
        self.names_mut(folder)?.remove(name);
        self.drop_name(inode);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        keep: bool,
    ) -> Result<(), Errno> {
        let inode = self.lookup(from.0, from.1)?;
        if keep && self.lookup(to.0, to.1).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.plan.admit(FaultyRequest::Write)?;
        let replaced = self.names_mut(to.0)?.insert(to.1.to_owned(), inode);
        if let Some(replaced) = replaced.filter(|replaced| *replaced != inode) {
            self.drop_name(replaced);
        }
        if from != to {
            self.names_mut(from.0)?.remove(from.1);
        }
        Ok(())
    }

    fn drop_name(&mut self, inode: u64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.named = false;
            if node.opens == 0 {
                self.nodes.remove(&inode);
            }
        }
    }

    pub(crate) fn open(&mut self, inode: u64) -> Result<(), Errno> {
        self.node_mut(inode)?.opens += 1;
        Ok(())
    }

    pub(crate) fn release(&mut self, inode: u64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.opens = node.opens.saturating_sub(1);
            if node.opens == 0 && !node.named {
                self.nodes.remove(&inode);
            }
        }
    }

    pub(crate) fn read(&self, inode: u64, offset: u64, bytes: usize) -> Result<&[u8], Errno> {
        let Content::File(content) = &self.node(inode)?.content else { return Err(Errno::EISDIR) };
        let from = content.get(offset as usize..).unwrap_or_default();
        Ok(from.get(..bytes).unwrap_or(from))
    }

    /// Writes to a file. A write that fails has written its first half. `mapped` is true for pages
    /// of a shared mapping, which the kernel writes at a time of its own: they never fail.
    pub(crate) fn write(
        &mut self,
        inode: u64,
        offset: u64,
        data: &[u8],
        mapped: bool,
    ) -> Result<(), Errno> {
        let admitted = if mapped { Ok(()) } else { self.plan.admit(FaultyRequest::Write) };
        let bytes = if admitted.is_ok() { data.len() } else { data.len() / 2 };
        let file = self.file_mut(inode)?;
        let range = offset as usize..offset as usize + bytes;
        if file.len() < range.end {
            file.resize(range.end, 0);
        }
        if let (Some(into), Some(from)) = (file.get_mut(range), data.get(..bytes)) {
            into.copy_from_slice(from);
        }
        Ok(admitted?)
    }

    /// Sets the size of a file. On a full disk a file can be made smaller.
    pub(crate) fn resize(&mut self, inode: u64, bytes: u64) -> Result<(), Errno> {
        if self.file_mut(inode)?.len() as u64 > bytes {
            self.freeing()?;
        } else {
            self.plan.admit(FaultyRequest::Write)?;
        }
        self.file_mut(inode)?.resize(bytes as usize, 0);
        Ok(())
    }

    /// Makes a file at least this large.
    pub(crate) fn reserve(&mut self, inode: u64, bytes: u64) -> Result<(), Errno> {
        self.plan.admit(FaultyRequest::Write)?;
        let file = self.file_mut(inode)?;
        file.resize(file.len().max(bytes as usize), 0);
        Ok(())
    }

    pub(crate) fn set_mode(&mut self, inode: u64, mode: u32) -> Result<(), Errno> {
        self.node_mut(inode)?.mode = mode & 0o7777;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        Ok(self.plan.admit(FaultyRequest::Flush)?)
    }

    /// Admits a request that frees space.
    fn freeing(&mut self) -> Result<(), Errno> {
        match self.plan.admit(FaultyRequest::Write) {
            Err(FaultError::Io) => Err(Errno::EIO),
            Ok(()) | Err(FaultError::Full) => Ok(()),
        }
    }
}

impl Node {
    fn new(content: Content, mode: u32) -> Self {
        Self { content, mode: mode & 0o7777, named: true, opens: 0 }
    }
}
