//! Due names with their paths, and those that return because their check had no stable result.

use model::{Depth, DueCheck, ItemKey};

use crate::directory_index::{DirectoryIndex, Role};
use crate::fair_queues::OriginLookup;
use crate::notices::add_notices;
use crate::set::ReadyEntry;
use crate::track::Tracker;

impl Tracker {
    /// Returns names that are due, sorted by directory and name, at most about `names_max`.
    pub fn take_due(&mut self, now: u64, names_max: usize) -> Vec<DueCheck> {
        let mut ready = Vec::new();
        let Self { index, dirty, canary_seen, .. } = self;
        dirty.take_due(index, now, names_max, |index, entry| {
            if index.role(entry.directory) == Role::Canary {
                *canary_seen = true;
            } else {
                ready.push(due_of(index, entry));
            }
        });
        ready.sort_by(|one, other| one.key.cmp(&other.key));
        // A directory that was replaced has two nodes with the same path.
        ready.dedup_by(|next, kept| {
            let same = next.key == kept.key;
            if same {
                kept.depth = kept.depth.max(next.depth);
                add_notices(&mut kept.notices, &next.notices);
            }
            same
        });
        ready
    }

    /// Returns a directory or tree that is due.
    pub fn take_due_tree(&mut self, now: u64) -> Option<DueCheck> {
        let mut ready = None;
        let Self { index, dirty, .. } = self;
        dirty.take_due_tree(index, now, |index, entry| ready = Some(due_of(index, entry)));
        ready
    }

    /// Returns the names below a directory that is checked now with everything below it, also those
    /// that are not due yet: the check finds them, and their notices say who changed them.
    pub fn take_below(&mut self, path: &[u8], now: u64) -> Vec<DueCheck> {
        let mut below = Vec::new();
        let (node, rest) = self.index.find(path);
        if rest.is_empty() {
            let visit = |index: &DirectoryIndex, entry| below.push(due_of(index, entry));
            self.dirty.take_below(&mut self.index, node, now, visit);
        }
        below
    }

    /// Sets the function that returns the origin of a process.
    pub fn set_origins(&mut self, origins: Option<OriginLookup>) {
        self.dirty.origins = origins;
    }

    /// Forgets that a canary passed.
    pub fn reset_canary(&mut self) {
        self.canary_seen = false;
    }

    /// Returns true if a canary was taken, or is due now and would be.
    pub fn saw_canary(&mut self, now: u64) -> bool {
        let Self { index, dirty, .. } = self;
        let dropped = dirty.drop_where(index, |index, entry| {
            entry.place.due <= now && index.role(entry.directory) == Role::Canary
        });
        self.canary_seen || dropped.count > 0
    }

    /// Puts a due entry back, because its check had no stable result.
    pub fn put_back(&mut self, due: DueCheck, now: u64) {
        let (directory, rest) = self.index.find(&due.key.directory);
        let (directory, name, depth) = if rest.is_empty() {
            (directory, due.key.name.as_slice(), due.depth)
        } else {
            // The directory is gone: check the deepest one that is left.
            let name = rest.split(|b| *b == b'/').next().unwrap_or_default();
            (directory, name, Depth::Below)
        };
        let ready = ReadyEntry { directory, name: name.into(), depth, notices: due.notices };
        self.dirty.put_back(&mut self.index, &ready, now);
    }
}

fn due_of(index: &DirectoryIndex, entry: ReadyEntry) -> DueCheck {
    let key = ItemKey::new(index.path(entry.directory), entry.name);
    DueCheck { key, depth: entry.depth, notices: entry.notices }
}
