//! Links of folders. Lists of packages name files by paths that may lead through links, such as
//! `/bin`, or an `/opt` that was moved to another disk. Notifications have the paths without them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits;

/// Follows the links of one system. Only links of the owner of its root count, which is root: others
/// must not decide which files are those of a package.
#[derive(Debug)]
pub(crate) struct Links {
    root: PathBuf,
    owner: Option<u32>,
}

impl Links {
    pub(crate) fn new(root: &Path) -> Self {
        Self { owner: fs::metadata(root).ok().map(|meta| meta.uid()), root: root.to_owned() }
    }

    /// Returns a folder without links on its path. Paths are absolute, below the root, and end without
    /// a slash; the root itself is empty. A folder that does not exist is returned as it is.
    pub(crate) fn resolve(&self, folder: &[u8]) -> Vec<u8> {
        let mut names: Vec<Vec<u8>> = names_of(folder).collect();
        let mut path = Vec::new();
        let mut followed = 0;
        while let Some(name) = names.pop() {
            if name == b".." {
                path.truncate(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            let length = path.len();
            path.push(b'/');
            path.extend_from_slice(&name);
            if followed == limits::LINKS_MAX {
                continue;
            }
            if let Some(target) = self.target(&path) {
                followed += 1;
                let kept = target.starts_with(b"/").then_some(0);
                path.truncate(kept.unwrap_or(length));
                names.extend(names_of(&target));
            }
        }
        path
    }

    /// Returns the target of a link; `None` for everything else.
    fn target(&self, path: &[u8]) -> Option<Vec<u8>> {
        let path = self.root.join(OsStr::from_bytes(path.strip_prefix(b"/")?));
        let meta = fs::symlink_metadata(&path).ok()?;
        let counts = meta.is_symlink() && Some(meta.uid()) == self.owner;
        let target = counts.then(|| fs::read_link(path).ok())??;
        Some(target.into_os_string().into_vec())
    }
}

/// Returns the names of a path, the last one first.
fn names_of(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').rev();
    names.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}
