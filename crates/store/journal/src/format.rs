//! The bytes: segment headers and frames. `docs/format/journal.md` describes them field by field.
//!
//! A group of records is one *frame* with one checksum, in every layout. What a frame cannot be
//! mistaken for: the seed of its checksum holds the journal, the epoch of its segment, its place
//! and its sequence, so that a stale, moved or replayed frame fails like a damaged one.

use crate::bytes::{VARINT_BYTES_MAX, array, push_varint, put, varint};
use crate::options::{BLOCK_BYTES, Layout};

/// Version of the format that this code writes, and the newest it reads.
pub(crate) const VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"hfjourna";

/// Bytes of a frame's head before the length.
const HEAD_FIXED_BYTES: usize = 7;
/// Longest head of a frame, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = HEAD_FIXED_BYTES + VARINT_BYTES_MAX;
/// Bit of `marks`: the body is one record, without a length of its own.
const SINGLE: u8 = 0x80;
/// Lag that claims nothing about what was persisted before.
pub(crate) const LAG_UNKNOWN: u8 = 0x7f;

/// Block 0 of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) layout: Layout,
    /// Random; the same in every segment of one journal.
    pub(crate) journal: u64,
    /// One more than that of the segment before.
    pub(crate) epoch: u64,
    pub(crate) segment_bytes: u64,
    /// Position of the first record that goes here.
    pub(crate) first_position: u64,
    /// Sequence of the first group that goes here.
    pub(crate) first_sequence: u64,
    /// Epoch of the segment before, 0 for none.
    pub(crate) previous_epoch: u64,
    /// Where the next frame of the segment before would have begun: its seal.
    pub(crate) previous_end: u64,
    /// Where the frames end that were written before the segment got its name.
    pub(crate) prefilled_end: u64,
    /// Blocks of the ring that belongs to this segment, 0 for none.
    pub(crate) ring_blocks: u32,
}

fn layout_code(layout: Layout) -> u8 {
    match layout {
        Layout::Packed => 1,
        Layout::Sparse => 2,
        Layout::Ring => 3,
    }
}

/// Why a header was not taken.
#[derive(Debug)]
pub(crate) enum HeaderFault {
    Newer(u16),
    Damaged(&'static str),
}

impl Header {
    /// The block, with its checksum.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        put(block, 0, &MAGIC);
        put(block, 8, &VERSION.to_le_bytes());
        put(block, 10, &[layout_code(self.layout)]);
        for (i, value) in [
            self.journal,
            self.epoch,
            self.segment_bytes,
            self.first_position,
            self.first_sequence,
            self.previous_epoch,
            self.previous_end,
            self.prefilled_end,
        ]
        .iter()
        .enumerate()
        {
            put(block, 16 + 8 * i, &value.to_le_bytes());
        }
        put(block, 80, &self.ring_blocks.to_le_bytes());
        let checksum = crc32c::crc32c(block);
        put(block, 12, &checksum.to_le_bytes());
    }

    /// Read and verify a block.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, HeaderFault> {
        let short = HeaderFault::Damaged("the header is cut off");
        let (Some(magic), Some(version), Some(checksum)) =
            (array::<8>(block, 0), array(block, 8), array(block, 12))
        else {
            return Err(short);
        };
        if magic != MAGIC {
            return Err(HeaderFault::Damaged("this is not the header of a segment"));
        }
        let version = u16::from_le_bytes(version);
        if version > VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let Some(block) = block.get(..BLOCK_BYTES) else { return Err(short) };
        let mut unsigned = block.to_vec();
        put(&mut unsigned, 12, &[0; 4]);
        if crc32c::crc32c(&unsigned) != u32::from_le_bytes(checksum) {
            return Err(HeaderFault::Damaged("the checksum of the header does not match"));
        }
        let number = |i: usize| array(block, 16 + 8 * i).map_or(0, u64::from_le_bytes);
        let layout = match block.get(10) {
            Some(1) => Layout::Packed,
            Some(2) => Layout::Sparse,
            Some(3) => Layout::Ring,
            _ => return Err(HeaderFault::Damaged("the header names no known layout")),
        };
        Ok(Self {
            layout,
            journal: number(0),
            epoch: number(1),
            segment_bytes: number(2),
            first_position: number(3),
            first_sequence: number(4),
            previous_epoch: number(5),
            previous_end: number(6),
            prefilled_end: number(7),
            ring_blocks: array(block, 80).map_or(0, u32::from_le_bytes),
        })
    }
}

/// What the checksums of one file are seeded with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn segment(journal: u64, epoch: u64) -> Self {
        Self::of(journal, epoch, 0)
    }

    pub(crate) fn ring(journal: u64, epoch: u64) -> Self {
        Self::of(journal, epoch, 1)
    }

    fn of(journal: u64, epoch: u64, kind: u8) -> Self {
        let base = crc32c::crc32c(&journal.to_le_bytes());
        let base = crc32c::crc32c_append(base, &epoch.to_le_bytes());
        Self(crc32c::crc32c_append(base, &[kind]))
    }

    fn at(self, start: u64, sequence: u64) -> u32 {
        let mut place = [0; 16];
        put(&mut place, 0, &start.to_le_bytes());
        put(&mut place, 8, &sequence.to_le_bytes());
        crc32c::crc32c_append(self.0, &place)
    }
}

/// The head of a frame, as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    checksum: u32,
    /// The body is one record.
    pub(crate) single: bool,
    /// Groups before this one that were not persisted when it was written.
    pub(crate) lag: u8,
    /// The low bits of the sequence.
    pub(crate) sequence_low: u16,
    /// Bytes of the head itself.
    pub(crate) width: usize,
    /// Bytes of the body.
    pub(crate) body_bytes: usize,
}

impl Head {
    pub(crate) fn parse(from: &[u8]) -> Option<Self> {
        let checksum = u32::from_le_bytes(array(from, 0)?);
        let marks = *from.get(4)?;
        let sequence_low = u16::from_le_bytes(array(from, 5)?);
        let (body_bytes, width) = varint(from.get(HEAD_FIXED_BYTES..)?)?;
        Some(Self {
            checksum,
            single: marks & SINGLE != 0,
            lag: marks & !SINGLE,
            sequence_low,
            width: HEAD_FIXED_BYTES + width,
            body_bytes: body_bytes as usize,
        })
    }

    /// Bytes of the whole frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.width + self.body_bytes) as u64
    }

    /// Whether `frame` (head and body) is what was written at `start` as group `sequence`.
    pub(crate) fn matches(&self, frame: &[u8], seed: Seed, start: u64, sequence: u64) -> bool {
        let covered = frame.get(4..).unwrap_or_default();
        sequence as u16 == self.sequence_low
            && crc32c::crc32c(covered) ^ seed.at(start, sequence) == self.checksum
    }
}

/// Build the head of a frame for `body` into `head`.
pub(crate) fn encode_head(
    head: &mut Vec<u8>,
    body: &[u8],
    (single, lag): (bool, u8),
    (seed, start, sequence): (Seed, u64, u64),
) {
    head.clear();
    head.extend_from_slice(&[0; 4]);
    head.push(if single { lag | SINGLE } else { lag });
    head.extend_from_slice(&(sequence as u16).to_le_bytes());
    push_varint(head, body.len() as u32);
    let checksum = crc32c::crc32c(head.get(4..).unwrap_or_default());
    let checksum = crc32c::crc32c_append(checksum, body) ^ seed.at(start, sequence);
    put(head, 0, &checksum.to_le_bytes());
}

/// Bytes of the frame that holds `body_bytes`.
pub(crate) fn frame_bytes(body_bytes: usize) -> u64 {
    let width = match body_bytes {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    };
    (HEAD_FIXED_BYTES + width + body_bytes) as u64
}

/// The records of a body, in order.
pub(crate) struct Records<'a> {
    rest: &'a [u8],
    single: bool,
}

impl<'a> Records<'a> {
    pub(crate) fn of(body: &'a [u8], single: bool) -> Self {
        Self { rest: body, single }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], ()>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.single {
            self.single = false;
            return Some(Ok(std::mem::take(&mut self.rest)));
        }
        if self.rest.is_empty() {
            return None;
        }
        let body = std::mem::take(&mut self.rest);
        let record = varint(body).and_then(|(bytes, width)| {
            let end = width.checked_add(bytes as usize)?;
            self.rest = body.get(end..)?;
            body.get(width..end)
        });
        Some(record.ok_or(()))
    }
}

/// Number of records in a body; `None` when they do not fill it exactly.
pub(crate) fn count_records(body: &[u8], single: bool) -> Option<u32> {
    let mut count = 0;
    for record in Records::of(body, single) {
        record.ok()?;
        count += 1;
    }
    Some(count)
}
