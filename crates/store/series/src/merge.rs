//! Merges of parts that are neighbours in position, and retention.

use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::core::{Core, Parts};
use crate::error::{WriteError, refused};
use crate::head::partition_range;
use crate::manifest::Manifest;
use crate::model::{MergeOutcome, TimeRange};
use crate::part::{Part, PartMeta, PartWriter};
use crate::record::Tombstone;
use crate::table::{Table, Want, Work};

/// A part joins the run of newer ones if it is at most so many times as large as they together.
const GROWTH: u64 = 4;
/// Parts of a partition that is still written from which on they are merged.
const RUN_MIN: usize = 4;
/// Parts of a partition from which on all are merged, however large.
const PARTS_MAX: usize = 8;
/// Time after its end from which on a partition counts as finished, in nanoseconds.
const FINISHED_NS: i64 = 30 * 60 * 1_000_000_000;

impl Core {
    fn now_ns(&self) -> i64 {
        i64::try_from(self.options.clock.now_us()).unwrap_or(i64::MAX).saturating_mul(1000)
    }

    /// Merge until nothing is worth merging.
    pub(crate) fn merge(&self) -> Result<MergeOutcome, WriteError> {
        let mut outcome = MergeOutcome::default();
        while self.merge_once(&mut outcome)? {}
        Ok(outcome)
    }

    /// One merge, if any is worth it.
    pub(crate) fn merge_once(&self, outcome: &mut MergeOutcome) -> Result<bool, WriteError> {
        let mut manifest = self.maintain.lock();
        let live = self.live.read();
        let (parts, tombstones) = (Arc::clone(&live.parts), Arc::clone(&live.tombstones));
        drop(live);
        let finished = self.now_ns().saturating_sub(FINISHED_NS);
        let mut run = Vec::new();
        for (partition, parts) in parts.iter() {
            run = pick(parts, &tombstones, partition_range(*partition).to_ns < finished);
            if !run.is_empty() {
                break;
            }
        }
        let Some(first) = run.first() else { return Ok(false) };
        let mut next = manifest.clone();
        let meta = PartMeta {
            id: next.next_part,
            position_min: first.meta.position_min,
            position_max: run.last().map_or(0, |p| p.meta.position_max),
            ..first.meta
        };
        next.next_part += 1;
        let merged = self.write_merged(&run, meta, &tombstones);
        let replaced = merged.and_then(|merged| {
            self.replace(&mut next, &run, merged)?;
            Ok(merged)
        });
        let merged = match replaced {
            Ok(merged) => merged,
            Err(e) => {
                self.remove_files(&[meta]);
                return Err(e);
            }
        };
        *manifest = next;
        outcome.parts_before += run.len() as u32;
        outcome.parts_after += u32::from(merged.is_some());
        outcome.bytes_written += merged.map_or(0, |m| m.bytes);
        outcome.bytes_removed += run.iter().map(|p| p.meta.bytes).sum::<u64>();
        Ok(true)
    }

    fn write_merged(
        &self,
        run: &[Arc<Part>],
        meta: PartMeta,
        tombstones: &[Tombstone],
    ) -> Result<Option<PartMeta>, WriteError> {
        let mut rows = RoaringBitmap::new();
        for part in run {
            rows |= RoaringBitmap::from_sorted_iter(part.rows()?).unwrap_or_default();
        }
        let mut writer = PartWriter::create(&*self.options.files, &self.parts_dir(), meta)?;
        let mut work = Work::default();
        for row in rows {
            if let Some(table) = merged_row(run, row, tombstones, &mut work)? {
                writer.row(row, &table, &mut work)?;
            }
        }
        if writer.is_empty() {
            drop(writer);
            self.remove_files(&[meta]);
            return Ok(None);
        }
        let mut merged = writer.finish()?;
        merged.applied = tombstones.iter().map(|t| t.position).max().unwrap_or(0);
        Ok(Some(merged))
    }

    /// Put a part, or nothing, in the place of a run of parts: durably, then for readers.
    fn replace(
        &self,
        next: &mut Manifest,
        run: &[Arc<Part>],
        merged: Option<PartMeta>,
    ) -> Result<(), WriteError> {
        let dir = self.parts_dir();
        self.options.files.persist_dir(&dir).map_err(refused(&dir, "cannot persist"))?;
        let gone = |id: u64| run.iter().any(|p| p.meta.id == id);
        let at = next.parts.iter().position(|m| gone(m.id)).unwrap_or(0);
        next.parts.retain(|m| !gone(m.id));
        if let Some(merged) = merged {
            next.parts.insert(at, merged);
        }
        let sealed = next.sealed;
        let done = |t: &Tombstone| sealed >= t.position && next.parts.iter().all(|m| !waits(t, m));
        let over: Vec<u64> =
            next.tombstones.iter().filter(|t| done(t)).map(|t| t.position).collect();
        next.tombstones.retain(|t| !over.contains(&t.position));
        next.store(&*self.options.files, &self.dir)?;
        let mut live = self.live.write();
        let mut parts = Parts::clone(&live.parts);
        for part in run {
            let Some(of) = parts.get_mut(&part.meta.partition) else { continue };
            let at = of.iter().position(|p| p.meta.id == part.meta.id);
            of.retain(|p| p.meta.id != part.meta.id);
            if let (Some(at), Some(merged)) =
                (at, merged.filter(|m| of.iter().all(|p| p.meta.id != m.id)))
            {
                of.insert(at, Arc::new(Part::new(&self.options.files, &dir, merged)));
            }
            if of.is_empty() {
                parts.remove(&part.meta.partition);
            }
        }
        live.parts = Arc::new(parts);
        let kept = live.tombstones.iter().filter(|t| !over.contains(&t.position));
        live.tombstones = Arc::new(kept.cloned().collect());
        drop(live);
        for part in run {
            part.replace();
        }
        Ok(())
    }

    /// Drop partitions that are older, or more, than the retention keeps.
    pub(crate) fn retain(&self) -> Result<MergeOutcome, WriteError> {
        let mut outcome = MergeOutcome::default();
        let mut manifest = self.maintain.lock();
        loop {
            let parts = Arc::clone(&self.live.read().parts);
            let Some((partition, oldest)) = parts.first_key_value() else { return Ok(outcome) };
            let bytes: u64 = parts.values().flatten().map(|p| p.meta.bytes).sum();
            let old = partition_range(*partition).to_ns <= self.oldest_ns();
            let over = self.options.retention.bytes_max.is_some_and(|max| bytes > max);
            if !old && !over {
                return Ok(outcome);
            }
            let mut next = manifest.clone();
            self.replace(&mut next, oldest, None)?;
            *manifest = next;
            outcome.parts_before += oldest.len() as u32;
            outcome.bytes_removed += oldest.iter().map(|p| p.meta.bytes).sum::<u64>();
        }
    }
}

/// What parts have of a row together, without what was deleted.
fn merged_row(
    run: &[Arc<Part>],
    row: u32,
    tombstones: &[Tombstone],
    work: &mut Work,
) -> Result<Option<Table>, WriteError> {
    let mut all: Option<Table> = None;
    for part in run {
        let Some(mut table) = part.table(row, TimeRange::ALL, Want::All, work)? else { continue };
        for t in tombstones.iter().filter(|t| t.hits(row, None, part.meta.position_max)) {
            table.keep(|time| !t.range.contains(time));
        }
        match &mut all {
            Some(all) => all.append(&table),
            None => all = Some(table),
        }
    }
    if let Some(all) = &mut all {
        all.settle();
    }
    Ok(all)
}

/// Whether a tombstone has still to be applied to a part.
fn waits(tombstone: &Tombstone, part: &PartMeta) -> bool {
    let range = partition_range(part.partition);
    part.position_max < tombstone.position
        && tombstone.range.touches(range.from_ns, range.to_ns - 1)
        && (tombstone.is_partial() || part.applied < tombstone.position)
}

/// Neighbours worth merging.
fn pick(parts: &[Arc<Part>], tombstones: &[Tombstone], finished: bool) -> Vec<Arc<Part>> {
    let buried = |p: &&Arc<Part>| tombstones.iter().any(|t| !t.is_partial() && waits(t, &p.meta));
    if let Some(part) = parts.iter().find(buried) {
        return vec![Arc::clone(part)];
    }
    // A delete of single metrics is applied when reading; parts on either side stay apart.
    let between = |a: &PartMeta, b: &PartMeta| {
        let partial = |t: &&Tombstone| t.is_partial() && a.position_max < t.position;
        tombstones.iter().filter(partial).any(|t| t.position <= b.position_min)
    };
    let mut runs: Vec<Vec<Arc<Part>>> = Vec::new();
    for part in parts {
        match runs.last_mut().and_then(|run| run.last().map(|p| p.meta).map(|m| (run, m))) {
            Some((run, before)) if !between(&before, &part.meta) => run.push(Arc::clone(part)),
            _ => runs.push(vec![Arc::clone(part)]),
        }
    }
    for run in runs {
        if run.len() >= PARTS_MAX {
            return run;
        }
        let (mut begin, mut bytes) = (run.len(), 0);
        for (i, part) in run.iter().enumerate().rev() {
            if begin < run.len() && part.meta.bytes > GROWTH * bytes {
                break;
            }
            (begin, bytes) = (i, bytes + part.meta.bytes);
        }
        let least = if finished { 2 } else { RUN_MIN };
        if run.len() - begin >= least {
            return run.into_iter().skip(begin).collect();
        }
    }
    Vec::new()
}
