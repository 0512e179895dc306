//! The dirty set: names that need a check, each with the notifications that it had.
//!
//! The set is bounded. Above its limit, names are merged: those of the fullest directories into the
//! directory, then those of whole trees into a directory and everything below it, in the end into
//! the root. Merging costs precision and checks, and never drops a change.
//!
//! Names that a rename connects are due together, so that the caller can recognize a move.

use std::collections::HashMap;

use hashbrown::{DefaultHashBuilder, HashTable};
use model::{Depth, Notices, Writer};
use std::hash::BuildHasher as _;

use crate::directory_index::{DirectoryIndex, NodeId};
use crate::fair_queues::{Extent, FairQueues, OriginLookup, Party, Place};
use crate::notices::{add_notice, add_notice_below, add_notices, add_notices_below};
use crate::window::{History, Window, Windows};

/// Smallest limit of the set.
pub(crate) const DIRTY_MIN: usize = 16;
/// Names that renames may connect.
const GROUP_MAX: usize = 1_000;

/// A notification, without the name it is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotificationInfo {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub now: u64,
    /// Microseconds since the epoch.
    pub wall_us: u64,
    /// True if it ends a change: a close, rename or removal.
    pub ended: bool,
    /// True if it creates the name.
    pub created: bool,
    /// True if it removes the name.
    pub removed: bool,
    /// True if it renames the name.
    pub moved: bool,
    pub writer: Option<Writer>,
}

/// An entry that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadyEntry {
    pub(crate) directory: NodeId,
    pub(crate) name: Box<[u8]>,
    pub(crate) depth: Depth,
    pub(crate) notices: Notices,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) directory: NodeId,
    pub(crate) name: Box<[u8]>,
    pub(crate) depth: Depth,
    /// The node of the entry itself, if names below it are merged into this entry.
    pub(crate) covers: Option<NodeId>,
    pub(crate) window: Window,
    pub(crate) notices: Notices,
    pub(crate) place: Place,
    pub(crate) group: Option<u64>,
}

impl Entry {
    /// Lets the entry answer for a name below it that needs a check of this depth.
    fn cover_depth(&mut self, depth: Depth) {
        if depth > Depth::Name {
            self.depth = Depth::Below;
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct DirtySet {
    pub(crate) windows: Windows,
    pub(crate) dirty_max: usize,
    pub(crate) entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub(crate) queues: FairQueues,
    pub(crate) origins: Option<OriginLookup>,
    /// Entries that other names are merged into, by the node they cover.
    covered: HashMap<NodeId, u32>,
    pub(crate) groups: HashMap<u64, Vec<u32>>,
    next_group: u64,
    pub(crate) history: HashMap<(NodeId, Box<[u8]>), History>,
    pub(crate) purged: u64,
}

impl DirtySet {
    pub(crate) fn new(windows: Windows, dirty_max: usize) -> Self {
        Self {
            windows,
            dirty_max: dirty_max.max(DIRTY_MIN),
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            queues: FairQueues::default(),
            origins: None,
            covered: HashMap::new(),
            groups: HashMap::new(),
            next_group: 0,
            history: HashMap::new(),
            purged: 0,
        }
    }

    /// Returns the number of pending entries.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns the time at which the next entry is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queues.next_due()
    }

    /// Returns the pending entry of a name.
    pub(crate) fn find(&self, directory: NodeId, name: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one((directory, name));
        self.by_key.find(hash, |slot| self.is_key(*slot, directory, name)).copied()
    }

    /// Returns an entry.
    pub(crate) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    /// Adds a notification to a name, or to the entry that its directory is merged into. Returns
    /// the entry.
    ///
    /// The covering entry is searched first: a name that is merged gets no entry of its own. Depth,
    /// window and notice are stored before the merge. A new entry has the depth of a name, and a
    /// merge puts such entries into a check that does not look into subdirectories. A merge also
    /// frees slots and uses them again, so the entry is searched once more after it.
    pub(crate) fn note(
        &mut self,
        index: &mut DirectoryIndex,
        directory: NodeId,
        name: &[u8],
        depth: Depth,
        noted: &NotificationInfo,
    ) -> u32 {
        let slot = match self.covering(index, directory) {
            Some(slot) => slot,
            None => self.find_or_open(index, directory, name, noted),
        };
        if let Some(Some(entry)) = self.entries.get_mut(slot as usize) {
            if entry.directory == directory && *entry.name == *name {
                entry.depth = entry.depth.max(depth);
                add_notice(&mut entry.notices, noted);
            } else {
                entry.cover_depth(depth);
                add_notice_below(&mut entry.notices, noted);
            }
            entry.window.extend(noted.now, noted.ended);
        }
        self.reschedule(slot);
        if self.len() > self.dirty_max {
            self.merge(index);
            // The entry may have been merged into another one.
            return self.covering(index, directory).or(self.find(directory, name)).unwrap_or(slot);
        }
        slot
    }

    /// Makes a name due with notices that it had before: its check had no stable result.
    pub(crate) fn put_back(&mut self, index: &mut DirectoryIndex, ready: &ReadyEntry, now: u64) {
        let noted = NotificationInfo {
            now,
            wall_us: ready.notices.last_us,
            writer: ready.notices.writers.first().copied(),
            ..NotificationInfo::default()
        };
        let slot = self.note(index, ready.directory, &ready.name, ready.depth, &noted);
        if let Some(Some(entry)) = self.entries.get_mut(slot as usize) {
            // The call above counted a notification that the kernel did not send.
            entry.notices.count = entry.notices.count.saturating_sub(1);
            if entry.directory == ready.directory && entry.name == ready.name {
                add_notices(&mut entry.notices, &ready.notices);
            } else {
                add_notices_below(&mut entry.notices, &ready.notices);
            }
        }
    }

    /// Makes two names due together.
    pub(crate) fn connect(&mut self, one: u32, other: u32) {
        let (Some(mut into), Some(mut from)) = (self.group_of(one), self.group_of(other)) else {
            return;
        };
        if into == from {
            return;
        }
        let members = |set: &Self, group| set.groups.get(&group).map_or(0, Vec::len);
        if members(self, into) + members(self, from) > GROUP_MAX {
            return;
        }
        if members(self, into) < members(self, from) {
            std::mem::swap(&mut into, &mut from);
        }
        let moved = self.groups.remove(&from).unwrap_or_default();
        for slot in &moved {
            if let Some(Some(entry)) = self.entries.get_mut(*slot as usize) {
                entry.group = Some(into);
            }
        }
        self.groups.entry(into).or_default().extend(moved);
        self.reschedule(one);
        self.reschedule(other);
    }

    fn group_of(&mut self, slot: u32) -> Option<u64> {
        let entry = self.entries.get_mut(slot as usize)?.as_mut()?;
        Some(*entry.group.get_or_insert_with(|| {
            self.next_group += 1;
            self.groups.insert(self.next_group, vec![slot]);
            self.next_group
        }))
    }

    /// Lets an entry answer for names below its directory `node`, to the given depth.
    pub(crate) fn cover(
        &mut self,
        index: &mut DirectoryIndex,
        slot: u32,
        node: NodeId,
        depth: Depth,
    ) {
        if let Some(Some(entry)) = self.entries.get_mut(slot as usize) {
            entry.depth = entry.depth.max(depth);
            if entry.covers.is_none() && !self.covered.contains_key(&node) {
                entry.covers = Some(node);
                self.covered.insert(node, slot);
                index.hold(node);
            }
        }
        self.reschedule(slot);
    }

    /// Lets an entry answer for `node` in place of the entry that does so now.
    pub(crate) fn take_cover(&mut self, node: NodeId, slot: u32) {
        if self.entry(slot).is_none_or(|entry| entry.covers.is_some()) {
            return;
        }
        let Some(before) = self.covered.insert(node, slot) else { return };
        if let Some(Some(entry)) = self.entries.get_mut(before as usize) {
            entry.covers = None;
        }
        if let Some(Some(entry)) = self.entries.get_mut(slot as usize) {
            entry.covers = Some(node);
        }
    }

    /// Adds notices of names below an entry.
    pub(crate) fn add_notices_below(&mut self, slot: u32, notices: &Notices) {
        if let Some(Some(entry)) = self.entries.get_mut(slot as usize) {
            add_notices_below(&mut entry.notices, notices);
        }
    }

    /// Returns the entry that answers for the names of a directory.
    fn covering(&self, index: &DirectoryIndex, directory: NodeId) -> Option<u32> {
        if self.covered.is_empty() {
            return None;
        }
        let mut needed = Depth::Directory;
        let mut next = Some(directory);
        while let Some(node) = next {
            let slot = self.covered.get(&node).copied();
            let entry = slot.and_then(|slot| self.entry(slot));
            if entry.is_some_and(|entry| entry.depth >= needed) {
                return slot;
            }
            needed = Depth::Below;
            next = index.parent(node);
        }
        None
    }

    /// Removes the entries that are not wanted, and returns their notices.
    pub(crate) fn drop_where(
        &mut self,
        index: &mut DirectoryIndex,
        mut unwanted: impl FnMut(&DirectoryIndex, &Entry) -> bool,
    ) -> Notices {
        let slots = self.queues.slots();
        let mut dropped = Notices::default();
        for slot in slots {
            if !self.entry(slot).is_some_and(|entry| unwanted(index, entry)) {
                continue;
            }
            if let Some(entry) = self.remove(slot) {
                add_notices(&mut dropped, &entry.notices);
                release(index, entry.directory, entry.covers);
            }
        }
        dropped
    }

    /// Adds the notices and the window of merged names to an entry.
    pub(crate) fn add_merged(&mut self, slot: u32, window: Window, notices: &Notices) {
        if let Some(Some(entry)) = self.entries.get_mut(slot as usize) {
            entry.window = entry.window.merged(window);
            add_notices_below(&mut entry.notices, notices);
        }
        self.reschedule(slot);
    }

    /// Returns the entry of a name, which is opened with `window` if it is missing.
    pub(crate) fn find_or_insert(
        &mut self,
        index: &mut DirectoryIndex,
        directory: NodeId,
        name: &[u8],
        window: Window,
        queue: u16,
    ) -> u32 {
        if let Some(slot) = self.find(directory, name) {
            return slot;
        }
        index.hold(directory);
        let place = Place { queue, extent: Extent::Name, due: window.due(&self.windows) };
        let entry = Entry {
            directory,
            name: name.into(),
            depth: Depth::Name,
            covers: None,
            window,
            notices: Notices::default(),
            place,
            group: None,
        };
        self.insert(entry)
    }

    fn find_or_open(
        &mut self,
        index: &mut DirectoryIndex,
        directory: NodeId,
        name: &[u8],
        noted: &NotificationInfo,
    ) -> u32 {
        if let Some(slot) = self.find(directory, name) {
            return slot;
        }
        let history = if self.history.is_empty() {
            None
        } else {
            self.history.get(&(directory, Box::from(name))).copied()
        };
        let window = Window::open(&self.windows, noted.now, noted.ended, history);
        let pid = noted.writer.map(|writer| writer.pid);
        let origin = self.origins.as_ref().and_then(|origins| (origins.0)(pid?));
        let queue = self.queues.queue_of(Party { origin, root: index.root_of(directory) });
        self.find_or_insert(index, directory, name, window, queue)
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        let place = entry.place;
        let hash = self.hasher.hash_one((entry.directory, &*entry.name));
        let slot = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(slot as usize) {
            Some(freed) => *freed = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        let Self { entries, hasher, by_key, .. } = self;
        by_key.insert_unique(hash, slot, |slot| match entries.get(*slot as usize) {
            Some(Some(entry)) => hasher.hash_one((entry.directory, &*entry.name)),
            _ => 0,
        });
        self.queues.insert(place, slot);
        slot
    }

    /// Takes an entry out of the set. The caller releases the nodes that it holds.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.entries.get(slot as usize)?.as_ref()?;
        let hash = self.hasher.hash_one((entry.directory, &*entry.name));
        if let Ok(found) = self.by_key.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.queues.remove(entry.place, slot);
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        if let Some(node) = entry.covers {
            self.covered.remove(&node);
        }
        if let Some(group) = entry.group
            && let Some(members) = self.groups.get_mut(&group)
        {
            members.retain(|member| *member != slot);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
        Some(entry)
    }

    fn reschedule(&mut self, slot: u32) {
        let Some(Some(entry)) = self.entries.get_mut(slot as usize) else { return };
        let due = entry.window.due(&self.windows);
        // Connected names are checked together, without a pause for others.
        let is_tree = entry.depth > Depth::Name && entry.group.is_none();
        let extent = if is_tree { Extent::Tree } else { Extent::Name };
        let place = Place { extent, due, ..entry.place };
        if place != entry.place {
            self.queues.remove(entry.place, slot);
            self.queues.insert(place, slot);
            entry.place = place;
        }
    }

    fn is_key(&self, slot: u32, directory: NodeId, name: &[u8]) -> bool {
        self.entry(slot).is_some_and(|entry| entry.directory == directory && *entry.name == *name)
    }
}

/// Releases the nodes that a removed entry held.
pub(crate) fn release(index: &mut DirectoryIndex, directory: NodeId, covers: Option<NodeId>) {
    index.release(directory);
    if let Some(node) = covers {
        index.release(node);
    }
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
