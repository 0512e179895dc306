//! Options for opening a journal, and its limits, each with its unit.

use std::sync::Arc;
use std::time::Duration;

use env::files::{Files, RealFiles};

/// The grid of every file, in bytes. Writes are whole blocks at multiples of it.
pub const BLOCK_BYTES: usize = 4096;
/// Smallest segment that can be asked for, in bytes.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4 * BLOCK_BYTES as u64;
/// Largest segment that can be asked for, in bytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Default size of a segment, in bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Default size of the ring, in bytes.
pub const RING_BYTES_DEFAULT: u64 = 1 << 20;
/// Smallest ring, in bytes.
pub(crate) const RING_BYTES_MIN: u64 = 4 * BLOCK_BYTES as u64;
/// Largest ring, in bytes.
pub(crate) const RING_BYTES_MAX: u64 = 64 << 20;
/// Default limit of what waits to be written, in bytes; appends beyond it wait.
pub(crate) const IN_FLIGHT_BYTES_DEFAULT: usize = 4 << 20;
/// Longest time a leader waits for others to join its group, in microseconds.
pub(crate) const GROUP_WAIT_US_DEFAULT: u64 = 300;
/// Default number of recycled segments kept for later use.
pub(crate) const SPARES_DEFAULT: usize = 2;
/// Zeros written ahead of the writer at a time, in bytes.
pub(crate) const FILL_AHEAD_BYTES_DEFAULT: u64 = 1 << 20;
/// Longest name of a consumer, in bytes.
pub(crate) const CONSUMER_NAME_BYTES_MAX: usize = 64;

/// The layout of groups on the blocks of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Groups follow each other byte by byte; the tail block is rewritten. Least space.
    #[default]
    Packed,
    /// Every group starts a new block; the rest of its last block stays zero. Least bytes on a
    /// medium that compresses.
    Sparse,
    /// Sparse in a small ring, packed in an archive before the ring comes round.
    Ring,
}

/// The way in which groups are written to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IoPath {
    /// `Direct` where the file system takes it and does not lose its compression by it (btrfs
    /// does), else `Fdatasync`; chosen at open and reported with the reason.
    #[default]
    Auto,
    /// One `O_DIRECT|O_DSYNC` write per group.
    Direct,
    /// A write through the page cache, then `fdatasync`.
    Fdatasync,
}

/// The failures that an acknowledged append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// Power loss, from the moment of the acknowledgement.
    #[default]
    Persist,
    /// A kill of the process at once; power loss after this time at the latest.
    Within(Duration),
    /// A kill of the process. Power loss only once something else persists the journal.
    Flush,
}

/// Options for opening a journal. [`Options::default`] is right for most uses.
#[derive(Clone)]
pub struct Options {
    /// Layout of segments created from now on; older ones keep theirs.
    pub layout: Layout,
    /// Size of a segment in bytes, from 16 KiB to 1 GiB, rounded up to whole blocks.
    pub segment_bytes: u64,
    /// Size of the ring in bytes, from 16 KiB to 64 MiB and at most half a segment, rounded up to
    /// whole blocks; [`Layout::Ring`] alone uses it.
    pub ring_bytes: u64,
    /// The way in which groups are written to the medium.
    pub io: IoPath,
    /// Bytes that may wait to be written, in addition to those that are being written, which are
    /// as many at most; appends beyond it wait. One larger append passes alone.
    pub in_flight_bytes_max: usize,
    /// Longest time a leader waits for as many writers as last time. Zero switches it off.
    pub group_wait: Duration,
    /// Recycled segments kept for later use; more are removed.
    pub spares: usize,
    /// Zeros written ahead of the writer at a time, in bytes.
    pub fill_ahead_bytes: u64,
    /// A position known to have been acknowledged: a journal that ends below it is refused.
    pub position_expected: u64,
    /// Zero filling, recycling and deadlines on a thread of their own. Without it they happen at
    /// the moment of need, in the same order every time: for simulations.
    pub background: bool,
    /// The disk. Tests put a simulated one here.
    pub files: Arc<dyn Files>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            ring_bytes: RING_BYTES_DEFAULT,
            io: IoPath::Auto,
            in_flight_bytes_max: IN_FLIGHT_BYTES_DEFAULT,
            group_wait: Duration::from_micros(GROUP_WAIT_US_DEFAULT),
            spares: SPARES_DEFAULT,
            fill_ahead_bytes: FILL_AHEAD_BYTES_DEFAULT,
            position_expected: 0,
            background: true,
            files: Arc::new(RealFiles),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("layout", &self.layout)
            .field("segment_bytes", &self.segment_bytes)
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}
