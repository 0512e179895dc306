//! Costs: the outcome of one append, and the totals of a journal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::options::{IoPath, Layout};

/// The cost of one append: the cost of its whole group, as far as the group caused it. Later costs
/// of the ring's archive and of zeros written ahead are counted only in [`Stats`]. Divide by
/// `group_records` for the share of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppendOutcome {
    /// Position of the (last) record, from 1.
    pub position: u64,
    /// Position of the first record.
    pub first: u64,
    /// Records in the group, those of other writers included.
    pub group_records: u32,
    /// Bytes written to the medium.
    pub bytes_written: u64,
    /// 4 KiB blocks written to the medium.
    pub blocks: u32,
    /// Flushes of the medium.
    pub flushes: u32,
    /// Estimate of the bytes that a medium which compresses each 4 KiB block would keep: the bytes
    /// without padding, taken as incompressible, and 24 bytes per block. A test checks that it is
    /// 0.7 to 1.5 times the lz4 size of random records. For text it is too high.
    pub compressed_bytes: u64,
}

/// Totals since the journal was opened, and its current state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Groups written, each with one checksum.
    pub groups: u64,
    /// Bytes of the records alone.
    pub payload_bytes: u64,
    /// Bytes written to the medium by appends (ring and archive included).
    pub bytes_written: u64,
    /// Of those, bytes of the ring layout's archive.
    pub archive_bytes: u64,
    /// 4 KiB blocks written to the medium by appends.
    pub blocks: u64,
    /// Flushes of the medium by appends.
    pub flushes: u64,
    /// Estimate of the bytes a compressing medium would keep.
    pub compressed_bytes: u64,
    /// Zeros written ahead of the writer, in bytes.
    pub zero_bytes: u64,
    /// Segments put into use.
    pub segments_started: u64,
    /// Of those, recycled ones.
    pub segments_recycled: u64,
    /// Segments that hold records now.
    pub segments: u64,
    /// Oldest position kept; 0 when empty.
    pub first_position: u64,
    /// Last position appended; 0 if there is none.
    pub last_position: u64,
    /// Last position persisted; 0 if there is none.
    pub persisted_position: u64,
    /// Bytes waiting to be written.
    pub in_flight_bytes: u64,
    /// Layout of new groups.
    pub layout: Layout,
    /// The I/O path that was chosen at open.
    pub io: IoPath,
    /// The reason for that choice.
    pub io_reason: &'static str,
    /// The error that poisoned the journal.
    pub poisoned: Option<String>,
}

/// The result of opening a journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Oldest position kept; 0 when empty.
    pub first_position: u64,
    /// Last position; 0 if there never was a record.
    pub last_position: u64,
    /// Segments that hold records.
    pub segments: u64,
    /// Groups verified.
    pub groups: u64,
    /// Bytes read from segments and the ring.
    pub bytes_read: u64,
    /// The journal was closed cleanly.
    pub clean: bool,
    /// The torn tail that was cut, if there was one.
    pub cut: Option<TornTail>,
    /// The I/O path that was chosen.
    pub io: IoPath,
    /// The reason for that choice.
    pub io_reason: &'static str,
    /// Duration of the opening.
    pub elapsed: Duration,
}

/// A torn tail: a group whose writing was interrupted and which was never acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// Name of the file.
    pub file: String,
    /// Offset of the cut in the file, in bytes.
    pub offset: u64,
    /// First position after the cut.
    pub position: u64,
}

/// The result of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrimOutcome {
    /// Oldest position kept.
    pub first_position: u64,
    /// Segments kept for later use.
    pub segments_recycled: u32,
    /// Segments whose files were deleted.
    pub segments_removed: u32,
}

/// The cost of a group, as the writer counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) bytes: u64,
    pub(crate) archive_bytes: u64,
    pub(crate) flushes: u32,
    pub(crate) compressed: u64,
}

/// Estimated bytes by which compression of a block with zeros and text exceeds the text alone.
const COMPRESSION_OVERHEAD_BYTES: u64 = 24;

impl Cost {
    /// Counts a write of `bytes` in whole blocks, of which `used` were not padding.
    pub(crate) fn write(&mut self, bytes: u64, used: u64, flushes: u32) {
        let blocks = bytes / crate::options::BLOCK_BYTES as u64;
        self.bytes += bytes;
        self.flushes += flushes;
        self.compressed += used + blocks * COMPRESSION_OVERHEAD_BYTES;
    }

    /// Adds the counts of another cost.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.archive_bytes += other.archive_bytes;
        self.flushes += other.flushes;
        self.compressed += other.compressed;
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.bytes / crate::options::BLOCK_BYTES as u64
    }
}

/// Running totals, counted without a lock.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    records: AtomicU64,
    groups: AtomicU64,
    payload: AtomicU64,
    bytes: AtomicU64,
    archive: AtomicU64,
    flushes: AtomicU64,
    compressed: AtomicU64,
    zeros: AtomicU64,
    started: AtomicU64,
    recycled: AtomicU64,
}

impl Totals {
    pub(crate) fn zeros(&self, bytes: u64) {
        self.zeros.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn started(&self, recycled: bool) {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.recycled.fetch_add(u64::from(recycled), Ordering::Relaxed);
    }

    pub(crate) fn group(&self, records: u32, payload: u64) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(u64::from(records), Ordering::Relaxed);
        self.payload.fetch_add(payload, Ordering::Relaxed);
    }

    pub(crate) fn cost(&self, cost: &Cost) {
        self.bytes.fetch_add(cost.bytes, Ordering::Relaxed);
        self.archive.fetch_add(cost.archive_bytes, Ordering::Relaxed);
        self.flushes.fetch_add(u64::from(cost.flushes), Ordering::Relaxed);
        self.compressed.fetch_add(cost.compressed, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            records: read(&self.records),
            groups: read(&self.groups),
            payload_bytes: read(&self.payload),
            bytes_written: read(&self.bytes),
            archive_bytes: read(&self.archive),
            blocks: read(&self.bytes) / crate::options::BLOCK_BYTES as u64,
            flushes: read(&self.flushes),
            compressed_bytes: read(&self.compressed),
            zero_bytes: read(&self.zeros),
            segments_started: read(&self.started),
            segments_recycled: read(&self.recycled),
            ..Stats::default()
        }
    }
}
