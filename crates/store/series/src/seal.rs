//! Seals: writes heads to parts.
//!
//! The order makes a crash safe: parts and the catalogue are written and persisted, then their
//! names, then the manifest that names them. Only then the log below is trimmed.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use env::files::Access;

use crate::core::{Core, LiveParts, Parts};
use crate::error::{WriteError, refused};
use crate::head::{Head, HeadCell, partition_of, partition_range};
use crate::manifest::Manifest;
use crate::model::{SealOutcome, TimeRange};
use crate::part::{Part, PartFile, PartMeta, PartWriter};
use crate::table::{ScratchBuffers, Table, Want};

/// Maximum number of files written by a seal. If a head touches more partitions, adjacent ones
/// share a file.
const FILES_MAX: usize = 32;
/// Approximate number of samples of a row that are taken from a head at once.
const SAMPLES_AT_ONCE: usize = 1 << 20;

impl Core {
    pub(crate) fn parts_dir(&self) -> PathBuf {
        self.dir.join("parts")
    }

    /// Seals everything written so far.
    pub(crate) fn seal(&self) -> Result<SealOutcome, WriteError> {
        let mut manifest = self.manifest.lock();
        {
            let _committing = self.commit.lock();
            self.close_head();
        }
        let result = self.seal_closed(&mut manifest);
        *self.upkeep.trouble.lock() = result.as_ref().err().map(ToString::to_string);
        self.heads_changed();
        result
    }

    fn seal_closed(&self, manifest: &mut Manifest) -> Result<SealOutcome, WriteError> {
        let mut outcome = SealOutcome { position: manifest.sealed, ..SealOutcome::default() };
        loop {
            let heads = self.live.read().heads.clone();
            let [oldest, _, ..] = heads.as_slice() else { break };
            self.seal_one(manifest, Some(oldest), oldest.last(), &mut outcome)?;
        }
        // There are only deletes: everything below the active head is sealed.
        let below = self.live.read().heads.first().map_or(0, |active| active.first() - 1);
        if below > manifest.sealed {
            self.seal_one(manifest, None, below, &mut outcome)?;
            *self.upkeep.head_began.lock() = self.options.clock.monotonic();
        }
        Ok(outcome)
    }

    /// Seals one closed head. Without a head, seals the deletes and new rows.
    fn seal_one(
        &self,
        manifest: &mut Manifest,
        head: Option<&Arc<HeadCell>>,
        position: u64,
        outcome: &mut SealOutcome,
    ) -> Result<(), WriteError> {
        let mut next = manifest.clone();
        let written = match head {
            Some(head) => self.write_parts(head, &mut next.next_part, &mut outcome.rows_read),
            None => Ok(Vec::new()),
        };
        // No number is used twice, even after a failure.
        manifest.next_part = next.next_part;
        let written = written?;
        let published = self.publish(&mut next, &written, position, outcome);
        if let Err(e) = published {
            // The manifest may have been replaced without being known to be persisted. It counts
            // these bytes of the catalogue, so they must not be overwritten.
            manifest.catalog_bytes = next.catalog_bytes;
            manifest.catalog_rows = next.catalog_rows;
            self.remove_files(&written);
            return Err(e);
        }
        *manifest = next;
        outcome.parts += written.len() as u32;
        outcome.samples += written.iter().map(|m| m.samples).sum::<u64>();
        outcome.position = position;
        let mut live = self.live.write();
        self.show(&mut live, manifest);
        if head.is_some() && live.heads.len() > 1 {
            live.heads.remove(0);
        }
        drop(live);
        self.trim(manifest);
        Ok(())
    }

    /// Makes the parts of a manifest visible to readers.
    pub(crate) fn show(&self, live: &mut LiveParts, manifest: &Manifest) {
        let shown = live.parts.values().flatten().chain(live.rollups.values());
        let known: HashMap<u64, Arc<Part>> = shown.map(|p| (p.meta.id, Arc::clone(p))).collect();
        let mut files: HashMap<u64, Arc<PartFile>> =
            known.values().map(|p| (p.meta.file, Arc::clone(p.file()))).collect();
        let (mut parts, mut rollups) = (Parts::new(), BTreeMap::new());
        for meta in &manifest.parts {
            let before = known.get(&meta.id);
            let part = before.filter(|p| p.meta == *meta).cloned();
            let part = part.unwrap_or_else(|| {
                let path = || self.parts_dir().join(meta.file_name());
                let file = files
                    .entry(meta.file)
                    .or_insert_with(|| PartFile::new(&self.options.files, path()));
                Arc::new(Part::new(file, &self.open_parts, *meta, before))
            });
            if meta.step_s > 0 {
                rollups.insert(meta.partition, part);
            } else {
                parts.entry(meta.partition).or_default().push(part);
            }
        }
        for of in parts.values_mut() {
            of.sort_by_key(|p| p.meta.position_min);
        }
        (live.parts, live.rollups) = (Arc::new(parts), Arc::new(rollups));
    }

    fn publish(
        &self,
        next: &mut Manifest,
        written: &[PartMeta],
        position: u64,
        outcome: &mut SealOutcome,
    ) -> Result<(), WriteError> {
        let parts_dir = self.parts_dir();
        if !written.is_empty() {
            let persisted = self.options.files.persist_dir(&parts_dir);
            persisted.map_err(refused(&parts_dir, "cannot persist"))?;
        }
        outcome.bytes_written += written.iter().map(|m| m.bytes).sum::<u64>();
        outcome.bytes_written += self.write_catalog(next)?;
        next.sealed = position;
        next.parts.extend_from_slice(written);
        let tombstones = Arc::clone(&self.live.read().tombstones);
        next.tombstones = tombstones.iter().filter(|t| t.position <= position).cloned().collect();
        next.log_expected = match &*self.journal.read() {
            Some(journal) => journal.persisted_position(),
            None => next.log_expected,
        };
        outcome.bytes_written += next.store(&*self.options.files, &self.dir)?;
        Ok(())
    }

    /// Trims the log below the sealed position. A failure is retried at the next seal.
    pub(crate) fn trim(&self, manifest: &Manifest) {
        let Some(journal) = self.journal.read().clone() else { return };
        let below = (manifest.sealed + 1).saturating_sub(manifest.log_base);
        if let Err(e) = journal.trim(below) {
            tracing::warn!(below, "the log cannot be trimmed: {e}");
        }
    }

    /// Appends the new rows to the catalogue's file. Returns the bytes written.
    fn write_catalog(&self, next: &mut Manifest) -> Result<u64, WriteError> {
        let rows = self.catalog.rows();
        if rows == next.catalog_rows {
            return Ok(0);
        }
        let frame = self.catalog_frame(next.catalog_rows, rows);
        let path = self.dir.join(next.catalog_name());
        let write = || {
            let file = self.options.files.open(&path, Access::CREATE)?;
            file.write_all_at(&frame, next.catalog_bytes)?;
            file.persist()
        };
        write().map_err(refused(&path, "cannot append"))?;
        next.catalog_bytes += frame.len() as u64;
        next.catalog_rows = rows;
        Ok(frame.len() as u64)
    }

    /// Writes the parts of a closed head. Their names are not persisted yet.
    fn write_parts(
        &self,
        cell: &HeadCell,
        next_part: &mut u64,
        rows_read: &mut u64,
    ) -> Result<Vec<PartMeta>, WriteError> {
        let partitions = cell.head.read().partitions();
        let per_file = partitions.len().div_ceil(FILES_MAX).max(1);
        let first = *next_part;
        *next_part += partitions.len() as u64;
        let metas = partitions.iter().zip(first..).zip(0usize..).map(|((partition, id), at)| {
            let file = first + (at - at % per_file) as u64;
            let (position_min, position_max) = (cell.first(), cell.last());
            let partition = *partition;
            PartMeta { id, partition, position_min, position_max, file, ..PartMeta::default() }
        });
        let metas: Vec<PartMeta> = metas.collect();
        let written = self.write_files(&cell.head.read(), &metas, per_file, rows_read);
        if written.is_err() {
            self.remove_files(&metas);
        }
        written
    }

    /// Writes the parts of a head, several to a file, in one pass over its rows.
    fn write_files(
        &self,
        head: &Head,
        metas: &[PartMeta],
        per_file: usize,
        rows_read: &mut u64,
    ) -> Result<Vec<PartMeta>, WriteError> {
        let (files, dir) = (&*self.options.files, self.parts_dir());
        let mut writers = Vec::new();
        for some in metas.chunks(per_file) {
            writers.push(PartWriter::create(files, &dir, some)?);
        }
        let mut work = ScratchBuffers::default();
        for row in head.row_ids() {
            // A row that does not fit in memory is taken in turns, each of some of the partitions.
            let turns = head.samples_of(row).div_ceil(SAMPLES_AT_ONCE).max(1);
            let per_turn = metas.len().div_ceil(turns).max(1);
            for some in metas.chunks(per_turn) {
                let table = head.read(row, range_of(some), Want::All, &mut work);
                *rows_read += 1;
                write_row(&mut writers, row, &table, metas, per_file, &mut work)?;
            }
        }
        let mut done = Vec::new();
        for writer in writers {
            done.extend(writer.finish()?);
        }
        Ok(done)
    }

    /// Removes the files of parts after a failure. A manifest that was put in place, but not
    /// persisted, may name them: those files are kept. Files that cannot be removed now are removed
    /// at the next open.
    pub(crate) fn remove_files(&self, metas: &[PartMeta]) {
        let Ok(manifest) = Manifest::load(&*self.options.files, &self.dir) else { return };
        let named = manifest.unwrap_or_default().parts;
        let named: HashSet<u64> = named.iter().map(|n| n.file).collect();
        let files: HashSet<u64> = metas.iter().map(|m| m.file).collect();
        for meta in metas.iter().filter(|m| files.contains(&m.id) && !named.contains(&m.file)) {
            let _ = self.options.files.remove(&self.parts_dir().join(meta.file_name()));
        }
    }
}

/// Returns the time range of the partitions from the first to the last of some parts.
fn range_of(metas: &[PartMeta]) -> TimeRange {
    let at = |meta: Option<&PartMeta>| partition_range(meta.map_or(0, |m| m.partition));
    TimeRange { from_ns: at(metas.first()).from_ns, to_ns: at(metas.last()).to_ns }
}

/// Writes the rows of a settled table, each to the part of its partition. Each writer has several
/// parts.
fn write_row(
    writers: &mut [PartWriter],
    row: u32,
    table: &Table,
    metas: &[PartMeta],
    per_file: usize,
    work: &mut ScratchBuffers,
) -> Result<(), WriteError> {
    let mut begin = 0;
    while let Some(time) = table.times.get(begin) {
        let partition = partition_of(*time);
        let to_ns = partition_range(partition).to_ns;
        let end = table.times.partition_point(|t| *t < to_ns).max(begin + 1);
        let whole = begin == 0 && end == table.len();
        let some = if whole { Cow::Borrowed(table) } else { Cow::Owned(table.rows(begin, end)) };
        let at = metas.binary_search_by_key(&partition, |m| m.partition).unwrap_or_default();
        if let Some(writer) = writers.get_mut(at / per_file) {
            writer.row(at % per_file, row, &some, work)?;
        }
        begin = end;
    }
    Ok(())
}
