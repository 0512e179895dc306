//! Options for opening a journal, and its limits, each with its unit.

use std::sync::Arc;
use std::time::Duration;

use env::files::{Files, RealFiles};

/// Size of a block, in bytes. Writes are whole blocks at multiples of it.
pub const BLOCK_BYTES: usize = 4096;
/// Smallest segment size, in bytes.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4 * BLOCK_BYTES as u64;
/// Largest segment size, in bytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Default size of a segment, in bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Default size of the ring, in bytes.
pub const RING_BYTES_DEFAULT: u64 = 1 << 20;
/// Smallest ring, in bytes.
pub(crate) const RING_BYTES_MIN: u64 = 4 * BLOCK_BYTES as u64;
/// Largest ring, in bytes.
pub(crate) const RING_BYTES_MAX: u64 = 64 << 20;
/// Default limit of bytes waiting to be written; appends beyond it wait.
pub(crate) const IN_FLIGHT_BYTES_DEFAULT: usize = 4 << 20;
/// Longest time a leader waits for others to join its group, in microseconds.
pub(crate) const GROUP_WAIT_US_DEFAULT: u64 = 300;
/// Default number of recycled segments kept for later use.
pub(crate) const SPARES_DEFAULT: usize = 2;
/// Zeros written ahead of the writer at a time, in bytes.
pub(crate) const FILL_AHEAD_BYTES_DEFAULT: u64 = 1 << 20;
/// Maximum length of a consumer's name, in bytes.
pub(crate) const CONSUMER_NAME_BYTES_MAX: usize = 64;

/// The layout of groups on the blocks of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Groups follow each other byte by byte; the tail block is rewritten. Takes the least space.
    #[default]
    Packed,
    /// Every group starts a new block; the rest of its last block is zero. This writes the fewest
    /// bytes on a medium that compresses.
    Sparse,
    /// Groups are written sparse to a small ring, and packed to an archive before their blocks in
    /// the ring are reused.
    Ring,
}

/// The way in which groups are written to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IoPath {
    /// `Direct` if the file system supports it and loses no compression by it (btrfs does not
    /// compress direct writes), otherwise `Fdatasync`. Chosen at open and reported with the reason.
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
    /// A power cut, from the acknowledgement on.
    #[default]
    Persist,
    /// A kill of the process at once; a power cut after at most this time.
    Within(Duration),
    /// A kill of the process. A power cut only after a later flush persists the journal.
    Flush,
}

/// Options for opening a journal. [`Options::default`] suits most uses.
#[derive(Clone)]
pub struct Options {
    /// Layout of segments created from now on; older ones keep theirs.
    pub layout: Layout,
    /// Size of a segment in bytes, from 16 KiB to 1 GiB, rounded up to whole blocks.
    pub segment_bytes: u64,
    /// Size of the ring in bytes, from 16 KiB to 64 MiB and at most half a segment, rounded up to
    /// whole blocks. Used only by [`Layout::Ring`].
    pub ring_bytes: u64,
    /// The way in which groups are written to the medium.
    pub io: IoPath,
    /// Limit of the bytes waiting to be written, in addition to those being written, which are at
    /// most as many. Appends beyond it wait. A single larger append is accepted.
    pub in_flight_bytes_max: usize,
    /// Longest time a leader waits for as many writers as the last group had. Zero disables it.
    pub group_wait: Duration,
    /// Recycled segments kept for later use; more are removed.
    pub spares: usize,
    /// Zeros written ahead of the writer at a time, in bytes.
    pub fill_ahead_bytes: u64,
    /// A position known to have been acknowledged: a journal that ends below it is rejected.
    pub position_expected: u64,
    /// If true, zero filling, recycling and deadlines run on separate threads. If false, callers do
    /// that work when they need it, in a deterministic order: for simulations.
    pub background: bool,
    /// The file system. Tests pass a simulated one.
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
