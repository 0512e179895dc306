//! Takes what is due from the dirty set: names of each queue in turn, and trees one at a time.

use crate::directory_index::{DirectoryIndex, NodeId, Role};
use crate::fair_queues::{Extent, QUANTUM_NAMES};
use crate::set::{DirtySet, Entry, ReadyEntry, release};
use crate::window::History;

/// Checked names that are remembered to find those that change all the time.
const HISTORY_MAX: usize = 10_000;
/// Pending entries up to which those below a directory are searched for.
const SEARCHED_MAX: usize = 4_096;
/// Time between two purges of the history, nanoseconds.
const PURGE_INTERVAL: u64 = 1_000_000_000;

impl DirtySet {
    /// Returns names that are due, at most about `names_max`: of each queue in turn. Connected names
    /// are complete.
    pub(crate) fn take_due(
        &mut self,
        index: &mut DirectoryIndex,
        now: u64,
        names_max: usize,
        mut visit: impl FnMut(&DirectoryIndex, ReadyEntry),
    ) {
        let mut taken = 0;
        while taken < names_max
            && let Some(queue) = self.queues.next_queue(Extent::Name, now)
        {
            let end = names_max.min(taken + QUANTUM_NAMES);
            while taken < end
                && let Some(slot) = self.queues.first(queue, Extent::Name, now)
            {
                taken += self.take(index, slot, now, &mut visit);
            }
        }
    }

    /// Returns a directory or tree that is due.
    pub(crate) fn take_due_tree(
        &mut self,
        index: &mut DirectoryIndex,
        now: u64,
        mut visit: impl FnMut(&DirectoryIndex, ReadyEntry),
    ) {
        let queue = self.queues.next_queue(Extent::Tree, now);
        let slot = queue.and_then(|queue| self.queues.first(queue, Extent::Tree, now));
        if let Some(slot) = slot {
            self.take(index, slot, now, &mut visit);
        }
    }

    /// Takes the entries below a directory, also those that are not due yet, unless very many are
    /// pending.
    pub(crate) fn take_below(
        &mut self,
        index: &mut DirectoryIndex,
        node: NodeId,
        now: u64,
        mut visit: impl FnMut(&DirectoryIndex, ReadyEntry),
    ) {
        if self.len() > SEARCHED_MAX {
            return;
        }
        for slot in self.queues.slots() {
            let is_below = self.entry(slot).is_some_and(|entry| {
                index.is_at_or_below(entry.directory, node)
                    && index.role(entry.directory) == Role::Watched
            });
            if is_below {
                self.take(index, slot, now, &mut visit);
            }
        }
    }

    /// Takes an entry and those that are connected with it. Returns their number.
    fn take(
        &mut self,
        index: &mut DirectoryIndex,
        slot: u32,
        now: u64,
        visit: &mut impl FnMut(&DirectoryIndex, ReadyEntry),
    ) -> usize {
        self.purge_history(now);
        let group = self.entry(slot).and_then(|entry| entry.group);
        let connected = group.and_then(|group| self.groups.get(&group)).cloned();
        let connected = connected.unwrap_or_else(|| vec![slot]);
        let number = connected.len();
        for slot in connected {
            let Some(entry) = self.remove(slot) else { continue };
            let Entry { directory, name, depth, notices, window, .. } = entry;
            visit(index, ReadyEntry { directory, name: name.clone(), depth, notices });
            release(index, directory, entry.covers);
            self.remember(directory, name, window.checked(now));
        }
        number
    }

    fn remember(&mut self, directory: NodeId, name: Box<[u8]>, history: History) {
        if self.history.len() < HISTORY_MAX {
            self.history.insert((directory, name), history);
        }
    }

    fn purge_history(&mut self, now: u64) {
        if now.saturating_sub(self.purged) >= PURGE_INTERVAL {
            self.purged = now;
            self.history.retain(|_, history| !history.is_over(now));
        }
    }
}
