//! Summaries of a series, whole or by steps, from what chunks and roll-ups say of themselves where
//! that is enough.

use super::grid::Grid;
use super::piece::{Piece, Span};
use super::snapshot::{Snapshot, Source, note};
use super::windows::{ROWS, Windows};
use crate::error::{Found, SeriesReadError, partial};
use crate::model::{Direction, Series, Summary, TimeRange};
use crate::part::stats::summary_of;
use crate::table::{Table, Work};

/// A receiver of summaries.
pub(super) trait Sink {
    /// Returns true if what these pieces of one partition hold changes nothing, so that they need
    /// not be read.
    fn passes_over(&self, _pieces: &[Piece]) -> bool {
        false
    }

    /// Takes a summary of samples from this time on.
    fn add_summary(&mut self, first_ns: i64, some: Summary);
}

/// Takes every summary.
struct Every<F>(F);

impl<F: FnMut(i64, Summary)> Sink for Every<F> {
    fn add_summary(&mut self, first_ns: i64, some: Summary) {
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

    fn add_summary(&mut self, first_ns: i64, some: Summary) {
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
    /// Summary of the samples in a range; `None` if there are none. Does not read what the blocks'
    /// own summaries already say.
    ///
    /// # Errors
    /// Returns an error if a part of it cannot be read, with the summary of the others.
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
    /// Returns an error if a part of it cannot be read, with the steps of the others.
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

    /// Hands out the same one after another, until `each` says that it is enough.
    ///
    /// # Errors
    /// Returns an error if a part of it cannot be read; the steps of the others were handed out.
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

    /// Hands out summaries of runs that lie in one step, oldest first, each with its first time.
    /// The first thing that could not be read.
    pub(super) fn summarize(
        &self,
        series: &Series,
        range: TimeRange,
        grid: Grid,
        sink: &mut impl Sink,
    ) -> Option<SeriesReadError> {
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
                found.iter().flatten().for_each(|some| sink.add_summary(some.first_ns, *some));
                continue;
            }
            if apart {
                pieces.sort_by_key(|p| p.span().first);
                let told =
                    pieces.iter().map(|p| self.emit_summaries(p, here, grid, sink, &mut work));
                told.filter_map(Result::err).for_each(|e| note(&mut torn, e));
                continue;
            }
            let mut windows = Windows::new(pieces, here, ROWS);
            while let Some(table) = windows.next(self, Direction::Forward, &mut work, &mut torn) {
                runs(&table, grid, |first, some| sink.add_summary(first, some));
            }
        }
        torn
    }

    /// Hands out the summaries of one piece: its own, or those of its samples.
    fn emit_summaries(
        &self,
        piece: &Piece,
        range: TimeRange,
        grid: Grid,
        sink: &mut impl Sink,
        work: &mut Work,
    ) -> Result<(), SeriesReadError> {
        if let Some((first, some)) = self.known(piece, range, grid) {
            sink.add_summary(first, some);
            return Ok(());
        }
        let table = self.open_piece(piece, range, work)?;
        runs(&table, grid, |first, some| sink.add_summary(first, some));
        Ok(())
    }

    /// The summary that a chunk has of itself, with its first time, if it says all.
    fn known(&self, piece: &Piece, range: TimeRange, grid: Grid) -> Option<(i64, Summary)> {
        let Piece::Chunk(part, chunk, of) = piece else { return None };
        let some = chunk.summaries.first().copied().flatten()?;
        let usable = range.covers(chunk.first, chunk.last)
            && grid.together(chunk.first, chunk.last)
            && !self.is_hit(*of, part.meta.position_max);
        usable.then_some((chunk.first, some))
    }
}

/// Returns true if no two pieces overlap in time.
fn are_apart(pieces: &[Piece]) -> bool {
    let apart =
        |spans: &[Span]| spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| a.last < b.first);
    let mut spans: Vec<Span> = pieces.iter().map(Piece::span).collect();
    // Mostly they are in order.
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

/// Summaries of the runs of a sorted table that lie in one step each.
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
