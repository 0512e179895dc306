//! Events of one series, a few at a time: texts are long, so that those of one partition may be
//! more than anybody wants in memory.

use super::snapshot::{Snapshot, note};
use super::windows::Reading;
use crate::error::{Found, SeriesReadError, partial};
use crate::model::{Direction, Event, Series, TimeRange};

/// Events that are read at a time, about: those of a block.
const ROWS: usize = 1024;

/// Events of one series, in the direction of the scan, about a thousand at a time and at most eight
/// times as many. An error concerns what could not be read; asked again, the scan goes on behind
/// it.
pub struct EventScan {
    reading: Reading,
    direction: Direction,
}

impl Snapshot {
    /// Events of a series, a few at a time.
    pub fn scan_events(
        &self,
        series: &Series,
        range: TimeRange,
        direction: Direction,
    ) -> EventScan {
        EventScan { reading: Reading::new(self.clone(), series, range, direction, ROWS), direction }
    }

    /// All events of a series at once, in the direction of the scan.
    ///
    /// # Errors
    /// Returns an error if a part of it cannot be read, with the others.
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
