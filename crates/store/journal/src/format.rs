//! The byte format: segment headers and frames. `docs/format/journal.md` describes each field.
//!
//! A group of records is one *frame* with one checksum, in every layout. The seed of the checksum
//! holds the journal, the epoch of the segment, the offset and the sequence, so a stale, moved or
//! replayed frame fails verification like a damaged one.

use crate::bytes::{VARINT_BYTES_MAX, array, copy_at, push_varint, varint};
use crate::options::{BLOCK_BYTES, Layout};
use crate::place::Grid;

/// Version of the format that this code writes, and the newest it reads.
pub(crate) const VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"hfjourna";

const CHECKSUM_BYTES: usize = 4;
/// Longest head of a frame, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = CHECKSUM_BYTES + 2 + VARINT_BYTES_MAX + 1;
/// Shortest frame, in bytes.
pub(crate) const FRAME_BYTES_MIN: u64 = CHECKSUM_BYTES as u64 + 2;
/// Bit of a frame's shape: the body is one record, without a length field.
const SINGLE: u32 = 1;
/// Bit of a frame's shape: a byte follows with the number of unpersisted groups before it.
const LAGS: u32 = 2;
/// Number of bits of a frame's shape below the length of its body.
const SHAPE_BITS: u32 = 2;
/// Lag value that claims nothing about the groups before.
pub(crate) const LAG_UNKNOWN: u8 = 0xff;

/// Block 0 of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) layout: Layout,
    /// A random number, the same in every segment of one journal.
    pub(crate) journal: u64,
    /// Number of the segment: one more than that of the previous segment.
    pub(crate) epoch: u64,
    pub(crate) segment_bytes: u64,
    /// Position of the first record of this segment.
    pub(crate) first_position: u64,
    /// Sequence of the first group of this segment.
    pub(crate) first_sequence: u64,
    /// Epoch of the previous segment, 0 if there is none.
    pub(crate) previous_epoch: u64,
    /// End of the frames of the previous segment. It seals that segment.
    pub(crate) previous_end: u64,
    /// End of the frames that were written before the segment was renamed into place.
    pub(crate) prefilled_end: u64,
    /// Blocks of the ring that belongs to this segment, 0 if there is none.
    pub(crate) ring_blocks: u32,
}

fn layout_code(layout: Layout) -> u8 {
    match layout {
        Layout::Packed => 1,
        Layout::Sparse => 2,
        Layout::Ring => 3,
    }
}

/// The reason why a header was rejected.
#[derive(Debug)]
pub(crate) enum HeaderFault {
    Newer(u16),
    Damaged(&'static str),
}

impl Header {
    /// Encodes the header with its checksum into a block.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        copy_at(block, 0, &MAGIC);
        copy_at(block, 8, &VERSION.to_le_bytes());
        copy_at(block, 10, &[layout_code(self.layout)]);
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
            copy_at(block, 16 + 8 * i, &value.to_le_bytes());
        }
        copy_at(block, 80, &self.ring_blocks.to_le_bytes());
        let checksum = crc32c::crc32c(block);
        copy_at(block, 12, &checksum.to_le_bytes());
    }

    /// Decodes and verifies a block.
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
        copy_at(&mut unsigned, 12, &[0; 4]);
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

/// The seed of the checksums of one file.
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
        copy_at(&mut place, 0, &start.to_le_bytes());
        copy_at(&mut place, 8, &sequence.to_le_bytes());
        crc32c::crc32c_append(self.0, &place)
    }
}

/// Returns the number of low sequence bytes that a frame carries. The checksum is seeded with the
/// whole sequence; the low bytes tell recovery after damage which sequence to try. A packed block
/// holds many frames and can afford two bytes. In a sparse block one byte costs a sixteenth for
/// 16-byte records.
fn sequence_bytes(grid: Grid) -> usize {
    match grid {
        Grid::Packed => 2,
        Grid::Sparse => 1,
    }
}

/// Returns the number of sequences that the sequence bytes of a frame can distinguish.
pub(crate) fn distinct_sequences(grid: Grid) -> u64 {
    1 << (8 * sequence_bytes(grid))
}

/// The decoded head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    checksum: u32,
    /// The body is one record.
    pub(crate) single: bool,
    /// Number of groups before this one that were not persisted when it was written.
    pub(crate) lag: u8,
    /// The low bits of the sequence.
    pub(crate) sequence_low: u64,
    /// Length of the head, in bytes.
    pub(crate) width: usize,
    pub(crate) body_bytes: usize,
}

impl Head {
    pub(crate) fn parse(from: &[u8], grid: Grid) -> Option<Self> {
        let checksum = u32::from_le_bytes(array(from, 0)?);
        let shape_at = CHECKSUM_BYTES + sequence_bytes(grid);
        let mut sequence = [0; 8];
        copy_at(&mut sequence, 0, from.get(CHECKSUM_BYTES..shape_at)?);
        let (shape, bytes) = varint(from.get(shape_at..)?)?;
        let mut width = shape_at + bytes;
        let mut lag = 0;
        if shape & LAGS != 0 {
            lag = *from.get(width)?;
            width += 1;
        }
        Some(Self {
            checksum,
            single: shape & SINGLE != 0,
            lag,
            sequence_low: u64::from_le_bytes(sequence),
            width,
            body_bytes: (shape >> SHAPE_BITS) as usize,
        })
    }

    /// Returns the length of the whole frame, in bytes.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.width + self.body_bytes) as u64
    }

    /// Returns true if `frame` (head and body) was written at `start` as group `sequence`.
    pub(crate) fn matches(&self, frame: &[u8], seed: Seed, start: u64, sequence: u64) -> bool {
        let covered = frame.get(CHECKSUM_BYTES..).unwrap_or_default();
        crc32c::crc32c(covered) ^ seed.at(start, sequence) == self.checksum
    }
}

fn shape(body_bytes: usize, single: bool, lag: u8) -> u32 {
    let single = if single { SINGLE } else { 0 };
    let lags = if lag > 0 { LAGS } else { 0 };
    ((body_bytes as u32) << SHAPE_BITS) | lags | single
}

/// The values that are encoded in the head or in the checksum of a frame, in addition to its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFrame {
    pub(crate) seed: Seed,
    /// Offset of the frame in its file, in bytes.
    pub(crate) start: u64,
    pub(crate) sequence: u64,
    /// The body is one record.
    pub(crate) single: bool,
    /// See [`Head::lag`].
    pub(crate) lag: u8,
}

/// Encodes the head of a frame for `body` into `head`.
pub(crate) fn encode_head(head: &mut Vec<u8>, grid: Grid, body: &[u8], frame: NewFrame) {
    let NewFrame { seed, start, sequence, single, lag } = frame;
    head.clear();
    head.extend_from_slice(&[0; CHECKSUM_BYTES]);
    let low = sequence.to_le_bytes();
    head.extend_from_slice(low.get(..sequence_bytes(grid)).unwrap_or_default());
    push_varint(head, shape(body.len(), single, lag));
    if lag > 0 {
        head.push(lag);
    }
    let checksum = crc32c::crc32c(head.get(CHECKSUM_BYTES..).unwrap_or_default());
    let checksum = crc32c::crc32c_append(checksum, body) ^ seed.at(start, sequence);
    copy_at(head, 0, &checksum.to_le_bytes());
}

/// Returns the length of the frame for a body of `body_bytes`, in bytes.
pub(crate) fn frame_bytes(grid: Grid, body_bytes: usize, lag: u8) -> u64 {
    let width = match shape(body_bytes, true, lag) {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    };
    let head = CHECKSUM_BYTES + sequence_bytes(grid) + width + usize::from(lag > 0);
    (head + body_bytes) as u64
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

/// Returns the number of records in a body, or `None` if they do not fill it exactly.
pub(crate) fn count_records(body: &[u8], single: bool) -> Option<u32> {
    let mut count = 0;
    for record in Records::of(body, single) {
        record.ok()?;
        count += 1;
    }
    Some(count)
}
