//! Settings of the watcher, with their defaults.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dirty::{OriginLookup, Windows};

/// The ways to watch a file system, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// One mark on the whole file system, and one for writes on each directory.
    FileSystem,
    /// A mark on each directory: plain overlayfs, btrfs subvolumes, or no `CAP_SYS_ADMIN`.
    Directories,
    /// No notifications; the scan alone finds changes.
    ScanOnly,
}

/// A function that is called when something becomes due sooner than announced, from a thread of
/// the watcher. It must not block and must not call the watcher.
#[derive(Clone)]
pub struct WakeCallback(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for WakeCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Options {
    /// Absolute, resolved paths to watch.
    pub roots: Vec<PathBuf>,
    /// Absolute, resolved paths that deliver nothing, with everything below them.
    pub excluded: Vec<PathBuf>,
    /// Folder of the canary's file, which exists and belongs to the agent. Without one there is no
    /// canary.
    pub canary: Option<PathBuf>,
    /// Time between two canaries.
    pub canary_interval: Duration,
    /// Time after which a canary must have passed.
    pub canary_delay_max: Duration,
    pub windows: Windows,
    /// Largest number of pending names; more are merged.
    pub dirty_max: usize,
    /// Largest number of directories, and of files with several links, in the index.
    pub directories_max: usize,
    /// Notifications in the kernel's queue above which it is dropped and all roots are checked.
    pub queue_max: usize,
    /// Time between two checks of the kernel's queue.
    pub queue_check_interval: Duration,
    /// Best level to use.
    pub best_level: Level,
    /// Returns the origin of a process, for the turns of names that are due. Called with a lock held:
    /// it must not wait, and must not call the watcher.
    pub origins: Option<OriginLookup>,
    /// Called when something becomes due.
    pub wake: Option<WakeCallback>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            excluded: Vec::new(),
            canary: None,
            canary_interval: Duration::from_secs(30),
            canary_delay_max: Duration::from_secs(5),
            windows: Windows::default(),
            dirty_max: 100_000,
            directories_max: 1_000_000,
            queue_max: 500_000,
            queue_check_interval: Duration::from_secs(1),
            best_level: Level::FileSystem,
            origins: None,
            wake: None,
        }
    }
}
