//! New hard links of watched files, made in a place that is not watched. The kernel reports a link as
//! a changed link count of the file, without a name, and as a created entry of the same file.
//!
//! Writes through the link name only the link. So the watcher looks up which name the file has in its
//! directory, and learns its handle: from then on each change is noted for that name.

use std::collections::{HashMap, HashSet};

use model::Depth;

use crate::directory_index::NodeId;
use crate::inodes::HandleLayout;
use crate::set::NotificationInfo;
use crate::track::Tracker;

/// Changed link counts that are remembered. With more, every created entry may be a link.
const COUNTS_MAX: usize = 65_536;
/// New links that wait for their names. Of further ones the whole directory is compared.
const NEW_MAX: usize = 1_024;
/// Notifications of a new link that are kept until its name is known. Further ones are counted with
/// the last.
const NOTED_MAX: usize = 64;

/// A file that has a new link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLink {
    pub handle: Box<[u8]>,
    pub inode: u64,
    /// Path of the watched directory that contains the file.
    pub directory: Vec<u8>,
}

/// The files whose link count has changed, and the new links.
#[derive(Debug, Default)]
pub(crate) struct NewLinks {
    /// Handles in the notifications since the queue was last empty, and before that.
    counts: HashSet<Box<[u8]>>,
    counts_before: HashSet<Box<[u8]>>,
    waiting: HashMap<Box<[u8]>, (NodeId, u64, Vec<NotificationInfo>)>,
}

impl NewLinks {
    /// Records a notification without a name.
    pub(crate) fn count_changed(&mut self, file: &[u8]) {
        if self.counts.len() < COUNTS_MAX {
            self.counts.insert(file.into());
        }
    }

    /// The queue was empty.
    pub(crate) fn drained(&mut self) {
        self.counts_before = std::mem::take(&mut self.counts);
    }

    /// Returns true if a created entry may be a new link of a file.
    pub(crate) fn may_be_link(&self, file: &[u8]) -> bool {
        self.counts.contains(file)
            || self.counts_before.contains(file)
            || self.counts.len() >= COUNTS_MAX
            || self.counts_before.len() >= COUNTS_MAX
    }
}

impl Tracker {
    /// Adds a file system on which new links are recognized.
    pub fn add_file_system(&mut self, id: [u8; 8], layout: HandleLayout) {
        self.inodes.add_file_system(id, layout);
    }

    /// Learns that a directory contains a file.
    pub fn add_file(&mut self, directory: &[u8], inode: u64) {
        let (node, rest) = self.index.find(directory);
        if rest.is_empty()
            && let Some(handle) = self.index.handle(node)
        {
            self.inodes.add(node, handle, inode);
        }
    }

    /// Returns true if new links wait for their names.
    pub fn has_new_links(&self) -> bool {
        !self.new_links.waiting.is_empty()
    }

    /// Returns the new links. Report the names of each with [`Tracker::resolve_link`].
    pub fn new_links(&self) -> Vec<NewLink> {
        let waiting = self.new_links.waiting.iter();
        let link = waiting.map(|(handle, (node, inode, _))| NewLink {
            handle: handle.clone(),
            inode: *inode,
            directory: self.index.path(*node),
        });
        link.collect()
    }

    /// Takes the names that the file of a new link has in its directory; none if its inode number
    /// was used again for another file.
    pub fn resolve_link(&mut self, link: &NewLink, names: &[Vec<u8>]) {
        let Some((node, _, noted)) = self.new_links.waiting.remove(&link.handle) else { return };
        if names.is_empty() {
            self.inodes.remove(&link.handle);
        }
        for name in names {
            self.link_file(&link.directory, name, &link.handle);
            for noted in &noted {
                self.note(node, name, Depth::Name, noted);
            }
        }
    }

    /// Applies a notification of a file to the links that are not known by a name yet.
    pub(crate) fn apply_to_links(&mut self, file: &[u8], created: bool, noted: &NotificationInfo) {
        // It concerns the link: the watched name was neither created nor removed nor renamed.
        let noted = NotificationInfo { created: false, removed: false, moved: false, ..*noted };
        if let Some((_, _, kept)) = self.new_links.waiting.get_mut(file) {
            if kept.len() < NOTED_MAX {
                kept.push(noted);
            }
            return;
        }
        if !created || !self.files.links(file).is_empty() || !self.new_links.may_be_link(file) {
            return;
        }
        let Some((inode, node)) = self.inodes.find(file) else { return };
        if self.new_links.waiting.len() < NEW_MAX {
            self.new_links.waiting.insert(file.into(), (node, inode, vec![noted]));
        } else if let Some((parent, name)) = self.index.place(node) {
            let name = name.to_vec();
            self.note(parent, &name, Depth::Directory, &noted);
        }
    }
}
