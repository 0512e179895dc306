//! The watcher: threads that turn kernel notifications into names that are due for a check.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dirty::{Paths, Tracker};
use model::{DirectoryHandles, DueCheck};
use parking_lot::MutexGuard;

use crate::file_systems::{FileSystemState, WatchState};
use crate::mounts::Mounts;
use crate::options::Options;
use crate::shared::{Incident, Shared};
use crate::{reader, upkeep};

/// Numbers of a watcher since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchCounters {
    pub notifications: u64,
    /// Notifications from directories outside the roots.
    pub unknown_handles: u64,
    pub overflows: u64,
    /// Names that wait for their check.
    pub pending: usize,
    /// Directories in the index.
    pub directories: usize,
    /// Time of the last canary that passed, microseconds since the epoch; 0 before the first.
    pub canary_us: u64,
}

/// Kernel notifications for a set of roots. Dropping it stops its threads.
#[derive(Debug)]
pub struct Watcher {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Watcher {
    /// Sets the marks that do not wait for a scan and starts the threads. Without support in the
    /// kernel every root is [`ScanOnly`](crate::Level::ScanOnly), which is not an error.
    ///
    /// # Errors
    ///
    /// If the process cannot have another file descriptor or thread.
    pub fn start(options: Options) -> io::Result<Self> {
        let bytes = |path: &PathBuf| normal(path.as_os_str().as_bytes());
        let paths = Paths {
            roots: options.roots.iter().map(bytes).collect(),
            excluded: options.excluded.iter().map(bytes).collect(),
            canary: options.canary.as_ref().map(bytes),
            directories_max: options.directories_max,
            dirty_max: options.dirty_max,
        };
        let mut tracker = Tracker::new(paths, options.windows);
        tracker.set_origins(options.origins.clone());
        let shared = Arc::new(Shared::new(options, tracker)?);
        let mounts = Mounts::open()
            .inspect_err(|e| tracing::warn!("/proc/self/mountinfo: mounts are not followed: {e}"))
            .ok();
        shared.open_group();
        let mut watcher = Self { shared, threads: Vec::new() };
        watcher.spawn("watch-reader", reader::run)?;
        watcher.spawn("watch-upkeep", |shared| upkeep::run(shared, mounts))?;
        Ok(watcher)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Returns what a scan reports its directories to.
    pub fn handles(&self) -> Handles {
        Handles(Arc::clone(&self.shared))
    }

    /// Ends the time in which notifications from unknown directories are kept. Call this after the
    /// first scan of all roots.
    pub fn end_first_scan(&self) {
        self.shared.lock().tracker.end_first_scan();
    }

    /// Takes names that are due at `now_ns` of [`monotonic_ns`](crate::monotonic_ns): at most about
    /// `names_max`, sorted by directory and name. Users, their sessions and the roots have turns. Both
    /// names of a rename are in one result.
    pub fn due(&self, now_ns: u64, names_max: usize) -> Vec<DueCheck> {
        self.shared.take_due(now_ns, names_max)
    }

    /// Takes a directory or tree that is due: at most one, because its check may take long.
    pub fn due_tree(&self, now_ns: u64) -> Option<DueCheck> {
        self.shared.take_due_tree(now_ns)
    }

    /// Takes what is pending below a directory that is checked now, also what is not due yet.
    pub fn take_below(&self, path: &[u8], now_ns: u64) -> Vec<DueCheck> {
        self.shared.lock().tracker.take_below(path, now_ns)
    }

    /// Returns the time at which the next entry is due, in nanoseconds of
    /// [`monotonic_ns`](crate::monotonic_ns).
    pub fn next_due_ns(&self) -> Option<u64> {
        self.shared.lock().tracker.next_due()
    }

    /// Puts an entry back whose check had no stable result. It is due again after its window, with
    /// the notices that it had.
    pub fn recheck(&self, due: DueCheck) {
        let mut state = self.shared.lock();
        state.tracker.put_back(due, crate::monotonic_ns());
        self.shared.announce(state);
    }

    /// Waits until something is due, an incident is reported or [`interrupt_wait`](Self::interrupt_wait) is called.
    /// Returns false after the timeout.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.shared.wait(timeout)
    }

    /// Makes the present or the next [`wait`](Self::wait) return.
    pub fn interrupt_wait(&self) {
        self.shared.interrupt_wait();
    }

    /// Takes the intervals in which notifications may be missing. Their roots are due with
    /// [`Depth::Below`](model::Depth::Below), except after a limit.
    pub fn incidents(&self) -> Vec<Incident> {
        std::mem::take(&mut self.shared.lock().incidents)
    }

    /// Returns a function to be called after each exec of a program, see
    /// `attribution::Attribution::on_exec`. It does not wait.
    pub fn exec_callback(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.intake.note_exec(&shared.reader_wake)
    }

    /// Returns how each root is watched, in the order of the options.
    pub fn states(&self) -> Vec<WatchState> {
        let state = self.shared.lock();
        let root = |(number, path): (usize, &Vec<u8>)| WatchState {
            path: path.clone(),
            exists: !state.missing_roots.contains(&number),
            file_systems: {
                let mut all: Vec<_> =
                    state.file_systems.values().filter_map(|fs| fs.state_of(number)).collect();
                if let Some(marked) = state.file_roots.get(&number) {
                    all.push(FileSystemState::of_file(path, *marked, state.refused.as_ref()));
                }
                all.sort_by(|one, other| one.path.cmp(&other.path));
                all
            },
        };
        state.tracker.roots().iter().enumerate().map(root).collect()
    }

    /// Returns the counters.
    pub fn counters(&self) -> WatchCounters {
        let state = self.shared.lock();
        WatchCounters {
            notifications: state.tracker.notifications(),
            unknown_handles: state.tracker.unknown_handles(),
            overflows: state.overflows,
            pending: state.tracker.pending(),
            directories: state.tracker.directories(),
            canary_us: state.canary_us,
        }
    }

    /// Stops the reader until the result is dropped: for tests of a stalled reader.
    #[doc(hidden)]
    pub fn pause_reader(&self) -> ReaderPause<'_> {
        ReaderPause(self.shared.reading.lock())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has logged its message.
            let _ = thread.join();
        }
    }
}

/// A stopped reader.
#[derive(Debug)]
pub struct ReaderPause<'a>(#[expect(dead_code, reason = "held until dropped")] MutexGuard<'a, ()>);

/// Learns the directories of scans. Cheap to clone; one for each scan at the same time.
#[derive(Debug, Clone)]
pub struct Handles(Arc<Shared>);

impl DirectoryHandles for Handles {
    fn enter(&mut self, path: &[u8], directory: BorrowedFd<'_>) {
        self.0.enter(path, directory);
    }

    fn file(&mut self, path: &[u8], inode: u64) {
        self.0.lock().tracker.add_file(path, inode);
    }

    fn linked_file(&mut self, path: &[u8], directory: BorrowedFd<'_>, name: &[u8]) {
        self.0.linked_file(path, directory, name);
    }
}

/// Returns a path without slashes at its end.
fn normal(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    path.get(..end).unwrap_or(path).to_vec()
}
