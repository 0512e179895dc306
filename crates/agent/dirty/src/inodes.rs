//! The directory of each watched file, by inode number: to recognize a new hard link of the file, made
//! in a place that is not watched. 16 bytes for each file.
//!
//! A handle holds the number in a form that each file system defines; the layouts of three were read
//! from handles of Linux 6.18. On other file systems a new link is not recognized.

use std::collections::HashMap;

use crate::decode::HANDLE_HEAD_BYTES;
use crate::directory_index::NodeId;

/// Most files that are known.
const FILES_MAX: usize = 2_000_000;
/// Bytes of the file system's identifier, with which a handle begins.
const FILE_SYSTEM_BYTES: usize = 8;

/// Place of the inode number in the part of a handle that the file system defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleLayout {
    /// 32 bits at the beginning: ext2, ext3, ext4.
    Ext4,
    /// 32 or 64 bits at the beginning.
    Xfs,
    /// 64 bits after a generation of 32 bits.
    Tmpfs,
}

impl HandleLayout {
    /// Returns the layout of a file system by its name, if it is known.
    pub fn of(file_system: &str) -> Option<Self> {
        match file_system {
            "ext4" => Some(Self::Ext4),
            "xfs" => Some(Self::Xfs),
            "tmpfs" => Some(Self::Tmpfs),
            _ => None,
        }
    }

    fn inode(self, handle: &[u8]) -> Option<u64> {
        let own = handle.get(HANDLE_HEAD_BYTES..)?;
        let narrow = || own.first_chunk().map(|bytes| u64::from(u32::from_ne_bytes(*bytes)));
        let wide = |own: &[u8]| own.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        match self {
            Self::Ext4 => narrow(),
            // With a generation of 32 bits behind it.
            Self::Xfs if own.len() < 12 => narrow(),
            Self::Xfs => wide(own),
            Self::Tmpfs => wide(own.get(4..)?),
        }
    }
}

/// The files of one file system.
#[derive(Debug)]
struct FileSystem {
    id: [u8; FILE_SYSTEM_BYTES],
    layout: HandleLayout,
    directories: HashMap<u64, NodeId>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    file_systems: Vec<FileSystem>,
    files: usize,
}

impl Inodes {
    /// Adds a file system.
    pub(crate) fn add_file_system(&mut self, id: [u8; FILE_SYSTEM_BYTES], layout: HandleLayout) {
        if !self.file_systems.iter().any(|known| known.id == id) {
            self.file_systems.push(FileSystem { id, layout, directories: HashMap::new() });
        }
    }

    /// Records that a directory, whose handle is given, contains a file.
    pub(crate) fn add(&mut self, directory: NodeId, handle: &[u8], inode: u64) {
        let has_space = self.files < FILES_MAX;
        let Some(found) = self.file_system_mut(handle) else { return };
        if has_space || found.directories.contains_key(&inode) {
            let is_new = found.directories.insert(inode, directory).is_none();
            self.files += usize::from(is_new);
        }
    }

    /// Records the directory of the file that a handle names.
    pub(crate) fn place(&mut self, file: &[u8], directory: NodeId) {
        if let Some(inode) = self.inode(file) {
            self.add(directory, file, inode);
        }
    }

    /// Forgets the file that a handle names.
    pub(crate) fn remove(&mut self, file: &[u8]) {
        let Some(inode) = self.inode(file) else { return };
        let Some(found) = self.file_system_mut(file) else { return };
        let was_known = found.directories.remove(&inode).is_some();
        self.files -= usize::from(was_known);
    }

    /// Returns the inode number and the directory of the file that a handle names. The number may
    /// have been used again since: compare the handle.
    pub(crate) fn find(&self, file: &[u8]) -> Option<(u64, NodeId)> {
        let inode = self.inode(file)?;
        let directory = self.file_system(file)?.directories.get(&inode)?;
        Some((inode, *directory))
    }

    fn inode(&self, handle: &[u8]) -> Option<u64> {
        self.file_system(handle)?.layout.inode(handle)
    }

    fn file_system(&self, handle: &[u8]) -> Option<&FileSystem> {
        self.file_systems.iter().find(|known| handle.starts_with(&known.id))
    }

    fn file_system_mut(&mut self, handle: &[u8]) -> Option<&mut FileSystem> {
        self.file_systems.iter_mut().find(|known| handle.starts_with(&known.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(own: &[u8]) -> Vec<u8> {
        [b"filesys.".as_slice(), &[0; 8], own].concat()
    }

    #[test]
    fn inode_numbers_are_read_from_real_handles() {
        let ext4 = handle(&[0x32, 0xe0, 0x98, 0x00, 0x61, 0x3f, 0x2c, 0x32]);
        assert_eq!(HandleLayout::Ext4.inode(&ext4), Some(10_018_866));
        let xfs = handle(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0x24, 0x15, 0x7f, 0xd3]);
        assert_eq!(HandleLayout::Xfs.inode(&xfs), Some(131));
        let xfs = handle(&[0x83, 0, 0, 0, 0x24, 0x15, 0x7f, 0xd3]);
        assert_eq!(HandleLayout::Xfs.inode(&xfs), Some(131));
        let tmpfs = handle(&[0x8c, 0x2a, 0xe7, 0xa6, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(HandleLayout::Tmpfs.inode(&tmpfs), Some(2));
        for layout in [HandleLayout::Ext4, HandleLayout::Xfs, HandleLayout::Tmpfs] {
            assert_eq!(layout.inode(&handle(&[])), None);
        }
    }

    #[test]
    fn files_are_found_by_their_handles_until_they_are_removed() {
        let mut inodes = Inodes::default();
        let directory = NodeId::default();
        let file = handle(&[7, 0, 0, 0, 1, 1, 1, 1]);
        inodes.place(&file, directory);
        assert_eq!(inodes.find(&file), None, "the file system is not known");
        inodes.add_file_system(*b"filesys.", HandleLayout::Ext4);
        inodes.place(&file, directory);
        inodes.add(directory, &file, 7);
        assert_eq!((inodes.find(&file), inodes.files), (Some((7, directory)), 1));
        inodes.remove(&file);
        inodes.remove(&file);
        assert_eq!((inodes.find(&file), inodes.files), (None, 0));
    }
}
