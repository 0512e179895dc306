//! Opens a store: reads the manifest and the catalogue, removes leftovers, replays the log.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::files::{Access, Files, Lock};
use journal::Journal;

use crate::core::Core;
use crate::error::{SeriesDamage, SeriesOpenError, WriteError};
use crate::manifest::Manifest;
use crate::model::OpenReport;
use crate::options::{StoreOptions, Wal};
use crate::part::{Part, PartMeta};
use crate::record::{self, Record};
use codec::bytes::Input;

/// Minimum size of a head, in bytes.
const HEAD_BYTES_MIN: usize = 4096;
/// Prefix of the names of files of a damaged log that is not needed.
const ASIDE: &str = "damaged-";
/// Number of trimmed log segments kept for reuse: about as many as a seal of a full head trims, so
/// that new files need not be filled with zeros.
const LOG_SPARES: usize = 8;

/// Longest time that a writer waits for another one that marks the store as open.
const MARKING_TIME_MAX: Duration = Duration::from_secs(1);

impl Core {
    /// Opens the store in `dir`.
    pub(crate) fn open(
        dir: &Path,
        options: StoreOptions,
    ) -> Result<(Arc<Self>, OpenReport), SeriesOpenError> {
        let began = options.clock.monotonic();
        let (value, min) = (options.head_bytes_max as u64, HEAD_BYTES_MIN as u64);
        if value < min {
            let name = "head_bytes_max";
            return Err(SeriesOpenError::Option { name, value, min, max: u64::MAX });
        }
        let files = Arc::clone(&options.files);
        for folder in [dir.to_owned(), dir.join("parts"), dir.join("log")] {
            let made = files.create_dir(&folder);
            made.map_err(|source| SeriesOpenError::Io {
                path: folder,
                what: "cannot create",
                source,
            })?;
        }
        let held = locked(&*files, dir)?;
        let manifest = Manifest::load(&*files, dir)?;
        let manifest = manifest.unwrap_or_else(|| Manifest { next_part: 1, ..Manifest::default() });
        let mut report = OpenReport {
            sealed_position: manifest.sealed,
            clean: manifest.clean,
            parts: manifest.parts.len() as u64,
            ..OpenReport::default()
        };
        let core = Self::new(dir.to_owned(), options, manifest.clone(), held);
        core.load_catalog(&manifest)?;
        core.load_parts(&manifest);
        // The process that replaced the manifest may have been killed before the rename was
        // persisted: files that only the previous manifest names must not be removed first.
        files.persist_dir(dir).map_err(|source| SeriesOpenError::Io {
            path: dir.to_owned(),
            what: "cannot persist",
            source,
        })?;
        report.removed_files = core.remove_leftovers(&manifest)?;
        core.open_log(&manifest, &mut report)?;
        report.rows = core.catalog.count();
        report.position = core.live.read().position;
        report.elapsed = core.options.clock.monotonic().saturating_sub(began);
        Ok((Arc::new(core), report))
    }

    /// Opens the store in `dir` for reading only, without changing it.
    pub(crate) fn open_read_only(
        dir: &Path,
        options: StoreOptions,
    ) -> Result<Arc<Self>, SeriesOpenError> {
        let held = locked(&*options.files, dir)?;
        let manifest = Manifest::load(&*options.files, dir)?.unwrap_or_default();
        if !manifest.clean {
            return Err(SeriesOpenError::NotClosed(dir.to_owned()));
        }
        let core = Self::new(dir.to_owned(), options, manifest.clone(), held);
        core.load_catalog(&manifest)?;
        core.load_parts(&manifest);
        core.close_queue();
        Ok(Arc::new(core))
    }

    fn load_catalog(&self, manifest: &Manifest) -> Result<(), SeriesOpenError> {
        let path = self.dir.join(manifest.catalog_name());
        if manifest.catalog_bytes > 0 {
            let failed =
                |source| SeriesOpenError::Io { path: path.clone(), what: "cannot read", source };
            let file = self.options.files.open(&path, Access::READ).map_err(failed)?;
            let mut bytes = vec![0; manifest.catalog_bytes as usize];
            let read = file.read_at(&mut bytes, 0).map_err(failed)?;
            if (read as u64) < manifest.catalog_bytes {
                let what = format!("the catalogue ends here instead of at {}", bytes.len());
                return Err(SeriesDamage { file: path, offset: read as u64, what }.into());
            }
            let mut input = Input(&bytes);
            while !input.is_empty() {
                let offset = (bytes.len() - input.0.len()) as u64;
                let what = "a frame of the catalogue is damaged".into();
                let damage = || SeriesDamage { file: path.clone(), offset, what };
                self.load_frame(&mut input).ok_or_else(damage)?;
            }
        }
        let (rows, all) = (self.catalog.rows(), manifest.catalog_rows);
        // Fewer rows are not damage: some may have been forgotten before they were written here.
        if rows > all {
            let what = format!("{rows} rows instead of {all}");
            return Err(SeriesDamage { file: path, offset: manifest.catalog_bytes, what }.into());
        }
        self.catalog.go_on_from(all);
        self.commit.lock().rows_logged = all;
        Ok(())
    }

    fn load_frame(&self, input: &mut Input<'_>) -> Option<()> {
        let bytes = input.u32()? as usize;
        let crc = input.u32()?;
        let body = input.take_bytes(bytes)?;
        if crc32c::crc32c(body) != crc {
            return None;
        }
        self.catalog.decode(&mut Input(body))
    }

    fn load_parts(&self, manifest: &Manifest) {
        self.show(&mut self.live.write(), manifest);
    }

    /// Removes the files of interrupted seals, merges and catalogue rewrites.
    fn remove_leftovers(&self, manifest: &Manifest) -> Result<u64, SeriesOpenError> {
        let parts: HashSet<String> = manifest.parts.iter().map(PartMeta::file_name).collect();
        let left = |name: &str| name.starts_with("part-") && !parts.contains(name);
        let removed = self.remove_where(&self.parts_dir(), left)?;
        let named = manifest.catalog_name();
        let left = |name: &str| Manifest::is_catalog(name) && name != named;
        let removed = removed + self.remove_where(&self.dir, left)?;
        Ok(removed + if manifest.clean { self.remove_aside() } else { 0 })
    }

    /// Removes the log files that were set aside. The store was closed cleanly since then, so they
    /// are not needed. Files that cannot be removed stay.
    fn remove_aside(&self) -> u64 {
        let dir = self.dir.join("log");
        let names = self.options.files.list(&dir).unwrap_or_default();
        let mut removed = 0;
        for path in names.iter().filter(|n| n.starts_with(ASIDE)).map(|n| dir.join(n)) {
            match self.options.files.remove(&path) {
                Ok(()) => removed += 1,
                Err(e) => {
                    tracing::warn!("{}: cannot remove: {e}; nothing needs it", path.display());
                }
            }
        }
        removed
    }

    fn remove_where(
        &self,
        dir: &Path,
        left: impl Fn(&str) -> bool,
    ) -> Result<u64, SeriesOpenError> {
        let names = self.options.files.list(dir);
        let names = names.map_err(|source| SeriesOpenError::Io {
            path: dir.to_owned(),
            what: "cannot list",
            source,
        })?;
        let mut removed = 0;
        for name in names.iter().filter(|name| left(name)) {
            let path = dir.join(name);
            let gone = self.options.files.remove(&path);
            gone.map_err(|source| SeriesOpenError::Io { path, what: "cannot remove", source })?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Opens the log, replays the records that are not sealed, and sets the position of the next
    /// record.
    fn open_log(
        &self,
        manifest: &Manifest,
        report: &mut OpenReport,
    ) -> Result<(), SeriesOpenError> {
        let dir = self.dir.join("log");
        let names = self.options.files.list(&dir).unwrap_or_default();
        let (off, gone) = (self.options.wal == Wal::Off, is_gone(&names));
        if off && gone {
            if is_missed(manifest) {
                let log = dir.display();
                tracing::warn!("{log}: the log is gone; what was in no part yet is lost with it");
            }
            return self.mark_open(manifest.log_base);
        }
        // After a clean close, all records are in parts.
        let (journal, recovery) = self.open_journal(&mut manifest.clone(), manifest.clean)?;
        let mut base = manifest.log_base;
        let end = base + recovery.last_position;
        if end > manifest.sealed {
            let from = (manifest.sealed + 1).saturating_sub(base);
            if let Some(gap) = gap(&dir, recovery.first_position, from) {
                return Err(gap.into());
            }
            self.replay(&dir, &journal, from, base, report)?;
        } else if end < manifest.sealed {
            // Heads were sealed while the log was off: positions continue after them.
            base = manifest.sealed - recovery.last_position;
        }
        self.commit.lock().base = base;
        *self.journal.write() = Some(journal.clone());
        if off {
            self.seal().map_err(|e| self.not_writable(&e))?;
            *self.journal.write() = None;
            journal.close().map_err(|e| self.not_writable(&e.into()))?;
        }
        self.mark_open(base)
    }

    /// Opens the journal of the log. If everything in it is sealed, its content does not matter: a
    /// damaged one is set aside.
    pub(crate) fn open_journal(
        &self,
        manifest: &mut Manifest,
        sealed: bool,
    ) -> Result<(Journal, journal::Recovery), SeriesOpenError> {
        let dir = self.dir.join("log");
        let position_expected = if sealed { 0 } else { manifest.log_expected };
        match Journal::open(&dir, self.log_options(position_expected)) {
            Err(journal::OpenError::Corrupt(damage)) if sealed => {
                tracing::warn!(
                    "{damage}; set aside as {ASIDE}*: all of it is in parts; removed when the store is \
                     opened after its next clean end"
                );
                if !manifest.clean {
                    // Otherwise the log that is missing after a kill would be an error.
                    manifest.log_expected = 0;
                    let stored = manifest.store(&*self.options.files, &self.dir);
                    stored.map_err(|e| self.not_writable(&e))?;
                }
                self.set_aside(&dir, &self.options.files.list(&dir).unwrap_or_default())?;
            }
            opened => return Ok(opened?),
        }
        Ok(Journal::open(&dir, self.log_options(position_expected))?)
    }

    /// Renames the files of a log so that they no longer belong to it.
    fn set_aside(&self, dir: &Path, names: &[String]) -> Result<(), SeriesOpenError> {
        let files = &self.options.files;
        let failed =
            |source| SeriesOpenError::Io { path: dir.to_owned(), what: "cannot set aside", source };
        for name in names.iter().filter(|name| is_of_log(name)) {
            let aside = dir.join(format!("{ASIDE}{name}"));
            files.rename(&dir.join(name), &aside).map_err(failed)?;
        }
        files.persist_dir(dir).map_err(failed)
    }

    fn not_writable(&self, e: &WriteError) -> SeriesOpenError {
        let source = std::io::Error::other(e.to_string());
        SeriesOpenError::Io { path: self.dir.clone(), what: "cannot write", source }
    }

    fn log_options(&self, position_expected: u64) -> journal::Options {
        journal::Options {
            layout: self.options.layout,
            segment_bytes: self.options.segment_bytes,
            position_expected,
            background: self.options.background,
            spares: LOG_SPARES,
            files: Arc::clone(&self.options.files),
            ..journal::Options::default()
        }
    }

    /// Marks the store as open: until it is closed, the manifest is not clean. If there is no space
    /// for that, writes fail until there is.
    fn mark_open(&self, log_base: u64) -> Result<(), SeriesOpenError> {
        let mut manifest = self.manifest.lock();
        (manifest.clean, manifest.log_base) = (false, log_base);
        // A log that was recreated, or is off, has no older records: do not expect any.
        let ends = self.journal.read().as_ref().map_or(0, Journal::persisted_position);
        manifest.log_expected = manifest.log_expected.min(ends);
        let files = &*self.options.files;
        let there = Manifest::load(files, &self.dir)?;
        // After a kill, the store is marked as open already.
        if there.as_ref() == Some(&*manifest) {
            return Ok(());
        }
        match manifest.store(files, &self.dir) {
            Err(e @ WriteError::Full(_)) if there.is_some() => {
                tracing::warn!("{e}; until then the store is read and takes nothing");
                self.folder.set_unmarked(true);
                Ok(())
            }
            stored => stored.map(drop).map_err(|e| self.not_writable(&e)),
        }
    }

    /// Marks the store as open now if there was no space before.
    pub(crate) fn ensure_marked(&self) -> Result<(), WriteError> {
        if !self.folder.is_unmarked() {
            return Ok(());
        }
        // Another writer marks it quickly, but a merge may hold the lock for long.
        let Some(manifest) = self.manifest.try_lock_for(MARKING_TIME_MAX) else {
            let dir = self.dir.display();
            return Err(WriteError::Full(format!("{dir} had none when it was opened")));
        };
        if !self.folder.is_unmarked() {
            return Ok(());
        }
        manifest.store(&*self.options.files, &self.dir)?;
        self.folder.set_unmarked(false);
        Ok(())
    }

    fn replay(
        &self,
        dir: &Path,
        journal: &Journal,
        from: u64,
        base: u64,
        report: &mut OpenReport,
    ) -> Result<(), SeriesOpenError> {
        for record in journal.read_from(from)? {
            let (position, bytes) = record?;
            let position = base + position;
            self.replay_one(&bytes, position, report).ok_or_else(|| SeriesDamage {
                file: dir.to_owned(),
                offset: position,
                what: format!("record {position} is no record of this store"),
            })?;
        }
        Ok(())
    }

    /// Applies one record of the log. Returns `None` if it is not a record of this store.
    fn replay_one(&self, bytes: &[u8], position: u64, report: &mut OpenReport) -> Option<()> {
        match record::decode(bytes, position)? {
            Record::Definitions(mut input) => {
                self.catalog.decode(&mut input)?;
                self.commit.lock().rows_logged = self.catalog.rows();
            }
            Record::Batch(batch) => {
                match self.catalog.check(&batch) {
                    // The batch has a forgotten row, so its write had failed.
                    Err(WriteError::UnknownRow(row)) if row < self.catalog.rows() => {
                        tracing::warn!(position, row, "skipping a batch whose write had failed");
                        report.passed_over_batches += 1;
                        return Some(());
                    }
                    known => known.ok()?,
                }
                self.apply(&batch, position);
                report.replayed_batches += 1;
                report.replayed_samples += batch.samples() as u64;
            }
            Record::Delete(tombstone) => self.apply_delete(tombstone),
        }
        Some(())
    }
}

/// Takes the lock of a store.
fn locked(files: &dyn Files, dir: &Path) -> Result<Box<dyn Lock>, SeriesOpenError> {
    let path = dir.join("lock");
    let held = files.lock(&path);
    let held = held.map_err(|source| SeriesOpenError::Io { path, what: "cannot lock", source })?;
    held.ok_or_else(|| SeriesOpenError::Locked(dir.to_owned()))
}

/// Returns true if a folder with these names has no log files.
fn is_gone(names: &[String]) -> bool {
    !names.iter().any(|name| is_of_log(name))
}

fn is_of_log(name: &str) -> bool {
    name.starts_with("segment-") || name.starts_with("ring-")
}

/// Returns true if a missing log had records that are not in parts: not after a clean close.
fn is_missed(manifest: &Manifest) -> bool {
    manifest.log_expected > 0 && !manifest.clean
}

/// Returns damage if the log begins at record `first` and records from `from` on are in no part.
fn gap(dir: &Path, first: u64, from: u64) -> Option<SeriesDamage> {
    let what = format!(
        "the log begins at record {first}, but those from {from} on are in no part: put back what \
         was taken away there, or the last backup"
    );
    (first > from).then(|| SeriesDamage { file: dir.to_owned(), offset: first, what })
}

/// Checks the files of a closed store and returns their defects, one line each. Changes nothing.
///
/// # Errors
/// Returns an error if the manifest or the catalogue cannot be read at all, or the store is open.
pub fn verify(dir: &Path, files: &Arc<dyn Files>) -> Result<Vec<String>, SeriesOpenError> {
    let held = locked(&**files, dir)?;
    let manifest = match Manifest::load(&**files, dir) {
        // Nothing else can be checked without the manifest.
        Err(SeriesOpenError::Corrupt(damage)) => return Ok(vec![damage.to_string()]),
        loaded => loaded?.unwrap_or_default(),
    };
    let options = StoreOptions { files: Arc::clone(files), ..StoreOptions::default() };
    let core = Core::new(dir.to_owned(), options, manifest.clone(), held);
    let mut found = Vec::new();
    found.extend(core.load_catalog(&manifest).err().map(|e| e.to_string()));
    for meta in &manifest.parts {
        let part = Part::alone(files, &core.parts_dir(), *meta);
        found.extend(part.verify().into_iter().map(|e| e.to_string()));
    }
    let log = dir.join("log");
    let names = files.list(&log).unwrap_or_default();
    if !is_gone(&names) || is_missed(&manifest) {
        match journal::verify_with(&**files, &log) {
            Ok(report) => {
                let note = if manifest.clean {
                    "; all of it is in parts: opening sets it aside"
                } else {
                    ""
                };
                found.extend(report.damage.iter().map(|damage| format!("{damage}{note}")));
                let (base, sealed) = (manifest.log_base, manifest.sealed);
                let from = (sealed + 1).saturating_sub(base);
                let unsealed = base + report.last_position > sealed;
                let gap = gap(&log, report.first_position, from).filter(|_| unsealed);
                found.extend(gap.map(|gap| gap.to_string()));
                let (end, expected) = (report.last_position, manifest.log_expected);
                if end < expected && !manifest.clean {
                    found.push(format!(
                        "{}: the log ends at record {end}, but {expected} was acknowledged: put back \
                         what was taken away there, or the last backup",
                        log.display()
                    ));
                }
            }
            Err(e) => found.push(e.to_string()),
        }
    }
    // Several parts in one file report the same defect of the file.
    let mut seen = HashSet::new();
    found.retain(|line| seen.insert(line.clone()));
    Ok(found)
}
