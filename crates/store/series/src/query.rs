//! Reads: a snapshot of parts and heads, scans and summaries of one series.
//!
//! What a series has in one partition comes from parts, oldest first, then from heads; of two
//! samples with the same time the one from the later source holds. Tombstones hide what is older
//! than they. What cannot be read is passed over, and told beside the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::{Core, Parts};
use crate::error::{Found, ReadError, partial};
use crate::head::{HeadCell, partition_range};
use crate::model::{Direction, Run, Series, Summary, TimeRange, Values};
use crate::part::{Part, summary_of};
use crate::record::Tombstone;
use crate::table::{Table, Want, Work};

mod events;
mod extremes;
mod grid;
mod present;
mod rolled;
mod scan;
mod sorted;
mod windows;
pub use events::EventScan;
pub use extremes::Extreme;
use grid::Grid;
pub use scan::Scan;
pub(crate) use windows::{Piece, planned};
use windows::{ROWS, Windows};

/// The parts and heads of one moment. Keeps their files readable however long it lives; samples
/// that arrive later may or may not be seen.
#[derive(Clone)]
pub struct Snapshot {
    heads: Vec<Arc<HeadCell>>,
    parts: Arc<Parts>,
    rollups: Arc<BTreeMap<i64, Arc<Part>>>,
    tombstones: Arc<Vec<Tombstone>>,
}

/// What takes summaries.
trait Sink {
    /// Whether what these pieces of one partition hold changes nothing, so that they need not be
    /// read.
    fn passes_over(&self, _pieces: &[Piece]) -> bool {
        false
    }

    /// Take a summary of samples from this time on.
    fn take(&mut self, first_ns: i64, some: Summary);
}

/// Takes every summary.
struct Every<F>(F);

impl<F: FnMut(i64, Summary)> Sink for Every<F> {
    fn take(&mut self, first_ns: i64, some: Summary) {
        (self.0)(first_ns, some);
    }
}

/// Hands out steps that are complete.
struct Steps<F> {
    each: F,
    grid: Grid,
    /// The step at hand, with its first time behind.
    last: Option<(i64, Summary)>,
    enough: bool,
}

impl<F: FnMut(i64, Summary) -> bool> Steps<F> {
    fn hand_out(&mut self) {
        if let Some((_, some)) = self.last.take().filter(|_| !self.enough) {
            self.enough = !(self.each)(self.grid.index(some.first_ns), some);
        }
    }
}

impl<F: FnMut(i64, Summary) -> bool> Sink for Steps<F> {
    fn passes_over(&self, _pieces: &[Piece]) -> bool {
        self.enough
    }

    fn take(&mut self, first_ns: i64, some: Summary) {
        match &mut self.last {
            // Buckets of rows that share a series may lie side by side.
            Some((end, all)) if first_ns < *end => *all = all.with(&some),
            _ => {
                self.hand_out();
                self.last = Some((self.grid.end(first_ns), some));
            }
        }
    }
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

    /// Samples of a series.
    pub fn scan(&self, series: &Series, range: TimeRange, direction: Direction) -> Scan {
        Scan::new(self.clone(), series, range, direction)
    }

    /// Summary of the samples in a range; `None` if there are none. Does not read what the blocks'
    /// own summaries already say.
    ///
    /// # Errors
    /// When a part of it cannot be read, with the summary of the others.
    pub fn summary(&self, series: &Series, range: TimeRange) -> Found<Option<Summary>> {
        let mut all: Option<Summary> = None;
        let mut sink = Every(|_, some| add(&mut all, some));
        let torn = self.summarize(series, range, Grid::WHOLE, &mut sink);
        partial(all, torn)
    }

    /// Summaries by steps of `step_ns` from `range.from_ns` on, oldest first, empty steps left
    /// out: index of the step, and what is in it.
    ///
    /// # Errors
    /// When a part of it cannot be read, with the steps of the others.
    pub fn steps(
        &self,
        series: &Series,
        range: TimeRange,
        step_ns: i64,
    ) -> Found<Vec<(i64, Summary)>> {
        let mut steps = Vec::new();
        let read = self.each_step(series, range, step_ns, |step, some| {
            steps.push((step, some));
            true
        });
        partial(steps, read.err())
    }

    /// Hand out the same one after another, until `each` says that it is enough.
    ///
    /// # Errors
    /// When a part of it cannot be read; the steps of the others were handed out.
    pub fn each_step(
        &self,
        series: &Series,
        range: TimeRange,
        step_ns: i64,
        each: impl FnMut(i64, Summary) -> bool,
    ) -> Result<(), ReadError> {
        let grid = Grid::new(range.from_ns, step_ns);
        let mut steps = Steps { each, grid, last: None, enough: false };
        let torn = self.summarize(series, range, grid, &mut steps);
        steps.hand_out();
        torn.map_or(Ok(()), Err)
    }

    /// Hand out summaries of runs that lie in one step, oldest first, each with its first time. The
    /// first thing that could not be read.
    fn summarize(
        &self,
        series: &Series,
        range: TimeRange,
        grid: Grid,
        sink: &mut impl Sink,
    ) -> Option<ReadError> {
        let heads = self.of_heads(series, range);
        let (mut work, mut torn) = (Work::default(), None);
        for partition in self.all_partitions(range, &heads) {
            let source = Source { columns: &series.columns, partition, range, heads: &heads };
            let mut pieces = self.pieces(&source, &mut torn);
            if !self.is_alone(partition) && sink.passes_over(&pieces) {
                continue;
            }
            let here = source.here();
            let apart = are_apart(&pieces);
            let known = |p: &Piece| self.known(p, here, grid).is_some();
            let told = !pieces.is_empty() && apart && pieces.iter().all(known);
            let found = if self.is_alone(partition) || !(told || pieces.is_empty()) {
                self.by_rollup(&source, grid, &mut work, &mut torn)
            } else {
                None
            };
            if found.is_some() {
                found.iter().flatten().for_each(|some| sink.take(some.first_ns, *some));
                continue;
            }
            if apart {
                pieces.sort_by_key(|p| p.span().0);
                let told = pieces.iter().map(|p| self.tell(p, here, grid, sink, &mut work));
                told.filter_map(Result::err).for_each(|e| note(&mut torn, e));
                continue;
            }
            let mut windows = Windows::new(pieces, here, ROWS);
            while let Some(table) = windows.next(self, Direction::Forward, &mut work, &mut torn) {
                runs(&table, grid, |first, some| sink.take(first, some));
            }
        }
        torn
    }

    /// Hand out the summaries of one piece: its own, or those of its samples.
    fn tell(
        &self,
        piece: &Piece,
        range: TimeRange,
        grid: Grid,
        sink: &mut impl Sink,
        work: &mut Work,
    ) -> Result<(), ReadError> {
        if let Some((first, some)) = self.known(piece, range, grid) {
            sink.take(first, some);
            return Ok(());
        }
        let table = self.open_piece(piece, range, work)?;
        runs(&table, grid, |first, some| sink.take(first, some));
        Ok(())
    }

    /// The summary that a chunk has of itself, with its first time, if it says all.
    fn known(&self, piece: &Piece, range: TimeRange, grid: Grid) -> Option<(i64, Summary)> {
        let Piece::Chunk(part, chunk, (row, column)) = piece else { return None };
        let some = chunk.summaries.first().copied().flatten()?;
        let usable = range.covers(chunk.first, chunk.last)
            && grid.together(chunk.first, chunk.last)
            && !self.is_hit(*row, *column, part.meta.position_max);
        usable.then_some((chunk.first, some))
    }

    /// What heads have of a series, in the order in which it came.
    fn of_heads(&self, series: &Series, range: TimeRange) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (cell, of) in self.heads.iter().flat_map(|h| series.columns.iter().map(move |c| (h, c)))
        {
            let stretches = cell.head.read().stretches(of.0, range);
            pieces.extend(stretches.into_iter().map(|s| Piece::Head(Arc::clone(cell), s, *of)));
        }
        pieces
    }

    fn is_hit(&self, row: u32, column: u16, position: u64) -> bool {
        self.tombstones.iter().any(|t| t.hits(row, column, position))
    }

    fn hide(&self, table: &mut Table, row: u32, column: u16, position: u64) {
        for t in self.tombstones.iter().filter(|t| t.hits(row, column, position)) {
            table.keep(|time| !t.range.contains(time));
        }
    }

    /// Partitions that may hold samples of a range, ascending.
    fn partitions(&self, range: TimeRange, heads: &[Piece]) -> BTreeSet<i64> {
        let touched = |p: &i64| {
            let of = partition_range(*p);
            range.touches(of.from_ns, of.to_ns - 1)
        };
        let (mut all, mut work) = (BTreeSet::new(), Work::default());
        for piece in heads {
            piece.partitions(&mut all, &mut work);
        }
        all.extend(self.parts.keys());
        all.retain(touched);
        all
    }

    /// What a series has in a partition, sources with lower positions first.
    fn pieces(&self, source: &Source<'_>, torn: &mut Option<ReadError>) -> Vec<Piece> {
        let (mut pieces, here) = (Vec::new(), source.here());
        let parts = self.parts.get(&source.partition).into_iter().flatten();
        for (part, of) in parts.flat_map(|p| source.columns.iter().map(move |c| (p, *c))) {
            match part.entry(of.0, Want::One(of.1)) {
                Ok(entry) => {
                    let chunks = entry.unwrap_or_default().chunks.into_iter();
                    let chunks = chunks.filter(|c| here.touches(c.first, c.last));
                    pieces.extend(chunks.map(|c| Piece::Chunk(Arc::clone(part), c, of)));
                }
                Err(e) => note(torn, e),
            }
        }
        pieces.extend(source.heads.iter().filter(|p| p.touches(here)).cloned());
        pieces
    }

    /// What a piece has in a range, settled.
    fn open_piece(
        &self,
        piece: &Piece,
        range: TimeRange,
        work: &mut Work,
    ) -> Result<Table, ReadError> {
        match piece {
            Piece::Head(cell, stretch, (row, column)) => {
                // What came since must not be read in the place of what another piece has.
                let range = TimeRange {
                    from_ns: range.from_ns.max(stretch.first),
                    to_ns: range.to_ns.min(stretch.last.saturating_add(1)),
                };
                let head = cell.head.read();
                let mut table = head.stretch(*row, stretch, range, Want::One(*column), work);
                drop(head);
                self.hide(&mut table, *row, *column, cell.last());
                Ok(table)
            }
            Piece::Chunk(part, chunk, (row, column)) => {
                let mut table = Table::with_columns(chunk.summaries.len().min(1));
                part.chunk(chunk, Want::One(*column), &mut table, work)?;
                if !range.covers(chunk.first, chunk.last) {
                    table.keep(|t| range.contains(t));
                }
                self.hide(&mut table, *row, *column, part.meta.position_max);
                Ok(table)
            }
            Piece::Sorted(block) => Ok(block.table(range, work)),
        }
    }

    /// All samples of a series in a partition and range that can be read, settled.
    pub(crate) fn read(
        &self,
        source: &Source<'_>,
        work: &mut Work,
        torn: &mut Option<ReadError>,
    ) -> Table {
        let pieces = self.pieces(source, torn);
        let mut one = Windows::new(pieces, source.here(), usize::MAX);
        one.next(self, Direction::Forward, work, torn).unwrap_or_default()
    }
}

/// What is to be read in a partition.
pub(crate) struct Source<'a> {
    /// Of which rows and columns.
    pub(crate) columns: &'a [(u32, u16)],
    pub(crate) partition: i64,
    pub(crate) range: TimeRange,
    pub(crate) heads: &'a [Piece],
}

impl Source<'_> {
    /// The range within the partition.
    fn here(&self) -> TimeRange {
        let (whole, range) = (partition_range(self.partition), self.range);
        TimeRange { from_ns: whole.from_ns.max(range.from_ns), to_ns: whole.to_ns.min(range.to_ns) }
    }
}

/// Whether no two pieces overlap in time.
fn are_apart(pieces: &[Piece]) -> bool {
    let apart =
        |spans: &[(i64, i64)]| spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| a.1 < b.0);
    let mut spans: Vec<(i64, i64)> = pieces.iter().map(Piece::span).collect();
    // Mostly they are in order.
    apart(&spans) || {
        spans.sort_unstable();
        apart(&spans)
    }
}

/// Remember the first thing that could not be read, of all that is only refused before what is damaged:
/// that may be over later.
fn note(torn: &mut Option<ReadError>, e: ReadError) {
    let refused = matches!(e, ReadError::Io { .. });
    if torn.is_none() || (refused && matches!(torn, Some(ReadError::Corrupt(_)))) {
        *torn = Some(e);
    }
}

fn add(all: &mut Option<Summary>, some: Summary) {
    match all {
        Some(all) => *all = all.with(&some),
        None => *all = Some(some),
    }
}

/// Summaries of the runs of a sorted table that lie in one step each.
fn runs(table: &Table, grid: Grid, mut take: impl FnMut(i64, Summary)) {
    let Some(column) = table.columns.first() else { return };
    let bits = column.floats();
    let mut begin = 0;
    while let Some(first) = table.times.get(begin) {
        let end = begin + grid.count(table.times.get(begin..).unwrap_or_default()).max(1);
        let (times, bits) = (table.times.get(begin..end), bits.get(begin..end));
        if let Some(some) = summary_of(times.unwrap_or_default(), bits.unwrap_or_default()) {
            take(*first, some);
        }
        begin = end;
    }
}

/// Values of rows of a table with one column, all of one kind.
fn values_of(table: &Table, begin: usize, end: usize) -> Values {
    let Some(column) = table.columns.first() else { return Values::F64(Vec::new()) };
    let bits = column.bits.get(begin..end).unwrap_or_default();
    if column.integers.get(begin) == Some(&true) {
        return Values::I64(bits.iter().map(|b| *b as i64).collect());
    }
    Values::F64(bits.iter().map(|b| f64::from_bits(*b)).collect())
}

/// The rows of a table as runs of one kind of value each.
fn as_runs(mut table: Table) -> Vec<Run> {
    if let [column] = table.columns.as_mut_slice()
        && !column.integers.contains(&true)
    {
        let bits = std::mem::take(&mut column.bits);
        let values = Values::F64(bits.into_iter().map(f64::from_bits).collect());
        return vec![Run { times: table.times, values }];
    }
    let (mut begin, mut found) = (0, Vec::new());
    for end in table.chunk_ends(usize::MAX / 2) {
        let times = table.times.get(begin..end).unwrap_or_default().to_vec();
        found.push(Run { times, values: values_of(&table, begin, end) });
        begin = end;
    }
    found
}
