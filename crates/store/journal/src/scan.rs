//! Reads frames from a file, one at a time, and finds frames after damage.
//!
//! Memory: one window and one frame. Every returned frame is verified.

use std::io;
use std::sync::Arc;

use env::files::File;

use crate::bytes::array;
use crate::format::{
    FRAME_BYTES_MIN, HEAD_BYTES_MAX, Head, LAG_UNKNOWN, Seed, count_records, distinct_sequences,
};
use crate::options::BLOCK_BYTES;
use crate::place::{Grid, HINT_BYTES, block_floor};

/// Bytes read at a time.
const WINDOW_BYTES: usize = 256 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Maximum number of missing groups between a bad frame and the later one that proves it. With a
/// larger limit, a stale block would sometimes match a later group by chance.
const AHEAD_MAX: u64 = 1024;

/// A verified frame. Its body stays in the scanner until the next read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) start: u64,
    /// Offset of the next frame.
    pub(crate) next: u64,
    pub(crate) sequence: u64,
    pub(crate) single: bool,
    /// Number of groups before it that were not persisted when it was written.
    pub(crate) lag: u8,
    pub(crate) records: u32,
}

/// The result of reading at an offset where a frame is expected.
pub(crate) enum FrameLookup {
    Frame(Frame),
    /// The expected frame is not there, and the reason.
    Bad(&'static str),
}

impl Frame {
    /// Returns true if this frame proves that group `sequence` had been persisted.
    pub(crate) fn proves(&self, sequence: u64) -> bool {
        self.lag != LAG_UNKNOWN && self.sequence > sequence + u64::from(self.lag)
    }
}

/// Reads the frames of one file.
pub(crate) struct Scanner {
    file: Arc<dyn File>,
    grid: Grid,
    seed: Seed,
    /// Bytes of the file that may be read.
    limit: u64,
    window: Vec<u8>,
    base: u64,
    frame: Vec<u8>,
    head_bytes: usize,
    pub(crate) bytes_read: u64,
}

impl Scanner {
    pub(crate) fn new(file: Arc<dyn File>, grid: Grid, seed: Seed, limit: u64) -> Self {
        let (window, frame) = (Vec::new(), Vec::new());
        Self { file, grid, seed, limit, window, base: 0, frame, head_bytes: 0, bytes_read: 0 }
    }

    /// Sets the limit to `limit`.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Discards the window, so that its bytes are read again.
    pub(crate) fn forget(&mut self) {
        self.window.clear();
    }

    /// Returns the body of the last frame.
    pub(crate) fn body(&self) -> &[u8] {
        self.frame.get(self.head_bytes..).unwrap_or_default()
    }

    /// Loads `bytes` from `at` on into the window, or as many as there are.
    fn load(&mut self, at: u64, bytes: usize) -> io::Result<()> {
        let end = at.saturating_add(bytes as u64).min(self.limit);
        let have = self.base + self.window.len() as u64;
        if at >= self.base && end <= have {
            return Ok(());
        }
        self.base = block_floor(at);
        let want = (end.saturating_sub(self.base)).max(WINDOW_BYTES as u64);
        let want = want.min(self.limit.saturating_sub(self.base)) as usize;
        self.window.resize(want, 0);
        let got = self.file.read_at(&mut self.window, self.base)?;
        self.window.truncate(got);
        self.bytes_read += got as u64;
        Ok(())
    }

    /// Returns true if `from..to` holds only zeros.
    pub(crate) fn is_zero(&mut self, from: u64, to: u64) -> io::Result<bool> {
        self.load(from, to.saturating_sub(from) as usize)?;
        let begin = (from - self.base) as usize;
        let end = begin + to.saturating_sub(from) as usize;
        let end = end.min(self.window.len());
        Ok(self.window.get(begin..end).unwrap_or_default().iter().all(|b| *b == 0))
    }

    fn head(&mut self, at: u64) -> io::Result<Option<Head>> {
        self.load(at, HEAD_BYTES_MAX + HINT_BYTES)?;
        let mut bytes = [0; HEAD_BYTES_MAX];
        let mut from = (at - self.base) as usize;
        let mut filled = 0;
        for slot in &mut bytes {
            if self.grid == Grid::Packed && from.is_multiple_of(BLOCK_BYTES) {
                from += HINT_BYTES;
            }
            let Some(byte) = self.window.get(from) else { break };
            (*slot, from, filled) = (*byte, from + 1, filled + 1);
        }
        Ok(Head::parse(bytes.get(..filled).unwrap_or_default(), self.grid))
    }

    /// Reads the frame of group `sequence` at `at`.
    pub(crate) fn find_frame(&mut self, at: u64, sequence: u64) -> io::Result<FrameLookup> {
        let Some(head) = self.head(at)? else {
            return Ok(FrameLookup::Bad("no frame begins here"));
        };
        if head.sequence_low != sequence % distinct_sequences(self.grid) {
            return Ok(FrameLookup::Bad("no frame of the expected sequence begins here"));
        }
        self.verify(at, head, sequence)
    }

    fn verify(&mut self, at: u64, head: Head, sequence: u64) -> io::Result<FrameLookup> {
        let next = self.grid.next(at, head.frame_bytes());
        if self.grid.written_end(next) > self.limit.next_multiple_of(BLOCK) {
            return Ok(FrameLookup::Bad("a frame runs past the end of its segment"));
        }
        self.load(at, (next - at) as usize)?;
        let from = (at - self.base) as usize;
        let whole = head.frame_bytes() as usize;
        if !self.grid.collect(&self.window, from, whole, &mut self.frame) {
            return Ok(FrameLookup::Bad("a block does not belong to its frame"));
        }
        if !head.matches(&self.frame, self.seed, at, sequence) {
            return Ok(FrameLookup::Bad("the checksum does not match"));
        }
        self.head_bytes = head.width;
        let Some(records) = count_records(self.body(), head.single) else {
            return Ok(FrameLookup::Bad("the records do not fill their frame"));
        };
        let (single, lag) = (head.single, head.lag);
        Ok(FrameLookup::Frame(Frame { start: at, next, sequence, single, lag, records }))
    }

    /// Returns the offset after the frame of group `sequence` at `at` and its number of records, by its
    /// head and the lengths in its body alone. The checksum is not compared.
    pub(crate) fn unverified(&mut self, at: u64, sequence: u64) -> io::Result<Option<(u64, u32)>> {
        let Some(head) = self.head(at)? else { return Ok(None) };
        let next = self.grid.next(at, head.frame_bytes());
        let beyond = self.grid.written_end(next) > self.limit.next_multiple_of(BLOCK);
        if beyond || head.sequence_low != sequence % distinct_sequences(self.grid) {
            return Ok(None);
        }
        self.load(at, (next - at) as usize)?;
        let (from, whole) = ((at - self.base) as usize, head.frame_bytes() as usize);
        if !self.grid.collect(&self.window, from, whole, &mut self.frame) {
            return Ok(None);
        }
        self.head_bytes = head.width;
        Ok(count_records(self.body(), head.single).map(|records| (next, records)))
    }

    /// Returns the frame at `at` if it is one of the `ahead` groups after `sequence`.
    pub(crate) fn look_ahead(
        &mut self,
        at: u64,
        sequence: u64,
        ahead: u64,
    ) -> io::Result<Option<Frame>> {
        let Some(head) = self.head(at)? else { return Ok(None) };
        let apart = distinct_sequences(self.grid);
        let nearest = head.sequence_low.wrapping_sub(sequence) % apart;
        let mut distance = if nearest == 0 { apart } else { nearest };
        while distance <= ahead {
            if let FrameLookup::Frame(frame) = self.verify(at, head, sequence + distance)? {
                return Ok(Some(frame));
            }
            distance += apart;
        }
        Ok(None)
    }

    /// Returns the first frame of a later group after a bad frame of group `sequence` at `bad`.
    /// Tries the end given by the bad frame's length, each byte of its block, then later blocks.
    pub(crate) fn resynchronise(&mut self, bad: u64, sequence: u64) -> io::Result<Option<Frame>> {
        if let Some(head) = self.head(bad)? {
            let next = self.grid.next(bad, head.frame_bytes());
            if next < self.limit
                && let Some(frame) = self.look_ahead(next, sequence, 1)?
            {
                return Ok(Some(frame));
            }
        }
        let mut block = block_floor(bad);
        let end = (block + BLOCK).min(self.limit);
        let bytes = if self.grid == Grid::Packed { bad + 1..end } else { 0..0 };
        for at in bytes {
            if let Some(frame) = self.look_ahead(at, sequence, 1 + (at - bad) / FRAME_BYTES_MIN)? {
                return Ok(Some(frame));
            }
        }
        loop {
            block += BLOCK;
            if block >= self.limit {
                return Ok(None);
            }
            let at = match self.grid {
                Grid::Sparse => block,
                Grid::Packed => {
                    self.load(block, HINT_BYTES)?;
                    let hint = array(&self.window, (block - self.base) as usize);
                    match hint.map(u16::from_le_bytes).map(u64::from) {
                        Some(hint) if (HINT_BYTES as u64..BLOCK).contains(&hint) => block + hint,
                        _ => continue,
                    }
                }
            };
            let ahead = match self.grid {
                Grid::Sparse => (at - block_floor(bad)) / BLOCK,
                Grid::Packed => 1 + (at - bad) / FRAME_BYTES_MIN,
            };
            let few = if self.grid == Grid::Sparse { AHEAD_MAX } else { u64::MAX };
            if let Some(frame) = self.look_ahead(at, sequence, ahead.min(few))? {
                return Ok(Some(frame));
            }
        }
    }
}
