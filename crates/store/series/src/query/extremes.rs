//! Minimum or maximum values per step over many series. A chunk is not read if its summary shows
//! that it cannot change a step. With many series few chunks are read.

use std::collections::BTreeMap;

use super::grid::Grid;
use super::piece::SampleRun;
use super::snapshot::Snapshot;
use super::summaries::Sink;
use crate::error::SeriesReadError;
use crate::model::{Series, Summary, TimeRange};

/// The requested extreme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// [`Summary::min`].
    Smallest,
    /// [`Summary::max`].
    Largest,
}

impl Snapshot {
    /// Adds the values of a series to the steps of `step_ns` from `range.from_ns` on, by step
    /// index. Of each summary only the requested extreme is valid, and that the step is not empty.
    /// The other fields, times included, cover only the samples that were read.
    ///
    /// # Errors
    /// Returns an error if some samples cannot be read; the others are added.
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
    /// Returns true if every step that a chunk touches has an extreme already that no value of the
    /// chunk exceeds. Deleted or superseded samples of the chunk do not matter for that.
    fn is_within(&self, piece: &SampleRun) -> bool {
        let SampleRun::Chunk(_, chunk, _) = piece else { return false };
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
    fn passes_over(&self, pieces: &[SampleRun]) -> bool {
        pieces.iter().all(|piece| self.is_within(piece))
    }

    fn add_summary(&mut self, first_ns: i64, some: Summary) {
        let step = self.grid.index(first_ns);
        self.steps.entry(step).and_modify(|all| *all = all.with(&some)).or_insert(some);
    }
}
