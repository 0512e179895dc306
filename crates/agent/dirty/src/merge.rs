//! Merges entries of a dirty set that has reached its limit.

use std::collections::{HashMap, HashSet};

use model::{Depth, Notices};

use crate::directory_index::{DirectoryIndex, NodeId, Role};
use crate::notices::add_notices;
use crate::set::{DirtySet, release};
use crate::window::Window;

/// Names that are merged into one entry.
struct Merged {
    window: Window,
    notices: Notices,
}

impl DirtySet {
    /// Merges entries until a quarter of the set is free.
    pub(crate) fn merge(&mut self, index: &mut DirectoryIndex) {
        let target = self.dirty_max - self.dirty_max / 4;
        self.merge_directories(index, target);
        // The first pass keeps trees with few entries apart; the last leaves one entry a root.
        for share in [16, 4, usize::MAX] {
            if self.len() > target {
                let least = (self.len() / share).max(2);
                self.merge_trees(index, least);
            }
        }
    }

    /// Merges the names of the fullest directories.
    fn merge_directories(&mut self, index: &mut DirectoryIndex, target: usize) {
        let mut names: HashMap<NodeId, Vec<u32>> = HashMap::new();
        for (slot, directory) in self.slots() {
            // A check of a directory's entries does not look into a subdirectory.
            if self.entry(slot).is_some_and(|entry| entry.depth == Depth::Name) {
                names.entry(directory).or_default().push(slot);
            }
        }
        names.retain(|directory, slots| slots.len() > 1 && index.role(*directory) == Role::Watched);
        let mut fullest: Vec<(NodeId, Vec<u32>)> = names.into_iter().collect();
        fullest.sort_by_key(|(directory, slots)| (std::cmp::Reverse(slots.len()), *directory));
        for (directory, slots) in fullest {
            if self.len() <= target {
                return;
            }
            self.merge_into(index, directory, Depth::Directory, &slots);
        }
    }

    /// Merges each smallest tree that has at least `least` entries.
    fn merge_trees(&mut self, index: &mut DirectoryIndex, least: usize) {
        let slots = self.slots();
        let mut counts: HashMap<NodeId, usize> = HashMap::new();
        let mut depths: HashMap<NodeId, usize> = HashMap::new();
        for (_, directory) in &slots {
            let above = watched_above(index, *directory);
            for (level, node) in above.iter().rev().enumerate() {
                *counts.entry(*node).or_default() += 1;
                depths.insert(*node, level);
            }
        }
        let mut nodes: Vec<(usize, NodeId)> =
            depths.iter().map(|(n, depth)| (*depth, *n)).collect();
        nodes.sort_by(|one, other| other.cmp(one));
        let mut trees = HashSet::new();
        for (_, node) in nodes {
            let count = counts.get(&node).copied().unwrap_or_default();
            if count < least {
                continue;
            }
            trees.insert(node);
            for above in watched_above(index, node) {
                counts.entry(above).and_modify(|others| *others = others.saturating_sub(count));
            }
        }
        let mut merged: HashMap<NodeId, Vec<u32>> = HashMap::new();
        for (slot, directory) in slots {
            let above = watched_above(index, directory);
            if let Some(tree) = above.into_iter().find(|node| trees.contains(node)) {
                merged.entry(tree).or_default().push(slot);
            }
        }
        for (tree, slots) in merged {
            self.merge_into(index, tree, Depth::Below, &slots);
        }
    }

    fn merge_into(
        &mut self,
        index: &mut DirectoryIndex,
        directory: NodeId,
        depth: Depth,
        slots: &[u32],
    ) {
        let mut merged: Option<Merged> = None;
        let mut queue = 0;
        // `/` has no parent: its own entry is the empty name in it.
        let (parent, name) = index.place(directory).unwrap_or((directory, b""));
        let name = Box::<[u8]>::from(name);
        // The nodes are kept until the new entry holds the directory.
        index.hold(directory);
        for slot in slots {
            let Some(entry) = self.remove(*slot) else { continue };
            release(index, entry.directory, entry.covers);
            if let Some(merged) = &mut merged {
                merged.window = merged.window.merged(entry.window);
                add_notices(&mut merged.notices, &entry.notices);
            } else {
                queue = entry.place.queue;
                merged = Some(Merged { window: entry.window, notices: entry.notices });
            }
        }
        if let Some(Merged { window, notices }) = merged {
            let slot = self.find_or_insert(index, parent, &name, window, queue);
            self.cover(index, slot, directory, depth);
            self.add_merged(slot, window, &notices);
        }
        index.release(directory);
    }

    /// Returns all entries with their directories.
    fn slots(&self) -> Vec<(u32, NodeId)> {
        let entry = |(slot, entry): (usize, &Option<crate::set::Entry>)| {
            entry.as_ref().map(|entry| (slot as u32, entry.directory))
        };
        self.entries.iter().enumerate().filter_map(entry).collect()
    }
}

/// Returns a directory and those above it, up to its root.
fn watched_above(index: &DirectoryIndex, directory: NodeId) -> Vec<NodeId> {
    let mut above = Vec::new();
    let mut next = Some(directory).filter(|node| index.role(*node) == Role::Watched);
    while let Some(node) = next {
        above.push(node);
        next = index.parent(node).filter(|parent| index.role(*parent) == Role::Watched);
    }
    above
}
