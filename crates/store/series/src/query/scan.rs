//! A scan: the samples of one series, one time window after another.

use std::collections::VecDeque;

use super::snapshot::Snapshot;
use super::windows::{ROWS, Reading};
use crate::error::SeriesReadError;
use crate::model::{Direction, Run, Series, TimeRange, Values};
use crate::table::Table;

/// Iterates over runs of samples of one series in the direction of the scan. An error concerns a
/// source that could not be read; after it, the scan continues with the readable samples.
///
/// Memory is bounded for any number of samples in any order of arrival. Chunks that follow each
/// other or overlap slightly take about [`Scan::with_rows`] samples, and at most eight times as
/// many. Samples that arrived unordered are sorted and kept compressed, up to 512 bytes for each of
/// [`Scan::with_rows`].
pub struct Scan {
    reading: Reading,
    direction: Direction,
    runs: VecDeque<Run>,
    with_markers: bool,
}

impl Snapshot {
    /// Returns a scan of the samples of a series, without markers of its end.
    pub fn scan(&self, series: &Series, range: TimeRange, direction: Direction) -> Scan {
        let reading = Reading::new(self.clone(), series, range, direction, ROWS);
        Scan { reading, direction, runs: VecDeque::new(), with_markers: false }
    }
}

impl Scan {
    /// Sets the approximate number of samples to read at a time (default 65,536; at least 64).
    #[must_use]
    pub fn with_rows(mut self, rows: usize) -> Self {
        self.reading.rows = rows.max(64);
        self
    }

    /// Begins with another series, in the same range. The buffers of this one are used again.
    pub fn start_series(&mut self, series: &Series) {
        self.reading.start_series(series);
        self.runs.clear();
    }

    /// Returns the markers of the series' end as well ([`crate::END_OF_SERIES`]).
    #[must_use]
    pub fn with_markers(mut self) -> Self {
        self.with_markers = true;
        self
    }

    /// Estimates the memory held, without the run returned last, in bytes.
    pub fn bytes(&self) -> usize {
        let waiting: usize = self.runs.iter().map(|run| run.times.len()).sum();
        self.reading.bytes() + waiting * size_of::<(i64, f64)>()
    }
}

impl Iterator for Scan {
    type Item = Result<Run, SeriesReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(run) = self.runs.pop_front() {
                return Some(Ok(run));
            }
            let mut table = match self.reading.next()? {
                Ok(table) => table,
                Err(e) => return Some(Err(e)),
            };
            if !self.with_markers {
                table.drop_markers();
            }
            if table.is_empty() {
                continue;
            }
            let runs = as_runs(table);
            self.runs = match self.direction {
                Direction::Forward => runs.into(),
                Direction::Backward => runs.into_iter().rev().map(reversed).collect(),
            };
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

/// Returns the values of rows of a table with one column, all of one kind.
fn values_of(table: &Table, begin: usize, end: usize) -> Values {
    let Some(column) = table.columns.first() else { return Values::F64(Vec::new()) };
    let bits = column.bits.get(begin..end).unwrap_or_default();
    if column.integers.get(begin) == Some(&true) {
        return Values::I64(bits.iter().map(|b| *b as i64).collect());
    }
    Values::F64(bits.iter().map(|b| f64::from_bits(*b)).collect())
}

/// Splits a table into runs with one kind of value each.
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
