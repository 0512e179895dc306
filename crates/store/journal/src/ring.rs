//! The ring layout: groups are written sparse into a small file used as a ring, and packed, in
//! whole blocks, into the segment before their blocks in the ring are reused.

use std::path::PathBuf;
use std::sync::Arc;

use env::files::Access;

use crate::folder::{RingGroup, ring_name};
use crate::format::{LAG_UNKNOWN, NewFrame, Seed, encode_head, frame_bytes};
use crate::options::BLOCK_BYTES;
use crate::place::Grid;
use crate::pool::{WriteError, harmless};
use crate::writer::{Batch, Target, Writer, no_segment};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A group larger than this fraction of the ring is written to the archive directly.
const RING_SHARE: u32 = 4;

mod archive;

pub(crate) use archive::ArchiveState;

/// The ring of the active segment.
pub(crate) struct Ring {
    pub(crate) target: Target,
    pub(crate) blocks: u32,
    /// Block at which the next group begins.
    at: u32,
}

impl Ring {
    /// Opens the ring, creating and filling it if necessary.
    pub(crate) fn open(writer: &Writer) -> Result<Self, WriteError> {
        let blocks = (writer.options.ring_bytes / BLOCK) as u32;
        let path = writer.dir.join(ring_name(blocks));
        let failed = |what: &'static str| harmless(what, path.clone());
        let access = Access { create: true, ..writer.pool.plain() };
        let file = writer.files.open(&path, access).map_err(failed("cannot open the ring"))?;
        let size = u64::from(blocks) * BLOCK;
        if file.size().map_err(failed("cannot size the ring"))? < size {
            file.allocate(size).map_err(failed("cannot reserve the ring"))?;
            let mut zeros = crate::bytes::Blocks::new();
            let zeros = zeros.reset(size as usize);
            file.write_all_at(zeros, 0).map_err(failed("cannot fill the ring with zeros"))?;
            file.persist().map_err(failed("cannot persist the ring"))?;
            writer.pool.totals.zeros(size);
        }
        let opened = Target::open(&*writer.files, PathBuf::clone(&path), writer.io);
        let target = opened.map_err(failed("cannot open the ring"))?;
        Ok(Self { target, blocks, at: 0 })
    }

    /// Returns the blocks from the oldest group that only the ring has up to `at`, gaps included.
    fn used(&self, oldest: Option<u32>) -> u32 {
        oldest.map_or(0, |oldest| (self.at + self.blocks - oldest) % self.blocks)
    }

    /// Returns the block for a group of `blocks` that does not overwrite `oldest`, the first block
    /// of the oldest group that only the ring has. One block stays free to tell full from empty.
    fn find_space(&self, blocks: u32, oldest: Option<u32>) -> Option<u32> {
        let wraps = self.at + blocks > self.blocks;
        let at = if wraps { 0 } else { self.at };
        if oldest.is_none() {
            return Some(at);
        }
        let used = self.used(oldest);
        let skipped = if wraps { self.blocks - self.at } else { 0 };
        (used + skipped + blocks < self.blocks).then_some(at)
    }
}

impl Writer {
    /// Writes one group to the ring, or to the archive if it is large.
    pub(crate) fn group_in_ring(&mut self, batch: Batch<'_>) -> Result<(), WriteError> {
        let need = blocks_of(batch);
        if self.goes_straight(need) {
            return self.straight_to_archive(batch);
        }
        let mut place = self.ring_place(need);
        if place.is_none() {
            self.archive(false)?;
            place = self.ring_place(need);
        }
        if place.is_none() {
            self.archive(true)?;
            place = self.ring_place(need);
        }
        let Some(block) = place else { return Err(no_segment()) };
        let lag = self.lag();
        let Some(active) = self.active.as_mut() else { return Err(no_segment()) };
        let Some(ring) = active.ring.as_mut() else { return Err(no_segment()) };
        let start = u64::from(block) * BLOCK;
        let bytes = frame_bytes(Grid::Sparse, batch.body.len(), lag);
        let out = self.blocks.reset(bytes as usize);
        let seed = Seed::ring(self.journal, active.segment.header.epoch);
        let (sequence, single) = (self.next_sequence, batch.single);
        let frame = NewFrame { seed, start, sequence, single, lag };
        encode_head(&mut self.head, Grid::Sparse, batch.body, frame);
        Grid::Sparse.lay(out, start, start, [&self.head, batch.body]);
        let flushes = ring.target.write(out, start, batch.persist)?;
        self.cost.write(out.len() as u64, bytes, flushes);
        ring.at = (block + need) % ring.blocks;
        self.catalog.write().ring.push_back(RingGroup {
            sequence: self.next_sequence,
            first_position: self.next_position,
            records: batch.records,
            single: batch.single,
            body: batch.body.into(),
            archive_lag: None,
            block,
            blocks: need,
        });
        self.next_sequence += 1;
        self.next_position += u64::from(batch.records);
        self.check_archive();
        Ok(())
    }

    fn goes_straight(&self, blocks: u32) -> bool {
        let ring = self.active.as_ref().and_then(|a| a.ring.as_ref());
        ring.is_none_or(|r| blocks > r.blocks / RING_SHARE)
    }

    /// Returns true if a group needs the archive while another thread writes to it.
    pub(crate) fn must_wait_for_archive(&self, batch: Batch<'_>) -> bool {
        if !self.is_archiving() {
            return false;
        }
        let need = blocks_of(batch);
        self.goes_straight(need) || self.ring_place(need).is_none()
    }

    fn ring_place(&self, blocks: u32) -> Option<u32> {
        let oldest = self.catalog.read().ring.front().map(|g| g.block);
        self.active.as_ref()?.ring.as_ref()?.find_space(blocks, oldest)
    }

    /// Moves the groups that only the ring has to the archive: in whole blocks, or all of them.
    fn archive(&mut self, all: bool) -> Result<(), WriteError> {
        let groups: Vec<RingGroup> = self.catalog.read().ring.iter().cloned().collect();
        self.persist_ring()?;
        self.append_to_archive(&groups, all)
    }

    /// Persists the ring and publishes its groups. This must precede writing them to the archive.
    fn persist_ring(&mut self) -> Result<(), WriteError> {
        let ring = self.active.as_mut().and_then(|a| a.ring.as_mut());
        let flushes = ring.map_or(Ok(0), |r| r.target.persist())?;
        self.cost.flushes += flushes;
        self.published();
        Ok(())
    }

    fn straight_to_archive(&mut self, batch: Batch<'_>) -> Result<(), WriteError> {
        self.persist_ring()?;
        let mut groups: Vec<RingGroup> = self.catalog.read().ring.iter().cloned().collect();
        groups.push(RingGroup {
            sequence: self.next_sequence,
            first_position: self.next_position,
            records: batch.records,
            single: batch.single,
            body: Arc::from(batch.body),
            archive_lag: None,
            block: 0,
            blocks: 0,
        });
        self.append_to_archive(&groups, true)?;
        self.next_sequence += 1;
        self.next_position += u64::from(batch.records);
        self.published();
        Ok(())
    }
}

/// Returns the number of ring blocks that a group takes.
fn blocks_of(batch: Batch<'_>) -> u32 {
    frame_bytes(Grid::Sparse, batch.body.len(), LAG_UNKNOWN).div_ceil(BLOCK) as u32
}
