//! Reads roll-ups: where they give the same results as the samples, and where the samples were
//! removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::grid::Grid;
use super::piece::SampleRun;
use super::snapshot::{Snapshot, Source, note};
use super::summaries::runs;
use super::windows::{ROWS, Windows, planned};
use crate::error::SeriesReadError;
use crate::head::partition_range;
use crate::model::{ColumnId, Direction, Summary, TimeRange};
use crate::part::Part;
use crate::record::Tombstone;
use crate::rollup::{self, Buckets, FIELDS};
use crate::table::{ScratchBuffers, Want};

impl Snapshot {
    /// Returns the snapshot without heads, and with these tombstones only.
    pub(crate) fn sealed(self, tombstones: Vec<Tombstone>) -> Self {
        Self { heads: Vec::new(), tombstones: Arc::new(tombstones), ..self }
    }

    /// Returns the parts of a partition.
    pub(crate) fn parts_of(&self, partition: i64) -> &[Arc<Part>] {
        self.parts.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// Returns the roll-up of a partition.
    pub(crate) fn rollup_of(&self, partition: i64) -> Option<&Arc<Part>> {
        self.rollups.get(&partition)
    }

    /// Returns the first time after the partitions of which only roll-ups remain, and the width of
    /// their widest buckets, in nanoseconds.
    pub fn rolled_up(&self) -> Option<(i64, i64)> {
        let alone = self.rollups.iter().filter(|(_, rollup)| rollup.meta.alone);
        let of = |(partition, rollup): (&i64, &Arc<Part>)| {
            (partition_range(*partition).to_ns, rollup::width_ns(rollup.meta.step_s))
        };
        alone.map(of).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    /// Returns ranges of a partition, each with about as many samples of some columns as a window,
    /// that begin at the start of a bucket.
    pub(crate) fn bucket_windows(&self, columns: &[ColumnId], partition: i64) -> Vec<TimeRange> {
        let source = Source { columns, partition, range: TimeRange::ALL, heads: &[] };
        // Failures are reported when the pieces are read.
        let pieces = self.pieces(&source, &mut None);
        let blocks: Vec<_> = pieces.iter().map(SampleRun::span).collect();
        let (whole, mut windows) = (source.here(), Vec::new());
        let mut from_ns = whole.from_ns;
        for window in planned(&blocks, whole, ROWS) {
            let is_last = window.to_ns >= whole.to_ns;
            let to_ns = if is_last { whole.to_ns } else { rollup::begin_of(window.to_ns) };
            if to_ns > from_ns {
                windows.push(TimeRange { from_ns, to_ns });
                from_ns = to_ns;
            }
        }
        windows
    }

    /// Returns the partitions that may have samples or roll-ups in a range, ascending.
    pub(super) fn all_partitions(&self, range: TimeRange, heads: &[SampleRun]) -> BTreeSet<i64> {
        let mut all = self.partitions(range, heads);
        let alone = self.rollups.iter().filter(|(_, r)| r.meta.alone).map(|(p, _)| *p);
        all.extend(alone.filter(|p| {
            let of = partition_range(*p);
            range.touches(of.from_ns, of.to_ns - 1)
        }));
        all
    }

    /// Returns true if the samples of a partition were removed and its roll-up remains.
    pub(super) fn is_alone(&self, partition: i64) -> bool {
        self.rollups.get(&partition).is_some_and(|r| r.meta.alone)
    }

    /// Returns the buckets of a series in a roll-up, without those that a later delete touches.
    /// Columns in `others` may have buckets of the series, too.
    pub(crate) fn buckets(
        &self,
        rollup: &Part,
        of: ColumnId,
        others: &[ColumnId],
        work: &mut ScratchBuffers,
    ) -> Result<Buckets, SeriesReadError> {
        let mut own = all_buckets(rollup, of, work)?;
        let applied = rollup.meta.applied;
        let buried = |t: &&Tombstone| t.hits(of, applied);
        let mut tombstones = self.tombstones.iter().filter(buried).peekable();
        if tombstones.peek().is_none() {
            return Ok(own);
        }
        let mut series = own.clone();
        for other in others.iter().filter(|other| **other != of) {
            for (bucket, some) in all_buckets(rollup, *other, work)? {
                rollup::join(&mut series, bucket, &some);
            }
        }
        for t in tombstones {
            let kept = |some: &Summary| !t.range.touches(some.first_ns, some.last_ns);
            own.retain(|bucket, _| series.get(bucket).is_some_and(kept));
        }
        Ok(own)
    }
}

/// Returns all buckets of one metric of a row in a roll-up.
fn all_buckets(
    rollup: &Part,
    of: ColumnId,
    work: &mut ScratchBuffers,
) -> Result<Buckets, SeriesReadError> {
    let fields = FIELDS as u16;
    let Some(from) = of.column.checked_mul(fields) else { return Ok(Buckets::new()) };
    let table = rollup.table(of.row, TimeRange::ALL, Want::Some(from, fields), work)?;
    let mut buckets = Buckets::new();
    if let Some(table) = table {
        rollup::buckets(&table, &mut buckets);
    }
    Ok(buckets)
}

impl Snapshot {
    /// Returns the summaries of a partition from its roll-up, oldest first, or `None` if the
    /// samples must be read.
    pub(super) fn by_rollup(
        &self,
        source: &Source<'_>,
        grid: Grid,
        work: &mut ScratchBuffers,
        torn: &mut Option<SeriesReadError>,
    ) -> Option<Vec<Summary>> {
        let partition = source.partition;
        let rollup = self.rollups.get(&partition)?;
        if rollup.meta.alone {
            return Some(self.of_alone(rollup, source, grid, work, torn));
        }
        let ([of], parts) = (source.columns, self.parts.get(&partition)?) else { return None };
        let newer = parts.iter().any(|p| p.meta.position_max > rollup.meta.position_max);
        let unsealed = source.heads.iter().any(|piece| piece.touches(partition_range(partition)));
        let buried = self.tombstones.iter().any(|t| t.hits(*of, rollup.meta.applied));
        let (width, range) = (rollup::width_ns(rollup.meta.step_s), source.range);
        let whole = partition_range(partition);
        // Steps that split buckets cannot be answered from the roll-up.
        let cut = || {
            let begins = std::iter::successors(Some(whole.from_ns), |b| b.checked_add(width));
            let mut begins = begins.take_while(|b| *b < whole.to_ns);
            begins.any(|b| range.contains(b) && !grid.together(b, b.saturating_add(width - 1)))
        };
        if newer || unsealed || buried || cut() {
            return None;
        }
        let mut found = Vec::new();
        // If the roll-up cannot be read, the samples are read instead.
        for some in self.buckets(rollup, *of, &[], work).ok()?.into_values() {
            if !range.touches(some.first_ns, some.last_ns) {
                continue;
            }
            let inside = range.covers(some.first_ns, some.last_ns);
            if !inside || !grid.together(some.first_ns, some.last_ns) {
                return None;
            }
            found.push(some);
        }
        Some(found)
    }

    /// Returns the summaries of a partition whose samples were removed: buckets, each at the time
    /// of its first sample, and late samples.
    fn of_alone(
        &self,
        rollup: &Part,
        source: &Source<'_>,
        grid: Grid,
        work: &mut ScratchBuffers,
        torn: &mut Option<SeriesReadError>,
    ) -> Vec<Summary> {
        let mut found = Vec::new();
        for of in source.columns {
            match self.buckets(rollup, *of, source.columns, work) {
                Ok(buckets) => {
                    let inside = |some: &Summary| source.range.contains(some.first_ns);
                    found.extend(buckets.into_values().filter(inside));
                }
                Err(e) => note(torn, e),
            }
        }
        let mut windows = Windows::new(self.pieces(source, torn), source.here(), ROWS);
        while let Some(table) = windows.next(self, Direction::Forward, work, torn) {
            runs(&table, grid, |_, some| found.push(some));
        }
        found.sort_by_key(|some| some.first_ns);
        found
    }
}
