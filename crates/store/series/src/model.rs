//! The types of the store: rows, values, ranges, selectors, and the costs of operations.

use std::sync::Arc;
use std::time::Duration;

/// A row series of one store: a tag set with its metrics. Cheap to copy. Valid while the row series
/// has samples, and for one epoch more ([`crate::Store::epoch`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    pub(crate) id: u32,
    pub(crate) columns: u16,
    pub(crate) events: bool,
}

impl Row {
    /// Returns its number in this store.
    pub fn id(self) -> u32 {
        self.id
    }

    /// Returns the number of values in one of its rows.
    pub fn columns(self) -> usize {
        usize::from(self.columns)
    }

    /// Returns true if it holds events (its metric begins with `!`).
    pub fn is_events(self) -> bool {
        self.events
    }
}

/// One value. Integers up to 2^53 in magnitude are stored as the equal float, larger ones as
/// integers. Both are restored exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A float with any bit pattern.
    F64(f64),
    I64(i64),
}

/// Bits of the float with which Prometheus marks the end of a series (its staleness marker). It is
/// stored like any other value; queries pass over it. Source: Prometheus, `model/value`.
pub const END_OF_SERIES: u64 = 0x7ff0_0000_0000_0002;

/// Magnitude up to which every integer is exactly a float, 2^53.
const EXACT_MAX: u64 = 1 << 53;

impl Value {
    /// Returns the same number as a float if it is exactly one.
    #[must_use]
    pub fn canonical(self) -> Self {
        match self {
            Self::I64(i) if i.unsigned_abs() <= EXACT_MAX => Self::F64(i as f64),
            other => other,
        }
    }

    /// Returns the nearest float.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::F64(f) => f,
            Self::I64(i) => i as f64,
        }
    }
}

/// A half-open range of time in nanoseconds since the epoch: `from <= t < to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// First instant of the range.
    pub from_ns: i64,
    /// First instant after the range.
    pub to_ns: i64,
}

impl TimeRange {
    /// All times but the last nanosecond.
    pub const ALL: Self = Self { from_ns: i64::MIN, to_ns: i64::MAX };

    /// Returns true if the range contains an instant.
    pub fn contains(self, time_ns: i64) -> bool {
        self.from_ns <= time_ns && time_ns < self.to_ns
    }

    /// Returns true if the range contains any instant between these two, both included.
    pub(crate) fn touches(self, first_ns: i64, last_ns: i64) -> bool {
        self.from_ns <= last_ns && first_ns < self.to_ns
    }

    /// Returns true if the range contains all instants between these two, both included.
    pub(crate) fn covers(self, first_ns: i64, last_ns: i64) -> bool {
        self.from_ns <= first_ns && last_ns < self.to_ns
    }
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    #[default]
    Forward,
    Backward,
}

/// A test of a name or of a tag's value. The value of an absent tag is "".
#[derive(Clone, Default)]
pub enum Test {
    #[default]
    Any,
    Is(Vec<String>),
    /// Matches none of these texts.
    IsNot(Vec<String>),
    /// Matches if the function returns true (a regular expression, for instance). Called once for
    /// each distinct text.
    Where(Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

impl Test {
    /// Matches exactly this text.
    pub fn is(text: &str) -> Self {
        Self::Is(vec![text.into()])
    }

    pub fn passes(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(texts) => texts.iter().any(|t| t == text),
            Self::IsNot(texts) => texts.iter().all(|t| t != text),
            Self::Where(test) => test(text),
        }
    }
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("Any"),
            Self::Is(texts) => f.debug_tuple("Is").field(texts).finish(),
            Self::IsNot(texts) => f.debug_tuple("IsNot").field(texts).finish(),
            Self::Where(_) => f.write_str("Where(..)"),
        }
    }
}

/// Selects the series whose metric and tags pass all tests.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    /// The test of the metric's name. Names of events begin with `!`.
    pub metric: Test,
    pub tags: Vec<(String, Test)>,
}

impl Selector {
    /// Selects all series of a metric.
    pub fn metric(name: &str) -> Self {
        Self { metric: Test::is(name), tags: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, tag: &str, value: &str) -> Self {
        self.tags.push((tag.into(), Test::is(value)));
        self
    }
}

/// A list of names that the series of a metric ("" for all) have.
#[derive(Debug, Clone)]
pub struct NameList {
    pub kind: NameKind,
    pub metric: String,
}

/// The kind of names in a list.
#[derive(Debug, Clone)]
pub enum NameKind {
    Metric,
    Tag,
    /// Values of this tag.
    Value(String),
}

/// One metric of one tag set, as found by a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub metric: Arc<str>,
    /// Its tags, sorted by name.
    pub tags: Arc<[(String, String)]>,
    /// The columns with its samples, almost always one.
    pub(crate) columns: Vec<ColumnId>,
}

/// A column of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnId {
    pub(crate) row: u32,
    pub(crate) column: u16,
}

impl Series {
    /// Returns the canonical name, `metric tag=value ...`, with special characters escaped by `\`.
    pub fn name(&self) -> String {
        crate::name::text(&[&self.metric], self.tags.iter().map(|(k, v)| (&**k, &**v)))
    }

    /// Returns true if the series holds events.
    pub fn is_events(&self) -> bool {
        self.metric.starts_with('!')
    }

    /// Returns the value of a tag, or "" if there is none.
    pub fn tag(&self, name: &str) -> &str {
        self.tags.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v)
    }
}

/// Values of one run of samples.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    F64(Vec<f64>),
    /// Integers beyond 2^53.
    I64(Vec<i64>),
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Self::F64(v) => v.len(),
            Self::I64(v) => v.len(),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, i: usize) -> Option<Value> {
        match self {
            Self::F64(v) => v.get(i).copied().map(Value::F64),
            Self::I64(v) => v.get(i).copied().map(Value::I64),
        }
    }

    /// Returns all values as the nearest floats.
    pub fn to_f64(&self) -> std::borrow::Cow<'_, [f64]> {
        match self {
            Self::F64(v) => v.into(),
            Self::I64(v) => v.iter().map(|i| *i as f64).collect::<Vec<_>>().into(),
        }
    }
}

/// A run of samples of one series, in the scan's direction, with distinct times.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Times in nanoseconds since the epoch.
    pub times: Vec<i64>,
    /// Values, one for each time.
    pub values: Values,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the epoch.
    pub time_ns: i64,
    /// Text of the event.
    pub text: Vec<u8>,
}

/// An aggregate of samples that can be merged without reading them again. NaN counts in `count`,
/// makes `sum` NaN, and is ignored by `min` and `max` (which are NaN if there is no other value).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    pub min: f64,
    /// Time of the first smallest value.
    pub min_ns: i64,
    pub max: f64,
    /// Time of the first largest value.
    pub max_ns: i64,
    pub sum: f64,
    pub first: f64,
    pub first_ns: i64,
    pub last: f64,
    pub last_ns: i64,
}

impl Summary {
    /// Returns the summary of one sample.
    pub fn of(time_ns: i64, value: f64) -> Self {
        Self {
            count: 1,
            min: value,
            min_ns: time_ns,
            max: value,
            max_ns: time_ns,
            sum: value,
            first: value,
            first_ns: time_ns,
            last: value,
            last_ns: time_ns,
        }
    }

    /// Adds the summary of other, later samples.
    pub fn add(&mut self, later: &Self) {
        self.count += later.count;
        self.sum += later.sum;
        if later.min < self.min || self.min.is_nan() {
            (self.min, self.min_ns) = (later.min, later.min_ns);
        }
        if later.max > self.max || self.max.is_nan() {
            (self.max, self.max_ns) = (later.max, later.max_ns);
        }
        (self.last, self.last_ns) = (later.last, later.last_ns);
    }

    /// Returns the summary of the samples of both, in any order.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let (mut early, late) =
            if self.first_ns <= other.first_ns { (*self, other) } else { (*other, self) };
        let before = early;
        let (last, last_ns) = (early.last, early.last_ns);
        early.add(late);
        // If the two overlap in time, either may contain the first of equal values.
        let same = |a: f64, b: f64| a.partial_cmp(&b) == Some(std::cmp::Ordering::Equal);
        if same(late.min, before.min) && late.min_ns < before.min_ns {
            (early.min, early.min_ns) = (late.min, late.min_ns);
        }
        if same(late.max, before.max) && late.max_ns < before.max_ns {
            (early.max, early.max_ns) = (late.max, late.max_ns);
        }
        if last_ns > late.last_ns {
            (early.last, early.last_ns) = (last, last_ns);
        }
        early
    }

    /// Returns the arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// The cost of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOutcome {
    /// Position of the batch. Of two values for one time, the one with the higher position is
    /// valid.
    pub position: u64,
    /// Samples and events stored.
    pub samples: u64,
    /// Bytes of the batch in the log, before the log's own framing; 0 with the log off.
    pub log_bytes: u64,
    /// Flushes of the medium for the group of the batch.
    pub flushes: u32,
}

/// The result of opening a store.
#[derive(Debug, Clone, Default)]
pub struct OpenReport {
    /// All records up to this position were in parts.
    pub sealed_position: u64,
    /// Last position after replay.
    pub position: u64,
    pub replayed_batches: u64,
    /// Samples and events replayed.
    pub replayed_samples: u64,
    /// Batches of the log that were skipped because their rows had been forgotten before they were
    /// written. Their writers got an error.
    pub passed_over_batches: u64,
    /// The store was closed cleanly.
    pub clean: bool,
    /// Number of known row series.
    pub rows: u64,
    /// Parts on disk.
    pub parts: u64,
    /// Removed files of interrupted seals and merges, and of a damaged log that was set aside.
    pub removed_files: u64,
    /// Duration of the opening.
    pub elapsed: Duration,
}

/// The result of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SealOutcome {
    /// All records up to this position are in parts.
    pub position: u64,
    /// Samples and events sealed.
    pub samples: u64,
    pub parts: u32,
    /// Number of times that the rows of a row series were read from a head.
    pub rows_read: u64,
    /// Bytes written in addition to the log.
    pub bytes_written: u64,
}

/// The result of a round of merges, or of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeOutcome {
    /// Number of parts replaced or dropped.
    pub parts_before: u32,
    /// Number of parts written.
    pub parts_after: u32,
    pub bytes_written: u64,
    /// Bytes of the parts replaced or dropped.
    pub bytes_removed: u64,
}

/// Totals since the store was opened, and its current state.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Number of known row series.
    pub rows: u64,
    /// Number of known series (metrics of row series).
    pub series: u64,
    /// Row series with samples in the head.
    pub rows_active: u64,
    /// Samples and events accepted.
    pub samples: u64,
    pub batches: u64,
    /// Batches that were rejected or failed.
    pub batches_failed: u64,
    /// Samples and events dropped by retention.
    pub dropped_samples: u64,
    /// Bytes of the files that retention dropped.
    pub dropped_bytes: u64,
    /// Estimate of the heads' memory in bytes, including heads that are being sealed.
    pub head_bytes: u64,
    /// Samples and events in the head.
    pub head_samples: u64,
    pub position: u64,
    /// All records up to this position are in parts.
    pub sealed_position: u64,
    /// Parts on disk.
    pub parts: u64,
    /// Parts and roll-ups whose file and index are open.
    pub parts_open: u64,
    /// Bytes of their indexes in memory.
    pub open_index_bytes: u64,
    /// Bytes of the parts on disk.
    pub part_bytes: u64,
    /// Samples and events in them, including superseded ones.
    pub part_samples: u64,
    pub index_bytes: u64,
    /// Partitions on disk.
    pub partitions: u64,
    /// Roll-ups on disk.
    pub rollups: u64,
    pub rollup_bytes: u64,
    /// Tombstones that are not applied to all parts yet.
    pub tombstones: u64,
    /// Bytes of batches written to the log.
    pub log_payload_bytes: u64,
    /// The log's own totals, or `None` if the log is off.
    pub log: Option<journal::Stats>,
    /// The error of the last seal or merge, if it failed.
    pub trouble: Option<String>,
    /// The failure of the log, after which no rows are accepted.
    pub log_failure: Option<LogFailure>,
    /// The reason why the last write was refused, if there was no space on the disk.
    pub disk_full: Option<String>,
}

/// A failure of the log, which lasts until the log or the store is opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFailure {
    pub cause: String,
    /// Time of the first refused write, microseconds since the epoch.
    pub since_us: u64,
    /// True if the log was opened again as often as an hour allows.
    pub gave_up: bool,
}
