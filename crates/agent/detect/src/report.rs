//! Progress and report of a scan, its errors and its gaps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::traits::PortError;
use model::{Check, CoverageKind, ItemKey};
use observe::PoolError;
use serde::{Deserialize, Serialize};

/// An error that ended a scan. Batches committed before stay committed; the next scan continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The baseline cannot be read.
    #[error("the baseline cannot be read: {0}")]
    Baseline(PortError),
    /// The changes cannot be stored.
    #[error("changes cannot be kept: {0}")]
    Sink(PortError),
    /// Files cannot be read, because a reader thread failed.
    #[error(transparent)]
    Readers(#[from] PoolError),
}

/// Counters of a running scan, for a progress bar. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<ProgressCells>);

#[derive(Debug, Default)]
struct ProgressCells {
    files: AtomicU64,
    directories: AtomicU64,
    others: AtomicU64,
    hashed: AtomicU64,
    /// Counted by the readers; see [`observe::ReaderContext`].
    bytes_hashed: Arc<AtomicU64>,
    changes: AtomicU64,
}

/// A snapshot of [`Progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgressCounts {
    /// Regular files.
    pub files: u64,
    pub directories: u64,
    /// Links, pipes, sockets, devices.
    pub others: u64,
    /// Files whose content was read.
    pub hashed: u64,
    /// Bytes of content read.
    pub bytes_hashed: u64,
    /// Created, modified and deleted.
    pub changes: u64,
}

impl Progress {
    /// Returns counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn counts(&self) -> ProgressCounts {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        ProgressCounts {
            files: load(&self.0.files),
            directories: load(&self.0.directories),
            others: load(&self.0.others),
            hashed: load(&self.0.hashed),
            bytes_hashed: load(&self.0.bytes_hashed),
            changes: load(&self.0.changes),
        }
    }

    /// Returns the counter of bytes, for the readers.
    pub(crate) fn bytes_hashed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.bytes_hashed)
    }

    /// Sets the counters to the sums of the finished roots and the current one.
    pub(crate) fn show(&self, totals: &Counts, current: &Counts) {
        let store = |cell: &AtomicU64, of: fn(&Counts) -> u64| {
            cell.store(of(totals) + of(current), Ordering::Relaxed);
        };
        store(&self.0.files, |c| c.files);
        store(&self.0.directories, |c| c.directories);
        store(&self.0.others, |c| c.others);
        store(&self.0.hashed, |c| c.hashed);
        store(&self.0.changes, Counts::changes);
    }
}

/// Counters of a root or of a whole scan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub files: u64,
    /// Directories, including the root.
    pub directories: u64,
    /// Links, pipes, sockets, devices.
    pub others: u64,
    /// Entries that the rule's patterns exclude.
    pub ignored: u64,
    /// Files whose content was read.
    pub hashed: u64,
    /// Bytes of content read.
    pub bytes_hashed: u64,
    /// Files whose content was not read again because their stat is unchanged.
    pub skipped: u64,
    /// Items that became baseline without a change.
    pub baseline: u64,
    /// Changes: new items.
    pub created: u64,
    /// Changes: different items.
    pub modified: u64,
    /// Changes: items no longer there.
    pub deleted: u64,
    /// Items dropped because no rule covers them any more.
    pub forgotten: u64,
    /// Entries that could not be observed, by kind of error, such as `permission denied` or
    /// `unstable`.
    pub errors: BTreeMap<String, u64>,
}

impl Counts {
    /// Created, modified and deleted.
    pub fn changes(&self) -> u64 {
        self.created + self.modified + self.deleted
    }

    /// Returns true if the operating system refused to read something. Files that changed while
    /// they were read and files above the size limit do not count.
    pub fn has_unread(&self) -> bool {
        self.errors.keys().any(|name| ![UNSTABLE, TOO_LARGE].contains(&name.as_str()))
    }

    pub(crate) fn error(&mut self, error: model::ObserveError) {
        *self.errors.entry(error_name(error)).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.others += other.others;
        self.ignored += other.ignored;
        self.hashed += other.hashed;
        self.bytes_hashed += other.bytes_hashed;
        self.skipped += other.skipped;
        self.baseline += other.baseline;
        self.created += other.created;
        self.modified += other.modified;
        self.deleted += other.deleted;
        self.forgotten += other.forgotten;
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
    }
}

const UNSTABLE: &str = "unstable";
const TOO_LARGE: &str = "too large";

/// Returns the name under which an error is counted.
fn error_name(error: model::ObserveError) -> String {
    match error {
        model::ObserveError::Unstable => UNSTABLE.into(),
        model::ObserveError::TooLarge => TOO_LARGE.into(),
        model::ObserveError::Os(libc::EACCES | libc::EPERM) => "permission denied".into(),
        model::ObserveError::Os(libc::EIO) => "input/output error".into(),
        other @ model::ObserveError::Os(_) => other.to_string().to_lowercase(),
    }
}

/// The kind of a gap: why a path is not covered by the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GapKind {
    /// It is not there, or not mounted, or no longer the kind of entry it was.
    Missing,
    /// It is on another file system than before.
    OtherDevice,
    /// It cannot be read.
    Unreadable,
    /// Something below it has a path above the limit.
    PathTooLong,
    /// It does not exist, and its rule says that it may: no gap, but a note that what appears there
    /// is new. It is never reported.
    Absent,
}

/// The reason why a path cannot be scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GapReason {
    pub(crate) kind: GapKind,
    /// Text for people, with the remedy.
    pub(crate) detail: String,
}

impl GapReason {
    pub(crate) fn new(kind: GapKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl GapKind {
    /// Returns the kind of coverage event that reports the gap.
    pub fn coverage(self) -> CoverageKind {
        match self {
            Self::Missing | Self::OtherDevice | Self::Absent => CoverageKind::RootGone,
            Self::Unreadable => CoverageKind::Unreadable,
            Self::PathTooLong => CoverageKind::LimitReached,
        }
    }
}

/// An open gap: a path that the scan does not cover at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The root or directory, raw.
    pub path: Vec<u8>,
    pub kind: GapKind,
    /// Time at which it opened, microseconds since the epoch.
    pub since_us: u64,
    /// Details and the remedy.
    pub detail: String,
}

/// Outcome of the scan of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum RootState {
    /// Scanned for the first time: its items are the baseline.
    Baseline,
    /// Scanned and compared.
    Covered,
    /// Not scanned; its baseline is kept.
    Gap {
        kind: GapKind,
        /// Details and the remedy.
        detail: String,
    },
    /// The scan was cancelled before it was finished.
    Unfinished,
}

/// One root's part of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootReport {
    /// The path of the rule, escaped for display.
    pub path: String,
    /// The path with its links resolved.
    pub real_path: String,
    #[serde(flatten)]
    pub state: RootState,
    pub counts: Counts,
}

/// Result of a scan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScanReport {
    /// When it began, microseconds since the epoch.
    pub started_at_us: u64,
    /// When it ended, microseconds since the epoch.
    pub ended_at_us: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Sums over all roots.
    pub counts: Counts,
    pub roots: Vec<RootReport>,
    /// True if it was cancelled before its end.
    pub cancelled: bool,
}

/// A directory that is gone, or not in the baseline, and whose own name was not among the checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferred {
    pub directory: ItemKey,
    /// Names below it that were among the checks and were not compared.
    pub names: Vec<ItemKey>,
}

/// Result of targeted checks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CheckReport {
    pub counts: Counts,
    /// Files that changed while they were read. Their baseline is unchanged: check them again.
    pub unsettled: Vec<ItemKey>,
    /// Check each directory's own name together with its names, when its notification has come.
    pub deferred: Vec<Deferred>,
    /// Names that were created and removed before this check: neither the baseline nor the disk has
    /// them.
    pub transient: Vec<Check>,
    /// Files above [`crate::limits::LARGE_BYTES`] that were not read. Check them with
    /// [`crate::Scanner::check_large`].
    pub large: Vec<Check>,
    /// Duration on the monotonic clock.
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use model::ObserveError;

    use super::*;

    #[test]
    fn only_os_errors_count_as_unread() {
        let mut counts = Counts::default();
        assert!(!counts.has_unread());
        counts.error(ObserveError::Unstable);
        counts.error(ObserveError::TooLarge);
        assert!(!counts.has_unread());
        counts.error(ObserveError::Os(libc::EACCES));
        assert!(counts.has_unread());
    }
}
