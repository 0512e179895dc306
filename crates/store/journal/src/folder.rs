//! The folder: names of its files, and the segments that hold records.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::files::File;
use parking_lot::{Mutex, RwLock};

use crate::format::{Header, Seed};
use crate::options::Layout;
use crate::place::Grid;

/// Name of the file that is locked while the journal is open.
pub(crate) const LOCK_NAME: &str = "lock";
/// Minimum distance in bytes between two frames of the index in memory.
const INDEX_BYTES: u64 = 256 << 10;

/// Returns the file name of a segment in use.
pub(crate) fn segment_name(epoch: u64) -> String {
    format!("segment-{epoch:016x}")
}

/// Returns the file name of a spare, which becomes a segment later.
pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}")
}

/// Returns the file name of a ring of `blocks` blocks.
pub(crate) fn ring_name(blocks: u32) -> String {
    format!("ring-{blocks}")
}

/// Returns the file name of the checkpoint of a consumer.
pub(crate) fn consumer_name(consumer: &str) -> String {
    format!("consumer-{consumer}")
}

/// The kind of a file, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Segment(u64),
    Spare(u64),
    Ring(u32),
    Consumer(String),
    Other,
}

/// Returns the kind of the file called `name`.
pub(crate) fn named(name: &str) -> Named {
    let hex = |rest: &str| (rest.len() == 16).then(|| u64::from_str_radix(rest, 16).ok()).flatten();
    let found = if let Some(rest) = name.strip_prefix("segment-") {
        hex(rest).map(Named::Segment)
    } else if let Some(rest) = name.strip_prefix("spare-") {
        hex(rest).map(Named::Spare)
    } else if let Some(rest) = name.strip_prefix("ring-") {
        rest.parse().ok().map(Named::Ring)
    } else {
        let consumer = name.strip_prefix("consumer-").filter(|n| !n.contains('.'));
        consumer.map(|n| Named::Consumer(n.into()))
    };
    found.filter(|n| spelled(n) == name).unwrap_or(Named::Other)
}

fn spelled(named: &Named) -> String {
    match named {
        Named::Segment(epoch) => segment_name(*epoch),
        Named::Spare(number) => spare_name(*number),
        Named::Ring(blocks) => ring_name(*blocks),
        Named::Consumer(name) => consumer_name(name),
        Named::Other => String::new(),
    }
}

impl Layout {
    /// Returns the grid of the segment's own frames.
    pub(crate) fn grid(self) -> Grid {
        match self {
            Self::Packed | Self::Ring => Grid::Packed,
            Self::Sparse => Grid::Sparse,
        }
    }
}

/// The known start of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
    pub(crate) start: u64,
}

/// A segment that holds records, as readers see it.
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) file: Arc<dyn File>,
    /// End of the persisted frames, in bytes.
    end: AtomicU64,
    /// Last position persisted here; `first_position - 1` if there is none.
    last: AtomicU64,
    sealed: AtomicBool,
    index: Mutex<Vec<Mark>>,
}

impl Segment {
    pub(crate) fn new(path: PathBuf, header: Header, file: Arc<dyn File>) -> Self {
        let end = header.layout.grid().first();
        Self {
            path,
            header,
            file,
            end: AtomicU64::new(end),
            last: AtomicU64::new(header.first_position.saturating_sub(1)),
            sealed: AtomicBool::new(false),
            index: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn seed(&self) -> Seed {
        Seed::segment(self.header.journal, self.header.epoch)
    }

    pub(crate) fn grid(&self) -> Grid {
        self.header.layout.grid()
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Lets readers read frames up to `end` and records up to `last`.
    pub(crate) fn advance(&self, end: u64, last: u64) {
        self.last.store(last, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// Marks the segment as complete: no frame will be added.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Records the start of a frame, unless the last recorded one is nearer than `INDEX_BYTES`.
    pub(crate) fn mark(&self, mark: Mark) {
        let mut index = self.index.lock();
        let due = index.last().is_none_or(|m| mark.start >= m.start + INDEX_BYTES);
        if due {
            index.push(mark);
        }
    }

    /// Returns the last recorded frame start at or before `position`.
    pub(crate) fn nearest(&self, position: u64) -> Mark {
        let index = self.index.lock();
        let after = index.partition_point(|m| m.position <= position);
        let found = after.checked_sub(1).and_then(|i| index.get(i)).copied();
        found.unwrap_or(Mark {
            position: self.header.first_position,
            sequence: self.header.first_sequence,
            start: self.grid().first(),
        })
    }
}

/// A group that is persisted in the ring and not yet in the archive.
#[derive(Debug, Clone)]
pub(crate) struct RingGroup {
    pub(crate) sequence: u64,
    pub(crate) first_position: u64,
    pub(crate) records: u32,
    pub(crate) single: bool,
    pub(crate) body: Arc<[u8]>,
    /// The lag of its frame in the archive, if a part of that frame is written there already.
    pub(crate) archive_lag: Option<u8>,
    /// First block in the ring, and number of blocks.
    pub(crate) block: u32,
    pub(crate) blocks: u32,
}

impl RingGroup {
    /// Returns the position of the record after the last one.
    pub(crate) fn next_position(&self) -> u64 {
        self.first_position + u64::from(self.records)
    }
}

/// The readable groups: segments, oldest first, then the groups that only the ring has.
#[derive(Default)]
pub(crate) struct Catalog {
    pub(crate) segments: VecDeque<Arc<Segment>>,
    pub(crate) ring: VecDeque<RingGroup>,
}

impl Catalog {
    /// Returns the segment for `position`: the last one that begins at or before it.
    pub(crate) fn find_segment(&self, position: u64) -> Option<Arc<Segment>> {
        let after = self.segments.partition_point(|s| s.header.first_position <= position);
        after.checked_sub(1).and_then(|i| self.segments.get(i)).cloned()
    }

    /// Returns the oldest position kept; 0 if there is none.
    pub(crate) fn first_position(&self, last: u64) -> u64 {
        let first = self.segments.front().map_or(0, |s| s.header.first_position);
        if first > last { 0 } else { first }
    }
}

pub(crate) type SharedCatalog = RwLock<Catalog>;

/// Returns the path of `name` in `dir`.
pub(crate) fn at(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
