//! Retention, and the roll-ups that are kept after their samples were removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roaring::RoaringBitmap;

use crate::core::{Core, Parts};
use crate::error::{SeriesReadError, WriteError};
use crate::head::partition_range;
use crate::manifest::Manifest;
use crate::model::{ColumnId, MergeOutcome, TimeRange};
use crate::part::{Part, PartMeta};
use crate::query::{Snapshot, Source};
use crate::rollup::{self, Buckets, STEPS_S};
use crate::table::{ScratchBuffers, Table};

/// The parameters of a roll-up that remains without its samples.
#[derive(Clone, Copy)]
pub(crate) struct LoneRollup {
    /// Width of its buckets, in seconds.
    step_s: u32,
    /// True if the size limit is exceeded: a roll-up that is not smaller than its samples is not
    /// kept.
    must_shrink: bool,
}

/// The sources of a roll-up.
#[derive(Clone, Copy)]
struct Sources {
    /// True if there are sources other than the previous roll-up.
    with_samples: bool,
    /// True if sources that the operating system cannot read are left out, like damaged ones.
    lost: bool,
}

/// Returns the width of the buckets of a new roll-up. If the previous one was without samples, its
/// buckets cannot be made narrower.
fn step_of(alone: Option<LoneRollup>, before: Option<&Arc<Part>>) -> u32 {
    let wanted = alone.map(|alone| alone.step_s);
    wanted.max(before.map(|before| before.meta.step_s)).unwrap_or(STEPS_S[0])
}

/// Decides whether to continue without a source that could not be read.
type Pass<'a> = dyn Fn(SeriesReadError) -> Result<(), WriteError> + 'a;

/// The outcome of a retention step.
pub(crate) enum Step {
    /// There may be more to do.
    More,
    Done,
    /// A partition could not be read. It is skipped for a while, and there may be more to do.
    Refused(WriteError),
}

/// Returns true if the roll-up of a finished partition must be created, or recreated for its
/// samples.
pub(crate) fn is_due(parts: &[Arc<Part>], rollup: Option<&PartMeta>) -> bool {
    let Some(rollup) = rollup else { return !parts.is_empty() };
    let newer = parts.iter().any(|p| p.meta.position_max > rollup.position_max);
    // Several parts will be merged or dropped later.
    newer && parts.len() == 1 && !rollup.alone
}

impl Core {
    /// Returns the time before which samples exceed an age.
    fn older_than(&self, age: Option<Duration>) -> i64 {
        let ns = |age: Duration| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        age.map_or(i64::MIN, |age| self.now_ns().saturating_sub(ns(age)))
    }

    /// Returns true if a partition exceeds an age.
    fn is_past(&self, partition: i64, age: Option<Duration>) -> bool {
        partition_range(partition).to_ns <= self.older_than(age)
    }

    /// Drops partitions that exceed the age or size limit of the retention.
    pub(crate) fn retain(&self) -> Result<MergeOutcome, WriteError> {
        let (mut outcome, mut refused) = (MergeOutcome::default(), None);
        loop {
            match self.retain_step(&mut outcome)? {
                Step::More => {}
                Step::Refused(e) => drop(refused.get_or_insert(e)),
                Step::Done => return refused.map_or(Ok(outcome), Err),
            }
        }
    }

    /// Executes one step of retention, so that waiting writes are not held up by all steps.
    pub(crate) fn retain_step(&self, outcome: &mut MergeOutcome) -> Result<Step, WriteError> {
        let step = self.retain_once(&mut self.manifest.lock(), outcome)?;
        if !matches!(step, Step::Done)
            && self.is_seal_due()
            && let Err(e) = self.seal()
        {
            // The seal is tried again later. Retention continues, because its steps free space.
            tracing::warn!("series: {e}");
        }
        Ok(step)
    }

    /// Converts the outcome for a partition into a step.
    fn stepped(
        &self,
        manifest: &mut Manifest,
        partition: i64,
        done: Result<(), WriteError>,
    ) -> Result<Step, WriteError> {
        match self.noting(manifest, partition, done) {
            Ok(()) => Ok(Step::More),
            Err(e)
                if self.upkeep.unread.lock().may_go(partition, self.options.clock.monotonic()) =>
            {
                Err(e)
            }
            Err(e) => Ok(Step::Refused(e)),
        }
    }

    fn retain_once(
        &self,
        manifest: &mut Manifest,
        outcome: &mut MergeOutcome,
    ) -> Result<Step, WriteError> {
        let retention = self.options.retention;
        let (rollup_age, hourly_age) = (self.options.rollup_age, self.options.hourly_age);
        let live = self.live.read();
        let (parts, rollups) = (Arc::clone(&live.parts), Arc::clone(&live.rollups));
        drop(live);
        let all = parts.values().flatten().chain(rollups.values());
        let bytes: u64 = all.map(|p| p.meta.bytes).sum();
        let over = retention.bytes_max.is_some_and(|max| bytes > max);
        let gone = self.whole_partitions(&parts, &rollups, bytes);
        if !gone.is_empty() {
            self.drop_parts(manifest, &gone, outcome)?;
            return Ok(Step::More);
        }
        let alone = || rollups.iter().filter(|(p, _)| !parts.contains_key(*p));
        let alone_bytes: u64 = alone().map(|(_, r)| r.meta.bytes).sum();
        // Otherwise the remaining roll-ups would in the end leave no space for samples.
        let crowded = over && retention.bytes_max.is_some_and(|max| alone_bytes > max / 2);
        // A partition that cannot be read now must not prevent the removal of later ones.
        let now = self.options.clock.monotonic();
        let readable = |p: &i64| self.upkeep.unread.lock().may_go(*p, now);
        let oldest = parts.iter().find(|(p, _)| readable(p)).filter(|_| !crowded);
        if let Some((p, parts)) = oldest.filter(|(p, _)| over || self.is_past(**p, retention.age)) {
            let done = self.drop_samples(manifest, *p, parts, rollups.get(p), outcome);
            return self.stepped(manifest, *p, done);
        }
        let is_fine = |rollup: &Part| rollup.meta.step_s == STEPS_S[0];
        // If a partition is only skipped for a while, its samples have to go first, not roll-ups.
        let by_size = over && (crowded || parts.keys().all(readable));
        let due = |(p, rollup): &(&i64, &Arc<Part>)| {
            let age = if is_fine(rollup) { rollup_age } else { hourly_age };
            // Without its own age limit it is removed when its samples would be.
            by_size || (rollup.meta.alone && self.is_past(**p, age.or(retention.age)))
        };
        let due: Vec<_> = alone().filter(|(p, _)| readable(p)).filter(due).collect();
        let widens = |(p, rollup): &&(&i64, &Arc<Part>)| {
            is_fine(rollup) && hourly_age.is_some() && !self.is_past(**p, hourly_age)
        };
        // All roll-ups that may be widened are widened before any is removed.
        if let Some((p, _)) = due.iter().find(widens) {
            let alone = LoneRollup { step_s: STEPS_S[1], must_shrink: false };
            let done = self.roll(manifest, **p, Some(alone), outcome);
            return self.stepped(manifest, **p, done);
        }
        let Some((_, rollup)) = due.first() else { return Ok(Step::Done) };
        self.drop_parts(manifest, std::slice::from_ref(rollup), outcome)?;
        Ok(Step::More)
    }

    /// Returns the files of the oldest partitions that are removed at once with all their parts:
    /// those that are too old or exceed the size limit, up to the first whose roll-up is kept.
    fn whole_partitions(
        &self,
        parts: &Parts,
        rollups: &BTreeMap<i64, Arc<Part>>,
        mut bytes: u64,
    ) -> Vec<Arc<Part>> {
        let (retention, mut gone) = (self.options.retention, Vec::new());
        for (partition, parts) in parts {
            let over = retention.bytes_max.is_some_and(|max| bytes > max);
            let due = over || self.is_past(*partition, retention.age);
            if !due || self.outlives(*partition) {
                break;
            }
            let all: Vec<_> = parts.iter().chain(rollups.get(partition)).cloned().collect();
            bytes -= all.iter().map(|p| p.meta.bytes).sum::<u64>();
            gone.extend(all);
        }
        gone
    }

    /// Returns true if the roll-up of a partition is kept when its samples are removed.
    fn outlives(&self, partition: i64) -> bool {
        let age = self.options.rollup_age.max(self.options.hourly_age);
        age.is_some() && partition_range(partition).to_ns > self.older_than(age)
    }

    fn drop_parts(
        &self,
        manifest: &mut Manifest,
        parts: &[Arc<Part>],
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        self.replace(manifest, parts, &[])?;
        self.note_dropped(parts);
        outcome.parts_before += parts.len() as u32;
        outcome.bytes_removed += parts.iter().map(|p| p.meta.bytes).sum::<u64>();
        Ok(())
    }

    /// Logs and counts files that retention removed.
    fn note_dropped(&self, parts: &[Arc<Part>]) {
        let samples: u64 = parts.iter().map(|p| p.meta.samples).sum();
        let bytes: u64 = parts.iter().map(|p| p.meta.bytes).sum();
        let from_ns = parts.iter().map(|p| partition_range(p.meta.partition).from_ns).min();
        let to_ns = parts.iter().map(|p| partition_range(p.meta.partition).to_ns).max();
        tracing::info!(
            files = parts.len(),
            samples,
            bytes,
            from_ns,
            to_ns,
            "series: dropped what is past its retention"
        );
        self.counters.dropped_samples.fetch_add(samples, Ordering::Relaxed);
        self.counters.dropped_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes the samples of a partition. Its roll-up is kept if the retention says so.
    fn drop_samples(
        &self,
        manifest: &mut Manifest,
        partition: i64,
        parts: &[Arc<Part>],
        rollup: Option<&Arc<Part>>,
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        if !self.outlives(partition) {
            let all: Vec<Arc<Part>> = parts.iter().chain(rollup).cloned().collect();
            return self.drop_parts(manifest, &all, outcome);
        }
        let fine = self.options.rollup_age.is_some();
        let step_s = if fine { STEPS_S[0] } else { STEPS_S[1] };
        // A partition that is not too old is removed because of the size limit.
        let must_shrink = !self.is_past(partition, self.options.retention.age);
        self.roll(manifest, partition, Some(LoneRollup { step_s, must_shrink }), outcome)
    }

    /// Recreates the roll-up of a partition. With `alone`, the same manifest removes the samples.
    pub(crate) fn roll(
        &self,
        manifest: &mut Manifest,
        partition: i64,
        alone: Option<LoneRollup>,
        outcome: &mut MergeOutcome,
    ) -> Result<(), WriteError> {
        // A delete whose record is not known to be sealed may be lost with the log.
        let snapshot = Snapshot::of(self).sealed(manifest.tombstones.clone());
        let (parts, rollup) = (snapshot.parts_of(partition), snapshot.rollup_of(partition));
        let before = rollup.filter(|r| r.meta.alone);
        // Samples next to a roll-up whose samples were removed stay until they are removed
        // themselves.
        let with_samples = before.is_none() || alone.is_some();
        let sources = || parts.iter().filter(|_| with_samples).chain(before);
        let ends = |p: &Arc<Part>| (p.meta.position_min, p.meta.position_max);
        let meta = PartMeta {
            id: manifest.next_part,
            file: manifest.next_part,
            partition,
            step_s: step_of(alone, before),
            position_min: sources().map(|p| ends(p).0).min().unwrap_or_default(),
            position_max: sources().map(|p| ends(p).1).max().unwrap_or_default(),
            alone: alone.is_some() || before.is_some(),
            ..PartMeta::default()
        };
        manifest.next_part += 1;
        let lost = alone.is_some() && self.upkeep.unread.lock().is_lost(partition);
        let from = Sources { with_samples, lost };
        let written = self.write_rollup(&snapshot, meta, manifest.sealed, from);
        let samples = if alone.is_some() { parts } else { &[] };
        let gone: Vec<Arc<Part>> = samples.iter().chain(rollup).cloned().collect();
        // A previous roll-up whose samples were removed is the only source of its data: it is kept,
        // whatever is added.
        if let (Ok(written), Some(alone)) = (&written, alone.filter(|_| before.is_none()))
            && alone.must_shrink
            && written.iter().map(|m| m.bytes).sum::<u64>()
                >= gone.iter().map(|p| p.meta.bytes).sum::<u64>()
        {
            self.remove_files(&[meta]);
            let hourly_age = self.options.hourly_age;
            let hourly = hourly_age.is_some() && !self.is_past(partition, hourly_age);
            if hourly && alone.step_s == STEPS_S[0] {
                let wider = LoneRollup { step_s: STEPS_S[1], ..alone };
                return self.roll(manifest, partition, Some(wider), outcome);
            }
            return self.drop_parts(manifest, &gone, outcome);
        }
        self.install_parts(manifest, &gone, &[meta], written, outcome)?;
        if !samples.is_empty() {
            self.note_dropped(samples);
        }
        Ok(())
    }

    /// Writes the file of a roll-up and persists it. Its sources are removed only afterwards, by
    /// the caller: an error or a crash before that loses nothing.
    ///
    /// The rows of all sources are collected before the first one is written: a part takes its rows
    /// in ascending order, each once. So each row is made of all its sources at the same time.
    fn write_rollup(
        &self,
        snapshot: &Snapshot,
        meta: PartMeta,
        sealed: u64,
        of: Sources,
    ) -> Result<Vec<PartMeta>, WriteError> {
        // The samples are removed now: the readable ones are kept in the roll-up.
        let pass = |e: SeriesReadError| {
            if !(meta.alone && (of.lost || matches!(e, SeriesReadError::Corrupt(_)))) {
                return Err(WriteError::from(e));
            }
            tracing::warn!("roll-up: {e}");
            Ok(())
        };
        let parts = snapshot.parts_of(meta.partition);
        let mut rows = RoaringBitmap::new();
        for part in parts.iter().chain(snapshot.rollup_of(meta.partition)) {
            match part.rows() {
                Ok(some) => rows |= some,
                Err(e) => pass(e)?,
            }
        }
        let mut work = ScratchBuffers::default();
        // An empty roll-up records that there is nothing to roll up, for instance only events.
        let even_empty = !meta.alone && !parts.is_empty();
        self.write_rows(meta, sealed, even_empty, rows.into_iter(), |row| {
            let known = self.catalog.row_by_id(row).filter(|known| !known.events);
            let columns = known.map_or(0, |known| known.columns);
            let mut metrics = Vec::with_capacity(usize::from(columns));
            // Samples that rows share are counted once, with the first of these rows.
            let shared = self.catalog.sharing().of(row).to_vec();
            for column in 0..columns {
                let others = shared.iter().filter(|s| s.own == column);
                let others = others.map(|s| ColumnId { row: s.row, column: s.column });
                let others: Vec<ColumnId> = others.collect();
                let metric = Metric {
                    of: ColumnId { row, column },
                    others: &others,
                    partition: meta.partition,
                    step_s: meta.step_s,
                    with_samples: of.with_samples,
                };
                metrics.push(snapshot.rolled(&metric, &pass, &mut work)?);
            }
            let any = metrics.iter().any(|m| !m.is_empty());
            Ok(any.then(|| rollup::table(&metrics)))
        })
    }
}

/// A metric of a row that is rolled up.
struct Metric<'a> {
    of: ColumnId,
    /// The other rows that share the series.
    others: &'a [ColumnId],
    partition: i64,
    /// Width of the buckets, in seconds.
    step_s: u32,
    /// True if there are sources other than the previous roll-up.
    with_samples: bool,
}

impl Snapshot {
    /// Returns the samples of a metric in a range of its partition, at the times that its row has
    /// and that no earlier row of those that share the series has.
    fn of_row(
        &self,
        metric: &Metric<'_>,
        range: TimeRange,
        pass: &Pass<'_>,
        work: &mut ScratchBuffers,
    ) -> Result<Table, WriteError> {
        let Metric { of, others, partition, .. } = *metric;
        let mut read = |columns: &[ColumnId]| {
            let mut torn = None;
            let source = Source { columns, partition, range, heads: &[] };
            let table = self.read(&source, work, &mut torn);
            torn.map_or(Ok(()), pass)?;
            Ok::<_, WriteError>(table)
        };
        let own = read(&[of])?;
        if others.is_empty() {
            return Ok(own);
        }
        let mut table = read(&[&[of], others].concat())?;
        table.retain_rows(|time| own.times.binary_search(&time).is_ok());
        for other in others.iter().filter(|other| other.row < of.row) {
            let times = read(std::slice::from_ref(other))?.times;
            table.retain_rows(|time| times.binary_search(&time).is_err());
        }
        Ok(table)
    }

    /// Returns the buckets of a metric in its partition: those of the samples, if requested, and of
    /// a roll-up that is alone. If rows share the metric, the latest sample of each time is valid;
    /// it counts for the first of the rows. Sources that `pass` accepts as unreadable are left out
    /// one by one.
    fn rolled(
        &self,
        metric: &Metric<'_>,
        pass: &Pass<'_>,
        work: &mut ScratchBuffers,
    ) -> Result<Buckets, WriteError> {
        let Metric { of, others, partition, step_s, with_samples } = *metric;
        let mut buckets = Buckets::new();
        let columns = [&[of], others].concat();
        let windows = || self.bucket_windows(&columns, partition);
        for range in with_samples.then(windows).unwrap_or_default() {
            let table = self.of_row(metric, range, pass, work)?;
            if let Some(of) = table.columns.first() {
                rollup::roll(&table.times, of, step_s, &mut buckets);
            }
        }
        if let Some(rollup) = self.rollup_of(partition).filter(|r| r.meta.alone) {
            let old = self.buckets(rollup, of, others, work);
            let old = old.or_else(|e| pass(e).map(|()| Buckets::new()))?;
            for (bucket, some) in rollup::widen(&old, step_s) {
                rollup::join(&mut buckets, bucket, &some);
            }
        }
        Ok(buckets)
    }
}
