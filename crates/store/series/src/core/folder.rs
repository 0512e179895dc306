//! The store's folder: whether it is still the one that was opened, and marked as open.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use env::files::Lock;
use parking_lot::Mutex;

/// Device and inode of a folder, whatever its name.
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
    /// It is gone, or another one is in its place.
    Lost,
    /// It is there again.
    Found,
}

/// See the module.
pub(crate) struct Folder {
    /// Keeps other processes out until it is dropped.
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// `None` if the system does not provide it, as on a simulated disk.
    opened: Option<Identity>,
    lost: AtomicBool,
    /// The manifest still says that the store is closed: there was no room to write otherwise.
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

    /// Looks whether the folder is still the one that was opened.
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

    /// Returns true if the manifest does not say yet that the store is open.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked.load(Ordering::Acquire)
    }

    pub(crate) fn set_unmarked(&self, unmarked: bool) {
        self.unmarked.store(unmarked, Ordering::Release);
    }

    /// Lets other processes open the store.
    pub(crate) fn unlock(&self) {
        *self.lock.lock() = None;
    }
}
