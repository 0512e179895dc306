//! The index of a part: a directory of rows, ascending, that is searched in place, then per row
//! its chunks.

use crate::bytes::{Input, push_signed, push_varint};
use crate::model::Summary;
use crate::rollup::FIELDS;
use crate::table::{Table, Want};

use super::{push_stats, read_stats, skip_stats, summary_of};

/// Bytes of a row in the directory: its number, and where its entry begins.
const DIRECTORY_BYTES: usize = 8;
/// Said of a column instead of its summary: look at the samples.
const NO_SUMMARY: u8 = 0xff;

/// Where a chunk is, and what is in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChunkRef {
    pub(crate) offset: u64,
    /// Bytes without the checksum.
    pub(crate) length: usize,
    pub(crate) rows: u32,
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// By column that was wanted; `None` where the samples must be looked at.
    pub(crate) summaries: Vec<Option<Summary>>,
}

/// What a part has of a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Entry {
    /// Columns; 0 for events.
    pub(crate) columns: usize,
    pub(crate) chunks: Vec<ChunkRef>,
}

/// Collects an index.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    base: i64,
    /// Say what columns sum up to.
    summaries: bool,
    directory: Vec<u8>,
    entries: Vec<u8>,
    /// Chunks of the row that is being written.
    row: Vec<u8>,
    chunks: u64,
    columns: usize,
    offset: u64,
}

impl Builder {
    pub(crate) fn new(base: i64, summaries: bool) -> Self {
        Self { base, summaries, ..Self::default() }
    }

    pub(crate) fn row(&mut self, id: u32, columns: usize) {
        self.end_row();
        self.columns = columns;
        self.offset = 0;
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
            let usable = !integers.contains(&true);
            match summary_of(times, bits).filter(|s| usable && s.sum.is_finite()) {
                Some(all) => push_stats(&mut self.row, &all),
                None => self.row.push(NO_SUMMARY),
            }
        }
        self.offset = offset + length as u64 + 4;
        self.chunks += 1;
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_row();
        let rows = (self.directory.len() / DIRECTORY_BYTES) as u32;
        let mut index = rows.to_le_bytes().to_vec();
        index.append(&mut self.directory);
        index.append(&mut self.entries);
        index
    }
}

fn parts(index: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut input = Input(index);
    let rows = input.u32()? as usize;
    let directory = input.take(rows.checked_mul(DIRECTORY_BYTES)?)?;
    Some((directory, input.0))
}

/// Rows of an index; `None` when it is none.
pub(crate) fn rows(index: &[u8]) -> Option<Vec<u32>> {
    let (directory, _) = parts(index)?;
    let (rows, _) = directory.as_chunks::<DIRECTORY_BYTES>();
    rows.iter().map(|row| Input(row).u32()).collect()
}

/// What an index says of a row; no columns and no chunks: nothing. `None`: it is no index.
///
/// Summaries are those of the wanted columns.
pub(crate) fn find(
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
            match (none, want.takes(column)) {
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
        end = offset.checked_add(length as u64 + 4)?;
        chunks.push(ChunkRef { offset, length, rows, first, last, summaries });
    }
    Some(Entry { columns, chunks })
}
