//! Samples of blocks that overlap throughout, such as those of a head whose samples arrived
//! unordered. They are sorted once and kept compressed while they are read window by window.
//! Reading every block for every window would take quadratic time.
//!
//! Memory is bounded: above the limit the later half of the time range is dropped and sorted when
//! it is reached. So all chunks are read once per such amount of samples, not once per window.

use std::sync::Arc;

use super::piece::{Block, SampleRun};
use super::snapshot::{Snapshot, note};
use super::windows::ROWS_OVER;
use crate::error::SeriesReadError;
use crate::model::{Direction, TimeRange};
use crate::table::{ScratchBuffers, Table};

/// Maximum size in bytes per row of a window: 32 MiB for the default window.
const BYTES_PER_ROW: usize = 512;
/// Number of blocks in a window, so that few of them are cut by it, and the limits of their rows.
const BLOCKS: usize = 64;
const BLOCK_ROWS: (usize, usize) = (16, 1024);

/// The sorted samples of a window.
pub(super) struct Sorted {
    /// The window whose samples it contains.
    pub(super) window: TimeRange,
    /// Sorted runs one after another, sources with lower positions first.
    pub(super) blocks: Vec<Arc<Block>>,
    /// Memory of the blocks, in bytes.
    pub(super) bytes: usize,
    /// Pieces that cannot be read.
    pub(super) lost: Vec<usize>,
}

impl Sorted {
    /// Sorts the samples of pieces in a window, or in a part of it at the side where the scan
    /// begins. Windows of about `rows` samples are read from the result.
    pub(super) fn of(
        pieces: &[SampleRun],
        window: TimeRange,
        rows: usize,
        direction: Direction,
        snapshot: &Snapshot,
        work: &mut ScratchBuffers,
        torn: &mut Option<SeriesReadError>,
    ) -> Self {
        let mut it = Self { window, blocks: Vec::new(), bytes: 0, lost: Vec::new() };
        let mut run: Option<Table> = None;
        for (i, piece) in pieces.iter().enumerate() {
            if !piece.touches(it.window) {
                continue;
            }
            match (snapshot.open_piece(piece, it.window, work), &mut run) {
                (Ok(table), Some(run)) => run.append(&table),
                (Ok(table), None) => run = Some(table),
                (Err(e), _) => {
                    note(torn, e);
                    it.lost.push(i);
                }
            }
            let is_full = |run: &mut Table| run.len() / (ROWS_OVER / 2) >= rows;
            if let Some(run) = run.take_if(is_full) {
                it.add(run, rows, work);
                it.bound(rows.saturating_mul(BYTES_PER_ROW), direction);
            }
        }
        if let Some(run) = run {
            it.add(run, rows, work);
        }
        it
    }

    /// Sorts a run and adds it as blocks.
    fn add(&mut self, mut run: Table, rows: usize, work: &mut ScratchBuffers) {
        run.sort_rows();
        let mut begin = 0;
        for end in run.chunk_ends((rows / BLOCKS).clamp(BLOCK_ROWS.0, BLOCK_ROWS.1)) {
            let at = |i: usize| run.times.get(i).copied().unwrap_or_default();
            let mut bytes = Vec::new();
            run.encode(begin, end, work, &mut bytes);
            let (first, last) = (at(begin), at(end - 1));
            let (rows, columns, bytes) = (end - begin, run.columns.len(), bytes.into());
            let block = Block { first, last, rows, columns, bytes };
            self.bytes += block.bytes();
            self.blocks.push(Arc::new(block));
            begin = end;
        }
    }

    /// If the limit is exceeded, drops the half of the window that the scan reaches last.
    fn bound(&mut self, bytes_max: usize, direction: Direction) {
        if self.bytes <= bytes_max {
            return;
        }
        let mut blocks: Vec<&Block> = self.blocks.iter().map(|block| &**block).collect();
        match direction {
            Direction::Forward => blocks.sort_unstable_by_key(|block| block.first),
            Direction::Backward => {
                blocks.sort_unstable_by_key(|block| std::cmp::Reverse(block.last));
            }
        }
        let mut bytes = 0;
        let mut beyond = blocks.into_iter().skip_while(|block| {
            bytes += block.bytes();
            bytes <= bytes_max / 2
        });
        let Some(next) = beyond.next() else { return };
        let window = match direction {
            Direction::Forward => TimeRange { to_ns: next.first, ..self.window },
            Direction::Backward => {
                TimeRange { from_ns: next.last.saturating_add(1), ..self.window }
            }
        };
        // Samples of a single instant cannot be split.
        if window.from_ns < window.to_ns {
            self.window = window;
            self.blocks.retain(|block| window.touches(block.first, block.last));
            self.bytes = self.blocks.iter().map(|block| block.bytes()).sum();
        }
    }
}
