//! Runs of samples that have not been read yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::head::{ChunkRange, HeadCell, partition_of};
use crate::model::{ColumnId, TimeRange};
use crate::part::{ChunkRef, Part};
use crate::table::{ScratchBuffers, Table, Want};

/// Minimum size in bytes counted per sample, so that samples that compress well are not sorted into
/// too many runs.
const SAMPLE_BYTES: usize = 2;

/// A run of samples of one series: a chunk of a part, a stretch of a head, or a sorted block.
#[derive(Clone)]
pub(crate) enum SampleRun {
    Chunk(Arc<Part>, ChunkRef, ColumnId),
    Head(Arc<HeadCell>, ChunkRange, ColumnId),
    Sorted(Arc<Block>),
}

/// First and last time of a run, and the maximum number of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rows: usize,
}

impl SampleRun {
    /// Returns its times and the maximum number of its samples.
    pub(super) fn span(&self) -> Span {
        match self {
            Self::Chunk(_, c, _) => Span { first: c.first, last: c.last, rows: c.rows as usize },
            Self::Head(_, s, _) => Span { first: s.first, last: s.last, rows: s.rows },
            Self::Sorted(b) => Span { first: b.first, last: b.last, rows: b.rows },
        }
    }

    pub(super) fn touches(&self, range: TimeRange) -> bool {
        let span = self.span();
        range.touches(span.first, span.last)
    }

    /// Adds the partitions of its samples to `into`.
    pub(super) fn partitions(&self, into: &mut BTreeSet<i64>, work: &mut ScratchBuffers) {
        let span = self.span();
        let (first, last) = (partition_of(span.first), partition_of(span.last));
        into.extend([first, last]);
        if let Self::Head(cell, stretch, of) = self
            && last > first.saturating_add(1)
        {
            cell.head.read().touched(of.row, stretch, work, into);
        }
    }
}

/// Sorted samples in memory, encoded.
pub(crate) struct Block {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) bytes: Box<[u8]>,
}

impl Block {
    /// Returns its samples in a range, settled.
    pub(super) fn table(&self, range: TimeRange, work: &mut ScratchBuffers) -> Table {
        let mut table = Table::with_columns(self.columns);
        if table.decode(&self.bytes, Want::All, work).is_none() {
            // This cannot happen: the block was encoded by this process.
            tracing::error!("a sorted block cannot be decoded");
        }
        if !range.covers(self.first, self.last) {
            table.retain_rows(|t| range.contains(t));
        }
        table
    }

    /// Returns its memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<SampleRun>() + self.bytes.len().max(self.rows * SAMPLE_BYTES)
    }
}
