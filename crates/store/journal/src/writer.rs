//! Writes groups to the medium. One leader at a time owns the writer. A flush that runs
//! concurrently with appends reports its result to the writer. The writer does not know which
//! callers wait.
//!
//! Recovery relies on this order:
//! - a segment is renamed into place only after its header (which seals the previous segment) is
//!   persisted, and takes its first group only after the rename is;
//! - a segment is persisted before the next one is started;
//! - at most one flush of a file runs at a time (see `flush`);
//! - a block of the ring is reused only after its group is persisted in the archive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::files::{Access, Files};

use crate::bytes::{Blocks, copy_at};
use crate::error::AppendError;
use crate::folder::{
    Mark, Named, RingGroup, Segment, SharedCatalog, named, ring_name, segment_name,
};
use crate::format::{Header, LAG_UNKNOWN, NewFrame, Seed, encode_head, frame_bytes};
use crate::meter::Cost;
use crate::options::{BLOCK_BYTES, IoPath, Layout, Options};
use crate::place::{Grid, block_floor};
use crate::pool::{Fill, Pool, SpareFile, WriteError, fatal, harmless};
use crate::recover::Found;
use crate::ring::{ArchiveState, Ring};

pub(crate) mod flush;
mod target;

pub(crate) use target::Target;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Maximum number of groups that are written during one flush.
const GROUPS_BESIDE_MAX: u64 = 200;

/// The end of the persisted data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PersistedEnd {
    /// Groups with a lower sequence are persisted.
    pub(crate) sequence: u64,
    /// The last persisted record.
    pub(crate) position: u64,
}

/// A group to be written.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) single: bool,
    pub(crate) records: u32,
    pub(crate) persist: bool,
}

/// The segment that takes groups now.
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    pub(crate) target: Target,
    pub(crate) fill: Arc<Fill>,
    pub(crate) size: u64,
    /// Offset of the next frame.
    pub(crate) next: u64,
    /// Packed layout: the used bytes of the block of `next`.
    pub(crate) tail: Vec<u8>,
    /// Ring layout: blocks of the archive below this offset are complete on the medium.
    pub(crate) complete: u64,
    pub(crate) ring: Option<Ring>,
}

/// The parameters of a writer.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) dir: PathBuf,
    pub(crate) io: IoPath,
    pub(crate) catalog: Arc<SharedCatalog>,
    pub(crate) pool: Arc<Pool>,
}

/// See the module.
pub(crate) struct Writer {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) io: IoPath,
    pub(crate) catalog: Arc<SharedCatalog>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) journal: u64,
    epoch: u64,
    pub(crate) next_sequence: u64,
    pub(crate) next_position: u64,
    pub(crate) horizon: PersistedEnd,
    /// The state of the ring's archive.
    pub(crate) archiving: ArchiveState,
    /// The first group that the concurrent flush in progress does not cover, if there is one.
    pub(crate) flushing: Option<u64>,
    /// The error of a failed concurrent flush.
    doubt: Option<String>,
    /// Sizes of the rings in the folder, in blocks.
    pub(crate) rings: Vec<u32>,
    pub(crate) active: Option<Active>,
    pub(crate) blocks: Blocks,
    pub(crate) head: Vec<u8>,
    /// Costs since the last reset.
    pub(crate) cost: Cost,
}

impl Writer {
    /// Creates the writer. `journal` is the number in the headers of all its segments.
    pub(crate) fn new(setup: Setup, journal: u64, found: &Found) -> Self {
        let Setup { options, dir, io, catalog, pool } = setup;
        Self {
            files: Arc::clone(&options.files),
            dir,
            options,
            io,
            catalog,
            pool,
            journal,
            epoch: found.epoch,
            next_sequence: found.next_sequence,
            next_position: found.next_position,
            horizon: PersistedEnd {
                sequence: found.next_sequence,
                position: found.next_position - 1,
            },
            archiving: ArchiveState::default(),
            flushing: None,
            doubt: None,
            rings: rings(&found.names),
            active: None,
            blocks: Blocks::new(),
            head: Vec::new(),
            cost: Cost::default(),
        }
    }

    /// Writes one group and assigns the next positions to its records. Returns its cost.
    pub(crate) fn group(&mut self, batch: Batch<'_>) -> Result<Cost, WriteError> {
        self.cost = Cost::default();
        let bytes = frame_bytes(Grid::Packed, batch.body.len(), LAG_UNKNOWN);
        let fits = self.active.as_ref().is_some_and(|a| a.fits(bytes));
        if !fits {
            self.roll(bytes)?;
        }
        let in_ring = self.active.as_ref().is_some_and(|a| a.ring.is_some());
        let written =
            if in_ring { self.group_in_ring(batch) } else { self.group_in_segment(batch) };
        written?;
        self.trusted()?;
        if batch.persist {
            self.published();
        }
        if !self.options.background && self.is_archive_due() {
            self.archive_a_piece()?;
        }
        self.work_ahead();
        Ok(self.cost)
    }

    /// Returns the free space in the active segment, in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.active.as_ref().map_or(0, |a| a.size.saturating_sub(a.next))
    }

    /// Requests work ahead of the writer from the fill thread, or does it here if there is none.
    fn work_ahead(&self) {
        let due = self.active.as_ref().is_some_and(|a| self.pool.writing(&a.fill, a.next));
        if due && !self.options.background {
            self.pool.work_ahead(self.options.segment_bytes);
        }
    }

    /// Returns the number of unpersisted groups before the next one, as stored in its frame.
    pub(crate) fn lag(&self) -> u8 {
        let lag = self.next_sequence.saturating_sub(self.horizon.sequence);
        u8::try_from(lag).unwrap_or(LAG_UNKNOWN)
    }

    fn group_in_segment(&mut self, batch: Batch<'_>) -> Result<(), WriteError> {
        let lag = self.lag();
        let Some(active) = self.active.as_mut() else { return Err(no_segment()) };
        let (grid, start) = (active.segment.grid(), active.next);
        let bytes = frame_bytes(grid, batch.body.len(), lag);
        let next = grid.next(start, bytes);
        let base = block_floor(start);
        let end = grid.written_end(next).next_multiple_of(BLOCK);
        let streams = active.target.streams(next - start, active.fill.ahead);
        if streams {
            active.fill.set_streams(true);
        }
        active.fill_to(end)?;
        if !streams {
            // The segment stops streaming after this group, which is still written without zeros.
            active.fill.set_streams(false);
        }
        // These are the tail, the frame, and in the packed layout the hints of its blocks.
        let written = match grid {
            Grid::Packed => grid.written_end(next) - base,
            Grid::Sparse => start - base + bytes,
        };
        let out = self.blocks.reset_behind((end - base) as usize, written as usize);
        copy_at(out, 0, &active.tail);
        let (seed, sequence, single) = (active.segment.seed(), self.next_sequence, batch.single);
        let frame = NewFrame { seed, start, sequence, single, lag };
        encode_head(&mut self.head, grid, batch.body, frame);
        grid.lay(out, base, start, [&self.head, batch.body]);
        let flushes = active.target.write(out, base, batch.persist)?;
        let used = start - base + bytes;
        self.cost.write(end - base, used, flushes);
        active.segment.mark(Mark {
            position: self.next_position,
            sequence: self.next_sequence,
            start,
        });
        active.keep_tail(out, base, next);
        self.next_sequence += 1;
        self.next_position += u64::from(batch.records);
        Ok(())
    }

    /// Persists everything written so far.
    pub(crate) fn persist(&mut self) -> Result<Cost, WriteError> {
        self.cost = Cost::default();
        if let Some(active) = &mut self.active {
            let mut flushes = active.target.persist()?;
            if let Some(ring) = &mut active.ring {
                flushes += ring.target.persist()?;
            }
            self.cost.flushes += flushes;
        }
        self.trusted()?;
        self.published();
        Ok(self.cost)
    }

    /// Returns true if a group must wait for a concurrent operation: for space in the archive, or
    /// for a flush that must end before the group's own.
    pub(crate) fn must_wait(&self, batch: Batch<'_>) -> bool {
        let bytes = frame_bytes(Grid::Packed, batch.body.len(), LAG_UNKNOWN);
        let fits = || self.active.as_ref().is_some_and(|a| a.fits(bytes));
        // Each frame stores the number of unpersisted groups before it in one byte, for recovery.
        let many = |from: u64| self.next_sequence - from >= GROUPS_BESIDE_MAX;
        let waits = |from: u64| batch.persist || !fits() || many(from);
        self.must_wait_for_archive(batch) || self.flushing.is_some_and(waits)
    }

    /// Returns an error if a flush of the active file failed, of zeros or concurrent with appends:
    /// such a failure affects the groups written here, too.
    fn trusted(&self) -> Result<(), WriteError> {
        if let Some(why) = &self.doubt {
            return Err(WriteError::Fatal(why.clone()));
        }
        match &self.active {
            Some(active) if active.fill.is_in_doubt() => {
                let file = active.segment.path.display();
                Err(WriteError::Fatal(format!("{file}: a flush failed while filling it")))
            }
            _ => Ok(()),
        }
    }

    /// Makes everything written so far visible to readers. The caller has persisted it.
    pub(crate) fn published(&mut self) {
        self.horizon =
            PersistedEnd { sequence: self.next_sequence, position: self.next_position - 1 };
        if let Some(active) = self.active.as_ref().filter(|a| a.ring.is_none()) {
            active.segment.advance(active.next, self.next_position - 1);
        }
    }

    /// Starts the next segment with the groups of the ring and space for a frame of `bytes`.
    pub(crate) fn roll(&mut self, bytes: u64) -> Result<(), WriteError> {
        let left: Vec<RingGroup> = self.catalog.read().ring.iter().cloned().collect();
        self.roll_with(&left, bytes)
    }

    /// Starts the next segment with the groups `left` and space for a frame of `bytes` after them.
    pub(crate) fn roll_with(&mut self, left: &[RingGroup], bytes: u64) -> Result<(), WriteError> {
        let before = self.cost;
        let persisted = self.persist()?;
        self.cost = before;
        self.cost.flushes += persisted.flushes;
        let grid = self.options.layout.grid();
        let mut end = grid.first();
        for group in left {
            end = grid.next(end, frame_bytes(grid, group.body.len(), LAG_UNKNOWN));
        }
        let needed = grid.written_end(grid.next(end, bytes)).next_multiple_of(BLOCK);
        let size = self.options.segment_bytes.max(needed);
        let spare = self.pool.take_file(size)?;
        let started = self.start(&spare, size, end, left);
        if let Err(WriteError::Refused(error)) = &started {
            self.pool.give_back(spare, !matches!(error, AppendError::Full(_)));
        }
        started
    }

    /// Makes a spare the active segment. Until `publish` renames the spare, a failure is harmless;
    /// from the rename on it is fatal.
    fn start(
        &mut self,
        spare: &SpareFile,
        size: u64,
        end: u64,
        left: &[RingGroup],
    ) -> Result<(), WriteError> {
        let layout = self.options.layout;
        let previous = self.catalog.read().segments.back().cloned();
        let ring = match layout {
            Layout::Ring => Some(Ring::open(self)?),
            _ => None,
        };
        let header = Header {
            layout,
            journal: self.journal,
            epoch: self.epoch + 1,
            segment_bytes: size,
            first_position: left.first().map_or(self.next_position, |g| g.first_position),
            first_sequence: left.first().map_or(self.next_sequence, |g| g.sequence),
            previous_epoch: previous.as_ref().map_or(0, |s| s.header.epoch),
            previous_end: previous.as_ref().map_or(0, |s| s.end()),
            prefilled_end: end,
            ring_blocks: ring.as_ref().map_or(0, |r| r.blocks),
        };
        let tail = self.prefill(&spare.fill, &header, left)?;
        let failed = |what| harmless(what, spare.path.clone());
        let target = Target::open(&*self.files, spare.path.clone(), self.io);
        let mut target = target.map_err(failed("cannot open a spare"))?;
        let reader = self.files.open(&spare.path, Access::READ);
        let reader = reader.map_err(failed("cannot open a spare"))?;
        let path = self.dir.join(segment_name(header.epoch));
        self.publish(&spare.path, &path)?;
        target.path.clone_from(&path);
        self.epoch = header.epoch;
        let segment = Arc::new(Segment::new(path, header, reader));
        self.enter(&segment, left, end);
        self.seal(previous.as_deref());
        self.remove_rings(header.ring_blocks);
        self.pool.totals.started(spare.recycled);
        let complete = block_floor(end);
        let fill = Arc::clone(&spare.fill);
        self.active = Some(Active { segment, target, fill, size, next: end, tail, complete, ring });
        Ok(())
    }

    /// Writes and persists the header and the groups `left` in a spare. Returns the used bytes of
    /// the last block.
    fn prefill(
        &mut self,
        fill: &Fill,
        header: &Header,
        left: &[RingGroup],
    ) -> Result<Vec<u8>, WriteError> {
        let grid = header.layout.grid();
        let end = grid.written_end(header.prefilled_end);
        fill.ensure(end.next_multiple_of(BLOCK))?;
        let out = self.blocks.reset(end as usize);
        let seed = Seed::segment(header.journal, header.epoch);
        let mut start = grid.first();
        for group in left {
            let (sequence, single) = (group.sequence, group.single);
            let frame = NewFrame { seed, start, sequence, single, lag: LAG_UNKNOWN };
            encode_head(&mut self.head, grid, &group.body, frame);
            grid.lay(out, 0, start, [&self.head, &group.body]);
            start = grid.next(start, frame_bytes(grid, group.body.len(), LAG_UNKNOWN));
        }
        header.encode(out.get_mut(..BLOCK_BYTES).unwrap_or_default());
        let failed = |what| harmless(what, self.dir.clone());
        fill.file.write_all_at(out, 0).map_err(failed("cannot write the head of a segment"))?;
        fill.file.persist().map_err(failed("cannot persist the head of a segment"))?;
        self.cost.write(out.len() as u64, end, 1);
        let tail = block_floor(start) as usize..start as usize;
        let keep = grid == Grid::Packed;
        Ok(if keep { out.get(tail).unwrap_or_default().to_vec() } else { Vec::new() })
    }

    fn publish(&mut self, from: &Path, to: &Path) -> Result<(), WriteError> {
        let renamed = self.files.rename(from, to);
        renamed.map_err(fatal("cannot rename a spare", from.to_owned()))?;
        let persisted = self.files.persist_dir(&self.dir);
        persisted.map_err(fatal("cannot persist the folder", self.dir.clone()))?;
        self.cost.flushes += 1;
        Ok(())
    }

    /// Adds the new segment to the catalog for readers.
    fn enter(&mut self, segment: &Arc<Segment>, left: &[RingGroup], end: u64) {
        let grid = segment.grid();
        let mut start = grid.first();
        for group in left {
            let (position, sequence) = (group.first_position, group.sequence);
            segment.mark(Mark { position, sequence, start });
            start = grid.next(start, frame_bytes(grid, group.body.len(), LAG_UNKNOWN));
        }
        let last = left.last().map_or(self.next_position, RingGroup::next_position) - 1;
        segment.advance(end, last);
        let mut catalog = self.catalog.write();
        catalog.segments.push_back(Arc::clone(segment));
        catalog.ring.clear();
    }

    /// Removes the rings other than that of the last segment. A ring that cannot be removed is
    /// found at the next open.
    fn remove_rings(&mut self, but: u32) {
        for blocks in self.rings.drain(..).filter(|blocks| *blocks != but) {
            let _ = self.files.remove(&self.dir.join(ring_name(blocks)));
        }
        self.rings.extend((but > 0).then_some(but));
    }

    /// Seals the previous segment. If it was found at open, its unused space is released.
    fn seal(&self, previous: Option<&Segment>) {
        let Some(previous) = previous else { return };
        let found_at_open = self.active.is_none();
        previous.seal();
        if found_at_open && let Ok(file) = self.files.open(&previous.path, Access::WRITE) {
            let end = previous.grid().written_end(previous.end()).next_multiple_of(BLOCK);
            // A failure only wastes space.
            let _ = file.set_size(end);
        }
    }

    /// Writes a last group that proves everything persisted, if the segment has space for it.
    pub(crate) fn close(&mut self) -> Result<Cost, WriteError> {
        self.persist()?;
        let fits =
            self.active.as_ref().is_some_and(|a| a.fits(frame_bytes(Grid::Packed, 0, LAG_UNKNOWN)));
        if !fits {
            return Ok(self.cost);
        }
        self.group(Batch { body: &[], single: false, records: 0, persist: true })
    }
}

fn rings(names: &[String]) -> Vec<u32> {
    let ring = |name: &String| match named(name) {
        Named::Ring(blocks) => Some(blocks),
        _ => None,
    };
    names.iter().filter_map(ring).collect()
}

/// Makes an I/O error on a file in use fatal. A full disk is not fatal.
pub(crate) fn in_use(error: WriteError) -> WriteError {
    match error {
        WriteError::Refused(AppendError::Io { path, what, cause }) => {
            WriteError::Fatal(format!("{path}: {what}: {cause}"))
        }
        other => other,
    }
}

/// Returns the error for a missing segment, which cannot happen after a successful roll.
pub(crate) fn no_segment() -> WriteError {
    WriteError::Fatal("no segment takes groups; this is a defect".into())
}

impl Active {
    /// Returns true if the segment has space for a frame of `bytes`.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        if self.ring.is_some() {
            return true;
        }
        let grid = self.segment.grid();
        grid.written_end(grid.next(self.next, bytes)) <= self.size
    }

    /// Fills the file up to `end`. An I/O error is fatal: the file holds groups.
    pub(crate) fn fill_to(&self, end: u64) -> Result<(), WriteError> {
        self.fill.ensure(end).map_err(in_use)
    }

    /// Moves the start of the next frame to `next`. If packed, keeps the used bytes of its block.
    pub(crate) fn keep_tail(&mut self, out: &[u8], base: u64, next: u64) {
        self.next = next;
        self.tail.clear();
        if self.segment.grid() == Grid::Packed {
            let tail = (block_floor(next) - base) as usize..(next - base) as usize;
            self.tail.extend_from_slice(out.get(tail).unwrap_or_default());
        }
    }
}
