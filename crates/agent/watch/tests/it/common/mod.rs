//! A watcher with a checker: it takes what is due like the agent does, enters due trees like a
//! scan, and records when each path was due. It does so only while a test waits, so that a change
//! that the test has made is not taken before the test has noted its time.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use model::{Depth, DirectoryHandles as _, DueCheck, ItemKey};
use parking_lot::{Condvar, Mutex, MutexGuard};
use watch::{Handles, Incident, Level, Options, WatchState, Watcher, monotonic_ns};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Default)]
struct Seen {
    names: BTreeMap<Vec<u8>, u64>,
    directories: BTreeMap<Vec<u8>, u64>,
    trees: BTreeMap<Vec<u8>, u64>,
    batches: Vec<Vec<DueCheck>>,
    incidents: Vec<Incident>,
    /// True while the checker may take what is due.
    open: bool,
    stop: bool,
}

#[derive(Default)]
struct Record {
    seen: Mutex<Seen>,
    changed: Condvar,
}

/// See the file's documentation.
pub(crate) struct Checker {
    pub(crate) watcher: Arc<Watcher>,
    record: Arc<Record>,
    keep_open: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    /// Starts a watcher, scans its roots and ends the first scan.
    pub(crate) fn start(options: Options) -> Self {
        let roots = options.roots.clone();
        let watcher = Arc::new(Watcher::start(options).unwrap());
        let mut handles = watcher.handles();
        for root in &roots {
            scan(&mut handles, root);
        }
        watcher.end_first_scan();
        let record = Arc::new(Record::default());
        let thread = {
            let (watcher, record) = (watcher.clone(), record.clone());
            thread::spawn(move || check(&watcher, &record))
        };
        Self { watcher, record, keep_open: false, thread: Some(thread) }
    }

    /// Takes what is due all the time.
    pub(crate) fn keep_open(&mut self) {
        self.keep_open = true;
        self.record.seen.lock().open = true;
        self.record.changed.notify_all();
    }

    /// Waits until a condition holds for what was seen.
    fn wait_until(&self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut seen = self.open();
        while !condition(&seen) {
            let timed_out = self.record.changed.wait_until(&mut seen, end).timed_out();
            assert!(
                !timed_out,
                "{what}: {:?}",
                seen.batches.iter().rev().take(5).collect::<Vec<_>>()
            );
        }
        seen.open = self.keep_open;
    }

    /// Waits until each path was due at or after its time.
    pub(crate) fn wait_for(&self, changes: &[(PathBuf, u64)]) {
        let mut open: Vec<_> = changes.iter().collect();
        let end = Instant::now() + PATIENCE;
        let mut seen = self.open();
        loop {
            open.retain(|(path, changed)| !seen.covers(path, *changed));
            if open.is_empty() {
                seen.open = self.keep_open;
                return;
            }
            let timed_out = self.record.changed.wait_until(&mut seen, end).timed_out();
            assert!(!timed_out, "{} of {} missing: {:?}", open.len(), changes.len(), open.first());
        }
    }

    fn open(&self) -> MutexGuard<'_, Seen> {
        let mut seen = self.record.seen.lock();
        seen.open = true;
        self.record.changed.notify_all();
        seen
    }

    /// Waits until a path was due at or after its time.
    pub(crate) fn wait_for_path(&self, path: &Path, changed: u64) {
        self.wait_for(&[(path.to_owned(), changed)]);
    }

    /// Waits until nothing is pending and all notifications made so far were read.
    pub(crate) fn settle(&self, root: &Path) {
        let marker = root.join("settled");
        fs::write(&marker, b"").unwrap();
        let changed = monotonic_ns();
        self.wait_for_path(&marker, changed);
        fs::remove_file(&marker).unwrap();
        let changed = monotonic_ns();
        self.wait_for_path(&marker, changed);
    }

    /// Waits for an incident and takes it.
    pub(crate) fn wait_for_incident(&self) -> Incident {
        self.wait_until("no incident", |seen| !seen.incidents.is_empty());
        self.record.seen.lock().incidents.remove(0)
    }

    pub(crate) fn incidents(&self) -> Vec<Incident> {
        self.record.seen.lock().incidents.clone()
    }

    /// Returns true if a name itself was due since `changed`.
    pub(crate) fn saw_name(&self, path: &Path, changed: u64) -> bool {
        let seen = self.record.seen.lock();
        seen.names.get(path.as_os_str().as_bytes()).is_some_and(|due| *due >= changed)
    }

    /// Returns all batches so far.
    pub(crate) fn batches(&self) -> Vec<Vec<DueCheck>> {
        self.record.seen.lock().batches.clone()
    }

    pub(crate) fn state(&self) -> WatchState {
        self.watcher.states().remove(0)
    }

    pub(crate) fn level(&self) -> Level {
        self.state().file_systems.first().unwrap().level
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.record.seen.lock().stop = true;
        self.record.changed.notify_all();
        self.watcher.interrupt_wait();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            assert!(thread::panicking(), "the checker failed");
        }
    }
}

impl Seen {
    /// Returns true if a path was due at or after `changed`, alone or with a directory or tree.
    fn covers(&self, path: &Path, changed: u64) -> bool {
        let since = |map: &BTreeMap<Vec<u8>, u64>, path: &Path| {
            map.get(path.as_os_str().as_bytes()).is_some_and(|due| *due >= changed)
        };
        since(&self.names, path)
            || since(&self.directories, path)
            || path.parent().is_some_and(|parent| since(&self.directories, parent))
            || path.ancestors().any(|above| since(&self.trees, above))
    }
}

fn check(watcher: &Watcher, record: &Record) {
    let mut handles = watcher.handles();
    loop {
        watcher.wait(PATIENCE);
        let mut seen = record.seen.lock();
        record.changed.wait_while(&mut seen, |seen| !seen.open && !seen.stop);
        if seen.stop {
            return;
        }
        // The check begins now: it sees all changes made before.
        let now = monotonic_ns();
        let incidents = watcher.incidents();
        let mut due = watcher.due(now, 2_000);
        due.extend(watcher.due_tree(now));
        let trees = due.iter().filter(|due| due.depth == Depth::Below);
        for tree in trees {
            scan(&mut handles, &path_of(&tree.key));
        }
        for due in &due {
            let path = due.key.path();
            match due.depth {
                Depth::Name => seen.names.insert(path, now),
                Depth::Directory => seen.directories.insert(path, now),
                Depth::Below => seen.trees.insert(path, now),
            };
        }
        seen.batches.push(due);
        seen.incidents.extend(incidents);
        record.changed.notify_all();
    }
}

/// Enters a directory and everything below it, as a scan does.
pub(crate) fn scan(handles: &mut Handles, path: &Path) {
    let Ok(directory) = fs::File::open(path) else { return };
    if !directory.metadata().unwrap().is_dir() {
        return;
    }
    handles.enter(path.as_os_str().as_bytes(), directory.as_fd());
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
        if metadata.is_dir() {
            scan(handles, &entry.path());
        } else if metadata.is_file() {
            let path = path.as_os_str().as_bytes();
            handles.file(path, metadata.ino());
            if metadata.nlink() > 1 {
                handles.linked_file(path, directory.as_fd(), entry.file_name().as_bytes());
            }
        }
    }
}

pub(crate) fn path_of(key: &ItemKey) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&key.path()))
}

/// A folder that tests may watch, on the file system of the temporary folder.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A mount that ends with the test.
pub(crate) struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Mounts a file system, as `mount -t KIND -o OPTIONS none PATH` does.
    pub(crate) fn new(kind: &str, options: &str, path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        let c = |text: &str| CString::new(text).unwrap();
        let (kind, options) = (c(kind), c(options));
        rustix::mount::mount(c"none", path, &*kind, rustix::mount::MountFlags::empty(), &*options)
            .unwrap();
        Self { path: path.to_owned() }
    }

    /// Mounts the file system in a file through a loop device.
    pub(crate) fn image(file: &Path, path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        run("mount", &[OsStr::new("-o"), OsStr::new("loop"), file.as_os_str(), path.as_os_str()]);
        Self { path: path.to_owned() }
    }

    pub(crate) fn bind(from: &Path, to: &Path) -> Self {
        fs::create_dir_all(to).unwrap();
        rustix::mount::mount_bind(from, to).unwrap();
        Self { path: to.to_owned() }
    }

    /// Unmounts now. Fails if the file system is in use.
    pub(crate) fn end(self) {
        let result = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::empty());
        let path = self.path.clone();
        std::mem::forget(self);
        result.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns options for one root.
pub(crate) fn root(path: &Path) -> Options {
    Options { roots: vec![path.to_owned()], ..Options::default() }
}
