//! Events of one series, a limited number at a time: the texts of one partition may not fit in
//! memory.

use super::snapshot::{Snapshot, note};
use super::windows::Reading;
use crate::error::{Found, SeriesReadError, partial};
use crate::model::{Direction, Event, Series, TimeRange};

/// Approximate number of events read at a time.
const ROWS: usize = 1024;

/// Iterates over the events of one series in the direction of the scan, about a thousand at a time
/// and at most eight times as many. An error concerns the events that could not be read; the next
/// call continues after them.
pub struct EventScan {
    reading: Reading,
    direction: Direction,
}

impl Snapshot {
    /// Returns an iterator over the events of a series.
    pub fn scan_events(
        &self,
        series: &Series,
        range: TimeRange,
        direction: Direction,
    ) -> EventScan {
        EventScan { reading: Reading::new(self.clone(), series, range, direction, ROWS), direction }
    }

    /// Returns all events of a series in the direction of the scan.
    ///
    /// # Errors
    /// Returns an error with the readable events if some cannot be read.
    pub fn events(
        &self,
        series: &Series,
        range: TimeRange,
        direction: Direction,
    ) -> Found<Vec<Event>> {
        let (mut events, mut torn) = (Vec::new(), None);
        for some in self.scan_events(series, range, direction) {
            match some {
                Ok(some) => events.extend(some),
                Err(e) => note(&mut torn, e),
            }
        }
        partial(events, torn)
    }
}

impl EventScan {
    /// Estimates the memory held, without the events returned last, in bytes.
    pub fn bytes(&self) -> usize {
        self.reading.bytes()
    }
}

impl Iterator for EventScan {
    type Item = Result<Vec<Event>, SeriesReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.reading.next()?.map(|table| {
            let pairs = table.times.into_iter().zip(table.texts);
            let events = pairs.map(|(time_ns, text)| Event { time_ns, text: text.into() });
            let mut events: Vec<Event> = events.collect();
            if self.direction == Direction::Backward {
                events.reverse();
            }
            events
        }))
    }
}
