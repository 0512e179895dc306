//! The rows of one row series that a merge writes: one time window after another, so that a series
//! with many metrics at a high rate need not fit in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::WriteError;
use crate::model::TimeRange;
use crate::options::COLUMNS_MAX;
use crate::part::{CHUNK_ROWS_MAX, Entry, Part};
use crate::query::{Span, planned};
use crate::record::Tombstone;
use crate::sharing::{self, Shared};
use crate::table::{ScratchBuffers, Table, Want};

/// Approximate number of samples in a window. Overlapping chunks of several parts add as many again
/// per part.
const SAMPLES: usize = 1 << 19;

/// A row in the parts that are merged.
pub(super) struct Rows<'a> {
    row: u32,
    shared: &'a [Shared],
    tombstones: &'a [Tombstone],
    sources: Vec<Source<'a>>,
}

/// The entries of one part for a row, and for the rows that share a series with it.
struct Source<'a> {
    part: &'a Arc<Part>,
    own: Option<Entry>,
    others: Vec<Option<Entry>>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(
        run: &'a [Arc<Part>],
        row: u32,
        shared: &'a [Shared],
        tombstones: &'a [Tombstone],
    ) -> Result<Self, WriteError> {
        let mut sources = Vec::with_capacity(run.len());
        for part in run {
            let own = part.entry(row, Want::None)?;
            let others = shared.iter().map(|other| part.entry(other.row, Want::None));
            let others = others.collect::<Result<_, _>>()?;
            sources.push(Source { part, own, others });
        }
        Ok(Self { row, shared, tombstones, sources })
    }

    /// Passes the merged samples of the parts to `each`, settled, oldest first, in whole chunks
    /// except for the last.
    pub(super) fn each(
        &self,
        work: &mut ScratchBuffers,
        mut take: impl FnMut(&Table, &mut ScratchBuffers) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut windows = self.windows();
        let mut rest: Option<Table> = None;
        while let Some(window) = windows.pop_front() {
            let mut all = rest.take().unwrap_or_default();
            match self.read(window, work)? {
                Some(table) if all.is_empty() => all = table,
                Some(table) => all.append(&table),
                None => {}
            }
            let beyond = if windows.is_empty() { 0 } else { all.len() % CHUNK_ROWS_MAX };
            if beyond == 0 {
                take(&all, work)?;
                continue;
            }
            let whole = all.len() - beyond;
            rest = Some(all.rows(whole, all.len()));
            take(&all.rows(0, whole), work)?;
        }
        Ok(())
    }

    fn windows(&self) -> VecDeque<TimeRange> {
        let entries = || self.sources.iter().filter_map(|source| source.own.as_ref());
        // An event takes as much memory as many samples.
        let width = entries().map(|e| e.columns).find(|n| *n > 0).unwrap_or(COLUMNS_MAX);
        let chunks = entries().flat_map(|entry| &entry.chunks);
        let spans: Vec<_> =
            chunks.map(|c| Span { first: c.first, last: c.last, rows: c.rows as usize }).collect();
        planned(&spans, TimeRange::ALL, (SAMPLES / width).max(CHUNK_ROWS_MAX))
    }

    /// Returns the merged samples of the parts in a window, without deleted ones. If a later part
    /// has a value of a series that the row shares, that value is valid.
    fn read(
        &self,
        window: TimeRange,
        work: &mut ScratchBuffers,
    ) -> Result<Option<Table>, WriteError> {
        let mut all: Option<Table> = None;
        for Source { part, own, others } in &self.sources {
            if let Some(all) = &mut all {
                self.agree(all, part, others, window, work)?;
            }
            let Some(entry) = own else { continue };
            let table = self.read_part(part, self.row, entry, window, Want::All, work)?;
            match &mut all {
                Some(all) => all.append(&table),
                None => all = Some(table),
            }
        }
        if let Some(all) = &mut all {
            all.sort_rows();
        }
        Ok(all)
    }

    /// Overwrites the samples read so far with the values that a later part has of their series.
    fn agree(
        &self,
        all: &mut Table,
        part: &Part,
        others: &[Option<Entry>],
        window: TimeRange,
        work: &mut ScratchBuffers,
    ) -> Result<(), WriteError> {
        for (other, entry) in self.shared.iter().zip(others) {
            let Some(entry) = entry else { continue };
            let want = Want::One(other.column);
            let with = self.read_part(part, other.row, entry, window, want, work)?;
            all.sort_rows();
            sharing::agree(all, other.own, &with);
        }
        Ok(())
    }

    fn read_part(
        &self,
        part: &Part,
        row: u32,
        entry: &Entry,
        window: TimeRange,
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Result<Table, WriteError> {
        let mut table = part.table_of(entry, window, want, work)?;
        for t in self.tombstones {
            let inside = |time| t.range.contains(time);
            let Some(hit) = t.of(row, part.meta.position_max) else { continue };
            match (hit, want) {
                ([], _) => table.retain_rows(|time| !inside(time)),
                (hit, Want::One(one)) if hit.contains(&one) => {
                    table.retain_rows(|time| !inside(time));
                }
                (_, Want::One(_)) => {}
                (hit, _) => hit.iter().for_each(|column| table.blank(*column, inside)),
            }
        }
        table.drop_absent();
        Ok(table)
    }
}
