//! The content of the simulated disk: the readers' view, the durable state, and the pending
//! changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{SECTOR_BYTES, draw};

/// A change of a name in a folder.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Create(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// A change of a file that is not durable yet.
#[derive(Debug, Clone)]
enum PendingChange {
    Sector {
        index: usize,
        bytes: Box<[u8; SECTOR_BYTES]>,
        /// True if a flush of it failed: no later flush will write it.
        forgotten: bool,
    },
    Size(usize),
}

#[derive(Debug, Clone, Default)]
struct Node {
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<PendingChange>,
}

/// Names and files. A file outlives the removal of its name, as an open file does.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<(NameChange, usize)>,
}

impl NameChange {
    /// Returns the folder that is changed.
    fn folder(&self) -> Option<&Path> {
        let (Self::Create(path) | Self::Rename(_, path) | Self::Remove(path)) = self;
        path.parent()
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange, node: usize) {
    match change {
        NameChange::Create(path) => {
            names.insert(path.clone(), node);
        }
        NameChange::Rename(from, to) => {
            names.remove(from);
            names.insert(to.clone(), node);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}

impl Node {
    fn apply(&mut self, change: &PendingChange) {
        match change {
            PendingChange::Size(bytes) => self.durable.resize(*bytes, 0),
            PendingChange::Sector { index, bytes, .. } => {
                let begin = index * SECTOR_BYTES;
                let end = (begin + SECTOR_BYTES).min(self.durable.len());
                if let Some(to) = self.durable.get_mut(begin..end) {
                    let n = to.len();
                    to.copy_from_slice(bytes.get(..n).unwrap_or_default());
                }
            }
        }
    }

    fn write(&mut self, offset: usize, from: &[u8]) {
        if from.is_empty() {
            return;
        }
        let end = offset + from.len();
        if end > self.seen.len() {
            self.seen.resize(end, 0);
            self.pending.push(PendingChange::Size(end));
        }
        if let Some(to) = self.seen.get_mut(offset..end) {
            to.copy_from_slice(from);
        }
        for index in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let mut bytes = Box::new([0; SECTOR_BYTES]);
            // The sector is dirty again, so the next flush writes it even if an earlier one failed.
            self.pending.retain(
                |c| !matches!(c, PendingChange::Sector { index: i, forgotten: true, .. } if *i == index),
            );
            let begin = index * SECTOR_BYTES;
            let now = self.seen.get(begin..(begin + SECTOR_BYTES).min(self.seen.len()));
            for (to, from) in bytes.iter_mut().zip(now.unwrap_or_default()) {
                *to = *from;
            }
            self.pending.push(PendingChange::Sector { index, bytes, forgotten: false });
        }
    }

    fn persist(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match &change {
                PendingChange::Sector { forgotten: true, .. } => self.pending.push(change),
                _ => self.apply(&change),
            }
        }
    }

    /// Makes only this range durable, with the file size that it needs.
    fn persist_range(&mut self, offset: usize, bytes: usize) {
        let end = offset + bytes;
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        let range = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for change in std::mem::take(&mut self.pending) {
            match &change {
                PendingChange::Sector { index, .. } if range.contains(index) => self.apply(&change),
                PendingChange::Size(size) if *size <= self.durable.len() => {}
                _ => self.pending.push(change),
            }
        }
    }

    /// Returns the content after a power cut: all, none, a prefix, or any subset of the pending
    /// writes.
    fn after_power_cut(&self, noise: &mut u64) -> Vec<u8> {
        let mut left = Self { durable: self.durable.clone(), ..Self::default() };
        let (manner, prefix) = (draw(noise) % 8, draw(noise));
        let prefix = prefix as usize % (self.pending.len() + 1);
        for (i, change) in self.pending.iter().enumerate() {
            let kept = match manner {
                0 => false,
                1 => true,
                2 => i < prefix,
                3 => i >= prefix,
                4 => i != prefix,
                _ => draw(noise).is_multiple_of(2),
            };
            if kept {
                left.apply(change);
            }
        }
        left.durable
    }
}

impl Image {
    pub(super) fn find_node(&self, path: &Path) -> Option<usize> {
        self.names.get(path).copied()
    }

    pub(super) fn content(&self, node: usize) -> &[u8] {
        self.nodes.get(node).map(|n| n.seen.as_slice()).unwrap_or_default()
    }

    /// Returns the total size of all files that have a name.
    pub(super) fn bytes(&self) -> u64 {
        self.names.values().map(|node| self.content(*node).len() as u64).sum()
    }

    pub(super) fn names_in(&self, dir: &Path) -> Vec<String> {
        let here = self.names.keys().filter(|p| p.parent() == Some(dir));
        here.filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect()
    }

    pub(super) fn write(&mut self, node: usize, offset: usize, from: &[u8]) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.write(offset, from);
        }
    }

    pub(super) fn resize(&mut self, node: usize, bytes: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.seen.resize(bytes, 0);
            node.pending.push(PendingChange::Size(bytes));
        }
    }

    pub(super) fn persist(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.persist();
        }
    }

    pub(super) fn persist_range(&mut self, node: usize, offset: usize, bytes: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.persist_range(offset, bytes);
        }
    }

    /// Marks a failed flush: the pending content reads as written, and no later flush makes it
    /// durable.
    pub(super) fn forget(&mut self, node: usize) {
        for change in self.nodes.get_mut(node).iter_mut().flat_map(|n| &mut n.pending) {
            if let PendingChange::Sector { forgotten, .. } = change {
                *forgotten = true;
            }
        }
    }

    pub(super) fn change_name(&mut self, change: NameChange) {
        let node = match &change {
            NameChange::Create(_) => {
                self.nodes.push(Node::default());
                self.nodes.len() - 1
            }
            NameChange::Rename(path, _) | NameChange::Remove(path) => {
                self.names.get(path).copied().unwrap_or(usize::MAX)
            }
        };
        apply_name(&mut self.names, &change, node);
        self.pending_names.push((change, node));
    }

    /// Persists the names of all folders, or of one.
    pub(super) fn persist_names(&mut self, only: Option<&Path>) {
        for (change, node) in std::mem::take(&mut self.pending_names) {
            if only.is_none() || change.folder() == only {
                apply_name(&mut self.durable_names, &change, node);
            } else {
                self.pending_names.push((change, node));
            }
        }
    }

    pub(super) fn flip(&mut self, node: usize, byte: usize, bit: u8) -> bool {
        let Some(node) = self.nodes.get_mut(node) else { return false };
        let mut found = false;
        for copy in [&mut node.seen, &mut node.durable] {
            if let Some(byte) = copy.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
                found = true;
            }
        }
        found
    }

    pub(super) fn after_power_cut(&self, scattered: bool, noise: &mut u64) -> Self {
        let mut names = self.durable_names.clone();
        // One sequence of changes, or one for each folder.
        let mut lines: BTreeMap<Option<&Path>, Vec<&(NameChange, usize)>> = BTreeMap::new();
        lines.entry(None).or_default();
        for pending in &self.pending_names {
            let folder = pending.0.folder().filter(|_| scattered);
            lines.entry(folder).or_default().push(pending);
        }
        for line in lines.values() {
            let kept = draw(noise) as usize % (line.len() + 1);
            for (change, node) in line.iter().take(kept) {
                apply_name(&mut names, change, *node);
            }
        }
        let mut image = Self::default();
        for (path, node) in names {
            let Some(node) = self.nodes.get(node) else { continue };
            let durable = node.after_power_cut(noise);
            image.names.insert(path, image.nodes.len());
            image.nodes.push(Node { seen: durable.clone(), durable, pending: Vec::new() });
        }
        image.durable_names.clone_from(&image.names);
        image
    }
}
