//! Summaries of a series, in total or per step, from the summaries of chunks and roll-ups where
//! these suffice.

use super::grid::Grid;
use super::piece::{SampleRun, Span};
use super::snapshot::{Snapshot, Source, note};
use super::windows::{ROWS, Windows};
use crate::error::{Found, SeriesReadError, partial};
use crate::model::{Direction, Series, Summary, TimeRange};
use crate::part::stats::summary_of;
use crate::table::{ScratchBuffers, Table};

/// A receiver of summaries.
pub(super) trait Sink {
    /// Returns true if these pieces of one partition cannot change the result, so that they need
    /// not be read.
    fn passes_over(&self, _pieces: &[SampleRun]) -> bool {
        false
    }

    /// Takes a summary of samples, of which `first_ns` is the first time.
    fn add_summary(&mut self, first_ns: i64, some: Summary);
}

/// Takes all summaries.
struct AllSummaries<F>(F);

impl<F: FnMut(i64, Summary)> Sink for AllSummaries<F> {
    fn add_summary(&mut self, first_ns: i64, some: Summary) {
        (self.0)(first_ns, some);
    }
}

/// Passes on complete steps.
struct Steps<F> {
    each: F,
    grid: Grid,
    /// The current step, with the first time after it.
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
    fn passes_over(&self, _pieces: &[SampleRun]) -> bool {
        self.enough
    }

    fn add_summary(&mut self, first_ns: i64, some: Summary) {
        match &mut self.last {
            // Buckets of rows that share a series may overlap in time.
            Some((end, all)) if first_ns < *end => *all = all.with(&some),
            _ => {
                self.hand_out();
                self.last = Some((self.grid.end(first_ns), some));
            }
        }
    }
}

impl Snapshot {
    /// Returns the summary of the samples in a range, or `None` if there are none. Chunks whose own
    /// summary suffices are not read.
    ///
    /// # Errors
    /// Returns an error with the summary of the readable samples if some cannot be read.
    pub fn summary(&self, series: &Series, range: TimeRange) -> Found<Option<Summary>> {
        let mut all: Option<Summary> = None;
        let mut sink = AllSummaries(|_, some| add(&mut all, some));
        let torn = self.summarize(series, range, Grid::WHOLE, &mut sink);
        partial(all, torn)
    }

    /// Returns the summaries of steps of `step_ns` from `range.from_ns` on, oldest first, without
    /// empty steps, with the index of each step.
    ///
    /// # Errors
    /// Returns an error with the readable steps if some samples cannot be read.
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

    /// Passes the same summaries to `each` one after another, until `each` breaks.
    ///
    /// # Errors
    /// Returns an error if some samples cannot be read; the readable ones were passed on.
    pub fn each_step(
        &self,
        series: &Series,
        range: TimeRange,
        step_ns: i64,
        each: impl FnMut(i64, Summary) -> bool,
    ) -> Result<(), SeriesReadError> {
        let grid = Grid::new(range.from_ns, step_ns);
        let mut steps = Steps { each, grid, last: None, enough: false };
        let torn = self.summarize(series, range, grid, &mut steps);
        steps.hand_out();
        torn.map_or(Ok(()), Err)
    }

    /// Passes summaries of runs that lie in one step to the sink, oldest first, each with its first
    /// time. Returns the first read error.
    pub(super) fn summarize(
        &self,
        series: &Series,
        range: TimeRange,
        grid: Grid,
        sink: &mut impl Sink,
    ) -> Option<SeriesReadError> {
        let heads = self.of_heads(series, range);
        let (mut work, mut torn) = (ScratchBuffers::default(), None);
        for partition in self.all_partitions(range, &heads) {
            let source = Source { columns: &series.columns, partition, range, heads: &heads };
            let mut pieces = self.pieces(&source, &mut torn);
            if !self.is_alone(partition) && sink.passes_over(&pieces) {
                continue;
            }
            let here = source.here();
            let apart = are_apart(&pieces);
            let known = |p: &SampleRun| self.chunk_summary(p, here, grid).is_some();
            let summarised = !pieces.is_empty() && apart && pieces.iter().all(known);
            let found = if self.is_alone(partition) || !(summarised || pieces.is_empty()) {
                self.by_rollup(&source, grid, &mut work, &mut torn)
            } else {
                None
            };
            if found.is_some() {
                found.iter().flatten().for_each(|some| sink.add_summary(some.first_ns, *some));
                continue;
            }
            if apart {
                pieces.sort_by_key(|p| p.span().first);
                let outcomes =
                    pieces.iter().map(|p| self.emit_summaries(p, here, grid, sink, &mut work));
                outcomes.filter_map(Result::err).for_each(|e| note(&mut torn, e));
                continue;
            }
            let mut windows = Windows::new(pieces, here, ROWS);
            while let Some(table) = windows.next(self, Direction::Forward, &mut work, &mut torn) {
                runs(&table, grid, |first, some| sink.add_summary(first, some));
            }
        }
        torn
    }

    /// Passes on the summaries of one piece: its own, or those of its samples.
    fn emit_summaries(
        &self,
        piece: &SampleRun,
        range: TimeRange,
        grid: Grid,
        sink: &mut impl Sink,
        work: &mut ScratchBuffers,
    ) -> Result<(), SeriesReadError> {
        if let Some((first, some)) = self.chunk_summary(piece, range, grid) {
            sink.add_summary(first, some);
            return Ok(());
        }
        let table = self.open_piece(piece, range, work)?;
        runs(&table, grid, |first, some| sink.add_summary(first, some));
        Ok(())
    }

    /// Returns the chunk's own summary with its first time, if it suffices for a range and grid.
    fn chunk_summary(
        &self,
        piece: &SampleRun,
        range: TimeRange,
        grid: Grid,
    ) -> Option<(i64, Summary)> {
        let SampleRun::Chunk(part, chunk, of) = piece else { return None };
        let some = chunk.summaries.first().copied().flatten()?;
        let usable = range.covers(chunk.first, chunk.last)
            && grid.together(chunk.first, chunk.last)
            && !self.is_hit(*of, part.meta.position_max);
        usable.then_some((chunk.first, some))
    }
}

/// Returns true if no two pieces overlap in time.
fn are_apart(pieces: &[SampleRun]) -> bool {
    let apart =
        |spans: &[Span]| spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| a.last < b.first);
    let mut spans: Vec<Span> = pieces.iter().map(SampleRun::span).collect();
    // Pieces are usually in order.
    apart(&spans) || {
        spans.sort_unstable();
        apart(&spans)
    }
}

fn add(all: &mut Option<Summary>, some: Summary) {
    match all {
        Some(all) => *all = all.with(&some),
        None => *all = Some(some),
    }
}

/// Passes on the summaries of runs of a sorted table that lie in one step each.
pub(super) fn runs(table: &Table, grid: Grid, mut take: impl FnMut(i64, Summary)) {
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
