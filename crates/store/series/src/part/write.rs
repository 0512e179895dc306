//! Writes parts: one file with one part, or with the parts of several partitions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::files::{Access, File, Files};

use super::index;
use super::meta::{CHUNK_ROWS_MAX, PartMeta, VERSION};
use crate::error::{WriteError, refused};
use crate::head::partition_range;
use crate::table::{ScratchBuffers, Table};

/// Bytes buffered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A part that is being written.
struct UnfinishedPart {
    meta: PartMeta,
    index: index::Builder,
    /// The row being written.
    row: Option<u32>,
    /// Bytes of its chunks so far.
    bytes: u64,
}

/// Writes a file of parts. The rows of each part must come in ascending order; the parts may
/// alternate.
pub(crate) struct PartWriter {
    parts: Vec<UnfinishedPart>,
    file: Arc<dyn File>,
    path: PathBuf,
    buffer: Vec<u8>,
    written: u64,
}

impl PartWriter {
    /// Creates a file for `metas`, which must not be empty and must all name that file.
    pub(crate) fn create(
        files: &dyn Files,
        dir: &Path,
        metas: &[PartMeta],
    ) -> Result<Self, WriteError> {
        let first = metas.first().copied().unwrap_or_default();
        let path = dir.join(first.file_name());
        let file = files.open(&path, Access::CREATE).map_err(refused(&path, "cannot create"))?;
        file.set_size(0).map_err(refused(&path, "cannot empty"))?;
        let begun = |meta: &PartMeta| UnfinishedPart {
            meta: PartMeta { rows: 0, samples: 0, applied: 0, version: VERSION, ..*meta },
            index: index::Builder::new(partition_range(meta.partition).from_ns, meta.step_s == 0),
            row: None,
            bytes: 0,
        };
        let buffer = PartMeta { version: VERSION, ..first }.header();
        Ok(Self { parts: metas.iter().map(begun).collect(), file, path, buffer, written: 0 })
    }

    /// Appends the settled rows of row series `id` to part number `part`. All calls for one row
    /// series and part must be consecutive.
    pub(crate) fn row(
        &mut self,
        part: usize,
        id: u32,
        table: &Table,
        work: &mut ScratchBuffers,
    ) -> Result<(), WriteError> {
        let Some(part) = self.parts.get_mut(part).filter(|_| !table.is_empty()) else {
            return Ok(());
        };
        if part.row != Some(id) {
            part.index.row(id, table.columns.len());
            part.row = Some(id);
            part.meta.rows += 1;
        }
        let mut begin = 0;
        for end in table.chunk_ends(CHUNK_ROWS_MAX) {
            let at = self.buffer.len();
            let offset = self.written + at as u64;
            table.encode(begin, end, work, &mut self.buffer);
            let crc = crc32c::crc32c(self.buffer.get(at..).unwrap_or_default());
            let length = self.buffer.len() - at;
            self.buffer.extend_from_slice(&crc.to_le_bytes());
            part.index.chunk(offset, length, table, begin, end);
            part.bytes += length as u64 + 4;
            begin = end;
        }
        part.meta.samples += table.samples() as u64;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Returns true if no part has rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.meta.rows == 0)
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(refused(&self.path, "cannot write"))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Finishes and persists the file. The folder is not persisted.
    pub(crate) fn finish(mut self) -> Result<Vec<PartMeta>, WriteError> {
        let mut done = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            let index::Index { bytes: index, top_bytes: top } = part.index.finish();
            done.push(PartMeta {
                bytes: part.bytes + index.len() as u64,
                index_bytes: index.len() as u64,
                index_at: self.written + self.buffer.len() as u64,
                top_bytes: top as u32,
                index_crc: crc32c::crc32c(index.get(index.len() - top..).unwrap_or_default()),
                ..part.meta
            });
            self.buffer.extend_from_slice(&index);
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        self.flush()?;
        self.file.persist().map_err(refused(&self.path, "cannot persist"))?;
        Ok(done)
    }
}
