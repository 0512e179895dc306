//! Smallest or largest values by steps over many series. What a block says of itself is enough to
//! leave it unread where a step knows a smaller, or larger, value already: of many series few
//! blocks are read.

use std::collections::BTreeMap;

use super::grid::Grid;
use super::piece::Piece;
use super::snapshot::Snapshot;
use super::summaries::Sink;
use crate::error::SeriesReadError;
use crate::model::{Series, Summary, TimeRange};

/// Which end of the values is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// [`Summary::min`].
    Smallest,
    /// [`Summary::max`].
    Largest,
}

impl Snapshot {
    /// Adds what a series has to the steps of `step_ns` from `range.from_ns` on, by their indexes.
    /// Of each summary only the value that is asked for is right, and that the step is not empty;
    /// the rest, its time included, is of the samples that had to be read.
    ///
    /// # Errors
    /// Returns an error if a part of it cannot be read; the others are added.
    pub fn extremes(
        &self,
        series: &Series,
        range: TimeRange,
        step_ns: i64,
        extreme: Extreme,
        into: &mut BTreeMap<i64, Summary>,
    ) -> Result<(), SeriesReadError> {
        let grid = Grid::new(range.from_ns, step_ns);
        let mut sink = Extremes { steps: into, range, grid, extreme };
        let torn = self.summarize(series, range, grid, &mut sink);
        torn.map_or(Ok(()), Err)
    }
}

struct Extremes<'a> {
    steps: &'a mut BTreeMap<i64, Summary>,
    range: TimeRange,
    grid: Grid,
    extreme: Extreme,
}

impl Extremes<'_> {
    /// Returns true if every step that a chunk touches knows a value that none of the chunk's is
    /// beyond. Samples of the chunk that were deleted or superseded make no difference to that.
    fn is_within(&self, piece: &Piece) -> bool {
        let Piece::Chunk(_, chunk, _) = piece else { return false };
        let Some(Some(own)) = chunk.summaries.first() else { return false };
        let first = self.grid.index(chunk.first.max(self.range.from_ns));
        let last = self.grid.index(chunk.last.min(self.range.to_ns.saturating_sub(1)));
        let mut next = first;
        for (step, known) in self.steps.range(first..=last.max(first)) {
            let within = match self.extreme {
                Extreme::Smallest => known.min <= own.min,
                Extreme::Largest => known.max >= own.max,
            };
            if *step != next || !within {
                return false;
            }
            next = next.saturating_add(1);
        }
        next > last
    }
}

impl Sink for Extremes<'_> {
    fn passes_over(&self, pieces: &[Piece]) -> bool {
        pieces.iter().all(|piece| self.is_within(piece))
    }

    fn add_summary(&mut self, first_ns: i64, some: Summary) {
        let step = self.grid.index(first_ns);
        self.steps.entry(step).and_modify(|all| *all = all.with(&some)).or_insert(some);
    }
}
