//! Forgets row series without samples: those whose last samples were removed by retention, deletes
//! or merges, and those that were never written. Their names are removed from memory, searches,
//! limits and the disk.
//!
//! A row is kept while a part or a head has samples of it, and if it was requested in the last two
//! epochs: a handle stays valid for that long without another request. Numbers are never reused, so
//! a stale reference, such as a tombstone, cannot match another row.
//!
//! Memory is updated first. Then the file is rewritten under another name, which the manifest names
//! when the file is complete. Rows that reappear after a crash have no samples and are forgotten
//! again.

use std::collections::HashSet;
use std::sync::Arc;

use env::files::Access;
use roaring::RoaringBitmap;

use crate::core::Core;
use crate::error::{WriteError, refused};
use crate::manifest::Manifest;

/// Maximum number of rows forgotten at a time, while writers wait.
const ROWS_AT_ONCE: usize = 65_536;
/// Rows in one frame of a rewritten catalogue.
const FRAME_ROWS: u32 = 1 << 16;
impl Core {
    /// Forgets rows that have no samples, if any may have lost them.
    pub(crate) fn forget(&self) -> Result<(), WriteError> {
        if !self.forgetting.take_look() {
            return Ok(());
        }
        let (mut rows, mut looked) = (self.idle_rows(), HashSet::new());
        // Parts are read before the lock is taken, so that seals do not wait. Newer parts are read
        // below.
        if !self.leave_out_held(&mut rows, &mut looked) {
            return Ok(());
        }
        let mut manifest = self.manifest.lock();
        if !self.leave_out_held(&mut rows, &mut looked) {
            return Ok(());
        }
        let rows: Vec<u32> = rows.into_iter().collect();
        let mut forgotten = 0;
        for some in rows.chunks(ROWS_AT_ONCE) {
            // While this is held, no batch is logged or applied.
            let _committing = self.commit.lock();
            let heads = self.live.read().heads.clone();
            let of_heads = |id: &u32| heads.iter().any(|cell| cell.head.read().has(*id));
            let some: Vec<u32> = some.iter().copied().filter(|id| !of_heads(id)).collect();
            forgotten += self.catalog.forget(&some);
        }
        if forgotten == 0 && !self.forgetting.has_names_on_disk() {
            return Ok(());
        }
        self.forgetting.set_names_on_disk(true);
        let written = self.rewrite_catalog(&mut manifest);
        match &written {
            Ok(()) => self.forgetting.set_names_on_disk(false),
            Err(_) => self.forgetting.samples_went(),
        }
        written
    }

    /// Returns the rows that were not requested recently and are in no head.
    fn idle_rows(&self) -> RoaringBitmap {
        let mut rows = self.catalog.begin_epoch();
        let heads = self.live.read().heads.clone();
        for cell in heads {
            rows -= cell.head.read().row_ids().into_iter().collect::<RoaringBitmap>();
        }
        rows
    }

    /// Removes the rows of all parts that are not in `looked` from `rows`. Returns false if a part
    /// cannot be read. The part in which a row was found is cached: the next call reads nothing for
    /// the row while that part exists.
    fn leave_out_held(&self, rows: &mut RoaringBitmap, looked: &mut HashSet<u64>) -> bool {
        let live = self.live.read();
        let (parts, rollups) = (Arc::clone(&live.parts), Arc::clone(&live.rollups));
        drop(live);
        let all = || parts.values().rev().flatten().chain(rollups.values().rev());
        let ids: HashSet<u64> = all().map(|part| part.meta.id).collect();
        let mut held = self.forgetting.rows_in_parts.lock();
        held.retain(|part, _| ids.contains(part));
        held.values().for_each(|some| *rows -= some);
        // Rows that are written occasionally are in the newest parts, so these are read first.
        for part in all() {
            if rows.is_empty() {
                break;
            }
            if !looked.insert(part.meta.id) {
                continue;
            }
            let mut some = match part.rows() {
                Ok(some) => some,
                Err(e) => {
                    tracing::warn!("no series is forgotten while a part cannot be read: {e}");
                    return false;
                }
            };
            some &= &*rows;
            *rows -= &some;
            if !some.is_empty() {
                *held.entry(part.meta.id).or_default() |= some;
            }
        }
        true
    }

    /// Rewrites the catalogue without the forgotten rows.
    fn rewrite_catalog(&self, manifest: &mut Manifest) -> Result<(), WriteError> {
        let mut next = manifest.clone();
        next.catalog = next.next_part;
        next.next_part += 1;
        manifest.next_part = next.next_part;
        let (files, dir) = (&*self.options.files, &self.dir);
        let path = dir.join(next.catalog_name());
        let rows = self.catalog.rows();
        let write = || {
            let file = files.open(&path, Access::CREATE)?;
            file.set_size(0)?;
            let mut at = 0;
            for from in (0..rows).step_by(FRAME_ROWS as usize) {
                let frame = self.catalog_frame(from, rows.min(from.saturating_add(FRAME_ROWS)));
                file.write_all_at(&frame, at)?;
                at += frame.len() as u64;
            }
            file.persist()?;
            files.persist_dir(dir)?;
            Ok(at)
        };
        let written: std::io::Result<u64> = write();
        let stored = written.map_err(refused(&path, "cannot write")).and_then(|bytes| {
            (next.catalog_bytes, next.catalog_rows) = (bytes, rows);
            next.store(files, dir)
        });
        if let Err(e) = stored {
            // A manifest may have been replaced without being known to be persisted, and may name
            // this file.
            let named = Manifest::load(files, dir);
            if named.is_ok_and(|m| m.is_none_or(|m| m.catalog != next.catalog)) {
                let _ = files.remove(&path);
            }
            return Err(e);
        }
        // A file that cannot be removed now is removed at the next open.
        let _ = files.remove(&dir.join(manifest.catalog_name()));
        *manifest = next;
        Ok(())
    }

    /// Returns a frame of the catalogue's file with the rows `from..to`.
    pub(crate) fn catalog_frame(&self, from: u32, to: u32) -> Vec<u8> {
        let mut body = Vec::new();
        self.catalog.encode(from, to, &mut body);
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        frame.append(&mut body);
        frame
    }
}
