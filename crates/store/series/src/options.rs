//! Options for opening a store, and its limits, each with its unit.

use std::sync::Arc;
use std::time::Duration;

use env::clock::{Clock, SystemClock};
use env::files::{Files, RealFiles};

/// Width of a partition in nanoseconds: 2 hours.
pub const PARTITION_NS: i64 = 2 * 3600 * 1_000_000_000;
/// Most metrics of one row series.
pub const COLUMNS_MAX: usize = 256;
/// Most tags of one series.
pub const TAGS_MAX: usize = 32;
/// Longest canonical name of a row series, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest event, in bytes.
pub const EVENT_BYTES_MAX: usize = 4096;
/// Most samples of one batch (rows times metrics).
pub const BATCH_SAMPLES_MAX: usize = 1 << 20;
/// Most bytes of events in one batch.
pub const BATCH_EVENT_BYTES_MAX: usize = 4 << 20;
/// Maximum distance of external times ahead of the clock. A time further ahead comes from a wrong
/// clock, and no retention would remove it for years.
pub const AHEAD_MAX: Duration = Duration::from_hours(24);
/// Most series (metrics of row series) a store holds by default.
pub const SERIES_MAX_DEFAULT: u64 = 4_000_000;
/// Memory of the unsealed head that causes a seal by default, in bytes.
pub const HEAD_BYTES_MAX_DEFAULT: usize = 256 << 20;
/// Samples that may wait for the log by default; writers beyond wait.
pub const QUEUED_SAMPLES_MAX_DEFAULT: usize = 4 << 20;
/// Longest time fire-and-forget writes are not persisted, in milliseconds, unless configured.
pub const INTERVAL_MS_DEFAULT: u64 = 100;
/// Parts that are kept open at most; the one that was not read for longest is closed.
pub const OPEN_PARTS_MAX: usize = 512;
/// Bytes of the indexes of parts that are kept in memory at most.
pub const OPEN_INDEX_BYTES_MAX: u64 = 64 << 20;
/// Tombstones a store holds at most.
pub const TOMBSTONES_MAX: usize = 10_000;

/// When the log reaches the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wal {
    /// Every acknowledged batch is persisted (survives power loss) before its acknowledgement;
    /// one flush serves a whole group of batches.
    Always,
    /// Every acknowledged batch is with the operating system (survives a kill), and persisted
    /// after this time at the latest.
    Interval(Duration),
    /// No log: a kill loses what is not sealed; a clean stop loses nothing.
    Off,
}

/// The durability that a writer waits for under [`Wal::Always`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// The batch survives power loss.
    #[default]
    Persisted,
    /// The batch survives a kill at once, and power loss after [`INTERVAL_MS_DEFAULT`].
    Flushed,
}

/// The retention limits. `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeriesRetention {
    /// Age after which a partition is dropped.
    pub age: Option<Duration>,
    /// Bytes of parts on disk; oldest partitions go first. Roll-ups without samples take up to half
    /// of it from those that have some.
    pub bytes_max: Option<u64>,
}

/// Options for opening a store. [`StoreOptions::default`] is right for most uses.
#[derive(Clone)]
pub struct StoreOptions {
    /// When the log reaches the medium.
    pub wal: Wal,
    /// Memory of the head that causes a seal, in bytes.
    pub head_bytes_max: usize,
    /// Age of the head that causes a seal.
    pub seal_after: Duration,
    /// The retention limits.
    pub retention: SeriesRetention,
    /// Most series the store holds; a new one beyond is refused by name.
    pub series_max: u64,
    /// Samples that may wait for the log; writers beyond wait.
    pub queued_samples_max: usize,
    /// Size of a segment of the log, in bytes.
    pub segment_bytes: u64,
    /// Layout of the log.
    pub layout: journal::Layout,
    /// Keep 5-minute summaries next to the samples of finished partitions, not only after the
    /// samples are removed. They cost half a byte more for each sample, and serve queries with
    /// steps of 5 minutes or more that are aligned to the buckets.
    pub rollups_beside: bool,
    /// Age up to which roll-ups of 5 minutes stay when their samples went. `None`: they go with
    /// the samples, so that without a retention those that there are stay.
    pub rollup_age: Option<Duration>,
    /// Age up to which, after that, roll-ups of an hour stay. `None`: there are none.
    pub hourly_age: Option<Duration>,
    /// Bytes a second that merges in the background write at most, on average; 0: no limit.
    pub merge_bytes_per_s_max: u64,
    /// Sealing, merging and retention on threads of their own. Without it they happen only when
    /// asked for, in the same order every time: for simulations.
    pub background: bool,
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The wall clock, its monotone side and its guarded time.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            wal: Wal::Always,
            head_bytes_max: HEAD_BYTES_MAX_DEFAULT,
            seal_after: Duration::from_mins(15),
            retention: SeriesRetention::default(),
            series_max: SERIES_MAX_DEFAULT,
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
    /// The same, but nothing goes by age or size: for tools, which do not know what is wanted.
    #[must_use]
    pub fn keeping_all(self) -> Self {
        let ever = Some(Duration::MAX);
        let retention = SeriesRetention::default();
        Self { retention, rollup_age: ever, hourly_age: ever, ..self }
    }
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreOptions")
            .field("wal", &self.wal)
            .field("head_bytes_max", &self.head_bytes_max)
            .field("seal_after", &self.seal_after)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}
