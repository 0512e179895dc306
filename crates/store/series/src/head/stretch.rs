//! Reads a head one stretch of chunks at a time.

use std::collections::BTreeSet;

use super::{Chunk, Head, OPEN_ROWS_MAX, RowHead, Runs, open_rows_max, partition_of};
use crate::model::TimeRange;
use crate::table::{ScratchBuffers, Table, Want};

/// Approximate number of rows of a [`ChunkRange`].
const STRETCH_ROWS: usize = 1024;

/// Consecutive chunks of a row of a head, to be read later. Either all of them lie in one
/// partition, or each of them spans several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    begin: usize,
    /// `None` includes all later chunks and the open rows.
    end: Option<usize>,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rows: usize,
}

impl ChunkRange {
    /// Appends the next stretch if the two can be joined. Returns false otherwise.
    fn join(&mut self, next: &Self) -> bool {
        let (first, last) = (self.first.min(next.first), self.last.max(next.last));
        let is_one = |first, last| partition_of(first) == partition_of(last);
        let joins = self.end == Some(next.begin)
            && self.rows + next.rows <= STRETCH_ROWS
            && (is_one(first, last)
                || !(is_one(self.first, self.last) || is_one(next.first, next.last)));
        if joins {
            *self = Self { end: next.end, first, last, rows: self.rows + next.rows, ..*self };
        }
        joins
    }
}

impl RowHead {
    /// Returns the stretches with samples in a range, in order of arrival.
    fn stretches(&self, range: TimeRange) -> Vec<ChunkRange> {
        let rows =
            if self.events { OPEN_ROWS_MAX } else { open_rows_max(usize::from(self.columns)) };
        let mut found: Vec<ChunkRange> = Vec::new();
        for (begin, &Chunk { first, last, .. }) in self.chunks.iter().enumerate() {
            let one = ChunkRange { begin, end: Some(begin + 1), first, last, rows };
            if range.touches(first, last) && !found.last_mut().is_some_and(|s| s.join(&one)) {
                found.push(one);
            }
        }
        let times = self.open_times();
        let ends = times.clone().min().zip(times.clone().max());
        if let Some((first, last)) = ends.filter(|(first, last)| range.touches(*first, *last)) {
            let (begin, rows) = (self.chunks.len(), times.count());
            found.push(ChunkRange { begin, end: None, first, last, rows });
        }
        found
    }

    /// Returns the times of the open rows.
    pub(super) fn open_times(&self) -> impl Iterator<Item = i64> + Clone + '_ {
        let width = if self.events { 1 } else { self.width() };
        self.open.iter().step_by(width).map(|t| *t as i64)
    }

    fn chunks_of(&self, stretch: &ChunkRange) -> &[Chunk] {
        let end = stretch.end.unwrap_or(self.chunks.len());
        self.chunks.get(stretch.begin..end).unwrap_or_default()
    }
}

impl Head {
    /// Returns the stretches of a row in a range, in the order of arrival, to be read by
    /// [`Head::stretch`].
    pub(crate) fn stretches(&self, id: u32, range: TimeRange) -> Vec<ChunkRange> {
        self.row(id).map(|row| row.stretches(range)).unwrap_or_default()
    }

    /// Returns the samples of a stretch in a range, settled. May include samples that arrived
    /// later.
    pub(crate) fn stretch(
        &self,
        id: u32,
        of: &ChunkRange,
        range: TimeRange,
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Table {
        let Some(row) = self.row(id) else { return Table::default() };
        let from = Runs { chunks: row.chunks_of(of), with_open: of.end.is_none() };
        row.table(id, from, range, want, work)
    }

    /// Adds the partitions of a stretch's samples to `into`.
    pub(crate) fn touched(
        &self,
        id: u32,
        of: &ChunkRange,
        work: &mut ScratchBuffers,
        into: &mut BTreeSet<i64>,
    ) {
        let Some(row) = self.row(id) else { return };
        row.chunks_of(of).iter().for_each(|chunk| chunk.partitions(work, into));
        if of.end.is_none() {
            into.extend(row.open_times().map(partition_of));
        }
    }
}
