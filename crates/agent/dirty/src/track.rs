//! Applies notifications to the directory index and the dirty set. Pure: no system calls.

use std::collections::{BTreeSet, HashSet};

use model::path::is_at_or_below;
use model::{Depth, Interval, ItemKey, Writer, WriterSeen};

use crate::decode::{Entry, Handle, ITSELF, Notification};
use crate::directory_index::{DirectoryIndex, DirectoryLimitReached, NodeId, Role};
use crate::files::{Link, LinkedFiles, is_nameless};
use crate::inodes::Inodes;
use crate::links::NewLinks;
use crate::set::{DirtySet, NotificationInfo};
use crate::unknown::UnknownNotices;
use crate::window::Windows;

/// Name of the canary's file.
pub const CANARY_FILE: &str = "watch-canary";

/// Bits that end a change.
const ENDED: u64 =
    libc::FAN_CLOSE_WRITE | libc::FAN_DELETE | libc::FAN_RENAME | libc::FAN_MOVED_FROM;

/// Bits that say what was changed.
const CHANGED: u64 = libc::FAN_CREATE
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO;

/// The times of a read of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadTimes {
    /// Before the last read that found the queue empty, nanoseconds of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// After the read, nanoseconds of `CLOCK_MONOTONIC`.
    pub to_ns: u64,
    /// After the read, microseconds since the epoch.
    pub wall_us: u64,
}

/// A path with a role of its own.
#[derive(Debug)]
struct SpecialPath {
    place: ItemKey,
    role: Role,
}

/// The paths that a tracker watches or leaves out, and its limits. Paths are absolute and resolved.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    pub roots: Vec<Vec<u8>>,
    /// Paths that deliver nothing, with everything below them.
    pub excluded: Vec<Vec<u8>>,
    /// Folder of the canary's file.
    pub canary: Option<Vec<u8>>,
    /// Largest number of directories, and of files with several links.
    pub directories_max: usize,
    /// Largest number of pending names; more are merged.
    pub dirty_max: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Tracker {
    pub(crate) index: DirectoryIndex,
    pub(crate) dirty: DirtySet,
    pub(crate) files: LinkedFiles,
    pub(crate) inodes: Inodes,
    pub(crate) new_links: NewLinks,
    /// Present until the first scan has ended.
    pub(crate) unknown: Option<UnknownNotices>,
    roots: Vec<Vec<u8>>,
    special: Vec<SpecialPath>,
    /// Roots whose path changed, so that their directories above must be marked again.
    moved_roots: BTreeSet<usize>,
    pub(crate) canary_seen: bool,
    notifications: u64,
    unknown_handles: u64,
    /// Directories renamed since the queue was last empty.
    pub(crate) renamed: HashSet<Box<[u8]>>,
    /// Directories removed since the queue was last empty.
    removed: Vec<NodeId>,
}

impl Tracker {
    /// Returns a tracker that knows no directory except those above its paths.
    pub fn new(paths: Paths, windows: Windows) -> Self {
        let Paths { roots, excluded, canary, directories_max, dirty_max } = paths;
        let canary = canary.as_deref();
        let special = roots.iter().map(|path| (path.as_slice(), Role::Watched));
        let special = special.chain(excluded.iter().map(|path| (path.as_slice(), Role::Excluded)));
        let special = special.chain(canary.map(|path| (path, Role::Canary)));
        let special = special
            .map(|(path, role)| SpecialPath { place: ItemKey::of_path(path), role })
            .collect();
        let mut tracker = Self {
            index: DirectoryIndex::new(directories_max),
            dirty: DirtySet::new(windows, dirty_max),
            files: LinkedFiles::new(directories_max),
            inodes: Inodes::default(),
            new_links: NewLinks::default(),
            unknown: Some(UnknownNotices::default()),
            roots,
            special,
            moved_roots: BTreeSet::new(),
            canary_seen: false,
            notifications: 0,
            unknown_handles: 0,
            renamed: HashSet::new(),
            removed: Vec::new(),
        };
        for path in tracker.roots.clone().iter().chain(&excluded).map(Vec::as_slice).chain(canary) {
            // The limit is far above the number of roots and exclusions.
            let _ = tracker.add_path(path);
        }
        tracker
    }

    /// Returns the paths of the roots.
    pub fn roots(&self) -> &[Vec<u8>] {
        &self.roots
    }

    /// Returns the number of pending names.
    pub fn pending(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the time at which the next name is due.
    pub fn next_due(&self) -> Option<u64> {
        self.dirty.next_due()
    }

    /// Returns the number of directories in the index.
    pub fn directories(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of notifications so far.
    pub fn notifications(&self) -> u64 {
        self.notifications
    }

    /// Returns the number of notifications from unknown directories so far.
    pub fn unknown_handles(&self) -> u64 {
        self.unknown_handles
    }

    /// Returns true if the path of a root changed, so that the directories above it must be marked
    /// again.
    pub fn has_moved_roots(&self) -> bool {
        !self.moved_roots.is_empty()
    }

    /// Takes the numbers of the roots whose path changed.
    pub fn take_moved_roots(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.moved_roots)
    }

    /// Stops keeping notifications from unknown directories: the first scan has ended.
    pub fn end_first_scan(&mut self) {
        self.unknown = None;
    }

    /// Sets the handle of a directory that no scan enters: one above a root, or the canary's folder.
    pub fn set_handle(&mut self, path: &[u8], handle: &[u8]) -> Result<(), DirectoryLimitReached> {
        let node = self.add_path(path)?;
        self.index.set_handle(node, handle);
        Ok(())
    }

    /// Returns true if a directory was marked since this time.
    pub fn is_marked(&self, node: NodeId, since_ns: u64) -> bool {
        self.index.marked_ns(node) >= since_ns
    }

    /// Records that a directory is marked: writes to its files are notified from now on.
    pub fn set_marked(&mut self, node: NodeId, now_ns: u64) {
        self.index.set_marked(node, now_ns);
    }

    /// Learns a file with several links by its handle. Above the limit it is left out: its changes
    /// through other links are found by the scan.
    pub fn link_file(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        let (node, rest) = self.index.find(directory);
        if rest.is_empty() {
            let link = Link { directory: node, name: name.into() };
            self.files.add(handle, link, &self.index);
        }
    }

    /// Returns the node of a path, which is created with those above it if they are missing.
    pub(crate) fn add_path(&mut self, path: &[u8]) -> Result<NodeId, DirectoryLimitReached> {
        let (mut node, rest) = self.index.find(path);
        for name in rest.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            let role = self.special_role(node, name);
            node = self.index.add(node, name, None)?;
            self.index.set_role(node, role);
        }
        if path == b"/" {
            let role = self.special.iter().find(|special| special.place.name.is_empty());
            self.index.set_role(node, Some(role.map_or(Role::Outside, |special| special.role)));
        }
        Ok(node)
    }

    /// Returns the role that an entry has by its path.
    pub(crate) fn special_role(&self, directory: NodeId, name: &[u8]) -> Option<Role> {
        let named = |special: &&SpecialPath| special.place.name == name;
        let mut special = self.special.iter().filter(named).peekable();
        special.peek()?;
        let path = self.index.path(directory);
        // A canary inside the own folders stays a canary: it comes last.
        special.rfind(|special| special.place.directory == path).map(|special| special.role)
    }

    /// Ends a series of notifications whose order merging may have changed: the queue is empty.
    pub fn drained(&mut self) {
        self.renamed.clear();
        self.new_links.drained();
        for node in std::mem::take(&mut self.removed) {
            self.index.release(node);
        }
    }

    /// Applies one notification.
    pub fn apply(&mut self, notification: &Notification<'_>, times: &ReadTimes) {
        self.notifications += 1;
        let Notification { mask, pid, entry, moved_to, object } = *notification;
        let seen = if mask & CHANGED == 0 { WriterSeen::Closing } else { WriterSeen::Changing };
        let read = Interval { from_ns: times.from_ns, to_ns: times.to_ns };
        let noted = NotificationInfo {
            now: times.to_ns,
            wall_us: times.wall_us,
            ended: mask & ENDED != 0,
            created: mask & libc::FAN_CREATE != 0,
            removed: mask & libc::FAN_DELETE != 0,
            moved: mask & libc::FAN_RENAME != 0,
            writer: (pid != 0).then(|| Writer::new(pid, seen, read)),
        };
        if mask & libc::FAN_RENAME != 0 {
            self.apply_rename(notification, &noted);
        } else if let Some(entry) = entry {
            self.apply_change(mask, entry, object, &noted);
        } else if let Some(Handle(object)) = object {
            self.new_links.count_changed(object);
        }
        let named = [entry, moved_to];
        if let Some(Handle(object)) = object.filter(|_| mask & libc::FAN_ONDIR == 0) {
            self.note_links(object, &named, &noted);
            self.apply_to_links(object, mask & libc::FAN_CREATE != 0, &noted);
        }
    }

    /// Notes the links of a file that a notification does not name.
    fn note_links(
        &mut self,
        file: &[u8],
        named: &[Option<Entry<'_>>; 2],
        noted: &NotificationInfo,
    ) {
        let links = self.files.links(file).to_vec();
        for Link { directory, name } in links {
            let is_named = named.iter().flatten().any(|entry| {
                *entry.name == *name && self.index.handle(directory) == Some(entry.directory.0)
            });
            if !is_named {
                self.note(directory, &name, Depth::Name, noted);
            }
        }
    }

    fn apply_change(
        &mut self,
        mask: u64,
        entry: Entry<'_>,
        object: Option<Handle<'_>>,
        noted: &NotificationInfo,
    ) {
        let is_directory = mask & libc::FAN_ONDIR != 0;
        let created = mask & libc::FAN_CREATE != 0;
        let depth = if is_directory && created { Depth::Below } else { Depth::Name };
        for place in self.places(entry, depth, noted) {
            let role = self.index.role(place);
            if role == Role::Watched && entry.name == ITSELF {
                self.note_itself(place, noted);
                continue;
            }
            let is_canary = role == Role::Canary && entry.name == CANARY_FILE.as_bytes();
            if role == Role::Watched || is_canary {
                let noted = self.with_close(place, noted);
                self.note(place, entry.name, depth, &noted);
            }
            if role == Role::Watched {
                self.apply_object(mask, place, entry.name, object);
            }
            if role == Role::Outside || (role == Role::Watched && is_directory) {
                self.change_roots(place, entry.name, noted);
            }
        }
    }

    /// Returns the notification of a name in a directory, whose writer was perhaps only seen closing
    /// the file. It must have been marked before the interval of the notification: a write before
    /// the mark was not notified.
    fn with_close(&self, place: NodeId, noted: &NotificationInfo) -> NotificationInfo {
        let mut noted = *noted;
        if let Some(writer) = &mut noted.writer
            && writer.seen == WriterSeen::Closing
            && (1..writer.last.from_ns).contains(&self.index.marked_ns(place))
        {
            writer.seen = WriterSeen::OnlyClosing;
        }
        noted
    }

    /// Returns the places of a notification's directory. A notification from an unknown directory
    /// is kept during the first scan.
    pub(crate) fn places(
        &mut self,
        entry: Entry<'_>,
        depth: Depth,
        noted: &NotificationInfo,
    ) -> Vec<NodeId> {
        let places = self.index.places(entry.directory.0);
        if places.is_empty() {
            self.unknown_handles += 1;
            if let Some(unknown) = &mut self.unknown {
                unknown.keep(entry.directory.0, entry.name, depth, *noted);
            }
        }
        places
    }

    /// Records where a created, removed or nameless object is.
    fn apply_object(&mut self, mask: u64, place: NodeId, name: &[u8], object: Option<Handle<'_>>) {
        let Some(Handle(object)) = object else { return };
        let created = mask & libc::FAN_CREATE != 0;
        let deleted = mask & libc::FAN_DELETE != 0;
        let link = || Link { directory: place, name: name.into() };
        if mask & libc::FAN_ONDIR != 0 {
            if created {
                self.add_directory(place, name, object);
            }
            if deleted {
                self.remove_directory(place, name, object);
            }
        } else if created {
            self.files.created(object, link(), &self.index);
            if !self.new_links.may_be_link(object) {
                self.inodes.place(object, place);
            }
        } else if deleted {
            self.files.removed(object, &link());
            if self.files.links(object).is_empty() {
                self.inodes.remove(object);
            }
        } else if is_nameless(name) {
            self.files.nameless(object);
        }
    }

    /// Removes a directory. A removed root keeps its place, in which another one may appear.
    fn remove_directory(&mut self, parent: NodeId, name: &[u8], handle: &[u8]) {
        let node = self.index.child(parent, name);
        let node = node.filter(|node| self.index.handle(*node) == Some(handle));
        if let Some(node) = node.filter(|_| self.special_role(parent, name).is_none()) {
            self.forget_later(node);
        }
    }

    /// Removes a directory whose handle may be in notifications that are still to be read: the
    /// kernel merges a removal into the notification of the creation, which it sends first.
    pub(crate) fn forget_later(&mut self, node: NodeId) {
        self.index.hold(node);
        self.removed.push(node);
        self.index.remove(node);
    }

    /// Adds a directory that a notification reported. At the limit it stays unknown: its own entry
    /// is due with everything below it, and the scan that enters it reports the limit.
    pub(crate) fn add_directory(&mut self, parent: NodeId, name: &[u8], handle: &[u8]) {
        let role = self.special_role(parent, name);
        if let Ok(node) = self.index.add(parent, name, Some(handle)) {
            self.index.set_role(node, role);
        }
    }

    /// Adds a notification to a name, unless its path is excluded.
    pub(crate) fn note(
        &mut self,
        directory: NodeId,
        name: &[u8],
        depth: Depth,
        noted: &NotificationInfo,
    ) -> Option<u32> {
        if self.special_role(directory, name) == Some(Role::Excluded) {
            return None;
        }
        Some(self.dirty.note(&mut self.index, directory, name, depth, noted))
    }

    /// Notes a change of a directory itself.
    fn note_itself(&mut self, node: NodeId, noted: &NotificationInfo) {
        let (parent, name) = self.index.place(node).unwrap_or((node, b""));
        let name = name.to_vec();
        self.note(parent, &name, Depth::Name, noted);
    }

    /// Makes the roots at or below an entry dirty, if a notification concerns their path.
    pub(crate) fn change_roots(
        &mut self,
        directory: NodeId,
        name: &[u8],
        noted: &NotificationInfo,
    ) {
        if name == ITSELF || self.index.child(directory, name).is_none() {
            return;
        }
        let path = model::path::join(&self.index.path(directory), name);
        for number in self.roots_at_or_below(&path) {
            self.moved_roots.insert(number);
            self.dirty_root(number, noted);
        }
    }

    /// Returns the numbers of the roots at or below a path.
    pub fn roots_at_or_below(&self, path: &[u8]) -> Vec<usize> {
        let below = |(_, root): &(usize, &Vec<u8>)| is_at_or_below(root, path);
        self.roots.iter().enumerate().filter(below).map(|(number, _)| number).collect()
    }

    /// Makes a whole root due. Pending names below it are merged into it.
    pub fn dirty_root(&mut self, number: usize, noted: &NotificationInfo) {
        let Some(root) = self.roots.get(number).cloned() else { return };
        let Ok(node) = self.add_path(&root) else { return };
        let Self { index, dirty, .. } = self;
        let below = dirty.drop_where(index, |index, entry| {
            index.is_at_or_below(entry.directory, node)
                && index.role(entry.directory) == Role::Watched
        });
        let (parent, name) = index.place(node).unwrap_or((node, b""));
        let name = name.to_vec();
        let slot = dirty.note(index, parent, &name, Depth::Below, noted);
        dirty.cover(index, slot, node, Depth::Below);
        dirty.add_notices_below(slot, &below);
    }

    /// Makes all roots due.
    pub(crate) fn dirty_all(&mut self, noted: &NotificationInfo) {
        for number in 0..self.roots.len() {
            self.dirty_root(number, noted);
        }
    }

    /// Returns true if a path is a root or below one, and not excluded.
    pub fn is_watched(&self, path: &[u8]) -> bool {
        self.index.role(self.index.find(path).0) == Role::Watched
    }

    /// Learns the handle of a directory that a scan enters. Returns its node.
    pub fn enter(&mut self, path: &[u8], handle: &[u8]) -> Result<NodeId, DirectoryLimitReached> {
        let node = self.add_path(path)?;
        self.index.set_handle(node, handle);
        let kept = self.unknown.as_mut().map(|unknown| unknown.take(handle)).unwrap_or_default();
        for notice in kept {
            if notice.name.as_ref() == ITSELF {
                self.note_itself(node, &notice.noted);
            } else {
                self.note(node, &notice.name, notice.depth, &notice.noted);
            }
        }
        Ok(node)
    }
}

#[cfg(test)]
#[path = "track_tests.rs"]
mod tests;
