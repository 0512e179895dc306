//! Options for opening a store, and its limits, each with its unit.

use std::sync::Arc;
use std::time::Duration;

use env::clock::{Clock, SystemClock};
use env::files::{Files, RealFiles};

/// Width of a partition in nanoseconds: 2 hours.
pub const PARTITION_NS: i64 = 2 * 3600 * 1_000_000_000;
/// Maximum number of metrics of one row series.
pub const COLUMNS_MAX: usize = 256;
/// Maximum number of tags of one series that a store can hold.
pub const TAGS_MAX: usize = 256;
/// Default limit of tags of a new series.
pub const LABELS_MAX_DEFAULT: usize = 64;
/// Maximum length of the canonical name of a row series, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// Maximum size of an event, in bytes.
pub const EVENT_BYTES_MAX: usize = 4096;
/// Maximum number of samples of one batch (rows times metrics).
pub const BATCH_SAMPLES_MAX: usize = 1 << 20;
/// Maximum total size of events in one batch, in bytes.
pub const BATCH_EVENT_BYTES_MAX: usize = 4 << 20;
/// Maximum distance of external times ahead of the clock. A time further ahead comes from a wrong
/// clock, and no retention would remove it for years.
pub const AHEAD_MAX: Duration = Duration::from_hours(24);
/// Default limit of series (metrics of row series) in a store.
pub const SERIES_MAX_DEFAULT: u64 = 4_000_000;
/// Default memory of the head at which it is sealed, in bytes.
pub const HEAD_BYTES_MAX_DEFAULT: usize = 256 << 20;
/// Default limit of samples waiting for the log; writers beyond it wait.
pub const QUEUED_SAMPLES_MAX_DEFAULT: usize = 4 << 20;
/// Default time within which writes with [`Ack::Flushed`] are persisted, in milliseconds.
pub const INTERVAL_MS_DEFAULT: u64 = 100;
/// Maximum number of parts that are kept open. The least recently read one is closed first.
pub const OPEN_PARTS_MAX: usize = 512;
/// Maximum size of part indexes kept in memory, in bytes.
pub const OPEN_INDEX_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of tombstones in a store.
pub const TOMBSTONES_MAX: usize = 10_000;

/// The time at which the log is persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wal {
    /// Every acknowledged batch is persisted (survives a power cut) before its acknowledgement. One
    /// flush serves a whole group of batches.
    Always,
    /// Every acknowledged batch is written to the operating system (survives a kill), and persisted
    /// within this time.
    Interval(Duration),
    /// No log: a kill loses all unsealed samples; a clean close loses nothing.
    Off,
}

/// The durability that a writer waits for under [`Wal::Always`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// The batch survives a power cut.
    #[default]
    Persisted,
    /// The batch survives a kill, and a power cut after [`INTERVAL_MS_DEFAULT`].
    Flushed,
}

/// The retention limits. `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeriesRetention {
    /// Age after which a partition is dropped.
    pub age: Option<Duration>,
    /// Size of parts on disk, in bytes. The oldest partitions are removed first. Roll-ups without
    /// samples may take up to half of it from those with samples; above that, roll-ups are widened
    /// or removed first.
    pub bytes_max: Option<u64>,
}

/// Options for opening a store. [`StoreOptions::default`] suits most uses.
#[derive(Clone)]
pub struct StoreOptions {
    /// The time at which the log is persisted.
    pub wal: Wal,
    /// Memory of the head at which it is sealed, in bytes.
    pub head_bytes_max: usize,
    /// Age at which a head is sealed.
    pub seal_after: Duration,
    /// Minimum time between two attempts to open the log again after an I/O error, so that a short
    /// failure of the disk does not use up the attempts of an hour.
    pub log_reopen_pause: Duration,
    /// The retention limits.
    pub retention: SeriesRetention,
    /// Limit of series in the store. A new series beyond it is rejected.
    pub series_max: u64,
    /// Limit of tags of a new series, at most [`TAGS_MAX`]. Existing series keep theirs.
    pub labels_max: usize,
    /// Limit of samples waiting for the log; writers beyond it wait.
    pub queued_samples_max: usize,
    /// Size of a segment of the log, in bytes.
    pub segment_bytes: u64,
    /// Layout of the log.
    pub layout: journal::Layout,
    /// If true, 5-minute summaries are stored next to the samples of finished partitions, not only
    /// after the samples are removed. They cost half a byte per sample, and serve queries with
    /// steps of 5 minutes or more that are aligned to the buckets.
    pub rollups_beside: bool,
    /// Age up to which 5-minute roll-ups are kept after their samples were removed. `None` removes
    /// them with the samples; without a retention age, existing ones stay.
    pub rollup_age: Option<Duration>,
    /// Age up to which, after that, roll-ups of an hour are kept. `None` creates none.
    pub hourly_age: Option<Duration>,
    /// Limit of the average write rate of background merges, in bytes per second; 0 is unlimited.
    pub merge_bytes_per_s_max: u64,
    /// If true, sealing, merging and retention run on separate threads. If false, they run only
    /// when called, in a deterministic order: for simulations.
    pub background: bool,
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The clock: wall clock, monotonic time and guarded time.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            wal: Wal::Always,
            head_bytes_max: HEAD_BYTES_MAX_DEFAULT,
            seal_after: Duration::from_mins(15),
            log_reopen_pause: Duration::from_mins(1),
            retention: SeriesRetention::default(),
            series_max: SERIES_MAX_DEFAULT,
            labels_max: LABELS_MAX_DEFAULT,
            queued_samples_max: QUEUED_SAMPLES_MAX_DEFAULT,
            segment_bytes: journal::SEGMENT_BYTES_DEFAULT,
            layout: journal::Layout::Packed,
            rollups_beside: false,
            rollup_age: None,
            hourly_age: None,
            merge_bytes_per_s_max: 0,
            background: true,
            files: Arc::new(RealFiles),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl StoreOptions {
    /// Returns the same options without retention and with the largest number of tags: for tools,
    /// which do not know the configured limits.
    #[must_use]
    pub fn keeping_all(self) -> Self {
        let ever = Some(Duration::MAX);
        let retention = SeriesRetention::default();
        Self { retention, rollup_age: ever, hourly_age: ever, labels_max: TAGS_MAX, ..self }
    }
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreOptions")
            .field("wal", &self.wal)
            .field("head_bytes_max", &self.head_bytes_max)
            .field("seal_after", &self.seal_after)
            .field("log_reopen_pause", &self.log_reopen_pause)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}
