//! The placement of frames on the blocks of a file. Pure arithmetic and copying.
//!
//! *Packed*: frames follow each other byte by byte. The first two bytes of each block are a hint:
//! the offset at which the first frame of that block begins (0 if none does), so that a reader can
//! resume after damage. The hint is known when the first byte of a block is written; it is final.
//! *Sparse* (also the ring): each frame begins a block; the rest of its last block is zero.

use crate::bytes::{array, copy_at};
use crate::options::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Length of the hint at the beginning of a packed block, in bytes.
pub(crate) const HINT_BYTES: usize = 2;
const HINT: u64 = HINT_BYTES as u64;

/// The way in which frames follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grid {
    Packed,
    Sparse,
}

/// Returns the offset of the block that contains `at`.
pub(crate) fn block_floor(at: u64) -> u64 {
    at - at % BLOCK
}

impl Grid {
    /// Returns the offset of the first frame of a segment, after the header block.
    pub(crate) fn first(self) -> u64 {
        self.frame_start(BLOCK)
    }

    /// Returns the offset at which a frame begins if the previous frame ends at `end`.
    pub(crate) fn frame_start(self, end: u64) -> u64 {
        match self {
            Self::Packed if end.is_multiple_of(BLOCK) => end + HINT,
            Self::Packed => end,
            Self::Sparse => end.next_multiple_of(BLOCK),
        }
    }

    /// Returns the offset of the frame that follows a frame of `bytes` at `start`.
    pub(crate) fn next(self, start: u64, bytes: u64) -> u64 {
        if self == Self::Sparse {
            return self.frame_start(start.saturating_add(bytes));
        }
        let room = BLOCK - start % BLOCK;
        if bytes <= room {
            return self.frame_start(start + bytes);
        }
        let (full, rest) = ((bytes - room) / (BLOCK - HINT), (bytes - room) % (BLOCK - HINT));
        let block = block_floor(start) + BLOCK * (1 + full);
        if rest == 0 { self.frame_start(block) } else { block + HINT + rest }
    }

    /// Returns the end of the written bytes if the next frame begins at `next`.
    pub(crate) fn written_end(self, next: u64) -> u64 {
        if self == Self::Packed && next % BLOCK == HINT { next - HINT } else { next }
    }

    /// Returns the size of the largest frame that an empty segment of `segment_bytes` holds.
    pub(crate) fn capacity(self, segment_bytes: u64) -> u64 {
        let blocks = (segment_bytes / BLOCK).saturating_sub(1);
        blocks * if self == Self::Packed { BLOCK - HINT } else { BLOCK }
    }

    /// Copies a frame, given in two parts, to offset `start` of the file. `out` holds the file's
    /// bytes from `base` on.
    pub(crate) fn lay(self, out: &mut [u8], base: u64, start: u64, parts: [&[u8]; 2]) {
        let mut at = (start - base) as usize;
        let mut rest: usize = parts.iter().map(|p| p.len()).sum();
        if self == Self::Packed && at % BLOCK_BYTES == HINT_BYTES {
            copy_at(out, at - HINT_BYTES, &(HINT as u16).to_le_bytes());
        }
        for mut part in parts {
            while !part.is_empty() {
                at += self.hint(out, at, rest);
                let n = part.len().min(BLOCK_BYTES - at % BLOCK_BYTES);
                let (now, later) = part.split_at(n);
                copy_at(out, at, now);
                at += n;
                rest -= n;
                part = later;
            }
        }
    }

    /// Writes the hint if a frame with `rest` bytes left enters a packed block at `at`. Returns the
    /// length of the hint, or 0.
    fn hint(self, out: &mut [u8], at: usize, rest: usize) -> usize {
        if self == Self::Sparse || !at.is_multiple_of(BLOCK_BYTES) {
            return 0;
        }
        copy_at(out, at, &hint_for(rest).to_le_bytes());
        HINT_BYTES
    }

    /// Collects `bytes` of a frame that begins at `at` of `from`. Returns false if `from` is too
    /// short or a block has a different hint than that frame would have written.
    pub(crate) fn collect(self, from: &[u8], at: usize, bytes: usize, into: &mut Vec<u8>) -> bool {
        into.clear();
        if self == Self::Sparse {
            let found = from.get(at..at.saturating_add(bytes));
            into.extend_from_slice(found.unwrap_or_default());
            return found.is_some();
        }
        let hinted = |at: usize| array(from, at).map(u16::from_le_bytes);
        if at % BLOCK_BYTES == HINT_BYTES && hinted(at - HINT_BYTES) != Some(HINT as u16) {
            return false;
        }
        let mut at = at;
        while into.len() < bytes {
            let rest = bytes - into.len();
            let enters = at.is_multiple_of(BLOCK_BYTES);
            if enters && hinted(at) != Some(hint_for(rest)) {
                return false;
            }
            at += if enters { HINT_BYTES } else { 0 };
            let n = rest.min(BLOCK_BYTES - at % BLOCK_BYTES);
            let Some(piece) = from.get(at..at + n) else { return false };
            into.extend_from_slice(piece);
            at += n;
        }
        true
    }
}

/// Returns the hint of a block whose first `rest` bytes belong to a frame that began earlier.
fn hint_for(rest: usize) -> u16 {
    if rest < BLOCK_BYTES - HINT_BYTES { (HINT_BYTES + rest) as u16 } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn consecutive_frames_round_trip_through_blocks(
            sizes in proptest::collection::vec(8usize..20_000, 1..12),
            packed in any::<bool>(),
        ) {
            let grid = if packed { Grid::Packed } else { Grid::Sparse };
            let mut starts = Vec::new();
            let mut at = grid.first();
            for size in &sizes {
                starts.push(at);
                at = grid.next(at, *size as u64);
            }
            let mut file = vec![0u8; grid.written_end(at) as usize];
            for (i, (start, size)) in starts.iter().zip(&sizes).enumerate() {
                let bytes = vec![i as u8 + 1; *size];
                grid.lay(&mut file, 0, *start, [&bytes[..7], &bytes[7..]]);
            }
            let mut back = Vec::new();
            for (i, (start, size)) in starts.iter().zip(&sizes).enumerate() {
                prop_assert!(grid.collect(&file, *start as usize, *size, &mut back));
                prop_assert_eq!(&back, &vec![i as u8 + 1; *size]);
            }
            if packed {
                for block in 1..file.len() / BLOCK_BYTES {
                    let hint = u16::from_le_bytes([file[block * BLOCK_BYTES], file[block * BLOCK_BYTES + 1]]);
                    let low = (block * BLOCK_BYTES) as u64;
                    let first = starts.iter().find(|s| **s >= low && **s < low + BLOCK);
                    let expected = first.map_or(0, |s| (s - low) as u16);
                    let last = low + BLOCK > at;
                    prop_assert!(hint == expected || (last && first.is_none()));
                }
            }
        }

        #[test]
        fn frame_of_segment_capacity_ends_within_the_segment(blocks in 2u64..20, packed in any::<bool>()) {
            let grid = if packed { Grid::Packed } else { Grid::Sparse };
            let bytes = grid.capacity(blocks * BLOCK);
            prop_assert_eq!(grid.written_end(grid.next(grid.first(), bytes)), blocks * BLOCK);
            prop_assert!(grid.written_end(grid.next(grid.first(), bytes + 1)) > blocks * BLOCK);
        }
    }
}
