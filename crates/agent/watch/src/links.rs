//! Finds the names of watched files that have a new hard link elsewhere.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;

use dirty::NewLink;
use rustix::fs::Dir;

use crate::fanotify::handle_of_entry;
use crate::marks::open_directory;
use crate::shared::Shared;

/// Looks up the names of all new links. The reader calls this between two reads: what the next read
/// returns about a link needs its name. Each directory is listed once.
pub(crate) fn resolve(shared: &Shared) {
    let links = {
        let state = shared.lock();
        if !state.tracker.has_new_links() {
            return;
        }
        state.tracker.new_links()
    };
    let mut by_directory: HashMap<&[u8], Vec<&NewLink>> = HashMap::new();
    for link in &links {
        by_directory.entry(&link.directory).or_default().push(link);
    }
    for (directory, links) in by_directory {
        // A directory that is gone has no name that could be noted; its own change is notified.
        let mut names = names_of(directory, &links).unwrap_or_default();
        let mut state = shared.lock();
        for link in links {
            state.tracker.resolve_link(link, &names.remove(&link.handle).unwrap_or_default());
        }
        shared.announce(state);
    }
}

/// The names of files in a directory, by handle.
type NamesByFile = HashMap<Box<[u8]>, Vec<Vec<u8>>>;

/// Returns the names that the files have in a directory.
fn names_of(path: &[u8], links: &[&NewLink]) -> io::Result<NamesByFile> {
    let by_inode: HashMap<u64, &NewLink> = links.iter().map(|link| (link.inode, *link)).collect();
    let mut names = NamesByFile::new();
    let directory = open_directory(path)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let Some(link) = by_inode.get(&entry.ino()) else { continue };
        // The number may have been used again: the handle has its generation.
        let handle = handle_of_entry(directory.as_fd(), entry.file_name().to_bytes());
        if handle.is_ok_and(|handle| *handle == *link.handle) {
            let name = entry.file_name().to_bytes().to_vec();
            names.entry(link.handle.clone()).or_default().push(name);
        }
    }
    Ok(names)
}
