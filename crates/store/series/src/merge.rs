//! Merges of parts with adjacent positions.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::core::Core;
use crate::error::{WriteError, refused};
use crate::head::partition_range;
use crate::manifest::Manifest;
use crate::model::MergeOutcome;
use crate::part::{Part, PartMeta, PartWriter};
use crate::record::Tombstone;
use crate::retain::is_due;
use crate::table::{ScratchBuffers, Table};

mod rows;
use rows::Rows;

/// A part joins the run of newer parts if its size is at most this many times their total.
const GROWTH: u64 = 4;
/// Minimum number of parts that are merged in a partition that is still written.
const RUN_MIN: usize = 4;
/// Number of parts from which on all parts of a partition are merged, however large.
const PARTS_MAX: usize = 8;
/// Maximum number of partitions merged together into one file with one manifest, and the size in
/// bytes from which on no further partition is added.
const RUNS_MAX: usize = 64;
const RUNS_BYTES_MAX: u64 = 8 << 20;
/// Time after the end of a partition from which on it counts as finished, in nanoseconds.
const FINISHED_NS: i64 = 30 * 60 * 1_000_000_000;

/// The outcome of a merge step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeStep {
    /// There may be more to merge.
    More,
    /// Nothing was worth merging.
    Done,
}

impl Core {
    /// Merges until nothing is worth merging.
    pub(crate) fn merge(&self) -> Result<MergeOutcome, WriteError> {
        let mut outcome = MergeOutcome::default();
        while self.merge_once(&mut outcome)? == MergeStep::More {}
        self.forget()?;
        Ok(outcome)
    }

    /// Makes one merge or roll-up if one is due. First marks deletes as applied to parts that they
    /// do not hit, so that these are not examined again.
    pub(crate) fn merge_once(&self, outcome: &mut MergeOutcome) -> Result<MergeStep, WriteError> {
        let mut manifest = self.manifest.lock();
        let live = self.live.read();
        let (parts, rollups) = (Arc::clone(&live.parts), Arc::clone(&live.rollups));
        drop(live);
        let finished = self.now_ns().saturating_sub(FINISHED_NS);
        let now = self.options.clock.monotonic();
        let whole = |p: &i64| self.upkeep.unread.lock().may_merge(*p, now);
        let is_finished = |p: i64| partition_range(p).to_ns < finished;
        // A delete whose record is not known to be sealed may be lost with the log.
        let mut deletes = Deletes::of(&manifest.tombstones);
        let (mut runs, mut bytes) = (Vec::new(), 0);
        for (partition, parts) in parts.iter().filter(|(p, _)| whole(p)) {
            let run = pick(parts, &mut deletes, is_finished(*partition));
            if run.is_empty() {
                continue;
            }
            bytes += run.iter().map(|p| p.meta.bytes).sum::<u64>();
            runs.push(run);
            if runs.len() >= RUNS_MAX || bytes >= RUNS_BYTES_MAX {
                break;
            }
        }
        let all = parts.keys().chain(rollups.keys()).copied().collect::<BTreeSet<i64>>();
        let mut all = all.into_iter().filter(|p| whole(p) && is_finished(*p));
        let rolled = all.find(|partition| {
            let parts = parts.get(partition).map_or(&[][..], Vec::as_slice);
            let rollup = rollups.get(partition);
            let wanted = self.options.rollups_beside || rollup.is_some();
            let mut buried = || rollup.is_some_and(|rollup| deletes.hit(rollup));
            runs.is_empty() && wanted && (is_due(parts, rollup.map(|r| &r.meta)) || buried())
        });
        let missed = deletes.missed;
        if !missed.is_empty() {
            return self.record_missed(&mut manifest, &missed).map(|()| MergeStep::More);
        }
        if !runs.is_empty() {
            let tombstones = manifest.tombstones.clone();
            return self
                .merge_runs(&mut manifest, &runs, &tombstones, outcome)
                .map(|()| MergeStep::More);
        }
        let Some(partition) = rolled else { return Ok(MergeStep::Done) };
        let done = self.roll(&mut manifest, partition, None, outcome);
        self.noting(&mut manifest, partition, done).map(|()| MergeStep::More)
    }

    /// Marks all current deletes as applied to the parts that none of them hits.
    fn record_missed(
        &self,
        manifest: &mut Manifest,
        missed: &HashSet<u64>,
    ) -> Result<(), WriteError> {
        let mut next = manifest.clone();
        for part in next.parts.iter_mut().filter(|part| missed.contains(&part.id)) {
            part.applied = next.sealed;
        }
        self.replace(&mut next, &[], &[])?;
        *manifest = next;
        Ok(())
    }

    /// Records the result for a partition and returns it. A partition that cannot be read does not
    /// stop the others. The manifest is written at once after each further hour of failures, and
    /// otherwise with its next change.
    pub(crate) fn noting<T>(
        &self,
        manifest: &mut Manifest,
        partition: i64,
        done: Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let mut unread = self.upkeep.unread.lock();
        let another_hour = unread.note(partition, &done, self.options.clock.monotonic());
        unread.retain_partitions(&manifest.parts.iter().map(|part| part.partition).collect());
        manifest.unread = unread.refused_s();
        drop(unread);
        if another_hour && let Err(e) = manifest.store(&*self.options.files, &self.dir) {
            tracing::warn!("series: {e}");
        }
        done
    }

    /// Merges runs of parts, each of one partition, into one file. If that fails, merges the first
    /// run alone, so that an unreadable part does not prevent other merges.
    fn merge_runs(
        &self,
        manifest: &mut Manifest,
        runs: &[Vec<Arc<Part>>],
        tombstones: &[Tombstone],
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        let together = self.merge_together(manifest, runs, tombstones, outcome);
        let unread = matches!(
            together,
            Err(WriteError::Corrupt(_) | WriteError::Io { .. } | WriteError::Unread { .. })
        );
        let partition = |run: &Vec<Arc<Part>>| run.first().map_or(0, |p| p.meta.partition);
        let Some(first) = runs.first().filter(|_| unread) else {
            // Partitions that could not be read before have been read now.
            let done = runs.iter().filter(|_| together.is_ok());
            done.map(partition).try_for_each(|p| self.noting(manifest, p, Ok(())))?;
            return together;
        };
        let one = std::slice::from_ref(first);
        let done = if runs.len() > 1 {
            self.merge_together(manifest, one, tombstones, outcome)
        } else {
            together
        };
        self.noting(manifest, partition(first), done)
    }

    fn merge_together(
        &self,
        manifest: &mut Manifest,
        runs: &[Vec<Arc<Part>>],
        tombstones: &[Tombstone],
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        let file = manifest.next_part;
        let metas = runs.iter().zip(file..).filter_map(|(run, id)| {
            let (first, last) = (run.first()?.meta, run.last()?.meta);
            Some(PartMeta { id, file, position_max: last.position_max, ..first })
        });
        let metas: Vec<PartMeta> = metas.collect();
        manifest.next_part += metas.len() as u64;
        let merged = self.write_merged(runs, &metas, tombstones, manifest.sealed);
        let gone: Vec<Arc<Part>> = runs.iter().flatten().cloned().collect();
        self.install_parts(manifest, &gone, &metas, merged, outcome)
    }

    /// Replaces some parts by the written ones, or removes the written files after a failure.
    pub(crate) fn install_parts(
        &self,
        manifest: &mut Manifest,
        gone: &[Arc<Part>],
        metas: &[PartMeta],
        written: Result<Vec<PartMeta>, WriteError>,
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        let replaced = written.and_then(|written| {
            self.replace(manifest, gone, &written)?;
            Ok(written)
        });
        let written = replaced.inspect_err(|_| self.remove_files(metas))?;
        outcome.parts_before += gone.len() as u32;
        outcome.parts_after += written.len() as u32;
        outcome.bytes_written += written.iter().map(|m| m.bytes).sum::<u64>();
        outcome.bytes_removed += gone.iter().map(|p| p.meta.bytes).sum::<u64>();
        Ok(())
    }

    fn write_merged(
        &self,
        runs: &[Vec<Arc<Part>>],
        metas: &[PartMeta],
        tombstones: &[Tombstone],
        sealed: u64,
    ) -> Result<Vec<PartMeta>, WriteError> {
        let mut writer = PartWriter::create(&*self.options.files, &self.parts_dir(), metas)?;
        let mut work = ScratchBuffers::default();
        for (at, run) in runs.iter().enumerate() {
            let mut rows = RoaringBitmap::new();
            for part in run {
                rows |= part.rows()?;
            }
            for row in rows {
                self.write_merged_row(&mut writer, at, row, run, tombstones, &mut work)?;
            }
        }
        self.written(writer, metas, sealed, false)
    }

    fn write_merged_row(
        &self,
        writer: &mut PartWriter,
        at: usize,
        row: u32,
        run: &[Arc<Part>],
        tombstones: &[Tombstone],
        work: &mut ScratchBuffers,
    ) -> Result<(), WriteError> {
        let shared = self.catalog.sharing().of(row).to_vec();
        Rows::of(run, row, &shared, tombstones)?.each(work, |table, work| {
            self.go_on()?;
            writer.row(at, row, table, work)
        })
    }

    /// Returns an error if the store is being closed.
    fn go_on(&self) -> Result<(), WriteError> {
        if self.upkeep.is_stopping() { Err(WriteError::Closed) } else { Ok(()) }
    }

    /// Finishes a file of parts in which the tombstones up to a position are applied. Parts without
    /// rows are omitted, unless `even_empty` is set.
    fn written(
        &self,
        writer: PartWriter,
        metas: &[PartMeta],
        applied: u64,
        even_empty: bool,
    ) -> Result<Vec<PartMeta>, WriteError> {
        if writer.is_empty() && !even_empty {
            drop(writer);
            self.remove_files(metas);
            return Ok(Vec::new());
        }
        let done = writer.finish()?.into_iter().filter(|m| m.rows > 0 || even_empty);
        Ok(done.map(|m| PartMeta { applied, ..m }).collect())
    }

    /// Writes a part from rows that are produced one after another. Writes nothing if there are
    /// none, unless empty parts are allowed.
    pub(crate) fn write_rows(
        &self,
        meta: PartMeta,
        applied: u64,
        even_empty: bool,
        rows: impl Iterator<Item = u32>,
        mut make: impl FnMut(u32) -> Result<Option<Table>, WriteError>,
    ) -> Result<Vec<PartMeta>, WriteError> {
        let mut writer = PartWriter::create(&*self.options.files, &self.parts_dir(), &[meta])?;
        let mut work = ScratchBuffers::default();
        for row in rows {
            self.go_on()?;
            if let Some(table) = make(row)? {
                writer.row(0, row, &table, &mut work)?;
            }
        }
        self.written(writer, &[meta], applied, even_empty)
    }

    /// Replaces some parts by others, or by nothing: first durably, then for readers.
    pub(crate) fn replace(
        &self,
        manifest: &mut Manifest,
        gone: &[Arc<Part>],
        new: &[PartMeta],
    ) -> Result<(), WriteError> {
        let dir = self.parts_dir();
        self.options.files.persist_dir(&dir).map_err(refused(&dir, "cannot persist"))?;
        let mut next = manifest.clone();
        let ids: HashSet<u64> = gone.iter().map(|p| p.meta.id).collect();
        next.parts.retain(|m| !ids.contains(&m.id));
        next.parts.extend_from_slice(new);
        let sealed = next.sealed;
        let done = |t: &Tombstone| {
            sealed >= t.position && next.parts.iter().all(|m| !is_delete_pending(t, m))
        };
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
        for part in gone {
            part.replace();
        }
        self.forgetting.samples_went();
        Ok(())
    }
}

/// Deletes with the rows that they hit, and the parts with pending deletes that have none of these
/// rows. Without the latter, one delete would rewrite all parts in its range.
struct Deletes<'a> {
    /// Rows are computed only if a delete is pending for a part.
    all: Vec<(&'a Tombstone, OnceCell<RoaringBitmap>)>,
    missed: HashSet<u64>,
}

impl<'a> Deletes<'a> {
    fn of(tombstones: &'a [Tombstone]) -> Self {
        let all = tombstones.iter().map(|t| (t, OnceCell::new())).collect();
        Self { all, missed: HashSet::new() }
    }

    /// Returns true if a delete that is pending for a part hits any of its rows.
    fn hit(&mut self, part: &Part) -> bool {
        let mut waiting =
            self.all.iter().filter(|(t, _)| is_delete_pending(t, &part.meta)).peekable();
        if waiting.peek().is_none() {
            return false;
        }
        // The merge reports a part that cannot be read.
        let Ok(rows) = part.rows() else { return true };
        let of = |t: &Tombstone| t.rows.iter().map(|(row, _)| *row).collect();
        let hit = waiting.any(|(t, hit)| !hit.get_or_init(|| of(t)).is_disjoint(&rows));
        if !hit {
            self.missed.insert(part.meta.id);
        }
        hit
    }
}

/// Returns true if a tombstone is not yet applied to a part.
pub(crate) fn is_delete_pending(tombstone: &Tombstone, part: &PartMeta) -> bool {
    let range = partition_range(part.partition);
    part.position_max < tombstone.position
        && tombstone.range.touches(range.from_ns, range.to_ns - 1)
        && part.applied < tombstone.position
}

/// Returns adjacent parts worth merging: those that deletes hit, together with those that are due
/// anyway if the two overlap, so that each is written once.
fn pick(parts: &[Arc<Part>], deletes: &mut Deletes<'_>, finished: bool) -> Vec<Arc<Part>> {
    let begin = grown(parts, finished);
    let run = match hit_run(parts, deletes) {
        None => begin..parts.len(),
        Some(hit) if begin < hit.end => begin.min(hit.start)..parts.len(),
        Some(hit) => hit,
    };
    parts.get(run).unwrap_or_default().to_vec()
}

/// Returns the range from the first part that a delete hits to the last. Other parts between two of
/// them are included unless they are larger than these.
fn hit_run(parts: &[Arc<Part>], deletes: &mut Deletes<'_>) -> Option<Range<usize>> {
    let hits: Vec<bool> = parts.iter().map(|part| deletes.hit(part)).collect();
    let start = hits.iter().position(|hit| *hit)?;
    let (mut end, mut bytes, mut between) = (start, 0, 0);
    for ((i, part), hit) in parts.iter().enumerate().zip(hits).skip(start) {
        if !hit {
            between += part.meta.bytes;
            continue;
        }
        bytes += part.meta.bytes;
        if between > bytes {
            break;
        }
        (end, between) = (i + 1, 0);
    }
    Some(start..end)
}

/// Returns the index of the first of the newest parts that are worth merging; the length if none
/// are.
fn grown(parts: &[Arc<Part>], finished: bool) -> usize {
    if parts.len() >= PARTS_MAX {
        return 0;
    }
    let (mut begin, mut bytes) = (parts.len(), 0);
    for (i, part) in parts.iter().enumerate().rev() {
        if begin < parts.len() && part.meta.bytes > GROWTH * bytes {
            break;
        }
        (begin, bytes) = (i, bytes + part.meta.bytes);
    }
    let least = if finished { 2 } else { RUN_MIN };
    if parts.len() - begin >= least { begin } else { parts.len() }
}

#[cfg(test)]
mod tests {
    use env::files::{Files, SimDisk};

    use super::*;
    use crate::model::TimeRange;
    use crate::options::PARTITION_NS;

    #[test]
    fn delete_rows_are_computed_only_for_pending_parts() {
        let range = TimeRange { from_ns: 0, to_ns: PARTITION_NS };
        let tombstones = [Tombstone { position: 9, range, rows: vec![(1, Vec::new())] }];
        let files: Arc<dyn Files> = Arc::new(SimDisk::new(1));
        let part = |partition, applied| {
            let meta = PartMeta { partition, applied, position_max: 5, ..PartMeta::default() };
            Arc::new(Part::alone(&files, "/parts".as_ref(), meta))
        };
        let mut deletes = Deletes::of(&tombstones);
        assert!(pick(&[part(1, 0)], &mut deletes, false).is_empty());
        assert!(pick(&[part(0, 9)], &mut deletes, false).is_empty());
        assert!(deletes.all.iter().all(|(_, rows)| rows.get().is_none()));
        // A delete is pending. That the part cannot be read is reported by the merge.
        assert_eq!(pick(&[part(0, 0)], &mut deletes, false).len(), 1);
    }
}
