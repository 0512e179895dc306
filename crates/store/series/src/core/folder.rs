//! The store's folder: detects whether it was replaced, and stores whether it is marked as open.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use env::files::Lock;
use parking_lot::Mutex;

/// Device and inode of a folder, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

fn identity(dir: &Path) -> Option<Identity> {
    let found = std::fs::metadata(dir).ok()?;
    Some(Identity { device: found.dev(), inode: found.ino() })
}

/// The change of the folder since the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderChange {
    None,
    /// The folder was removed or replaced.
    Lost,
    /// The folder is back.
    Found,
}

/// See the module.
pub(crate) struct Folder {
    /// Locks out other processes until it is dropped.
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// `None` if the file system does not provide it, as on a simulated disk.
    opened: Option<Identity>,
    lost: AtomicBool,
    /// True while the manifest still says that the store is closed, because there was no space to
    /// update it.
    unmarked: AtomicBool,
}

impl Folder {
    pub(super) fn new(dir: &Path, lock: Box<dyn Lock>) -> Self {
        Self {
            lock: Mutex::new(Some(lock)),
            opened: identity(dir),
            lost: AtomicBool::new(false),
            unmarked: AtomicBool::new(false),
        }
    }

    /// Checks whether the folder is still the one that was opened.
    pub(crate) fn check_folder(&self, dir: &Path) -> FolderChange {
        let lost = self.opened.is_some() && identity(dir) != self.opened;
        match (self.lost.swap(lost, Ordering::AcqRel), lost) {
            (false, true) => FolderChange::Lost,
            (true, false) => FolderChange::Found,
            _ => FolderChange::None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns true if the manifest does not yet say that the store is open.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked.load(Ordering::Acquire)
    }

    pub(crate) fn set_unmarked(&self, unmarked: bool) {
        self.unmarked.store(unmarked, Ordering::Release);
    }

    /// Releases the lock, so that other processes can open the store.
    pub(crate) fn unlock(&self) {
        *self.lock.lock() = None;
    }
}
