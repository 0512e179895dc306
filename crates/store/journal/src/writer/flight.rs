//! Groups of the sparse layout that are written beside each other: each has blocks of its own, so
//! that no order is needed but that of their acknowledgement.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::files::File;

use super::{Batch, Writer};
use crate::bytes::Blocks;
use crate::folder::{Mark, Segment};
use crate::format::{encode_head, frame_bytes};
use crate::meter::Cost;
use crate::options::{BLOCK_BYTES, Layout};
use crate::place::Grid;
use crate::pool::{WriteError, fatal};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Up to where the journal is persisted.
#[derive(Debug)]
pub(crate) struct Horizon {
    /// Groups below this sequence are.
    below: AtomicU64,
    /// The last record that is.
    position: AtomicU64,
}

impl Horizon {
    pub(super) fn new(below: u64, position: u64) -> Self {
        Self { below: AtomicU64::new(below), position: AtomicU64::new(position) }
    }

    pub(crate) fn below(&self) -> u64 {
        self.below.load(Ordering::Acquire)
    }

    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, below: u64, position: u64) {
        self.position.store(position, Ordering::Release);
        self.below.store(below, Ordering::Release);
    }
}

/// A group that has its place and is on its way there.
pub(crate) struct Flight {
    pub(crate) sequence: u64,
    /// Positions of its first and its last record.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) records: u32,
    pub(crate) cost: Cost,
    segment: Arc<Segment>,
    /// Where the frame after it begins.
    next: u64,
    horizon: Arc<Horizon>,
}

/// Its bytes.
pub(crate) struct FlightWrite {
    file: Arc<dyn File>,
    path: PathBuf,
    blocks: Blocks,
    at: u64,
}

impl FlightWrite {
    /// Write and persist; gives back the buffer.
    pub(crate) fn run(self) -> Result<Blocks, WriteError> {
        let written = self.file.write_all_at(self.blocks.bytes(), self.at);
        written.map_err(fatal("a write failed", self.path))?;
        Ok(self.blocks)
    }
}

impl Flight {
    /// It and all before it are persisted.
    pub(crate) fn publish(&self) {
        self.segment.advance(self.next, self.last);
        self.horizon.set(self.sequence + 1, self.last);
    }
}

impl Writer {
    /// Give a group its place, to be written beside others. `None` when it must be written alone,
    /// after all before it.
    pub(crate) fn stage(
        &mut self,
        batch: Batch<'_>,
    ) -> Result<Option<(Flight, FlightWrite)>, WriteError> {
        let grid = Grid::Sparse;
        let lag = self.lag();
        let bytes = frame_bytes(grid, batch.body.len(), lag);
        let Some(active) = self.active.as_mut() else { return Ok(None) };
        let beside = active.segment.header.layout == Layout::Sparse
            && batch.persist
            && !active.target.dirty
            && active.fits(bytes);
        let Some(file) = active.target.sync.clone().filter(|_| beside) else { return Ok(None) };
        let (start, next) = (active.next, grid.next(active.next, bytes));
        active.fill.set_streams(false);
        active.fill_to(next)?;
        let mut blocks = self.flown.pop().unwrap_or_else(Blocks::new);
        let out = blocks.reset((next - start) as usize);
        let place = (active.segment.seed(), start, self.next_sequence);
        encode_head(&mut self.head, grid, batch.body, (batch.single, lag), place);
        grid.lay(out, start, start, [&self.head, batch.body]);
        let mut cost = Cost::default();
        cost.write((next - start).next_multiple_of(BLOCK), bytes, 1);
        let (position, sequence) = (self.next_position, self.next_sequence);
        active.segment.mark(Mark { position, sequence, start });
        let (segment, path) = (Arc::clone(&active.segment), active.target.path.clone());
        active.keep_tail(&[], start, next);
        self.next_sequence += 1;
        self.next_position += u64::from(batch.records);
        self.trusted()?;
        self.work_ahead();
        let (records, horizon) = (batch.records, Arc::clone(&self.horizon));
        let (first, last) = (position, self.next_position - 1);
        let flight = Flight { sequence, first, last, records, cost, segment, next, horizon };
        Ok(Some((flight, FlightWrite { file, path, blocks, at: start })))
    }

    /// Use the buffer again.
    pub(crate) fn keep(&mut self, blocks: Blocks) {
        self.flown.push(blocks);
    }
}
