//! A baseline and a sink in memory, and an independent walk of a tree for comparison.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use detect::{
    Cancel, CheckReport, NoChecks, Progress, Rules, ScanError, ScanOptions, ScanPorts, ScanReport,
    Scanner, Watch,
};
use env::clock::{Clock, SystemClock};
use model::traits::PortError;
use model::{
    Baseline, BaselineItem, Change, ChangeBatch, ChangeKind, Check, Coverage, CoverageKind, Depth,
    ItemKey, Kind, NoHandles, Observation, Op, Sink, SinkOutcome,
};
use parking_lot::Mutex;
use sha1::Digest as _;

/// Everything that the sink was given.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) items: BTreeMap<ItemKey, Observation>,
    pub(crate) changes: Vec<Change>,
    pub(crate) coverage: Vec<Coverage>,
    pub(crate) touched: Vec<ItemKey>,
    pub(crate) puts: usize,
    pub(crate) largest_batch: usize,
    pub(crate) unsorted_batches: usize,
    /// Number of batches after which the sink fails.
    pub(crate) fail_after: Option<usize>,
}

/// A store in memory. Clones share it: one is used as baseline, one as sink.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<Recorded>>);

impl Baseline for Memory {
    fn directory(
        &mut self,
        directory: &[u8],
        into: &mut Vec<BaselineItem>,
    ) -> Result<(), PortError> {
        into.clear();
        let kept = self.0.lock();
        let from = ItemKey::new(directory, Vec::new());
        let items = kept.items.range(from..).take_while(|(k, _)| k.directory == directory);
        into.extend(
            items.map(|(k, o)| BaselineItem { name: k.name.clone(), observation: o.clone() }),
        );
        // The contract promises no order.
        into.reverse();
        Ok(())
    }

    fn directories_below(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        let mut prefix = directory.to_vec();
        if !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        let kept = self.0.lock();
        let mut below: Vec<Vec<u8>> = kept
            .items
            .keys()
            .filter(|k| k.directory.starts_with(&prefix) && k.directory != directory)
            .map(|k| k.directory.clone())
            .collect();
        below.dedup();
        Ok(below)
    }
}

impl Sink for Memory {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        let mut kept = self.0.lock();
        if let Some(left) = &mut kept.fail_after {
            if *left == 0 {
                return Err(PortError("no room".into()));
            }
            *left -= 1;
        }
        kept.largest_batch = kept.largest_batch.max(batch.len());
        let keys: Vec<_> = batch
            .iter()
            .filter_map(|op| match op {
                Op::Put { key, .. } | Op::Touch { key, .. } | Op::Delete { key, .. } => Some(key),
                Op::Coverage(_) => None,
            })
            .collect();
        if !keys.is_sorted() {
            kept.unsorted_batches += 1;
        }
        for op in batch.drain(..) {
            match op {
                Op::Put { key, observation, change } => {
                    kept.puts += 1;
                    kept.changes.extend(change.map(|c| *c));
                    kept.items.insert(key, observation);
                }
                Op::Touch { key, observation } => {
                    assert!(kept.items.contains_key(&key), "touched but unknown: {key:?}");
                    kept.touched.push(key.clone());
                    kept.items.insert(key, observation);
                }
                Op::Delete { key, change } => {
                    assert!(kept.items.remove(&key).is_some(), "deleted but unknown: {key:?}");
                    kept.changes.extend(change.map(|c| *c));
                }
                Op::Coverage(coverage) => kept.coverage.push(coverage),
            }
        }
        Ok(SinkOutcome::default())
    }
}

impl Memory {
    /// Returns the changes since the last call.
    pub(crate) fn changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.0.lock().changes)
    }

    /// Returns the changes since the last call as (kind, path), sorted.
    pub(crate) fn reported_changes(&self) -> Vec<(&'static str, PathBuf)> {
        let mut told: Vec<_> =
            self.changes().into_iter().map(|c| (c.kind.name(), path_of(&c.key))).collect();
        told.sort();
        told
    }

    /// Returns the gaps since the last call.
    pub(crate) fn coverage(&self) -> Vec<Coverage> {
        std::mem::take(&mut self.0.lock().coverage)
    }

    /// Returns the kinds of gaps since the last call.
    pub(crate) fn gaps(&self) -> Vec<CoverageKind> {
        self.coverage().into_iter().map(|c| c.kind).collect()
    }

    pub(crate) fn get(&self, path: &Path) -> Option<Observation> {
        self.0.lock().items.get(&ItemKey::of_path(path.as_os_str().as_bytes())).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().items.len()
    }
}

pub(crate) fn check(path: &Path, depth: Depth) -> Check {
    Check { key: ItemKey::of_path(path.as_os_str().as_bytes()), depth, seen: None }
}

pub(crate) fn path_of(key: &ItemKey) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(&key.path()))
}

/// A scanner with its store.
pub(crate) struct Bench {
    pub(crate) scanner: Scanner,
    pub(crate) store: Memory,
}

impl Bench {
    pub(crate) fn new(rules: Rules) -> Self {
        Self::with_clock(rules, Arc::new(SystemClock::new()))
    }

    pub(crate) fn with_clock(rules: Rules, clock: Arc<dyn Clock>) -> Self {
        let options = ScanOptions { batch_ops: 50, ..ScanOptions::default() };
        Self::with_options(rules, options, clock)
    }

    pub(crate) fn with_options(rules: Rules, options: ScanOptions, clock: Arc<dyn Clock>) -> Self {
        let scanner = Scanner::new(rules, options, clock).expect("rules are valid");
        Self { scanner, store: Memory::default() }
    }

    pub(crate) fn of(path: &Path) -> Self {
        Self::new(Rules::of_paths([path]))
    }

    pub(crate) fn of_watch(watch: Watch) -> Self {
        Self::new(Rules(vec![watch]))
    }

    pub(crate) fn scan(&self) -> ScanReport {
        let (mut baseline, mut sink) = (self.store.clone(), self.store.clone());
        self.scanner
            .scan(&mut baseline, &mut sink, &Progress::new(), &Cancel::new())
            .expect("the scan ends")
    }

    /// Checks names below the root only.
    pub(crate) fn check<'p>(&self, names: impl IntoIterator<Item = &'p Path>) -> CheckReport {
        let checks: Vec<Check> = names.into_iter().map(|path| check(path, Depth::Name)).collect();
        self.run_checks(&checks)
    }

    pub(crate) fn run_checks(&self, checks: &[Check]) -> CheckReport {
        self.with_ports(|ports| self.scanner.check(checks, ports, &Cancel::new()))
    }

    pub(crate) fn run_large_checks(&self, checks: &[Check]) -> CheckReport {
        self.with_ports(|ports| self.scanner.check_large(checks, ports, &Cancel::new()))
    }

    fn with_ports(
        &self,
        run: impl FnOnce(&mut ScanPorts<'_>) -> Result<CheckReport, ScanError>,
    ) -> CheckReport {
        let (mut baseline, mut sink) = (self.store.clone(), self.store.clone());
        let mut ports = ScanPorts {
            baseline: &mut baseline,
            sink: &mut sink,
            handles: &mut NoHandles,
            interrupt: &mut NoChecks,
        };
        run(&mut ports).expect("the checks end")
    }

    /// Returns a scanner with other rules for the same store, as after a restart.
    pub(crate) fn again(&self, rules: Rules) -> Self {
        let mut next = Self::new(rules);
        next.store = self.store.clone();
        next
    }
}

/// A temporary folder at its real path.
pub(crate) struct Folder {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().canonicalize().expect("its real path");
        Self { _dir: dir, path }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("parents");
        }
        fs::write(&path, content).expect("written");
        path
    }
}

pub(crate) fn field_names(change: &Change) -> Vec<&'static str> {
    change.fields.iter().map(model::Field::name).collect()
}

pub(crate) fn only(changes: Vec<Change>) -> Change {
    assert_eq!(changes.len(), 1, "{changes:#?}");
    changes.into_iter().next().unwrap()
}

pub(crate) fn assert_kind(change: &Change, kind: ChangeKind, path: &Path) {
    assert_eq!((change.kind, path_of(&change.key)), (kind, path.to_path_buf()));
}

/// Comparable part of each item.
pub(crate) type Seen = BTreeMap<PathBuf, (Kind, u64, u64, u32, u64, i64, Option<Vec<u8>>)>;

/// Walks a tree with the standard library alone.
pub(crate) fn independent_walk(root: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).expect("stat");
        let mut content = None;
        let kind = if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("entries").map(|e| e.unwrap().path()));
            Kind::Directory
        } else if meta.is_symlink() {
            content = Some(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec());
            Kind::Symlink
        } else if meta.is_file() {
            content = Some(sha2_of(&fs::read(&path).expect("content")));
            Kind::File
        } else {
            Kind::Fifo
        };
        let size = if meta.is_dir() { 0 } else { meta.size() };
        let mtime =
            if meta.is_dir() { 0 } else { meta.mtime() * 1_000_000_000 + meta.mtime_nsec() };
        let mode = meta.mode() & 0o7777;
        seen.insert(path, (kind, meta.dev(), meta.ino(), mode, size, mtime, content));
    }
    seen
}

/// Returns the same part of the stored items.
pub(crate) fn stored_items(store: &Memory) -> Seen {
    let kept = store.0.lock();
    kept.items
        .iter()
        .map(|(key, o)| {
            let directory = o.kind == Kind::Directory;
            let content = match o.kind {
                Kind::File => o.hashes.sha256.map(|h| h.to_vec()),
                _ => o.target.clone(),
            };
            let size = if directory { 0 } else { o.size };
            let mtime = if directory { 0 } else { o.mtime_ns };
            (path_of(key), (o.kind, o.device, o.inode, o.mode, size, mtime, content))
        })
        .collect()
}

pub(crate) fn sha2_of(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

pub(crate) fn sha1_of(bytes: &[u8]) -> Vec<u8> {
    sha1::Sha1::digest(bytes).to_vec()
}
