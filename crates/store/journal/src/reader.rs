//! Reads persisted records in order, and can follow the writer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::error::{Damage, ReadError};
use crate::folder::{RingGroup, Segment};
use crate::format::Records;
use crate::options::BLOCK_BYTES;
use crate::scan::{FrameLookup, Scanner};

/// Reads persisted records from a position on. The iterator ends at the persisted end; called again
/// later it continues with newer records. Every record is verified before it is returned.
pub struct JournalReader {
    core: Arc<Core>,
    /// Position of the next record.
    position: u64,
    place: Option<FramePosition>,
    records: VecDeque<Vec<u8>>,
}

/// The position of the reader in a segment.
struct FramePosition {
    segment: Arc<Segment>,
    scan: Scanner,
    start: u64,
    sequence: u64,
    /// Position of the first record of that frame.
    position: u64,
}

impl JournalReader {
    pub(crate) fn new(core: Arc<Core>, position: u64) -> Result<Self, ReadError> {
        let mut reader = Self { core, position, place: None, records: VecDeque::new() };
        reader.seek(position)?;
        Ok(reader)
    }

    /// Returns the position of the next record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next record, waiting for it up to `timeout`. Returns `None` after the timeout,
    /// or if the journal was closed or poisoned.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<(u64, Vec<u8>), ReadError>> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(next) = self.next() {
                return Some(next);
            }
            if !self.core.gate.wait_beyond(self.position - 1, until) {
                return None;
            }
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), ReadError> {
        let catalog = self.core.catalog.read();
        let first = catalog.segments.front().map_or(1, |s| s.header.first_position);
        if position < first {
            return Err(ReadError::Trimmed { position, first });
        }
        let Some(segment) = catalog.find_segment(position) else { return Ok(()) };
        drop(catalog);
        let mark = segment.nearest(position);
        let file = Arc::clone(&segment.file);
        let scan = Scanner::new(file, segment.grid(), segment.seed(), 0);
        let (start, sequence, position) = (mark.start, mark.sequence, mark.position);
        self.place = Some(FramePosition { segment, scan, start, sequence, position });
        Ok(())
    }

    /// Reads the next records into `records` if it is empty. Returns false at the persisted end.
    fn read_more(&mut self) -> Result<bool, ReadError> {
        while self.records.is_empty() {
            if self.position > self.core.gate.persisted() {
                return Ok(false);
            }
            if self.place.is_none() {
                self.seek(self.position)?;
            }
            let Some(place) = &self.place else { return Ok(false) };
            if place.start < place.segment.end() {
                self.frame()?;
            } else if !self.beyond()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues after the end of a segment: in the next one or the ring. False: no more records.
    fn beyond(&mut self) -> Result<bool, ReadError> {
        let Some(place) = &self.place else { return Ok(true) };
        let segment = Arc::clone(&place.segment);
        let (start, position) = (place.start, place.position);
        if segment.is_sealed() && start >= segment.end() {
            self.place = None;
            self.after(&segment, position)?;
            return Ok(true);
        }
        // A group that left the ring after the first check is in the segment now.
        Ok(self.take_from_ring() || start < segment.end() || segment.is_sealed())
    }

    /// Moves to the segment that follows `segment`.
    fn after(&mut self, segment: &Segment, position: u64) -> Result<(), ReadError> {
        let catalog = self.core.catalog.read();
        let epoch = segment.header.epoch;
        let next = catalog.segments.iter().find(|s| s.header.epoch > epoch).cloned();
        let Some(next) = next else { return Ok(()) };
        drop(catalog);
        if next.header.first_position > position {
            let first = next.header.first_position;
            return Err(ReadError::Trimmed { position, first });
        }
        let scan = Scanner::new(Arc::clone(&next.file), next.grid(), next.seed(), 0);
        let (start, sequence) = (next.grid().first(), next.header.first_sequence);
        self.place = Some(FramePosition { segment: next, scan, start, sequence, position });
        Ok(())
    }

    /// Reads the records of the next frame of the segment.
    fn frame(&mut self) -> Result<(), ReadError> {
        let Some(place) = &mut self.place else { return Ok(()) };
        place.scan.set_limit(place.segment.grid().written_end(place.segment.end()));
        let failed = |e: std::io::Error| ReadError::Io {
            path: place.segment.path.clone(),
            what: "cannot read the segment",
            cause: e.to_string(),
        };
        let mut look = place.scan.find_frame(place.start, place.sequence).map_err(failed)?;
        if matches!(look, FrameLookup::Bad(_)) {
            place.scan.forget();
            look = place.scan.find_frame(place.start, place.sequence).map_err(failed)?;
        }
        let frame = match look {
            FrameLookup::Frame(frame) => frame,
            FrameLookup::Bad(why) => return Err(self.broken(why)),
        };
        let mut position = place.position;
        for record in Records::of(place.scan.body(), frame.single).flatten() {
            if position >= self.position {
                self.records.push_back(record.to_vec());
            }
            position += 1;
        }
        place.position = position;
        (place.start, place.sequence) = (frame.next, place.sequence + 1);
        Ok(())
    }

    /// Reads the records of the next group that only the ring has.
    fn take_from_ring(&mut self) -> bool {
        let catalog = self.core.catalog.read();
        let holds = |g: &&RingGroup| g.next_position() > self.position;
        let Some(group) = catalog.ring.iter().find(holds) else { return false };
        if group.first_position > self.position
            || group.next_position() > self.core.gate.persisted() + 1
        {
            return false;
        }
        let skip = (self.position - group.first_position) as usize;
        let records = Records::of(&group.body, group.single).flatten().skip(skip);
        self.records.extend(records.map(<[u8]>::to_vec));
        true
    }

    /// Returns the error for a bad frame: its segment was trimmed during the read, or is damaged.
    fn broken(&self, why: &str) -> ReadError {
        let catalog = self.core.catalog.read();
        let Some(place) = &self.place else {
            return ReadError::Trimmed { position: self.position, first: self.position };
        };
        let first = catalog.segments.front().map_or(1, |s| s.header.first_position);
        if !catalog.segments.iter().any(|s| Arc::ptr_eq(s, &place.segment)) {
            return ReadError::Trimmed { position: self.position, first };
        }
        ReadError::Corrupt(Damage {
            file: place.segment.path.clone(),
            block: place.start / BLOCK_BYTES as u64,
            position: place.position,
            what: why.into(),
            records_lost_at_least: 1,
        })
    }
}

impl Iterator for JournalReader {
    type Item = Result<(u64, Vec<u8>), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read_more() {
            Err(e) => Some(Err(e)),
            Ok(false) => None,
            Ok(true) => {
                let record = self.records.pop_front()?;
                self.position += 1;
                Some(Ok((self.position - 1, record)))
            }
        }
    }
}
