//! The handle of a store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::core::Core;
use crate::error::{NameError, SeriesOpenError, WriteError};
use crate::model::{
    MergeOutcome, NameList, OpenReport, Row, SealOutcome, Selector, Series, StoreStats, TimeRange,
    WriteOutcome,
};
use crate::name::{NewRow, RowLookup, RowName};
use crate::options::{AHEAD_MAX, StoreOptions, Wal};
use crate::query::Snapshot;
use crate::record::Tombstone;

mod write;

/// A store of series. Cheap to clone; all clones are the same store. It is closed by
/// [`Store::close`], or when the last clone is dropped.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

struct Handle {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closed: Mutex<bool>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A failure here occurs again at the next open, which reports it.
        let _ = self.close();
    }
}

impl Handle {
    fn close(&self) -> Result<(), WriteError> {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        self.core.close_queue();
        self.core.upkeep.stop();
        for thread in self.threads.lock().drain(..) {
            // After a panic of a thread, everything acknowledged is in the log.
            let _ = thread.join();
        }
        let result = self.core.finish();
        self.core.folder.unlock();
        result
    }
}

impl Store {
    /// Opens the store in `dir`, which must have been closed cleanly, for reading only. Nothing in
    /// it is changed, so it may be on a read-only medium. Writes fail.
    ///
    /// # Errors
    /// See [`SeriesOpenError`]. Returns [`SeriesOpenError::NotClosed`] if [`Store::open`] is
    /// needed.
    pub fn open_read_only(dir: &Path, options: StoreOptions) -> Result<Self, SeriesOpenError> {
        let core = Core::open_read_only(dir, options)?;
        let (threads, closed) = (Mutex::default(), Mutex::new(true));
        Ok(Self(Arc::new(Handle { core, threads, closed })))
    }

    /// Opens the store in `dir`, creating it if there is none, and replays unsealed records.
    ///
    /// # Errors
    /// See [`SeriesOpenError`].
    pub fn open(dir: &Path, options: StoreOptions) -> Result<(Self, OpenReport), SeriesOpenError> {
        let (core, report) = Core::open(dir, options)?;
        let store = Self(Arc::new(Handle {
            core: Arc::clone(&core),
            threads: Mutex::default(),
            closed: Mutex::new(false),
        }));
        if core.options.background {
            let failed = |source| SeriesOpenError::Io {
                path: dir.to_owned(),
                what: "cannot start a thread",
                source,
            };
            let start = |name: &str, run: fn(&Core), core: Arc<Core>| {
                std::thread::Builder::new().name(name.into()).spawn(move || run(&core))
            };
            let mut threads = store.0.threads.lock();
            threads.push(start("series-log", Core::run_log, Arc::clone(&core)).map_err(failed)?);
            threads.push(start("series-seal", Core::run_upkeep, core).map_err(failed)?);
        }
        Ok((store, report))
    }

    /// Returns the row series of a raw name (`metric|metric tag=value ...`), creating it if it is
    /// new. A raw text seen before costs one table lookup.
    ///
    /// # Errors
    /// Returns an error if the text is not a name, or the store has the maximum number of series.
    pub fn row(&self, raw: &[u8]) -> Result<Row, NameError> {
        self.0.core.catalog.row(raw)
    }

    /// Returns the row series of a raw name, or the parsed name if it is new. Creates nothing, so
    /// that samples which are refused leave no series behind: see [`Store::register`].
    ///
    /// # Errors
    /// Returns an error if the text is not a name.
    pub fn look_up(&self, raw: &[u8]) -> Result<RowLookup, NameError> {
        self.0.core.catalog.look_up(raw)
    }

    /// Returns the row series of a new name, and creates it unless another caller did.
    ///
    /// # Errors
    /// Returns an error if the store has the maximum number of series.
    pub fn register_row(&self, new: &NewRow) -> Result<Row, NameError> {
        self.0.core.catalog.register_row(new)
    }

    /// Creates the row series of new names, all or none, and returns them in the same order.
    ///
    /// # Errors
    /// Returns an error if the store would have more than the maximum number of series.
    pub fn register(&self, new: &[&NewRow]) -> Result<Vec<Row>, NameError> {
        self.0.core.catalog.register(new)
    }

    /// Remembers, until the store is closed, that native histograms of a metric were refused: queries
    /// of it can say so.
    pub fn note_refused_histogram(&self, metric: &str) {
        self.0.core.catalog.note_refused_histogram(metric);
    }

    /// Returns a metric that is meant and of which native histograms were refused, if there is one.
    pub fn refused_histogram(&self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        self.0.core.catalog.refused_histogram(is_meant)
    }

    /// Does the same as [`Store::row`] for a parsed name.
    ///
    /// # Errors
    /// Returns an error if the store has the maximum number of series.
    pub fn row_of(&self, name: &RowName) -> Result<Row, NameError> {
        self.0.core.catalog.row_of(name)
    }

    /// Does the same as [`Store::row_of`], but rejects a new row if there are `max` series already
    /// with the same value of `tag`. So no single sender can use up the limit of the store.
    ///
    /// # Errors
    /// See [`Store::row_of`]. Returns [`NameError::QuotaReached`] above the quota.
    pub fn row_within(&self, name: &RowName, tag: &str, max: u64) -> Result<Row, NameError> {
        self.0.core.catalog.row_within(name, Some((tag, max)))
    }

    /// Returns the row series that [`Store::remember`] stored for these bytes, if it is still
    /// known.
    pub fn remembered_row(&self, raw: &[u8]) -> Option<Row> {
        self.0.core.catalog.remembered_row(raw)
    }

    /// Remembers a row series for bytes by which a protocol names it and that are not a name (they
    /// contain control characters), so that the next time costs one table lookup. Above a memory
    /// limit all remembered bytes are dropped.
    pub fn remember(&self, raw: &[u8], row: Row) {
        self.0.core.catalog.remember(raw, row);
    }

    /// Returns the oldest time that retention keeps, in nanoseconds; older rows are rejected.
    /// Returns `i64::MIN` if it keeps everything.
    pub fn oldest_ns(&self) -> i64 {
        self.0.core.oldest_ns()
    }

    /// Returns the newest time that protocol readers should accept, in nanoseconds: [`AHEAD_MAX`]
    /// from now. The store itself accepts any time but the last one.
    pub fn newest_ns(&self) -> i64 {
        let ahead_ns = i64::try_from(AHEAD_MAX.as_nanos()).unwrap_or(i64::MAX);
        // The later of the two clocks is used, so that a current row is accepted if one of them is
        // behind.
        let wall_us = self.0.core.options.clock.now_us();
        let wall_ns = i64::try_from(wall_us).unwrap_or(i64::MAX).saturating_mul(1000);
        self.0.core.now_ns().max(wall_ns).saturating_add(ahead_ns).min(i64::MAX - 1)
    }

    /// Returns the series that match a selector, sorted by name.
    pub fn find(&self, selector: &Selector) -> Vec<Series> {
        self.0.core.catalog.find(selector)
    }

    /// Returns those of them that may have samples in a range, according to the sets of rows of the
    /// partitions and the times of chunks in heads. Series that are left out have no samples there.
    /// The result is valid only for this snapshot and range.
    pub fn find_in(
        &self,
        snapshot: &Snapshot,
        selector: &Selector,
        range: TimeRange,
    ) -> Vec<Series> {
        self.0.core.catalog.find_among(selector, |rows| snapshot.present(rows, range))
    }

    /// Returns names of the series that match any of the selectors, in ascending order: those after
    /// `after` ("" for the first), as many as take up to `bytes_max` bytes of memory, and at least
    /// one. A caller lists all names by passing the last one of each page until a page is empty.
    pub fn names_after(
        &self,
        selectors: &[Selector],
        after: &str,
        bytes_max: usize,
    ) -> Vec<String> {
        self.0.core.catalog.names_after(selectors, after, bytes_max)
    }

    /// Returns names of a list that begin with `prefix`, in ascending order: at most `count_max` of
    /// those after `after`, "" for the first.
    pub fn list(
        &self,
        list: &NameList,
        prefix: &str,
        after: &str,
        count_max: usize,
    ) -> Vec<String> {
        self.0.core.catalog.list(list, prefix, after, count_max)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    /// Returns the current state for reading.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.0.core)
    }

    /// Deletes samples and events of series in a range. Later writes are not affected. The delete
    /// is persisted when this returns; merges free the disk space.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn delete(
        &self,
        selector: &Selector,
        range: TimeRange,
    ) -> Result<WriteOutcome, WriteError> {
        let core = &self.0.core;
        let mut rows: std::collections::BTreeMap<u32, Vec<u16>> = std::collections::BTreeMap::new();
        for of in self.find(selector).iter().flat_map(|s| &s.columns) {
            rows.entry(of.row).or_default().push(of.column);
        }
        if rows.is_empty() {
            return Ok(WriteOutcome::default());
        }
        let whole = |row: u32, columns: &[u16]| {
            core.catalog.row_by_id(row).is_some_and(|row| columns.len() == usize::from(row.columns))
        };
        let rows = rows.into_iter().map(|(row, columns)| {
            let columns = if whole(row, &columns) { Vec::new() } else { columns };
            (row, columns)
        });
        let tombstone = Tombstone { position: 0, range, rows: rows.collect() };
        core.ensure_marked()?;
        let outcome = core.submit_delete(tombstone)?.wait()?;
        if core.options.wal != Wal::Always {
            core.seal()?;
        }
        Ok(outcome)
    }

    /// Opens the log again if it failed, at most three times an hour and once a minute. Everything
    /// acknowledged is sealed first. Returns true if it was opened. The upkeep thread calls this.
    ///
    /// # Errors
    /// See [`WriteError`]. The log stays failed.
    pub fn reopen_log(&self) -> Result<bool, WriteError> {
        self.0.core.reopen_log()
    }

    /// Seals the head. When this returns, everything written so far is in parts and the log is
    /// trimmed.
    ///
    /// # Errors
    /// See [`WriteError`]. The head is unchanged and can be sealed later.
    pub fn seal(&self) -> Result<SealOutcome, WriteError> {
        self.0.core.seal()
    }

    /// Makes all merges that are due.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn merge(&self) -> Result<MergeOutcome, WriteError> {
        self.0.core.merge()
    }

    /// Drops partitions that exceed the age or size limit of the retention. Heads that are due are
    /// sealed between its steps.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn retain(&self) -> Result<MergeOutcome, WriteError> {
        let outcome = self.0.core.retain()?;
        self.0.core.forget()?;
        Ok(outcome)
    }

    /// Returns the epoch: the number of searches for row series to be forgotten. The upkeep thread
    /// makes one at most every ten minutes. A handle that was requested or kept in the current or
    /// the previous epoch is valid. Older ones must be kept, or requested by name, again.
    pub fn epoch(&self) -> u32 {
        self.0.core.catalog.epoch()
    }

    /// Keeps a handle for another epoch. Returns false if its row series was forgotten.
    pub fn keep_row(&self, row: Row) -> bool {
        self.0.core.catalog.keep_row(row.id)
    }

    /// Returns the totals and the current state of the store.
    pub fn stats(&self) -> StoreStats {
        let core = &self.0.core;
        let live = core.live.read();
        let (heads, parts) = (live.heads.clone(), Arc::clone(&live.parts));
        let rollups = Arc::clone(&live.rollups);
        let (position, tombstones) = (live.position, live.tombstones.len() as u64);
        drop(live);
        let open = parts.values().flatten().chain(rollups.values());
        let open = open.filter(|p| p.is_open());
        let metas = || parts.values().flatten().map(|p| p.meta);
        let of_heads = |what: fn(&crate::head::Head) -> u64| -> u64 {
            heads.iter().map(|h| what(&h.head.read())).sum()
        };
        let log = core.journal.read().as_ref().map(journal::Journal::stats);
        // Locks that are taken below are held until all fields are read.
        let disk_full = core.disk_full();
        StoreStats {
            rows: core.catalog.count(),
            series: core.catalog.series(),
            rows_active: of_heads(|h| h.active_rows() as u64),
            samples: core.counters.samples.load(Ordering::Relaxed),
            batches: core.counters.batches.load(Ordering::Relaxed),
            batches_failed: core.counters.failed.load(Ordering::Relaxed),
            dropped_samples: core.counters.dropped_samples.load(Ordering::Relaxed),
            dropped_bytes: core.counters.dropped_bytes.load(Ordering::Relaxed),
            head_bytes: of_heads(|h| h.bytes() as u64),
            head_samples: of_heads(crate::head::Head::samples),
            position,
            sealed_position: heads.first().map_or(0, |h| h.first() - 1),
            parts: metas().count() as u64,
            parts_open: open.count() as u64,
            open_index_bytes: core.open_parts.bytes(),
            part_bytes: metas().map(|m| m.bytes).sum(),
            part_samples: metas().map(|m| m.samples).sum(),
            index_bytes: metas().map(|m| m.index_bytes).sum(),
            partitions: parts.len() as u64,
            rollups: rollups.len() as u64,
            rollup_bytes: rollups.values().map(|p| p.meta.bytes).sum(),
            tombstones,
            log_payload_bytes: core.counters.log_bytes.load(Ordering::Relaxed),
            log,
            trouble: core.upkeep.trouble.lock().clone(),
            log_failure: core.upkeep.log_failure.lock().clone(),
            disk_full,
        }
    }

    /// Rejects further writes, commits the pending ones, seals, and closes. Clones that still exist
    /// return errors that the store is closed.
    ///
    /// # Errors
    /// Returns an error if the last seal fails. With the log on, nothing is lost in that case.
    pub fn close(self) -> Result<(), WriteError> {
        self.0.close()
    }
}
