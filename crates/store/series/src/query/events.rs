//! Events of one series, a few at a time: texts are long, so that those of one partition may be more
//! than anybody wants in memory.

use std::collections::VecDeque;

use super::Snapshot;
use crate::error::ReadError;
use crate::model::{Direction, Event, Series, TimeRange};
use crate::table::{Table, Work};

/// Events of one series, in the direction of the scan, those of one chunk at a time (of several where
/// chunks overlap in time). An error concerns what could not be read; asked again, the scan goes on
/// behind it.
pub struct EventScan {
    snapshot: Snapshot,
    series: Series,
    range: TimeRange,
    direction: Direction,
    heads: Vec<Table>,
    partitions: VecDeque<i64>,
    /// Spans of the partition at hand that hold events and do not overlap.
    spans: VecDeque<(i64, TimeRange)>,
    work: Work,
}

impl Snapshot {
    /// Events of a series.
    pub fn scan_events(
        &self,
        series: &Series,
        range: TimeRange,
        direction: Direction,
    ) -> EventScan {
        let heads = self.of_heads(series, range);
        let partitions = self.partitions(range, &heads).into_iter().collect();
        let (snapshot, series, spans) = (self.clone(), series.clone(), VecDeque::new());
        let work = Work::default();
        EventScan { snapshot, series, range, direction, heads, partitions, spans, work }
    }

    /// Spans of a partition that hold something of a series and do not overlap, ascending.
    fn spans(
        &self,
        series: &Series,
        partition: i64,
        range: TimeRange,
        heads: &[Table],
    ) -> Result<Vec<(i64, i64)>, ReadError> {
        let pieces = self.pieces(&series.columns, partition, range, heads)?;
        let mut all: Vec<(i64, i64)> = pieces.iter().map(super::Piece::span).collect();
        all.sort_unstable();
        let mut apart: Vec<(i64, i64)> = Vec::new();
        for (first, last) in all {
            match apart.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => apart.push((first, last)),
            }
        }
        Ok(apart)
    }
}

impl EventScan {
    /// Estimate of the memory that it holds beside what it gave last, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = self.heads.iter().flat_map(|table| &table.texts);
        texts.map(|text| text.len() + size_of::<(i64, Box<[u8]>)>()).sum()
    }

    /// Find the spans of the next partition; `None` behind the last one.
    fn advance(&mut self) -> Option<Result<(), ReadError>> {
        let partition = match self.direction {
            Direction::Forward => self.partitions.pop_front()?,
            Direction::Backward => self.partitions.pop_back()?,
        };
        let found = self.snapshot.spans(&self.series, partition, self.range, &self.heads);
        Some(found.map(|spans| {
            let clip = |(first, last): (i64, i64)| {
                let from_ns = first.max(self.range.from_ns);
                let to_ns = last.saturating_add(1).min(self.range.to_ns);
                (partition, TimeRange { from_ns, to_ns })
            };
            self.spans = spans.into_iter().map(clip).collect();
        }))
    }
}

impl Iterator for EventScan {
    type Item = Result<Vec<Event>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let span = match self.direction {
                Direction::Forward => self.spans.pop_front(),
                Direction::Backward => self.spans.pop_back(),
            };
            let Some((partition, range)) = span else {
                match self.advance()? {
                    Ok(()) => continue,
                    Err(e) => return Some(Err(e)),
                }
            };
            let (columns, heads, work) = (&self.series.columns, &self.heads, &mut self.work);
            let table = match self.snapshot.read(columns, partition, range, heads, work) {
                Ok(table) => table,
                Err(e) => return Some(Err(e)),
            };
            let pairs = table.times.into_iter().zip(table.texts);
            let mut events: Vec<Event> =
                pairs.map(|(time_ns, text)| Event { time_ns, text: text.into() }).collect();
            if self.direction == Direction::Backward {
                events.reverse();
            }
            if !events.is_empty() {
                return Some(Ok(events));
            }
        }
    }
}
