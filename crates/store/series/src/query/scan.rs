//! A scan: the samples of one series, partition by partition.

use std::collections::VecDeque;

use super::{Snapshot, as_runs};
use crate::error::ReadError;
use crate::model::{Direction, Run, Series, TimeRange, Values};
use crate::table::{Table, Work};

/// Memory of a sample that was copied from a head: time, value, kind.
const HEAD_SAMPLE_BYTES: usize = 17;

/// Runs of samples of one series, in the direction of the scan. An error concerns what could not
/// be read; asked again, the scan goes on behind it.
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
            let (series, heads, work) = (&self.series, &self.heads, &mut self.work);
            match self.snapshot.read(&series.columns, partition, self.range, heads, work) {
                Err(e) => return Some(Err(e)),
                Ok(table) if table.is_empty() => {}
                Ok(table) => self.runs = as_runs(table).into(),
            }
            if self.direction == Direction::Backward {
                self.runs =
                    std::mem::take(&mut self.runs).into_iter().rev().map(reversed).collect();
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
