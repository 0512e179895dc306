//! Notifications of the kernel, gathered per name: which names are due for a check, and what is
//! known about who changed them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use actor::{Actor, Writer};

use crate::path::ItemKey;

/// Summary of the notifications of one name, directory or tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notices {
    /// Time of the first one, microseconds since the epoch.
    pub first_us: u64,
    /// Time of the last one, microseconds since the epoch.
    pub last_us: u64,
    pub count: u32,
    /// True if one says that the name was created, or that something was renamed to it.
    pub created: bool,
    /// True if one says that it was removed.
    pub removed: bool,
    /// True if one says that it was renamed, from or to this name.
    pub moved: bool,
    /// The first few different processes that changed the name itself.
    pub writers: Vec<Writer>,
    /// Number of different processes that are not in `writers`.
    pub more_writers: u32,
    /// True if other processes changed names below it, which the same check covers.
    pub others_below: bool,
}

/// Extent of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// One name.
    Name,
    /// A directory: all its entries, but nothing below its subdirectories.
    Directory,
    /// A directory and everything below it.
    Below,
}

/// A name or directory that is due for a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCheck {
    /// The name, or the directory itself if `depth` is not [`Depth::Name`].
    pub key: ItemKey,
    pub depth: Depth,
    pub notices: Notices,
}

impl DueCheck {
    /// Returns an entry for a name without notices.
    pub fn name(key: ItemKey) -> Self {
        Self { key, depth: Depth::Name, notices: Notices::default() }
    }
}

/// A check of a name or directory, as the scanner runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The name, or the directory itself if `depth` is not [`Depth::Name`].
    pub key: ItemKey,
    pub depth: Depth,
    /// Notifications of its changes; absent if a person or a scan requested the check.
    pub seen: Option<Arc<Detection>>,
}

/// Detection of a change, for its event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detection {
    /// Time of the first notification, microseconds since the epoch.
    pub first_us: u64,
    /// Time of the last notification, microseconds since the epoch.
    pub last_us: u64,
    /// Earliest possible time of the change, microseconds since the epoch: a scan compared the item
    /// before. It is 0 if the first notification is the time of the change.
    pub not_before_us: u64,
    /// Number of notifications.
    pub notices: u32,
    /// True if the item was created.
    pub is_created: bool,
    /// True if the item was created and removed.
    pub is_transient: bool,
    /// True if the item was renamed, from or to its name, or a directory above it was.
    pub is_renamed: bool,
    /// A time before the item was renamed, from or to its name, by its only writer, microseconds
    /// since the epoch. The same writer moved everything in the directory.
    pub moved_after_us: Option<u64>,
    /// The writers. Empty if processes are not attributed here.
    pub actors: Vec<Actor>,
    /// Number of further writers.
    pub more_actors: u32,
}

/// Learns which directories a scan enters, so that the handles in notifications can be resolved to
/// paths. Implemented by the watcher.
pub trait DirectoryHandles {
    /// A directory is open, and its entries have not been read yet: changes after this call are
    /// notified.
    fn enter(&mut self, path: &[u8], directory: BorrowedFd<'_>);

    /// A directory that was entered contains a file.
    fn file(&mut self, path: &[u8], inode: u64);

    /// A file with more than one link: a change through another name is notified under the file's
    /// own handle.
    fn linked_file(&mut self, path: &[u8], directory: BorrowedFd<'_>, name: &[u8]);
}

/// Learns nothing: for scans without a watcher.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHandles;

impl DirectoryHandles for NoHandles {
    fn enter(&mut self, _path: &[u8], _directory: BorrowedFd<'_>) {}

    fn file(&mut self, _path: &[u8], _inode: u64) {}

    fn linked_file(&mut self, _path: &[u8], _directory: BorrowedFd<'_>, _name: &[u8]) {}
}
