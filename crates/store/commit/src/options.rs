//! Options and results of a commit.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use env::clock::{Clock, SystemClock};
use model::{Applied, Position};

use crate::disk::DiskThresholds;

/// Default limit of record bytes in flight: 256 MiB
/// (`docs/reference/wire.md`, "Sessions: limits").
const IN_FLIGHT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Default limit of one record, bytes: the largest session and its frame.
pub(crate) const RECORD_BYTES_MAX: u64 = 24 * 1024 * 1024;
/// Maximum number of records in one transaction of the state.
const BATCH_RECORDS_MAX: usize = 1_024;
/// Maximum number of bytes in one transaction of the state.
const BATCH_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Applied records after which a checkpoint is due.
const CHECKPOINT_RECORDS: u64 = 50_000;
/// Applied bytes after which a checkpoint is due.
const CHECKPOINT_BYTES: u64 = 64 * 1024 * 1024;
/// Time after which a checkpoint is due if anything was applied.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(30);
/// Interval between two checks of the free space and of the watched folders.
pub(crate) const DISK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the state's own log above which it is folded while the disk is low, bytes.
pub(crate) const LOW_DISK_LOG_BYTES: u64 = 4 * 1024 * 1024;

/// Options for opening a commit.
#[derive(Debug, Clone)]
pub struct CommitOptions {
    /// Limit of record bytes in flight; beyond it a submit fails.
    pub in_flight_bytes_max: u64,
    /// Limit of one record, bytes.
    pub record_bytes_max: u64,
    /// Maximum number of records in one transaction of the state.
    pub batch_records_max: usize,
    /// Maximum number of bytes in one transaction of the state.
    pub batch_bytes_max: u64,
    /// Applied records after which a checkpoint is due.
    pub checkpoint_records: u64,
    /// Applied bytes after which a checkpoint is due.
    pub checkpoint_bytes: u64,
    /// Time after which a checkpoint is due if anything was applied.
    pub checkpoint_interval: Duration,
    /// Folders whose file systems must have free space. May be empty.
    pub folders: Vec<PathBuf>,
    /// Thresholds of free space.
    pub disk: DiskThresholds,
    /// The journal has records of another store, too: nothing is trimmed before
    /// [`crate::Commit::keep_above`] is called.
    pub shared_journal: bool,
    /// The clock whose guarded time dates the events of a full disk.
    pub clock: Arc<dyn Clock>,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            record_bytes_max: RECORD_BYTES_MAX,
            batch_records_max: BATCH_RECORDS_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            checkpoint_records: CHECKPOINT_RECORDS,
            checkpoint_bytes: CHECKPOINT_BYTES,
            checkpoint_interval: CHECKPOINT_INTERVAL,
            folders: Vec::new(),
            disk: DiskThresholds::default(),
            shared_journal: false,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// One record, persisted and applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub position: Position,
    /// The result of applying it.
    pub applied: Applied,
}

/// The result of the replay at opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayReport {
    /// Position of the state before the replay.
    pub from: Position,
    /// Position of the state after the replay.
    pub to: Position,
    pub records: u64,
    /// Number of these that were quarantined.
    pub quarantined: u64,
    /// Duration of the replay, microseconds.
    pub took_us: u64,
}

/// Counters since opening.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CommitStats {
    /// Last position applied.
    pub applied: Position,
    /// Position of the last completed checkpoint.
    pub checkpointed: Position,
    /// Records submitted and answered.
    pub records: u64,
    /// Bytes of their encodings.
    pub record_bytes: u64,
    /// Transactions of the state.
    pub batches: u64,
    /// Records quarantined.
    pub quarantined: u64,
    /// Submits refused with `Full` before their append. Later failures with `Full` do not count.
    pub refused: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
    /// Bytes that the journal wrote for these records.
    pub journal_bytes: u64,
    /// 4 KiB blocks that it wrote.
    pub journal_blocks: u64,
    /// Flushes that it made.
    pub journal_flushes: u64,
    pub checkpoints: u64,
}

/// The reason why a commit accepts no records.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// One word for anonymous callers: `journal_failed`, `state_failed`, `disk_full`,
    /// `data_folder_gone` or `stopping`.
    pub word: &'static str,
    /// The error that the next submit gets.
    pub cause: crate::CommitError,
    /// Time of a failure that lasts until a restart, microseconds since the epoch.
    pub since_us: Option<u64>,
}
