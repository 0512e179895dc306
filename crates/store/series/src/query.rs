//! Reads: a snapshot of parts and heads, scans and summaries of one series.

use crate::error::ReadError;
use crate::model::{Direction, Event, Run, Series, Summary, TimeRange};

/// The parts and heads of one moment. Keeps their files readable however long it lives; samples
/// that arrive later may or may not be seen.
pub struct Snapshot {}

/// Runs of samples of one series, in the direction of the scan. An error concerns this series.
pub struct Scan {}

impl Snapshot {
    /// Samples of a series.
    pub fn scan(&self, _series: &Series, _range: TimeRange, _direction: Direction) -> Scan {
        Scan {}
    }

    /// Events of a series, in the direction of the scan.
    ///
    /// # Errors
    /// When a part of it cannot be read.
    pub fn events(
        &self,
        _series: &Series,
        _range: TimeRange,
        _direction: Direction,
    ) -> Result<Vec<Event>, ReadError> {
        Ok(Vec::new())
    }

    /// Summary of the samples in a range; `None` if there are none. Does not read what the blocks'
    /// own summaries already say.
    ///
    /// # Errors
    /// When a part of it cannot be read.
    pub fn summary(
        &self,
        _series: &Series,
        _range: TimeRange,
    ) -> Result<Option<Summary>, ReadError> {
        Ok(None)
    }

    /// Summaries by steps of `step_ns` from `range.from_ns` on, oldest first, empty steps left
    /// out: index of the step, and what is in it.
    ///
    /// # Errors
    /// When a part of it cannot be read.
    pub fn steps(
        &self,
        _series: &Series,
        _range: TimeRange,
        _step_ns: i64,
    ) -> Result<Vec<(i64, Summary)>, ReadError> {
        Ok(Vec::new())
    }
}

impl Iterator for Scan {
    type Item = Result<Run, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
