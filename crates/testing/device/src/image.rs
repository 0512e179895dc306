//! The two images: the content that the device answers with now, and the content that survives a
//! power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::DeviceError;
use crate::fault::{FaultError, FaultyRequest, Plan};
use crate::options::{BLOCK_BYTES, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, DeviceOptions};
use crate::report::{Report, Tally};

/// Unit of a torn write, bytes.
pub const SECTOR_BYTES: usize = 512;
/// Most blocks kept for compression while the device is idle; beyond it all are compressed at once.
const UNMEASURED_BLOCKS_MAX: usize = 64 << 10;

pub(crate) type Block = [u8; BLOCK_BYTES];
/// A block's content; `None` is all zeros.
type Content = Option<Arc<Block>>;

/// The unflushed writes that a power cut keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PowerCut {
    /// Keep a random part of them, drawn from this seed; `None` keeps nothing.
    pub keep: Option<u64>,
    /// Draw for each sector of 512 bytes instead of for each block.
    pub torn: bool,
}

impl PowerCut {
    /// Everything that was not flushed is lost.
    pub const ALL: Self = Self { keep: None, torn: false };

    /// Keeps a random subset of the unflushed blocks.
    pub const fn subset(seed: u64) -> Self {
        Self { keep: Some(seed), torn: false }
    }

    /// Keeps a random subset of the unflushed sectors.
    pub const fn torn(seed: u64) -> Self {
        Self { keep: Some(seed), torn: true }
    }
}

/// A moment in the life of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// After this number of further block writes.
    Blocks(u64),
    /// After this number of further flushes, just before the last one is answered.
    Flushes(u64),
}

/// Requests since the device was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub writes: u64,
    /// 4 KiB blocks that they touched.
    pub blocks: u64,
    pub flushes: u64,
    /// Blocks written since the last flush.
    pub unflushed: u64,
}

struct State {
    volatile: Vec<Content>,
    durable: Vec<Content>,
    /// Writes since the last flush, oldest first.
    unflushed: Vec<(usize, Content)>,
    dirty: BTreeSet<usize>,
    counters: Counters,
    /// Block writes and flushes that are still answered before the device dies.
    blocks_left: Option<u64>,
    flushes_left: Option<u64>,
    dead: bool,
    generation: u64,
    journal: Vec<Range<u64>>,
    measured: Measured,
    plan: Plan,
}

/// Blocks flushed since measuring began.
#[derive(Default)]
struct Measured {
    on: bool,
    began: Counters,
    tallies: BTreeMap<usize, Tally>,
    unmeasured: Vec<(usize, Content)>,
}

/// See the module.
pub(crate) struct Image {
    state: Mutex<State>,
    bytes: u64,
    flush_time: Duration,
}

/// The request failed as planned, or because the device is dead, or out of bounds.
pub(crate) struct Refused(pub(crate) FaultError);

const DEAD: Refused = Refused(FaultError::Io);

impl Image {
    pub(crate) fn new(options: &DeviceOptions) -> Result<Self, DeviceError> {
        let (min, max) = (DEVICE_BYTES_MIN, DEVICE_BYTES_MAX);
        if !(min..=max).contains(&options.bytes) {
            return Err(DeviceError::Size { bytes: options.bytes, min, max });
        }
        let blocks = options.bytes.div_ceil(BLOCK_BYTES as u64);
        let empty = vec![None; blocks as usize];
        let state = State {
            volatile: empty.clone(),
            durable: empty,
            unflushed: Vec::new(),
            dirty: BTreeSet::new(),
            counters: Counters::default(),
            blocks_left: None,
            flushes_left: None,
            dead: false,
            generation: 0,
            journal: Vec::new(),
            measured: Measured { on: options.measure, ..Measured::default() },
            plan: Plan::default(),
        };
        let bytes = blocks * BLOCK_BYTES as u64;
        Ok(Self { state: Mutex::new(state), bytes, flush_time: options.flush_time })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the name of the file that represents the device now. It changes at each cut, so that
    /// a process that still has the old file open cannot reach the new one.
    pub(crate) fn name(&self) -> String {
        name_of(self.state.lock().generation)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    pub(crate) fn set_journal(&self, journal: Vec<Range<u64>>) {
        self.state.lock().journal = journal;
    }

    pub(crate) fn read(
        &self,
        generation: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, Refused> {
        let state = self.state.lock();
        if state.dead || generation != state.generation {
            return Err(DEAD);
        }
        let end = self.bytes.min(offset + bytes as u64);
        let mut out = vec![0; end.saturating_sub(offset) as usize];
        for (index, within, at) in pieces(offset, out.len()) {
            let content = state.volatile.get(index).ok_or(DEAD)?;
            let (Some(block), Some(into)) = (content, out.get_mut(at)) else { continue };
            into.copy_from_slice(block.get(within).ok_or(DEAD)?);
        }
        Ok(out)
    }

    pub(crate) fn write(&self, generation: u64, offset: u64, from: &[u8]) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if generation != state.generation || offset + from.len() as u64 > self.bytes {
            return Err(DEAD);
        }
        if !state.dead {
            state.counters.writes += 1;
            state.plan.admit(FaultyRequest::Write).map_err(Refused)?;
        }
        for (index, within, at) in pieces(offset, from.len()) {
            if state.dead {
                return Err(DEAD);
            }
            let piece = from.get(at).ok_or(DEAD)?;
            let mut block = match state.volatile.get(index) {
                Some(Some(old)) => **old,
                _ => [0; BLOCK_BYTES],
            };
            block.get_mut(within).ok_or(DEAD)?.copy_from_slice(piece);
            let content = block.iter().any(|b| *b != 0).then(|| Arc::new(block));
            state.write_block(index, content);
        }
        Ok(())
    }

    /// Sets whole blocks to zero, as a discard that reads back zeros does. It does not count as a
    /// write.
    pub(crate) fn discard(&self, generation: u64, offset: u64, bytes: u64) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if state.dead || generation != state.generation {
            return Err(DEAD);
        }
        let block = BLOCK_BYTES as u64;
        let range = offset.div_ceil(block)..(offset + bytes).min(self.bytes) / block;
        for index in range {
            let index = index as usize;
            if let Some(slot) = state.volatile.get_mut(index) {
                *slot = None;
                state.unflushed.push((index, None));
            }
        }
        Ok(())
    }

    pub(crate) fn flush(&self, generation: u64) -> Result<(), Refused> {
        if !self.flush_time.is_zero() {
            std::thread::sleep(self.flush_time);
        }
        let mut state = self.state.lock();
        if state.dead || generation != state.generation {
            return Err(DEAD);
        }
        state.counters.flushes += 1;
        state.plan.admit(FaultyRequest::Flush).map_err(Refused)?;
        state.flush();
        if let Some(left) = state.flushes_left.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.dead = true;
                return Err(DEAD);
            }
        }
        Ok(())
    }

    /// Lets the caller plan, end or inspect faults.
    pub(crate) fn with_plan<T>(&self, work: impl FnOnce(&mut Plan) -> T) -> T {
        work(&mut self.state.lock().plan)
    }

    pub(crate) fn die(&self) {
        self.state.lock().dead = true;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    pub(crate) fn arm(&self, moment: Moment) {
        let mut state = self.state.lock();
        match moment {
            Moment::Blocks(n) => state.blocks_left = Some(n),
            Moment::Flushes(n) => state.flushes_left = Some(n.max(1)),
        }
        state.dead |= state.blocks_left == Some(0);
    }

    /// Restores the power: only the flushed writes remain, and those that `cut` keeps.
    pub(crate) fn revive(&self, cut: &PowerCut) {
        let mut state = self.state.lock();
        let mut dice = cut.keep.map(Dice);
        for (index, content) in std::mem::take(&mut state.unflushed) {
            let Some(dice) = dice.as_mut() else { break };
            let Some(old) = state.durable.get_mut(index) else { continue };
            if cut.torn {
                *old = Some(torn(old.as_deref(), content.as_deref(), dice));
            } else if dice.heads() {
                *old = content;
            }
        }
        let images = &mut *state;
        images.volatile.clone_from(&images.durable);
        state.dirty.clear();
        state.counters.unflushed = 0;
        (state.blocks_left, state.flushes_left) = (None, None);
        state.dead = false;
        state.generation += 1;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    pub(crate) fn start_measuring(&self) {
        let mut state = self.state.lock();
        let began = state.counters;
        state.measured = Measured { on: state.measured.on, began, ..Measured::default() };
    }

    pub(crate) fn report(&self, files: &[Range<u64>]) -> Report {
        let mut state = self.state.lock();
        state.measured.compress_unmeasured();
        let (now, began) = (state.counters, state.measured.began);
        let mut report = Report {
            flushes: now.flushes - began.flushes,
            writes: now.writes - began.writes,
            ..Report::default()
        };
        for (index, tally) in &state.measured.tallies {
            let at = *index as u64;
            let class = if files.iter().any(|r| r.contains(&at)) {
                &mut report.files
            } else if state.journal.iter().any(|r| r.contains(&at)) {
                &mut report.journal
            } else {
                &mut report.other
            };
            class.add(tally);
        }
        report
    }
}

impl State {
    fn write_block(&mut self, index: usize, content: Content) {
        let Some(slot) = self.volatile.get_mut(index) else { return };
        slot.clone_from(&content);
        self.unflushed.push((index, content));
        self.dirty.insert(index);
        self.counters.blocks += 1;
        self.counters.unflushed = self.dirty.len() as u64;
        if self.measured.on {
            self.measured.tallies.entry(index).or_default().written += 1;
        }
        if let Some(left) = self.blocks_left.as_mut() {
            *left = left.saturating_sub(1);
            self.dead |= *left == 0;
        }
    }

    fn flush(&mut self) {
        for (index, content) in std::mem::take(&mut self.unflushed) {
            if let Some(slot) = self.durable.get_mut(index) {
                *slot = content;
            }
        }
        self.counters.unflushed = 0;
        let dirty = std::mem::take(&mut self.dirty);
        if self.measured.on {
            let durable = &self.durable;
            let flushed = dirty.into_iter().filter_map(|i| Some((i, durable.get(i)?.clone())));
            self.measured.unmeasured.extend(flushed);
            if self.measured.unmeasured.len() > UNMEASURED_BLOCKS_MAX {
                self.measured.compress_unmeasured();
            }
        }
    }
}

impl Measured {
    /// Compresses the blocks that were kept for later.
    fn compress_unmeasured(&mut self) {
        for (index, content) in std::mem::take(&mut self.unmeasured) {
            self.tallies.entry(index).or_default().flushed(content.as_deref());
        }
    }
}

/// Returns the name of the device's file in this generation.
pub(crate) fn name_of(generation: u64) -> String {
    format!("disk-{generation}")
}

/// Returns the blocks that a request touches: number, bytes within the block, bytes within the
/// request.
fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= bytes {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % BLOCK_BYTES as u64) as usize;
        let length = (BLOCK_BYTES - within).min(bytes - done);
        let piece =
            ((at / BLOCK_BYTES as u64) as usize, within..within + length, done..done + length);
        done += length;
        Some(piece)
    })
}

/// Returns a block that has each sector from either the old or the new content, at random.
fn torn(old: Option<&Block>, new: Option<&Block>, dice: &mut Dice) -> Arc<Block> {
    const ZEROS: Block = [0; BLOCK_BYTES];
    let mut block = *old.unwrap_or(&ZEROS);
    let new = new.unwrap_or(&ZEROS);
    for (into, from) in block.chunks_mut(SECTOR_BYTES).zip(new.chunks(SECTOR_BYTES)) {
        if dice.heads() {
            into.copy_from_slice(from);
        }
    }
    Arc::new(block)
}

/// The `SplitMix64` generator: the same seed gives the same sequence.
struct Dice(u64);

impl Dice {
    fn heads(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) & 1 == 1
    }
}
