//! The parts and heads at one moment, and the pieces of a series in one partition of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::piece::SampleRun;
use crate::core::{Core, Parts};
use crate::error::SeriesReadError;
use crate::head::{HeadCell, partition_of, partition_range};
use crate::model::{ColumnId, Series, TimeRange};
use crate::part::Part;
use crate::record::Tombstone;
use crate::table::{ScratchBuffers, Table, Want};

/// The parts and heads at one moment. Files stay readable as long as the snapshot exists. Samples
/// that arrive later may or may not be visible.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) heads: Vec<Arc<HeadCell>>,
    pub(super) parts: Arc<Parts>,
    pub(super) rollups: Arc<BTreeMap<i64, Arc<Part>>>,
    pub(super) tombstones: Arc<Vec<Tombstone>>,
}

impl Snapshot {
    pub(crate) fn of(core: &Core) -> Self {
        let live = core.live.read();
        Self {
            heads: live.heads.clone(),
            parts: Arc::clone(&live.parts),
            rollups: Arc::clone(&live.rollups),
            tombstones: Arc::clone(&live.tombstones),
        }
    }

    /// Returns the pieces of a series in heads, in the order of arrival.
    pub(super) fn of_heads(&self, series: &Series, range: TimeRange) -> Vec<SampleRun> {
        let mut pieces = Vec::new();
        for (cell, of) in self.heads.iter().flat_map(|h| series.columns.iter().map(move |c| (h, c)))
        {
            let stretches = cell.head.read().stretches(of.row, range);
            pieces.extend(stretches.into_iter().map(|s| SampleRun::Head(Arc::clone(cell), s, *of)));
        }
        pieces
    }

    pub(super) fn is_hit(&self, of: ColumnId, position: u64) -> bool {
        self.tombstones.iter().any(|t| t.hits(of, position))
    }

    pub(super) fn hide(&self, table: &mut Table, of: ColumnId, position: u64) {
        for t in self.tombstones.iter().filter(|t| t.hits(of, position)) {
            table.retain_rows(|time| !t.range.contains(time));
        }
    }

    /// Returns the partitions that may have samples in a range, ascending.
    pub(super) fn partitions(&self, range: TimeRange, heads: &[SampleRun]) -> BTreeSet<i64> {
        let touched = partition_of(range.from_ns)..=partition_of(range.to_ns.saturating_sub(1));
        let (mut all, mut work) = (BTreeSet::new(), ScratchBuffers::default());
        for piece in heads {
            piece.partitions(&mut all, &mut work);
        }
        all.retain(|partition| touched.contains(partition));
        // A reversed range touches none.
        let sealed = (!touched.is_empty()).then(|| self.parts.range(touched));
        all.extend(sealed.into_iter().flatten().map(|(partition, _)| *partition));
        all
    }

    /// Returns the pieces of a series in a partition, sources with lower positions first.
    pub(super) fn pieces(
        &self,
        source: &Source<'_>,
        torn: &mut Option<SeriesReadError>,
    ) -> Vec<SampleRun> {
        let (mut pieces, here) = (Vec::new(), source.here());
        let parts = self.parts.get(&source.partition).into_iter().flatten();
        for (part, of) in parts.flat_map(|p| source.columns.iter().map(move |c| (p, *c))) {
            match part.entry(of.row, Want::One(of.column)) {
                Ok(entry) => {
                    let chunks = entry.unwrap_or_default().chunks.into_iter();
                    let chunks = chunks.filter(|c| here.touches(c.first, c.last));
                    pieces.extend(chunks.map(|c| SampleRun::Chunk(Arc::clone(part), c, of)));
                }
                Err(e) => note(torn, e),
            }
        }
        pieces.extend(source.heads.iter().filter(|p| p.touches(here)).cloned());
        pieces
    }

    /// Returns the samples of a piece in a range, settled.
    pub(super) fn open_piece(
        &self,
        piece: &SampleRun,
        range: TimeRange,
        work: &mut ScratchBuffers,
    ) -> Result<Table, SeriesReadError> {
        match piece {
            SampleRun::Head(cell, stretch, of) => {
                // Samples that arrived since must not be read in place of samples of another piece.
                let range = TimeRange {
                    from_ns: range.from_ns.max(stretch.first),
                    to_ns: range.to_ns.min(stretch.last.saturating_add(1)),
                };
                let head = cell.head.read();
                let mut table = head.stretch(of.row, stretch, range, Want::One(of.column), work);
                drop(head);
                self.hide(&mut table, *of, cell.last());
                Ok(table)
            }
            SampleRun::Chunk(part, chunk, of) => {
                let mut table = Table::with_columns(chunk.summaries.len().min(1));
                part.chunk(chunk, Want::One(of.column), &mut table, work)?;
                if !range.covers(chunk.first, chunk.last) {
                    table.retain_rows(|t| range.contains(t));
                }
                self.hide(&mut table, *of, part.meta.position_max);
                Ok(table)
            }
            SampleRun::Sorted(block) => Ok(block.table(range, work)),
        }
    }
}

/// The columns and the range to read in a partition.
pub(crate) struct Source<'a> {
    /// The rows and columns to read.
    pub(crate) columns: &'a [ColumnId],
    pub(crate) partition: i64,
    pub(crate) range: TimeRange,
    pub(crate) heads: &'a [SampleRun],
}

impl Source<'_> {
    /// Returns the range within the partition.
    pub(super) fn here(&self) -> TimeRange {
        let (whole, range) = (partition_range(self.partition), self.range);
        TimeRange { from_ns: whole.from_ns.max(range.from_ns), to_ns: whole.to_ns.min(range.to_ns) }
    }
}

/// Keeps the first error, but prefers a refused read to damage: a refused read may succeed later.
pub(super) fn note(torn: &mut Option<SeriesReadError>, e: SeriesReadError) {
    let refused = matches!(e, SeriesReadError::Io { .. });
    if torn.is_none() || (refused && matches!(torn, Some(SeriesReadError::Corrupt(_)))) {
        *torn = Some(e);
    }
}
