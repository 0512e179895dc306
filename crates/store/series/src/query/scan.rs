//! A scan: the samples of one series, partition by partition.

use std::collections::VecDeque;

use super::{Snapshot, Source, as_runs};
use crate::error::ReadError;
use crate::model::{Direction, Run, Series, TimeRange, Values};
use crate::table::{Table, Work};

/// Memory of a sample that was copied from a head: time, value, kind.
const HEAD_SAMPLE_BYTES: usize = 17;

/// Runs of samples of one series, in the direction of the scan. An error concerns what could not
/// be read; asked again, the scan goes on with what could be read beside it, and behind it.
pub struct Scan {
    snapshot: Snapshot,
    series: Series,
    range: TimeRange,
    direction: Direction,
    heads: Vec<Table>,
    partitions: VecDeque<i64>,
    runs: VecDeque<Run>,
    work: Work,
}

impl Scan {
    pub(super) fn new(
        snapshot: Snapshot,
        series: &Series,
        range: TimeRange,
        direction: Direction,
    ) -> Self {
        let heads = snapshot.of_heads(series, range);
        let partitions = snapshot.partitions(range, &heads).into_iter().collect();
        let (series, runs, work) = (series.clone(), VecDeque::new(), Work::default());
        Self { snapshot, series, range, direction, heads, partitions, runs, work }
    }
}

impl Scan {
    /// Estimate of the memory that it holds beside the run given last, in bytes.
    pub fn bytes(&self) -> usize {
        self.heads.iter().map(|table| table.times.len() * HEAD_SAMPLE_BYTES).sum()
    }
}

impl Iterator for Scan {
    type Item = Result<Run, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(run) = self.runs.pop_front() {
                return Some(Ok(run));
            }
            let partition = match self.direction {
                Direction::Forward => self.partitions.pop_front()?,
                Direction::Backward => self.partitions.pop_back()?,
            };
            let (columns, range) = (&*self.series.columns, self.range);
            let source = Source { columns, partition, range, heads: &self.heads };
            let mut torn = None;
            let table = self.snapshot.read(&source, &mut self.work, &mut torn);
            self.runs = if table.is_empty() { VecDeque::new() } else { as_runs(table).into() };
            if self.direction == Direction::Backward {
                self.runs =
                    std::mem::take(&mut self.runs).into_iter().rev().map(reversed).collect();
            }
            if let Some(e) = torn {
                return Some(Err(e));
            }
        }
    }
}

fn reversed(mut run: Run) -> Run {
    run.times.reverse();
    match &mut run.values {
        Values::F64(values) => values.reverse(),
        Values::I64(values) => values.reverse(),
    }
    run
}
