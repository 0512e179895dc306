//! Reads a part: the top of its index, blocks of the index, chunks.

use std::path::Path;
use std::sync::Arc;

use env::files::Files;
use roaring::RoaringBitmap;

use super::file::PartFile;
use super::index::{self, ChunkRef, Entry};
use super::meta::{PartMeta, VERSION_WHOLE_INDEX};
use super::open_parts::{OpenParts, Opened, Slot};
use crate::error::SeriesReadError;
use crate::head::partition_range;
use crate::model::TimeRange;
use crate::table::{ScratchBuffers, Table, Want};

/// Size of a checksum, in bytes.
const CRC_BYTES: usize = 4;

/// A part on disk.
pub(crate) struct Part {
    pub(crate) meta: PartMeta,
    file: Arc<PartFile>,
    slot: Arc<Slot>,
    open_parts: Arc<OpenParts>,
}

impl Part {
    /// Creates a part of `file` and registers it there. Releases `before`, the part that it
    /// replaces.
    pub(crate) fn new(
        file: &Arc<PartFile>,
        open_parts: &Arc<OpenParts>,
        meta: PartMeta,
        before: Option<&Arc<Self>>,
    ) -> Self {
        file.join();
        if let Some(before) = before {
            before.replace();
        }
        Self {
            meta,
            file: Arc::clone(file),
            slot: Arc::default(),
            open_parts: Arc::clone(open_parts),
        }
    }

    /// Creates a part with a file of its own, for tools that inspect a folder.
    pub(crate) fn alone(files: &Arc<dyn Files>, dir: &Path, meta: PartMeta) -> Self {
        Self::new(&PartFile::new(files, dir.join(meta.file_name())), &Arc::default(), meta, None)
    }

    pub(crate) fn file(&self) -> &Arc<PartFile> {
        &self.file
    }

    /// Returns true if its file and the top of its index are cached.
    pub(crate) fn is_open(&self) -> bool {
        self.slot.is_open()
    }

    /// Releases the file: the part was replaced.
    pub(crate) fn replace(&self) {
        self.file.leave();
    }

    fn opened(&self) -> Result<Arc<Opened>, SeriesReadError> {
        if let Some(opened) = self.slot.read() {
            return Ok(opened);
        }
        let (file, meta) = (self.file.open()?, &self.meta);
        if meta.version == VERSION_WHOLE_INDEX {
            let top = index::Top::whole(meta.index_at, meta.index_bytes);
            return Ok(self.open_parts.insert_part(&self.slot, file, top));
        }
        let at = meta.end().saturating_sub(u64::from(meta.top_bytes));
        let bytes = self.file.read(&*file, at, meta.top_bytes as usize)?;
        if crc32c::crc32c(&bytes) != meta.index_crc {
            return Err(self.file.damage(at, "the index is damaged"));
        }
        let top = index::Top::decode(&bytes, meta.index_at).ok_or_else(|| self.odd_index(at))?;
        Ok(self.open_parts.insert_part(&self.slot, file, top))
    }

    fn odd_index(&self, at: u64) -> SeriesReadError {
        self.file.damage(at, "the index is no index")
    }

    /// Returns a block of the index.
    fn block(&self, opened: &Opened, at: usize) -> Result<Arc<[u8]>, SeriesReadError> {
        if let Some(block) = opened.block(at) {
            return Ok(block);
        }
        let block = opened.top.block(at).ok_or_else(|| self.odd_index(self.meta.index_at))?;
        let whole = self.meta.version == VERSION_WHOLE_INDEX;
        let crc_bytes = if whole { 0 } else { CRC_BYTES };
        let mut bytes = self.file.read(&*opened.file, block.offset, block.bytes + crc_bytes)?;
        let crc = bytes.split_off(block.bytes);
        let crc = if whole { self.meta.index_crc.to_le_bytes().to_vec() } else { crc };
        if crc != crc32c::crc32c(&bytes).to_le_bytes() {
            return Err(self.file.damage(block.offset, "a block of the index is damaged"));
        }
        let bytes: Arc<[u8]> = bytes.into();
        opened.cache_block(at, &bytes);
        Ok(bytes)
    }

    pub(crate) fn rows(&self) -> Result<RoaringBitmap, SeriesReadError> {
        let opened = self.opened()?;
        if let Some(rows) = opened.top.rows() {
            return Ok(rows.clone());
        }
        let rows = index::rows(&self.block(&opened, 0)?);
        rows.and_then(|rows| RoaringBitmap::from_sorted_iter(rows).ok())
            .ok_or_else(|| self.odd_index(self.meta.index_at))
    }

    pub(crate) fn take_from(&self, rows: &mut RoaringBitmap) -> Result<(), SeriesReadError> {
        match self.opened()?.top.rows() {
            Some(own) => *rows -= own,
            None => *rows -= self.rows()?,
        }
        Ok(())
    }

    /// Returns its entry for a row, with the summaries of the requested columns.
    pub(crate) fn entry(&self, row: u32, want: Want) -> Result<Option<Entry>, SeriesReadError> {
        let base = partition_range(self.meta.partition).from_ns;
        let opened = self.opened()?;
        let Some(at) = opened.top.find_block(row) else { return Ok(None) };
        let block = self.block(&opened, at)?;
        let entry = index::find_entry(&block, row, base, self.meta.step_s == 0, want);
        let entry = entry.ok_or_else(|| self.odd_index(self.meta.index_at))?;
        Ok((!entry.chunks.is_empty()).then_some(entry))
    }

    /// Decodes a chunk and appends its rows.
    pub(crate) fn chunk(
        &self,
        chunk: &ChunkRef,
        want: Want,
        into: &mut Table,
        work: &mut ScratchBuffers,
    ) -> Result<(), SeriesReadError> {
        let opened = self.opened()?;
        let mut bytes = std::mem::take(&mut work.bytes);
        let whole = chunk.length + CRC_BYTES;
        self.file.read_into(&*opened.file, chunk.offset, whole, &mut bytes)?;
        let (body, crc) = bytes.split_at_checked(chunk.length).unwrap_or((&[], &[]));
        if crc != crc32c::crc32c(body).to_le_bytes() {
            return Err(self.file.damage(chunk.offset, "a chunk is damaged"));
        }
        let decoded = into.decode(body, want, work);
        decoded.ok_or_else(|| self.file.damage(chunk.offset, "a chunk cannot be decoded"))?;
        if matches!(want, Want::One(_)) {
            into.drop_absent();
        }
        work.bytes = bytes;
        Ok(())
    }

    /// Returns the rows of a row series in a range, sorted. With one column requested, only the
    /// rows that have a value in it.
    pub(crate) fn table(
        &self,
        row: u32,
        range: TimeRange,
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Result<Option<Table>, SeriesReadError> {
        let Some(entry) = self.entry(row, Want::None)? else { return Ok(None) };
        self.table_of(&entry, range, want, work).map(Some)
    }

    /// Does the same as [`Part::table`] for an entry that was looked up.
    pub(crate) fn table_of(
        &self,
        entry: &Entry,
        range: TimeRange,
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Result<Table, SeriesReadError> {
        let mut table = Table::with_columns(want.of(entry.columns));
        for chunk in entry.chunks.iter().filter(|c| range.touches(c.first, c.last)) {
            self.chunk(chunk, want, &mut table, work)?;
        }
        table.retain_rows(|t| range.contains(t));
        Ok(table)
    }

    /// Verifies every byte. Returns the defects.
    pub(crate) fn verify(&self) -> Vec<SeriesReadError> {
        let (mut found, expected) = (Vec::new(), self.meta.header());
        let header = self.file.open().and_then(|file| self.file.read(&*file, 0, expected.len()));
        match header {
            Ok(header) if header == expected => {}
            Ok(_) => found.push(self.file.damage(0, "the header is damaged")),
            Err(e) => found.push(e),
        }
        match self.rows() {
            Ok(rows) => rows.into_iter().for_each(|row| self.verify_row(row, &mut found)),
            Err(e) => found.push(e),
        }
        found
    }

    fn verify_row(&self, row: u32, found: &mut Vec<SeriesReadError>) {
        let entry = self.entry(row, Want::All);
        let entry = entry.and_then(|e| e.ok_or_else(|| self.odd_index(self.meta.index_at)));
        let mut work = ScratchBuffers::default();
        match entry {
            Ok(entry) => found.extend(entry.chunks.iter().filter_map(|chunk| {
                let mut table = Table::with_columns(entry.columns);
                self.chunk(chunk, Want::All, &mut table, &mut work).err()
            })),
            Err(e) => found.push(e),
        }
    }
}
