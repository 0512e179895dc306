//! The ring layout's own part: groups go sparse into a small file that is written round and round,
//! and packed, in whole blocks, into the segment before their place in the ring is needed again.

use std::path::PathBuf;
use std::sync::Arc;

use env::files::Access;

use crate::bytes::put;
use crate::folder::{Mark, RingGroup, ring_name};
use crate::format::{LAG_UNKNOWN, Seed, encode_head, frame_bytes};
use crate::options::BLOCK_BYTES;
use crate::place::{Grid, block_floor};
use crate::pool::{WriteError, harmless};
use crate::writer::{Batch, Target, Writer, no_segment};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A group above this part of the ring goes straight to the archive.
const RING_SHARE: u32 = 4;

/// The ring of the active segment.
pub(crate) struct Ring {
    pub(crate) target: Target,
    pub(crate) blocks: u32,
    /// Where the next group goes.
    at: u32,
}

impl Ring {
    /// Open the ring, creating and filling it if need be.
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
        let opened = Target::open(&*writer.files, PathBuf::clone(&path), file, writer.io);
        let target = opened.map_err(failed("cannot open the ring"))?;
        Ok(Self { target, blocks, at: 0 })
    }

    /// Where `blocks` go without touching what `oldest` (first block of the oldest group that only
    /// the ring has) protects. One block stays free, so that full and empty differ.
    fn place(&self, blocks: u32, oldest: Option<u32>) -> Option<u32> {
        let wraps = self.at + blocks > self.blocks;
        let at = if wraps { 0 } else { self.at };
        let Some(oldest) = oldest else { return Some(at) };
        let used = (self.at + self.blocks - oldest) % self.blocks;
        let skipped = if wraps { self.blocks - self.at } else { 0 };
        (used + skipped + blocks < self.blocks).then_some(at)
    }
}

impl Writer {
    /// Write one group to the ring, or to the archive if it is large.
    pub(crate) fn group_in_ring(&mut self, batch: Batch<'_>) -> Result<(), WriteError> {
        let most = frame_bytes(Grid::Sparse, batch.body.len(), LAG_UNKNOWN);
        let need = most.div_ceil(BLOCK) as u32;
        let size = self.active.as_ref().and_then(|a| a.ring.as_ref()).map_or(0, |r| r.blocks);
        if need > size / RING_SHARE {
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
        let place = (seed, start, self.next_sequence);
        encode_head(&mut self.head, Grid::Sparse, batch.body, (batch.single, lag), place);
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
        Ok(())
    }

    fn ring_place(&self, blocks: u32) -> Option<u32> {
        let oldest = self.catalog.read().ring.front().map(|g| g.block);
        self.active.as_ref()?.ring.as_ref()?.place(blocks, oldest)
    }

    /// Move what only the ring has to the archive: in whole blocks, or all of it.
    fn archive(&mut self, all: bool) -> Result<(), WriteError> {
        let groups: Vec<RingGroup> = self.catalog.read().ring.iter().cloned().collect();
        self.persist_ring()?;
        self.append_to_archive(&groups, all)
    }

    /// What the archive holds must be persisted in the ring first: it is published by it.
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

    /// Append groups to the archive, persisted. Without `all`, only blocks that are full: a group
    /// that reaches into the next one stays in the ring.
    fn append_to_archive(&mut self, groups: &[RingGroup], all: bool) -> Result<(), WriteError> {
        let Some(active) = self.active.as_mut() else { return Err(no_segment()) };
        let grid = Grid::Packed;
        let lags: Vec<u8> = groups.iter().zip(0..).map(|(g, i)| archive_lag(g, i)).collect();
        let mut next = active.next;
        for (group, lag) in groups.iter().zip(&lags) {
            next = grid.next(next, frame_bytes(grid, group.body.len(), *lag));
        }
        if grid.written_end(next) > active.size {
            return self.roll_with(groups, 0);
        }
        let base = block_floor(active.next);
        let end = grid.written_end(next);
        let upto = if all { end.next_multiple_of(BLOCK) } else { block_floor(end) };
        let from = active.complete.max(base);
        if upto <= from && !all {
            return Ok(());
        }
        active.fill_to(upto.max(from))?;
        let out = self.blocks.reset((end - base) as usize);
        put(out, 0, &active.tail);
        let (mut start, mut done, mut kept) = (active.next, 0, active.next);
        let mut crossing = LAG_UNKNOWN;
        for (before, (group, lag)) in groups.iter().zip(&lags).enumerate() {
            let place = (active.segment.seed(), start, group.sequence);
            encode_head(&mut self.head, grid, &group.body, (group.single, *lag), place);
            grid.lay(out, base, start, [&self.head, &group.body]);
            let next = grid.next(start, frame_bytes(grid, group.body.len(), *lag));
            if grid.written_end(next) <= upto {
                let (position, sequence) = (group.first_position, group.sequence);
                active.segment.mark(Mark { position, sequence, start });
                (done, kept) = (done + 1, next);
            } else if before == done {
                crossing = *lag;
            }
            start = next;
        }
        let piece = out.get((from - base) as usize..(upto - base) as usize).unwrap_or_default();
        let flushes = active.target.write(piece, from, true)?;
        let used = end.min(upto) - from;
        self.cost.write(piece.len() as u64, used, flushes);
        self.cost.archive_bytes += piece.len() as u64;
        active.complete = block_floor(end.min(upto));
        active.keep_tail(out, base, kept);
        let last = groups.get(..done).and_then(<[_]>::last);
        let last = last.map_or(active.segment.last(), |g| g.next_position() - 1);
        let mut catalog = self.catalog.write();
        active.segment.advance(kept, last);
        let in_ring = done.min(catalog.ring.len());
        catalog.ring.drain(..in_ring);
        if let Some(group) = catalog.ring.front_mut() {
            group.archive_lag = Some(crossing);
        }
        Ok(())
    }
}

/// The lag of a group's frame in the archive, if it is written as number `before` of those that go
/// there together: those before it may be torn with it.
fn archive_lag(group: &RingGroup, before: u32) -> u8 {
    group.archive_lag.unwrap_or_else(|| u8::try_from(before).unwrap_or(LAG_UNKNOWN))
}
