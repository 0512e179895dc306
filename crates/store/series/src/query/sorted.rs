//! Samples of blocks that overlap throughout, such as those of a head whose samples arrived
//! unordered. They are sorted once and kept compressed while they are read window by window.
//! Reading every block for every window would take quadratic time.
//!
//! The memory is bounded: above the limit the later half of the time range is dropped and sorted
//! when it is reached. So all blocks are read once for each such amount of samples, not once for
//! each window.

use std::sync::Arc;

use super::piece::{Block, Piece};
use super::snapshot::{Snapshot, note};
use super::windows::ROWS_OVER;
use crate::error::SeriesReadError;
use crate::model::{Direction, TimeRange};
use crate::table::{Table, Work};

/// Bytes that are kept, for each sample of a window: 32 MiB where windows are as large as usual.
const BYTES_PER_ROW: usize = 512;
/// Blocks of a window, so that those that a window cuts, one of each run, are few; and their
/// samples.
const BLOCKS: usize = 64;
const BLOCK_ROWS: (usize, usize) = (16, 1024);

/// The sorted samples of a window.
pub(super) struct Sorted {
    /// The window of which it holds all samples.
    pub(super) window: TimeRange,
    /// Sorted runs one after another, sources with lower positions first.
    pub(super) blocks: Vec<Arc<Block>>,
    /// Memory of the blocks.
    pub(super) bytes: usize,
    /// Pieces that cannot be read.
    pub(super) lost: Vec<usize>,
}

impl Sorted {
    /// Sorts the samples of pieces in a window, or in a part of it on the side where the scan
    /// begins. About `rows` samples are returned for each window.
    pub(super) fn of(
        pieces: &[Piece],
        window: TimeRange,
        rows: usize,
        direction: Direction,
        snapshot: &Snapshot,
        work: &mut Work,
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

    /// Sorts a run and keeps it.
    fn add(&mut self, mut run: Table, rows: usize, work: &mut Work) {
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

    /// Lets half of it go where it is too much: what a scan comes to last.
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
        // All of one instant cannot be cut.
        if window.from_ns < window.to_ns {
            self.window = window;
            self.blocks.retain(|block| window.touches(block.first, block.last));
            self.bytes = self.blocks.iter().map(|block| block.bytes()).sum();
        }
    }
}
