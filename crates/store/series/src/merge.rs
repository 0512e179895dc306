//! Merges of parts that are neighbours in position.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roaring::RoaringBitmap;

use crate::core::Core;
use crate::error::{WriteError, refused};
use crate::head::partition_range;
use crate::manifest::Manifest;
use crate::model::{MergeOutcome, TimeRange};
use crate::options::{OPEN_INDEX_BYTES_MAX, OPEN_PARTS_MAX};
use crate::part::{Part, PartMeta, PartWriter};
use crate::record::Tombstone;
use crate::retain::is_due;
use crate::sharing::{self, Shared};
use crate::table::{Table, Want, Work};

/// A part joins the run of newer ones if it is at most so many times as large as they together.
const GROWTH: u64 = 4;
/// Parts of a partition that is still written from which on they are merged.
const RUN_MIN: usize = 4;
/// Time after which a partition whose merge was refused by the operating system is tried again.
const RETRY_AFTER: Duration = Duration::from_mins(5);
/// Parts of a partition from which on all are merged, however large.
const PARTS_MAX: usize = 8;
/// Time after its end from which on a partition counts as finished, in nanoseconds.
const FINISHED_NS: i64 = 30 * 60 * 1_000_000_000;

impl Core {
    pub(crate) fn now_ns(&self) -> i64 {
        i64::try_from(self.options.clock.now_us()).unwrap_or(i64::MAX).saturating_mul(1000)
    }

    /// Merge until nothing is worth merging.
    pub(crate) fn merge(&self) -> Result<MergeOutcome, WriteError> {
        let mut outcome = MergeOutcome::default();
        while self.merge_once(&mut outcome)? {}
        self.close_unread();
        Ok(outcome)
    }

    /// Close the parts that were not read for longest, beyond what is kept open.
    pub(crate) fn close_unread(&self) {
        let live = self.live.read();
        let (parts, rollups) = (Arc::clone(&live.parts), Arc::clone(&live.rollups));
        drop(live);
        let all = parts.values().flatten().chain(rollups.values());
        let mut open: Vec<_> = all.filter_map(|p| Some((p.open_since()?, p))).collect();
        open.sort_by_key(|(read_last, _)| std::cmp::Reverse(*read_last));
        let (mut count, mut index_bytes) = (0, 0);
        for (_, part) in open {
            count += 1;
            index_bytes += part.meta.index_bytes;
            if count > OPEN_PARTS_MAX || index_bytes > OPEN_INDEX_BYTES_MAX {
                part.close();
            }
        }
    }

    /// One merge or roll-up, if any is worth it.
    pub(crate) fn merge_once(&self, outcome: &mut MergeOutcome) -> Result<bool, WriteError> {
        let mut manifest = self.maintain.lock();
        let live = self.live.read();
        let (parts, rollups) = (Arc::clone(&live.parts), Arc::clone(&live.rollups));
        drop(live);
        // A delete whose record is not known to be sealed may be lost with the log.
        let tombstones = manifest.tombstones.clone();
        let finished = self.now_ns().saturating_sub(FINISHED_NS);
        let (damaged, now) = (self.damaged.lock().clone(), self.options.clock.monotonic());
        let whole = |p: &i64| damaged.get(p).is_none_or(|until| *until <= now);
        let is_finished = |p: i64| partition_range(p).to_ns < finished;
        for (partition, parts) in parts.iter().filter(|(p, _)| whole(p)) {
            let run = pick(parts, &tombstones, is_finished(*partition));
            if !run.is_empty() {
                let done = self.merge_run(&mut manifest, &run, &tombstones, outcome);
                return self.noting(*partition, done).map(|()| true);
            }
        }
        let all = parts.keys().chain(rollups.keys()).copied().collect::<BTreeSet<i64>>();
        for partition in all.into_iter().filter(|p| whole(p) && is_finished(*p)) {
            let parts = parts.get(&partition).map_or(&[][..], Vec::as_slice);
            let rollup = rollups.get(&partition);
            let wanted = self.options.rollups_beside || rollup.is_some();
            if wanted && is_due(parts, rollup.map(|r| &r.meta), &tombstones) {
                let done = self.roll(&mut manifest, partition, None, outcome);
                return self.noting(partition, done).map(|()| true);
            }
        }
        Ok(false)
    }

    /// Remember a partition that cannot be merged, so that the others go on.
    fn noting<T>(&self, partition: i64, done: Result<T, WriteError>) -> Result<T, WriteError> {
        let until = match &done {
            Err(WriteError::Corrupt(_)) => Some(Duration::MAX),
            // Too many open files, for instance: that may be over later.
            Err(WriteError::Io { .. }) => Some(self.options.clock.monotonic() + RETRY_AFTER),
            _ => None,
        };
        if let Some(until) = until {
            self.damaged.lock().insert(partition, until);
        }
        done
    }

    fn merge_run(
        &self,
        manifest: &mut Manifest,
        run: &[Arc<Part>],
        tombstones: &[Tombstone],
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        let Some(first) = run.first() else { return Ok(()) };
        let meta = PartMeta {
            id: manifest.next_part,
            position_min: first.meta.position_min,
            position_max: run.last().map_or(0, |p| p.meta.position_max),
            ..first.meta
        };
        manifest.next_part += 1;
        let merged = self.write_merged(run, meta, tombstones, manifest.sealed);
        self.put(manifest, run, meta, merged, outcome)
    }

    /// Put what was written in the place of some parts, or remove what came of it.
    pub(crate) fn put(
        &self,
        manifest: &mut Manifest,
        gone: &[Arc<Part>],
        meta: PartMeta,
        written: Result<Option<PartMeta>, WriteError>,
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        let replaced = written.and_then(|written| {
            self.replace(manifest, gone, written)?;
            Ok(written)
        });
        let written = replaced.inspect_err(|_| self.remove_files(&[meta]))?;
        outcome.parts_before += gone.len() as u32;
        outcome.parts_after += u32::from(written.is_some());
        outcome.bytes_written += written.map_or(0, |m| m.bytes);
        outcome.bytes_removed += gone.iter().map(|p| p.meta.bytes).sum::<u64>();
        Ok(())
    }

    fn write_merged(
        &self,
        run: &[Arc<Part>],
        meta: PartMeta,
        tombstones: &[Tombstone],
        sealed: u64,
    ) -> Result<Option<PartMeta>, WriteError> {
        let mut rows = RoaringBitmap::new();
        for part in run {
            rows |= RoaringBitmap::from_sorted_iter(part.rows()?).unwrap_or_default();
        }
        let mut work = Work::default();
        self.write_rows(meta, (sealed, false), rows.into_iter(), |row| {
            let shared = self.catalog.sharing().of(row).to_vec();
            merged_row(run, (row, &shared), tombstones, &mut work)
        })
    }

    /// Write a part of rows made one after another; `None` if there are none, unless it may be empty.
    pub(crate) fn write_rows(
        &self,
        meta: PartMeta,
        (sealed, even_empty): (u64, bool),
        rows: impl Iterator<Item = u32>,
        mut make: impl FnMut(u32) -> Result<Option<Table>, WriteError>,
    ) -> Result<Option<PartMeta>, WriteError> {
        let mut writer = PartWriter::create(&*self.options.files, &self.parts_dir(), meta)?;
        let mut work = Work::default();
        for row in rows {
            if self.stopping.load(Ordering::Acquire) {
                return Err(WriteError::Closed);
            }
            if let Some(table) = make(row)? {
                writer.row(row, &table, &mut work)?;
            }
        }
        if writer.is_empty() && !even_empty {
            drop(writer);
            self.remove_files(&[meta]);
            return Ok(None);
        }
        let mut written = writer.finish()?;
        (written.applied, written.alone) = (sealed, meta.alone);
        Ok(Some(written))
    }

    /// Put a part, or nothing, in the place of some parts: durably, then for readers.
    pub(crate) fn replace(
        &self,
        manifest: &mut Manifest,
        gone: &[Arc<Part>],
        new: Option<PartMeta>,
    ) -> Result<(), WriteError> {
        let dir = self.parts_dir();
        self.options.files.persist_dir(&dir).map_err(refused(&dir, "cannot persist"))?;
        let mut next = manifest.clone();
        next.parts.retain(|m| gone.iter().all(|p| p.meta.id != m.id));
        next.parts.extend(new);
        let sealed = next.sealed;
        let done = |t: &Tombstone| sealed >= t.position && next.parts.iter().all(|m| !waits(t, m));
        let over: Vec<u64> =
            next.tombstones.iter().filter(|t| done(t)).map(|t| t.position).collect();
        next.tombstones.retain(|t| !over.contains(&t.position));
        next.store(&*self.options.files, &self.dir)?;
        *manifest = next;
        let mut live = self.live.write();
        self.show(&mut live, manifest);
        let kept = live.tombstones.iter().filter(|t| !over.contains(&t.position));
        live.tombstones = Arc::new(kept.cloned().collect());
        drop(live);
        for part in gone.iter().filter(|p| new.is_none_or(|new| new.id != p.meta.id)) {
            part.replace();
        }
        Ok(())
    }
}

/// What parts have of a row together, without what was deleted. Where a later part has a value of a
/// series that the row shares, it holds.
fn merged_row(
    run: &[Arc<Part>],
    (row, shared): (u32, &[Shared]),
    tombstones: &[Tombstone],
    work: &mut Work,
) -> Result<Option<Table>, WriteError> {
    let mut read = |part: &Arc<Part>, row, want| -> Result<Option<Table>, WriteError> {
        let Some(mut table) = part.table(row, TimeRange::ALL, want, work)? else { return Ok(None) };
        for t in tombstones.iter().filter(|t| t.hits(row, None, part.meta.position_max)) {
            table.keep(|time| !t.range.contains(time));
        }
        Ok(Some(table))
    };
    let mut all: Option<Table> = None;
    for part in run {
        for other in shared {
            let Some(all) = &mut all else { break };
            if let Some(with) = read(part, other.row, Want::One(other.column))? {
                all.settle();
                sharing::agree(all, other.own, &with);
            }
        }
        match (&mut all, read(part, row, Want::All)?) {
            (Some(all), Some(table)) => all.append(&table),
            (None, table) => all = table,
            (Some(_), None) => {}
        }
    }
    if let Some(all) = &mut all {
        all.settle();
    }
    Ok(all)
}

/// Whether a tombstone has still to be applied to a part.
pub(crate) fn waits(tombstone: &Tombstone, part: &PartMeta) -> bool {
    let range = partition_range(part.partition);
    part.position_max < tombstone.position
        && tombstone.range.touches(range.from_ns, range.to_ns - 1)
        && ((tombstone.is_partial() && part.step_s == 0) || part.applied < tombstone.position)
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
