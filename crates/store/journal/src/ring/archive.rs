//! Moves groups from the ring to the archive. A piece is encoded under the writer's lock, written
//! without it, and published under it again. Groups are written to the ring during that write.

use std::path::PathBuf;
use std::sync::Arc;

use env::files::File;

use crate::bytes::{Blocks, copy_at};
use crate::folder::{Mark, RingGroup};
use crate::format::{LAG_UNKNOWN, NewFrame, encode_head, frame_bytes};
use crate::meter::Cost;
use crate::options::BLOCK_BYTES;
use crate::place::{Grid, block_floor};
use crate::pool::{Fill, WriteError, fatal};
use crate::writer::{Writer, in_use, no_segment};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Size of a piece in bytes: short enough not to delay the groups' writes on the device.
const PIECE_BYTES: u64 = 128 << 10;

/// The state of the ring's archive.
#[derive(Debug, Default)]
pub(crate) struct ArchiveState {
    /// A thread is writing to the archive without the writer's lock.
    under_way: bool,
    /// The ring is full enough for another piece.
    due: bool,
    stopped: bool,
}

/// Blocks to be written to the archive.
pub(crate) struct Archival {
    file: Arc<dyn File>,
    persists: bool,
    path: PathBuf,
    fill: Arc<Fill>,
    out: Blocks,
    /// Offset in the file of the first byte of `out`, and the range to be written.
    base: u64,
    from: u64,
    upto: u64,
    /// Offset in the file of the end of the used bytes of `out`.
    end: u64,
    /// Number of groups that are complete in the archive after the write, and their end.
    done: usize,
    kept: u64,
    marks: Vec<Mark>,
    /// Last position of those groups, if there are any.
    last: Option<u64>,
    /// The lag of the next group, of which only a part is written.
    crossing: Option<u8>,
}

impl Archival {
    /// Writes the blocks and persists them.
    pub(crate) fn write(&mut self) -> Result<Cost, WriteError> {
        self.fill.ensure(self.upto.max(self.from)).map_err(in_use)?;
        let range = (self.from - self.base) as usize..(self.upto - self.base) as usize;
        let piece = self.out.bytes().get(range).unwrap_or_default();
        let failed = |what| fatal(what, self.path.clone());
        self.file.write_all_at(piece, self.from).map_err(failed("a write failed"))?;
        if !self.persists {
            self.file.persist().map_err(failed("a flush failed"))?;
        }
        let mut cost = Cost::default();
        cost.write(piece.len() as u64, self.end.min(self.upto) - self.from, 1);
        cost.archive_bytes = piece.len() as u64;
        Ok(cost)
    }
}

impl Writer {
    pub(crate) fn is_archiving(&self) -> bool {
        self.archiving.under_way
    }

    pub(crate) fn is_archive_due(&self) -> bool {
        self.archiving.due && !self.archiving.under_way
    }

    /// Stops the archive's thread from writing further pieces.
    pub(crate) fn stop_archiving(&mut self) {
        self.archiving.stopped = true;
    }

    pub(crate) fn archiving_ends(&self) -> bool {
        self.archiving.stopped
    }

    /// Marks another piece as due if more than half the ring is in use.
    pub(super) fn check_archive(&mut self) {
        let oldest = self.catalog.read().ring.front().map(|g| g.block);
        let ring = self.active.as_ref().and_then(|a| a.ring.as_ref());
        self.archiving.due |= ring.is_some_and(|r| r.used(oldest) > r.blocks / 2);
    }

    /// Encodes the next piece, of groups that are persisted in the ring, to be written without the
    /// lock. Returns `None` if no group is persisted, no block is whole, or the segment has no
    /// space.
    pub(crate) fn begin_archive(&mut self) -> Result<Option<Archival>, WriteError> {
        self.archiving.due = false;
        let (below, mut bytes) = (self.horizon.sequence, 0);
        let groups: Vec<RingGroup> = {
            let catalog = self.catalog.read();
            let persisted = catalog.ring.iter().take_while(|g| g.sequence < below);
            let few = persisted.take_while(|g| {
                let before = bytes;
                bytes += frame_bytes(Grid::Packed, g.body.len(), LAG_UNKNOWN);
                before < PIECE_BYTES
            });
            few.cloned().collect()
        };
        if groups.is_empty() {
            return Ok(None);
        }
        let laid = match self.lay_out(&groups, false)? {
            ArchivePlan::Out(archival) => Some(archival),
            ArchivePlan::Nothing | ArchivePlan::NoRoom => None,
        };
        self.archiving.under_way = laid.is_some();
        Ok(laid)
    }

    /// Marks whether an archive write is in progress.
    pub(crate) fn archiving(&mut self, under_way: bool) {
        self.archiving.under_way = under_way;
    }

    /// Publishes a persisted piece.
    pub(crate) fn end_archive(&mut self, archival: Archival, cost: Cost) {
        self.pool.totals.cost(&cost);
        self.enter_archive(archival);
        self.check_archive();
    }

    /// Moves a piece at once, as the archive's thread does.
    pub(crate) fn archive_a_piece(&mut self) -> Result<(), WriteError> {
        let Some(mut archival) = self.begin_archive()? else { return Ok(()) };
        self.archiving.under_way = false;
        let cost = archival.write()?;
        self.cost.add(&cost);
        self.enter_archive(archival);
        Ok(())
    }

    /// Appends groups to the archive and persists them. Without `all`, writes only full blocks; a
    /// group that extends into the next block stays in the ring.
    pub(super) fn append_to_archive(
        &mut self,
        groups: &[RingGroup],
        all: bool,
    ) -> Result<(), WriteError> {
        let mut archival = match self.lay_out(groups, all)? {
            ArchivePlan::Out(archival) => archival,
            ArchivePlan::Nothing => return Ok(()),
            ArchivePlan::NoRoom => return self.roll_with(groups, 0),
        };
        let cost = archival.write()?;
        self.cost.add(&cost);
        self.enter_archive(archival);
        Ok(())
    }

    fn lay_out(&mut self, groups: &[RingGroup], all: bool) -> Result<ArchivePlan, WriteError> {
        let Some(active) = self.active.as_ref() else { return Err(no_segment()) };
        let grid = Grid::Packed;
        let lags: Vec<u8> = groups.iter().zip(0..).map(|(g, i)| archive_lag(g, i)).collect();
        let mut next = active.next;
        for (group, lag) in groups.iter().zip(&lags) {
            next = grid.next(next, frame_bytes(grid, group.body.len(), *lag));
        }
        if grid.written_end(next) > active.size {
            return Ok(ArchivePlan::NoRoom);
        }
        let base = block_floor(active.next);
        let end = grid.written_end(next);
        let upto = if all { end.next_multiple_of(BLOCK) } else { block_floor(end) };
        let from = active.complete.max(base);
        if upto <= from && !all {
            return Ok(ArchivePlan::Nothing);
        }
        let mut archival = Archival {
            file: active.target.archive_file(),
            persists: active.target.sync.is_some(),
            path: active.target.path.clone(),
            fill: Arc::clone(&active.fill),
            out: std::mem::replace(&mut self.blocks, Blocks::new()),
            base,
            from,
            upto,
            end,
            done: 0,
            kept: active.next,
            marks: Vec::new(),
            last: None,
            crossing: None,
        };
        let out = archival.out.reset((end - base) as usize);
        copy_at(out, 0, &active.tail);
        let mut start = active.next;
        for (before, (group, lag)) in groups.iter().zip(&lags).enumerate() {
            let (seed, sequence) = (active.segment.seed(), group.sequence);
            let frame = NewFrame { seed, start, sequence, single: group.single, lag: *lag };
            encode_head(&mut self.head, grid, &group.body, frame);
            grid.lay(out, base, start, [&self.head, &group.body]);
            let next = grid.next(start, frame_bytes(grid, group.body.len(), *lag));
            if grid.written_end(next) <= upto {
                let (position, sequence) = (group.first_position, group.sequence);
                archival.marks.push(Mark { position, sequence, start });
                archival.last = Some(group.next_position() - 1);
                (archival.done, archival.kept) = (archival.done + 1, next);
            } else if before == archival.done {
                archival.crossing = Some(*lag);
            }
            start = next;
        }
        Ok(ArchivePlan::Out(archival))
    }

    fn enter_archive(&mut self, archival: Archival) {
        let Some(active) = self.active.as_mut() else { return };
        archival.marks.iter().for_each(|mark| active.segment.mark(*mark));
        active.complete = block_floor(archival.end.min(archival.upto));
        active.keep_tail(archival.out.bytes(), archival.base, archival.kept);
        let last = archival.last.unwrap_or_else(|| active.segment.last());
        let mut catalog = self.catalog.write();
        active.segment.advance(archival.kept, last);
        let in_ring = archival.done.min(catalog.ring.len());
        catalog.ring.drain(..in_ring);
        if let Some((group, lag)) = catalog.ring.front_mut().zip(archival.crossing) {
            group.archive_lag = Some(lag);
        }
        drop(catalog);
        self.blocks = archival.out;
    }
}

enum ArchivePlan {
    Out(Archival),
    /// There is no whole block to write.
    Nothing,
    /// The segment has no space for the groups.
    NoRoom,
}

/// Returns the lag of a group's frame in the archive, if `before` groups are written together with
/// it ahead of it: a torn write may affect all of them.
fn archive_lag(group: &RingGroup, before: u32) -> u8 {
    group.archive_lag.unwrap_or_else(|| u8::try_from(before).unwrap_or(LAG_UNKNOWN))
}
