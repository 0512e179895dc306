//! Seals: heads become parts.
//!
//! The order that makes it safe: parts and the catalogue are written and persisted, then their
//! names, then the manifest that names them; only then the log below goes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use env::files::Access;

use crate::core::{Core, Live, Parts};
use crate::error::{WriteError, refused};
use crate::head::{HeadCell, partition_of, partition_range};
use crate::manifest::Manifest;
use crate::model::{SealOutcome, TimeRange};
use crate::part::{Part, PartMeta, PartWriter};
use crate::table::{Want, Work};

/// Partitions written in one pass over a head.
const PARTITIONS_PER_PASS: usize = 32;
/// Name of the catalogue's file.
pub(crate) const CATALOG: &str = "catalog";

impl Core {
    pub(crate) fn parts_dir(&self) -> PathBuf {
        self.dir.join("parts")
    }

    /// Seal everything written so far.
    pub(crate) fn seal(&self) -> Result<SealOutcome, WriteError> {
        let mut manifest = self.maintain.lock();
        {
            let _order = self.commit.lock();
            self.freeze();
        }
        let result = self.seal_closed(&mut manifest);
        *self.trouble.lock() = result.as_ref().err().map(ToString::to_string);
        self.head_changed();
        result
    }

    fn seal_closed(&self, manifest: &mut Manifest) -> Result<SealOutcome, WriteError> {
        let mut outcome = SealOutcome { position: manifest.sealed, ..SealOutcome::default() };
        loop {
            let heads = self.live.read().heads.clone();
            let [oldest, _, ..] = heads.as_slice() else { break };
            self.seal_one(manifest, Some(oldest), oldest.last(), &mut outcome)?;
        }
        // Deletes alone: all below the active head is done.
        let below = self.live.read().heads.first().map_or(0, |active| active.first() - 1);
        if below > manifest.sealed {
            self.seal_one(manifest, None, below, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Seal one closed head, or, without one, what came without samples.
    fn seal_one(
        &self,
        manifest: &mut Manifest,
        head: Option<&Arc<HeadCell>>,
        position: u64,
        outcome: &mut SealOutcome,
    ) -> Result<(), WriteError> {
        let mut next = manifest.clone();
        let written = match head {
            Some(head) => self.write_parts(head, &mut next.next_part),
            None => Ok(Vec::new()),
        };
        // Whatever happens, no number is used twice.
        manifest.next_part = next.next_part;
        let written = written?;
        let published = self.publish(&mut next, &written, position, outcome);
        if let Err(e) = published {
            // A manifest that is in place without being known to be persisted counts these bytes of
            // the catalogue: they must not be overwritten.
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

    /// Let readers see the parts that a manifest names.
    pub(crate) fn show(&self, live: &mut Live, manifest: &Manifest) {
        let shown = live.parts.values().flatten().chain(live.rollups.values());
        let known: HashMap<u64, Arc<Part>> = shown.map(|p| (p.meta.id, Arc::clone(p))).collect();
        let (mut parts, mut rollups) = (Parts::new(), BTreeMap::new());
        for meta in &manifest.parts {
            let part = known.get(&meta.id).filter(|p| p.meta == *meta).cloned();
            let part = part.unwrap_or_else(|| {
                Arc::new(Part::new(&self.options.files, &self.parts_dir(), *meta))
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

    /// The log below what is sealed goes. What fails here is tried again at the next seal.
    fn trim(&self, manifest: &Manifest) {
        let Some(journal) = self.journal.read().clone() else { return };
        let below = (manifest.sealed + 1).saturating_sub(manifest.log_base);
        if let Err(e) = journal.trim(below) {
            tracing::warn!(below, "the log cannot be trimmed: {e}");
        }
    }

    /// Append the rows that are new to the catalogue's file. The bytes written.
    fn write_catalog(&self, next: &mut Manifest) -> Result<u64, WriteError> {
        let rows = self.catalog.rows();
        if rows == next.catalog_rows {
            return Ok(0);
        }
        let mut body = Vec::new();
        self.catalog.encode(next.catalog_rows, rows, &mut body);
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        frame.append(&mut body);
        let path = self.dir.join(CATALOG);
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

    /// Write the parts of a closed head; their names are not persisted yet.
    fn write_parts(
        &self,
        cell: &HeadCell,
        next_part: &mut u64,
    ) -> Result<Vec<PartMeta>, WriteError> {
        let partitions = cell.head.read().partitions();
        let rows = cell.head.read().row_ids();
        let mut written = Vec::new();
        for some in partitions.chunks(PARTITIONS_PER_PASS) {
            let metas = some.iter().zip(*next_part..).map(|(partition, id)| PartMeta {
                id,
                partition: *partition,
                position_min: cell.first(),
                position_max: cell.last(),
                ..PartMeta::default()
            });
            let metas: Vec<PartMeta> = metas.collect();
            *next_part += metas.len() as u64;
            match self.write_pass(cell, &rows, &metas) {
                Ok(done) => written.extend(done),
                Err(e) => {
                    self.remove_files(&metas);
                    self.remove_files(&written);
                    return Err(e);
                }
            }
        }
        Ok(written)
    }

    fn write_pass(
        &self,
        cell: &HeadCell,
        rows: &[u32],
        metas: &[PartMeta],
    ) -> Result<Vec<PartMeta>, WriteError> {
        let (files, dir) = (&*self.options.files, self.parts_dir());
        let mut writers = Vec::new();
        for meta in metas {
            writers.push((meta.partition, PartWriter::create(files, &dir, *meta)?));
        }
        let (Some(first), Some(last)) = (metas.first(), metas.last()) else {
            return Ok(Vec::new());
        };
        let from_ns = partition_range(first.partition).from_ns;
        let to_ns = partition_range(last.partition).to_ns;
        let mut work = Work::default();
        for row in rows {
            let table =
                cell.head.read().read(*row, TimeRange { from_ns, to_ns }, Want::All, &mut work);
            let (Some(from), Some(to)) = (table.times.first(), table.times.last()) else {
                continue;
            };
            let (from, to) = (partition_of(*from), partition_of(*to));
            for (partition, writer) in writers.iter_mut().filter(|(p, _)| (from..=to).contains(p)) {
                let whole = from == to;
                let slice = (!whole).then(|| table.slice(partition_range(*partition)));
                writer.row(*row, slice.as_ref().unwrap_or(&table), &mut work)?;
            }
        }
        let mut done = Vec::new();
        for (_, writer) in writers {
            done.push(writer.finish()?);
        }
        Ok(done)
    }

    /// Remove files of parts that came to nothing. A manifest that could be put in place but not
    /// persisted may name them: those stay. What cannot be removed is at the next opening.
    pub(crate) fn remove_files(&self, metas: &[PartMeta]) {
        let Ok(manifest) = Manifest::load(&*self.options.files, &self.dir) else { return };
        let named = manifest.unwrap_or_default().parts;
        for meta in metas.iter().filter(|m| named.iter().all(|n| n.id != m.id)) {
            let _ = self.options.files.remove(&self.parts_dir().join(meta.file_name()));
        }
    }
}
