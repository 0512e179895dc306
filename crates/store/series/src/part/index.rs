//! The index of a part. A block consists of a directory of rows, ascending, that is searched in
//! place, and the chunks of each row. The top consists of the locations of the blocks and the set
//! of rows.

use roaring::RoaringBitmap;

use super::stats::{push_stats, read_stats, skip_stats, summary_of};
use crate::model::Summary;
use crate::rollup::FIELDS;
use crate::table::{Table, Want};
use codec::bytes::{Input, push_signed, push_varint};

/// Size of a row in the directory, in bytes: its number and the offset of its entry.
const DIRECTORY_BYTES: usize = 8;
/// Size from which on a block is full, in bytes.
const BLOCK_BYTES: usize = 4096;
/// Stored instead of the summary of a column if its samples must be read.
const NO_SUMMARY: u8 = 0xff;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChunkRef {
    pub(crate) offset: u64,
    /// Length without the checksum, in bytes.
    pub(crate) length: usize,
    pub(crate) rows: u32,
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// Summaries of the requested columns; `None` if the samples must be read.
    pub(crate) summaries: Vec<Option<Summary>>,
}

/// The entry of a row in a part.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Entry {
    /// Number of columns; 0 for events.
    pub(crate) columns: usize,
    pub(crate) chunks: Vec<ChunkRef>,
}

/// An encoded index.
pub(crate) struct Index {
    pub(crate) bytes: Vec<u8>,
    /// Size in bytes of its top, which is at its end.
    pub(crate) top_bytes: usize,
}

/// Builds an index.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    base: i64,
    /// True if summaries of columns are stored.
    summaries: bool,
    /// Full blocks, each with its checksum.
    blocks: Vec<u8>,
    /// The first row and the length without the checksum of each block.
    places: Vec<(u32, usize)>,
    rows: RoaringBitmap,
    /// First row of the current block.
    first: u32,
    directory: Vec<u8>,
    entries: Vec<u8>,
    /// Encoded chunks of the current row.
    row: Vec<u8>,
    chunks: u64,
    columns: usize,
    offset: u64,
}

impl Builder {
    pub(crate) fn new(base: i64, summaries: bool) -> Self {
        Self { base, summaries, ..Self::default() }
    }

    /// Begins a row. Rows must come in ascending order.
    pub(crate) fn row(&mut self, id: u32, columns: usize) {
        self.end_row();
        if self.directory.len() + self.entries.len() >= BLOCK_BYTES {
            self.end_block();
        }
        if self.directory.is_empty() {
            self.first = id;
        }
        self.columns = columns;
        self.offset = 0;
        self.rows.insert(id);
        self.directory.extend_from_slice(&id.to_le_bytes());
        self.directory.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
    }

    fn end_row(&mut self) {
        if self.chunks > 0 {
            push_varint(&mut self.entries, self.columns as u64);
            push_varint(&mut self.entries, self.chunks);
            self.entries.append(&mut self.row);
            self.chunks = 0;
        }
    }

    fn end_block(&mut self) {
        let at = self.blocks.len();
        let rows = (self.directory.len() / DIRECTORY_BYTES) as u32;
        self.blocks.extend_from_slice(&rows.to_le_bytes());
        self.blocks.append(&mut self.directory);
        self.blocks.append(&mut self.entries);
        self.places.push((self.first, self.blocks.len() - at));
        let crc = crc32c::crc32c(self.blocks.get(at..).unwrap_or_default());
        self.blocks.extend_from_slice(&crc.to_le_bytes());
    }

    pub(crate) fn chunk(
        &mut self,
        offset: u64,
        length: usize,
        table: &Table,
        begin: usize,
        end: usize,
    ) {
        let times = table.times.get(begin..end).unwrap_or_default();
        let first = times.first().copied().unwrap_or_default();
        let last = times.last().copied().unwrap_or_default();
        push_varint(&mut self.row, offset - self.offset);
        push_varint(&mut self.row, length as u64);
        push_varint(&mut self.row, times.len() as u64);
        push_signed(&mut self.row, first.wrapping_sub(self.base));
        push_varint(&mut self.row, last.wrapping_sub(first) as u64);
        let columns = if self.summaries { &*table.columns } else { &[] };
        for column in columns {
            let integers = column.integers.get(begin..end).unwrap_or_default();
            let bits = column.bits.get(begin..end).unwrap_or_default();
            let absent = column.absent.get(begin..end).unwrap_or_default();
            let usable = !integers.contains(&true) && !absent.contains(&true);
            match summary_of(times, bits)
                .filter(|s| usable && s.sum.is_finite() && s.count == times.len() as u64)
            {
                Some(all) => push_stats(&mut self.row, &all),
                None => self.row.push(NO_SUMMARY),
            }
        }
        self.offset = offset + length as u64 + 4;
        self.chunks += 1;
    }

    pub(crate) fn finish(mut self) -> Index {
        self.end_row();
        if !self.directory.is_empty() {
            self.end_block();
        }
        let (mut index, mut row) = (self.blocks, 0);
        let begin = index.len();
        push_varint(&mut index, self.places.len() as u64);
        for (first, bytes) in self.places {
            push_varint(&mut index, u64::from(first - row));
            push_varint(&mut index, bytes as u64);
            row = first;
        }
        // Writing to memory cannot fail.
        let _ = self.rows.serialize_into(&mut index);
        let top_bytes = index.len() - begin;
        Index { bytes: index, top_bytes }
    }
}

/// Location of a block of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockRef {
    /// First row of the block.
    first: u32,
    pub(crate) offset: u64,
    /// Length without the checksum, in bytes.
    pub(crate) bytes: usize,
}

/// The data read from an index when its part is opened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Top {
    blocks: Vec<BlockRef>,
    /// Rows of the part; `None` if only the blocks contain them.
    rows: Option<RoaringBitmap>,
}

impl Top {
    /// Returns the top of an index that is a single block without a top.
    pub(crate) fn whole(offset: u64, bytes: u64) -> Self {
        let block = BlockRef { first: 0, offset, bytes: bytes as usize };
        Self { blocks: vec![block], rows: None }
    }

    /// Decodes the top of an index whose blocks begin at `offset`. Returns `None` if it is
    /// malformed.
    pub(crate) fn decode(bytes: &[u8], mut offset: u64) -> Option<Self> {
        let mut input = Input(bytes);
        let (mut blocks, mut first) = (Vec::new(), 0u32);
        for _ in 0..input.varint()? {
            first = first.checked_add(u32::try_from(input.varint()?).ok()?)?;
            let bytes = u32::try_from(input.varint()?).ok()? as usize;
            blocks.push(BlockRef { first, offset, bytes });
            offset = offset.checked_add(bytes as u64 + 4)?;
        }
        let rows = RoaringBitmap::deserialize_from(input.0).ok()?;
        Some(Self { blocks, rows: Some(rows) })
    }

    /// Returns the index of the block that may contain a row, if any.
    pub(crate) fn find_block(&self, row: u32) -> Option<usize> {
        if self.rows.as_ref().is_some_and(|rows| !rows.contains(row)) {
            return None;
        }
        self.blocks.partition_point(|block| block.first <= row).checked_sub(1)
    }

    pub(crate) fn block(&self, at: usize) -> Option<BlockRef> {
        self.blocks.get(at).copied()
    }

    pub(crate) fn rows(&self) -> Option<&RoaringBitmap> {
        self.rows.as_ref()
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.rows.as_ref().map_or(0, RoaringBitmap::serialized_size);
        self.blocks.len() * size_of::<BlockRef>() + rows
    }
}

fn parts(index: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut input = Input(index);
    let rows = input.u32()? as usize;
    let directory = input.take_bytes(rows.checked_mul(DIRECTORY_BYTES)?)?;
    Some((directory, input.0))
}

/// Returns the rows of a block, or `None` if it is malformed.
pub(crate) fn rows(index: &[u8]) -> Option<Vec<u32>> {
    let (directory, _) = parts(index)?;
    let (rows, _) = directory.as_chunks::<DIRECTORY_BYTES>();
    rows.iter().map(|row| Input(row).u32()).collect()
}

/// Returns the entry of a row in a block, with the summaries of the requested columns. The entry is
/// empty if the block does not contain the row. Returns `None` if the bytes are not a valid block.
pub(crate) fn find_entry(
    index: &[u8],
    row: u32,
    base: i64,
    summarized: bool,
    want: Want,
) -> Option<Entry> {
    let (directory, entries) = parts(index)?;
    let (rows, _) = directory.as_chunks::<DIRECTORY_BYTES>();
    let Ok(at) = rows.binary_search_by_key(&Some(row), |r| Input(r).u32()) else {
        return Some(Entry::default());
    };
    let mut place = Input(rows.get(at)?);
    place.u32()?;
    let mut input = Input(entries.get(place.u32()? as usize..)?);
    let columns = usize::try_from(input.varint()?).ok()?;
    let count = input.varint()?;
    if columns > crate::options::COLUMNS_MAX * FIELDS {
        return None;
    }
    let (mut chunks, mut end) = (Vec::new(), 0u64);
    for _ in 0..count {
        let offset = end.checked_add(input.varint()?)?;
        let length = usize::try_from(input.varint()?).ok()?;
        let rows = u32::try_from(input.varint()?).ok()?;
        let first = base.wrapping_add(input.signed()?);
        let last = first.wrapping_add(input.varint()? as i64);
        let mut summaries = Vec::new();
        for column in 0..if summarized { columns } else { 0 } {
            let none = input.0.first() == Some(&NO_SUMMARY);
            match (none, want.includes_column(column)) {
                (true, taken) => {
                    input.u8()?;
                    summaries.extend(taken.then_some(None));
                }
                (false, false) => skip_stats(&mut input)?,
                (false, true) => {
                    let all = read_stats(&mut input, first, last, u64::from(rows))?;
                    summaries.push(Some(all));
                }
            }
        }
        end = offset.checked_add(length as u64)?.checked_add(4)?;
        chunks.push(ChunkRef { offset, length, rows, first, last, summaries });
    }
    Some(Entry { columns, chunks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_entry_beyond_any_file_size_is_rejected() {
        let mut block = Vec::new();
        // One row, number 7, whose entry has one column and one chunk.
        for word in [1u32, 7, 0] {
            block.extend_from_slice(&word.to_le_bytes());
        }
        for number in [1, 1, 0, u64::MAX, 1, 0, 0] {
            push_varint(&mut block, number);
        }
        assert!(find_entry(&block, 7, 0, false, Want::All).is_none());
        assert!(
            find_entry(&block, 8, 0, false, Want::All).is_some_and(|entry| entry.chunks.is_empty())
        );
    }
}
