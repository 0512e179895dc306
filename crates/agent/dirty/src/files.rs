//! Files that are known by their own handle, because notifications may name another link of theirs
//! or no link at all: files with several links, and files that were created without a name.

use std::collections::{HashMap, VecDeque};

use crate::directory_index::{DirectoryIndex, NodeId};

/// Entries of watched directories that were created last.
const CREATED_MAX: usize = 64;

/// A link of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) directory: NodeId,
    pub(crate) name: Box<[u8]>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct LinkedFiles {
    links: HashMap<Box<[u8]>, Vec<Link>>,
    created: VecDeque<(Box<[u8]>, Link)>,
    files_max: usize,
}

impl LinkedFiles {
    pub(crate) fn new(files_max: usize) -> Self {
        Self { links: HashMap::new(), created: VecDeque::new(), files_max }
    }

    /// Returns the known links of a file.
    pub(crate) fn links(&self, file: &[u8]) -> &[Link] {
        if self.links.is_empty() {
            return &[];
        }
        self.links.get(file).map_or(&[], Vec::as_slice)
    }

    /// Adds a link. Returns false if the limit is reached.
    pub(crate) fn add(&mut self, file: &[u8], link: Link, index: &DirectoryIndex) -> bool {
        if let Some(links) = self.links.get_mut(file) {
            links.retain(|link| index.is_alive(link.directory));
            if !links.contains(&link) {
                links.push(link);
            }
            return true;
        }
        if self.links.len() >= self.files_max {
            self.links.retain(|_, links| links.iter().any(|link| index.is_alive(link.directory)));
        }
        let has_space = self.links.len() < self.files_max;
        if has_space {
            self.links.insert(file.into(), vec![link]);
        }
        has_space
    }

    /// Records a created entry: another link of a known file, or perhaps of a file that had no name
    /// before.
    pub(crate) fn created(&mut self, file: &[u8], link: Link, index: &DirectoryIndex) {
        if self.links.contains_key(file) {
            self.add(file, link, index);
            return;
        }
        if self.created.len() >= CREATED_MAX {
            self.created.pop_front();
        }
        self.created.push_back((file.into(), link));
    }

    /// Records a notification of a file under the name that a file without a name has. Its real
    /// names are the ones that it was or will be linked to.
    pub(crate) fn nameless(&mut self, file: &[u8]) {
        if self.links.len() < self.files_max && !self.links.contains_key(file) {
            let created = self.created.iter().filter(|(created, _)| **created == *file);
            let links = created.map(|(_, link)| link.clone()).collect();
            self.links.insert(file.into(), links);
        }
    }

    /// Forgets a removed link.
    pub(crate) fn removed(&mut self, file: &[u8], link: &Link) {
        if let Some(links) = self.links.get_mut(file) {
            links.retain(|known| known != link);
            if links.is_empty() {
                self.links.remove(file);
            }
        }
    }
}

/// Returns true for `#` and digits, the name that the kernel gives a file without a name.
pub(crate) fn is_nameless(name: &[u8]) -> bool {
    name.strip_prefix(b"#")
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}
