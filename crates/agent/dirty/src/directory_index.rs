//! The places of directories: from a handle in a notification to a path, without system calls.
//!
//! An arena of nodes. A node is a place: a name below a parent. Its handle identifies the directory
//! there; a directory that is visible in several places (bind mounts, followed links) has a node
//! for each. Moving a directory changes one node, and everything below moves with it.
//!
//! A removed directory keeps its node while an entry below it still waits for its check, so that
//! the entry has a path. Nothing is stored on disk: scans report the directories they enter.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;

/// A node's slot, with the number of its use. Numbers of freed nodes are never valid again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NodeId {
    slot: u32,
    generation: u32,
}

/// The role of a directory, which everything below it inherits unless it has a role of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A root or a directory below one.
    Watched,
    /// Changes are dropped.
    Excluded,
    /// Only the file of the canary counts.
    Canary,
    /// Outside all roots: a directory above one.
    Outside,
}

/// The limit of directories is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryLimitReached;

/// The outcome of moving a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveOutcome {
    Done,
    /// Another directory was in the new place.
    Replaced,
    /// The new place is below the directory itself: what is known about it is out of date.
    Cycle,
}

#[derive(Debug)]
struct Node {
    generation: u32,
    in_use: bool,
    /// False after its directory was removed or replaced.
    alive: bool,
    /// `None` for `/`.
    parent: Option<NodeId>,
    name: Box<[u8]>,
    handle: Option<Box<[u8]>>,
    /// Another place of the same directory.
    next_place: Option<NodeId>,
    /// Children and pending entries; the node is kept while it has any.
    references: u32,
    role: Option<Role>,
    marked_ns: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct DirectoryIndex {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The first place of each handle.
    by_handle: HashTable<u32>,
    /// Living nodes by parent and name.
    by_place: HashTable<u32>,
    hasher: DefaultHashBuilder,
    directories_max: usize,
}

impl DirectoryIndex {
    /// Returns an index that contains `/` alone.
    pub(crate) fn new(directories_max: usize) -> Self {
        let top = Node {
            generation: 0,
            in_use: true,
            alive: true,
            parent: None,
            name: Box::default(),
            handle: None,
            next_place: None,
            references: 1,
            role: Some(Role::Outside),
            marked_ns: 0,
        };
        Self {
            nodes: vec![top],
            free: Vec::new(),
            by_handle: HashTable::new(),
            by_place: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            directories_max,
        }
    }

    /// Returns the node of `/`.
    pub(crate) fn top() -> NodeId {
        NodeId { slot: 0, generation: 0 }
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the node of an entry, which is created if it is missing, and makes `handle` its
    /// directory.
    pub(crate) fn add(
        &mut self,
        parent: NodeId,
        name: &[u8],
        handle: Option<&[u8]>,
    ) -> Result<NodeId, DirectoryLimitReached> {
        let node = match self.child(parent, name) {
            Some(node) => node,
            None => self.create(parent, name)?,
        };
        if let Some(handle) = handle {
            self.set_handle(node, handle);
        }
        Ok(node)
    }

    /// Makes `handle` the directory at a node.
    pub(crate) fn set_handle(&mut self, id: NodeId, handle: &[u8]) {
        if self.handle(id) == Some(handle) {
            return;
        }
        self.unlink_handle(id);
        let next_place = self.first_place(handle);
        let hash = self.hasher.hash_one(handle);
        let Some(node) = self.node_mut(id) else { return };
        node.handle = Some(handle.into());
        node.next_place = next_place;
        node.marked_ns = 0;
        let Self { nodes, by_handle, hasher, .. } = self;
        match by_handle.find_mut(hash, |slot| handle_at(nodes, *slot) == Some(handle)) {
            Some(first) => *first = id.slot,
            None => {
                by_handle.insert_unique(hash, id.slot, |slot| {
                    hasher.hash_one(handle_at(nodes, *slot).unwrap_or_default())
                });
            }
        }
    }

    fn create(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId, DirectoryLimitReached> {
        if self.len() >= self.directories_max {
            return Err(DirectoryLimitReached);
        }
        let mut node = Node {
            generation: 0,
            in_use: true,
            alive: true,
            parent: Some(parent),
            name: name.into(),
            handle: None,
            next_place: None,
            references: 0,
            role: None,
            marked_ns: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => u32::try_from(self.nodes.len()).map_err(|_| DirectoryLimitReached)?,
        };
        if let Some(freed) = self.nodes.get_mut(slot as usize) {
            node.generation = freed.generation;
            *freed = node;
        } else {
            self.nodes.push(node);
        }
        let generation = self.nodes.get(slot as usize).map_or(0, |node| node.generation);
        let id = NodeId { slot, generation };
        self.hold(parent);
        self.link_place(id);
        Ok(id)
    }

    /// Marks a directory as removed. Its node is freed once nothing refers to it.
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.unlink_place(id);
        if let Some(node) = self.node_mut(id) {
            node.alive = false;
        }
        self.free_if_unused(id);
    }

    /// Moves a directory, with everything below it. A removed directory is revived.
    pub(crate) fn rename(&mut self, id: NodeId, parent: NodeId, name: &[u8]) -> MoveOutcome {
        if self.is_at_or_below(parent, id) {
            return MoveOutcome::Cycle;
        }
        let replaced = self.child(parent, name).filter(|other| *other != id);
        if let Some(other) = replaced {
            self.remove(other);
        }
        self.unlink_place(id);
        self.hold(parent);
        let before = self.node_mut(id).and_then(|node| {
            node.alive = true;
            node.name = name.into();
            node.parent.replace(parent)
        });
        self.link_place(id);
        if let Some(before) = before {
            self.release(before);
        }
        if replaced.is_some() { MoveOutcome::Replaced } else { MoveOutcome::Done }
    }

    /// Keeps a node until [`release`](Self::release).
    pub(crate) fn hold(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id) {
            node.references += 1;
        }
    }

    /// Ends one [`hold`](Self::hold).
    pub(crate) fn release(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id) {
            node.references = node.references.saturating_sub(1);
        }
        self.free_if_unused(id);
    }

    /// Returns the first place of a directory.
    pub(crate) fn first_place(&self, handle: &[u8]) -> Option<NodeId> {
        let hash = self.hasher.hash_one(handle);
        let slot = self.by_handle.find(hash, |slot| handle_at(&self.nodes, *slot) == Some(handle));
        slot.and_then(|slot| self.id_at(*slot))
    }

    /// Returns all places of a directory, including removed ones that are still referred to.
    pub(crate) fn places(&self, handle: &[u8]) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut next = self.first_place(handle);
        while let Some(id) = next {
            found.push(id);
            next = self.node(id).and_then(|node| node.next_place);
        }
        found
    }

    /// Returns the living node of an entry.
    pub(crate) fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let hash = self.hasher.hash_one((parent, name));
        let nodes = &self.nodes;
        let slot = self.by_place.find(hash, |slot| is_place(nodes, *slot, parent, name));
        slot.and_then(|slot| self.id_at(*slot))
    }

    /// Returns the node of an absolute path, or the deepest known node above it and the rest of the
    /// path.
    pub(crate) fn find<'a>(&self, path: &'a [u8]) -> (NodeId, &'a [u8]) {
        let mut node = Self::top();
        let mut rest = path.strip_prefix(b"/").unwrap_or(path);
        while !rest.is_empty() {
            let (name, after) = split_first(rest);
            let Some(next) = self.child(node, name) else { break };
            node = next;
            rest = after;
        }
        (node, rest)
    }

    /// Returns the path of a node.
    pub(crate) fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut node = self.node(id);
        while let Some(Node { parent: Some(parent), name, .. }) = node {
            names.push(name);
            node = self.node(*parent);
        }
        if names.is_empty() {
            return b"/".to_vec();
        }
        let mut path = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path
    }

    /// Returns the parent and the name of a node; `None` for `/`.
    pub(crate) fn place(&self, id: NodeId) -> Option<(NodeId, &[u8])> {
        let node = self.node(id)?;
        Some((node.parent?, &node.name))
    }

    /// Returns the parent of a node.
    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id)?.parent
    }

    /// Returns true unless the directory was removed.
    pub(crate) fn is_alive(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.alive)
    }

    /// Returns true if `id` is `above` or below it.
    pub(crate) fn is_at_or_below(&self, id: NodeId, above: NodeId) -> bool {
        let mut next = Some(id);
        while let Some(node) = next {
            if node == above {
                return true;
            }
            next = self.parent(node);
        }
        false
    }

    /// Returns the role of a directory, its own or the inherited one.
    pub(crate) fn role(&self, id: NodeId) -> Role {
        let mut next = self.node(id);
        while let Some(node) = next {
            if let Some(role) = node.role {
                return role;
            }
            next = node.parent.and_then(|parent| self.node(parent));
        }
        Role::Outside
    }

    /// Returns the directory whose role this one inherits: the root that it is in, or `/`.
    pub(crate) fn root_of(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while let Some(node) = self.node(at)
            && node.role.is_none()
            && let Some(parent) = node.parent
        {
            at = parent;
        }
        at
    }

    /// Sets or clears a directory's own role.
    pub(crate) fn set_role(&mut self, id: NodeId, role: Option<Role>) {
        if let Some(node) = self.node_mut(id) {
            node.role = role;
        }
    }

    /// Returns the time at which a directory was marked; 0 if it never was.
    pub(crate) fn marked_ns(&self, id: NodeId) -> u64 {
        self.node(id).map_or(0, |node| node.marked_ns)
    }

    /// Records that a directory is marked.
    pub(crate) fn set_marked(&mut self, id: NodeId, now_ns: u64) {
        if let Some(node) = self.node_mut(id) {
            node.marked_ns = now_ns;
        }
    }

    /// Returns the handle of a node's directory.
    pub(crate) fn handle(&self, id: NodeId) -> Option<&[u8]> {
        self.node(id)?.handle.as_deref()
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        let node = self.nodes.get(id.slot as usize)?;
        (node.in_use && node.generation == id.generation).then_some(node)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let node = self.nodes.get_mut(id.slot as usize)?;
        (node.in_use && node.generation == id.generation).then_some(node)
    }

    fn id_at(&self, slot: u32) -> Option<NodeId> {
        let node = self.nodes.get(slot as usize)?;
        Some(NodeId { slot, generation: node.generation })
    }

    fn free_if_unused(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next {
            next = None;
            if self.node(id).is_some_and(|node| !node.alive && node.references == 0) {
                next = self.free(id);
            }
        }
    }

    /// Frees a node and returns its parent, which it no longer refers to.
    fn free(&mut self, id: NodeId) -> Option<NodeId> {
        self.unlink_handle(id);
        let node = self.node_mut(id)?;
        node.in_use = false;
        node.generation = node.generation.wrapping_add(1);
        node.name = Box::default();
        let parent = node.parent.take();
        self.free.push(id.slot);
        if let Some(parent) = parent.and_then(|parent| self.node_mut(parent)) {
            parent.references = parent.references.saturating_sub(1);
        }
        parent
    }

    fn link_place(&mut self, id: NodeId) {
        let Self { nodes, by_place, hasher, .. } = self;
        let hash_of = |slot: &u32| match nodes.get(*slot as usize) {
            Some(Node { parent: Some(parent), name, .. }) => hasher.hash_one((*parent, &**name)),
            _ => 0,
        };
        by_place.insert_unique(hash_of(&id.slot), id.slot, hash_of);
    }

    fn unlink_place(&mut self, id: NodeId) {
        let Some((parent, name)) = self.place(id) else { return };
        let hash = self.hasher.hash_one((parent, name));
        if let Ok(found) = self.by_place.find_entry(hash, |slot| *slot == id.slot) {
            found.remove();
        }
    }

    /// Takes a node out of the places of its handle.
    fn unlink_handle(&mut self, id: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        let (Some(handle), next) = (node.handle.take(), node.next_place.take()) else { return };
        let hash = self.hasher.hash_one(&*handle);
        // The first place may be the node itself, whose handle was just taken.
        let is_first = |slot: &u32| *slot == id.slot;
        if let Ok(mut found) = self.by_handle.find_entry(hash, is_first) {
            match next {
                Some(next) => *found.get_mut() = next.slot,
                None => drop(found.remove()),
            }
            return;
        }
        let mut before = self.first_place(&handle);
        while let Some(place) = before {
            let Some(node) = self.node_mut(place) else { return };
            if node.next_place == Some(id) {
                node.next_place = next;
                return;
            }
            before = node.next_place;
        }
    }
}

/// Splits a relative path after its first name.
fn split_first(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|b| *b == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (path, &[]),
    }
}

fn handle_at(nodes: &[Node], slot: u32) -> Option<&[u8]> {
    nodes.get(slot as usize)?.handle.as_deref()
}

fn is_place(nodes: &[Node], slot: u32, parent: NodeId, name: &[u8]) -> bool {
    nodes.get(slot as usize).is_some_and(|node| node.parent == Some(parent) && *node.name == *name)
}

#[cfg(test)]
#[path = "directory_index_tests.rs"]
mod tests;
