//! Events of one series, a few at a time: texts are long, so that those of one partition may be more
//! than anybody wants in memory.

use std::collections::VecDeque;

use super::{Snapshot, Source, note};
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
    /// What could not be read and is not told yet.
    torn: Option<ReadError>,
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
        let (work, torn) = (Work::default(), None);
        EventScan { snapshot, series, range, direction, heads, partitions, spans, work, torn }
    }

    /// Spans of a partition that hold something of a series and do not overlap, ascending.
    fn spans(&self, source: &Source<'_>, torn: &mut Option<ReadError>) -> Vec<(i64, i64)> {
        let pieces = self.pieces(source, torn);
        let mut all: Vec<(i64, i64)> = pieces.iter().map(super::Piece::span).collect();
        all.sort_unstable();
        let mut apart: Vec<(i64, i64)> = Vec::new();
        for (first, last) in all {
            match apart.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => apart.push((first, last)),
            }
        }
        apart
    }
}

impl EventScan {
    /// Estimate of the memory that it holds beside what it gave last, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = self.heads.iter().flat_map(|table| &table.texts);
        texts.map(|text| text.len() + size_of::<(i64, Box<[u8]>)>()).sum()
    }

    /// Find the spans of the next partition; `None` behind the last one.
    fn advance(&mut self) -> Option<()> {
        let partition = match self.direction {
            Direction::Forward => self.partitions.pop_front()?,
            Direction::Backward => self.partitions.pop_back()?,
        };
        let (columns, range, heads) = (&*self.series.columns, self.range, &*self.heads);
        let source = Source { columns, partition, range, heads };
        let clip = |(first, last): (i64, i64)| {
            let from_ns = first.max(range.from_ns);
            let to_ns = last.saturating_add(1).min(range.to_ns);
            (partition, TimeRange { from_ns, to_ns })
        };
        let spans = self.snapshot.spans(&source, &mut self.torn);
        self.spans = spans.into_iter().map(clip).collect();
        Some(())
    }

    /// The events of a span that can be read, in the direction of the scan.
    fn read(&mut self, partition: i64, range: TimeRange) -> Vec<Event> {
        let (columns, heads) = (&*self.series.columns, &*self.heads);
        let source = Source { columns, partition, range, heads };
        // Damage was told with the spans; what the operating system refuses now was not.
        let mut again = None;
        let pieces = self.snapshot.pieces(&source, &mut again);
        if let Some(e @ ReadError::Io { .. }) = again {
            note(&mut self.torn, e);
        }
        let table = self.snapshot.read_pieces(pieces, range, &mut self.work, &mut self.torn);
        let pairs = table.times.into_iter().zip(table.texts);
        let mut events: Vec<Event> =
            pairs.map(|(time_ns, text)| Event { time_ns, text: text.into() }).collect();
        if self.direction == Direction::Backward {
            events.reverse();
        }
        events
    }
}

impl Iterator for EventScan {
    type Item = Result<Vec<Event>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(e) = self.torn.take() {
                return Some(Err(e));
            }
            let span = match self.direction {
                Direction::Forward => self.spans.pop_front(),
                Direction::Backward => self.spans.pop_back(),
            };
            let Some((partition, range)) = span else {
                self.advance()?;
                continue;
            };
            let events = self.read(partition, range);
            if !events.is_empty() {
                return Some(Ok(events));
            }
        }
    }
}
