//! Copies a store, open or closed. A process that has the store open is not involved.
//!
//! Parts never change, and neither does the portion of the catalogue that the manifest counts. The
//! log loses only records that are in parts. So a manifest, the files it names and the log after it
//! are a consistent state of the store if all of them could be read. If a merge or a seal removed a
//! file first, the copy continues with the current manifest. The log is not copied as a file: its
//! records are read, verified and written to a new log.
//!
//! The copy contains everything that was acknowledged before it began. With the log off, it
//! contains only the parts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use env::files::{Access, Files};
use journal::{DumpedGroup, Durability, Journal};

use crate::error::{SeriesDamage, SeriesOpenError};
use crate::manifest::Manifest;

/// Maximum number of manifests tried before the copy fails.
const TRIES_MAX: u32 = 20;
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The content of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupReport {
    /// Parts and roll-ups.
    pub parts: u64,
    /// Bytes of these.
    pub part_bytes: u64,
    /// Records of the log after the parts.
    pub records: u64,
}

/// Copies the store in `from`, which may be open, into the folder `to`, which must be empty or
/// absent. [`crate::Store::open`] opens the copy. The copy is persisted when this returns.
///
/// # Errors
/// Returns an error if a file cannot be read or written, is damaged, or the store changes faster
/// than it can be copied.
pub fn backup(
    from: &Path,
    to: &Path,
    files: &Arc<dyn Files>,
) -> Result<BackupReport, SeriesOpenError> {
    let copy = Copying { from, to, files };
    for folder in [to.to_owned(), to.join("parts"), to.join("log")] {
        files.create_dir(&folder).map_err(failed(&folder, "cannot create"))?;
    }
    for _ in 0..TRIES_MAX {
        let manifest = Manifest::load(&**files, from)?;
        let mut manifest =
            manifest.unwrap_or_else(|| Manifest { next_part: 1, ..Manifest::default() });
        if copy.parts(&manifest)? == Copied::Gone {
            continue;
        }
        let Some(records) = copy.log(&manifest)? else { continue };
        if copy.catalog(&manifest)? == Copied::Gone {
            continue;
        }
        manifest.log_base = manifest.sealed;
        (manifest.log_expected, manifest.clean) = (records, false);
        copy.finish(&manifest)?;
        return Ok(BackupReport {
            parts: manifest.parts.len() as u64,
            part_bytes: manifest.parts.iter().map(|p| p.bytes).sum(),
            records,
        });
    }
    let why = "it changes faster than it can be copied; copy it while less is written";
    Err(failed(from, "cannot copy the store")(std::io::Error::other(why)))
}

fn failed(path: &Path, what: &'static str) -> impl Fn(std::io::Error) -> SeriesOpenError {
    let path = path.to_owned();
    move |source| SeriesOpenError::Io { path: path.clone(), what, source }
}

/// The outcome of copying a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    Whole,
    /// A merge or a seal removed the file: there is a newer manifest.
    Gone,
}

struct Copying<'a> {
    from: &'a Path,
    to: &'a Path,
    files: &'a Arc<dyn Files>,
}

impl Copying<'_> {
    /// Copies the parts that have not been copied yet.
    fn parts(&self, manifest: &Manifest) -> Result<Copied, SeriesOpenError> {
        let dir = self.to.join("parts");
        let done = self.files.list(&dir).map_err(failed(&dir, "cannot list"))?;
        let done: BTreeSet<String> = done.into_iter().collect();
        // A file may hold several parts.
        let mut files: BTreeMap<String, u64> = BTreeMap::new();
        for part in &manifest.parts {
            let bytes = files.entry(part.file_name()).or_default();
            *bytes = part.end().max(*bytes);
        }
        for (name, bytes) in files.iter().filter(|(name, _)| !done.contains(*name)) {
            if self.part(name, *bytes)? == Copied::Gone {
                return Ok(Copied::Gone);
            }
        }
        Ok(Copied::Whole)
    }

    /// Copies a file of parts. It is renamed into place when it is complete.
    fn part(&self, name: &str, bytes: u64) -> Result<Copied, SeriesOpenError> {
        let name = Path::new("parts").join(name);
        let whole = self.to.join(&name);
        let begun = whole.with_extension("new");
        let copied = self.copy(&self.from.join(&name), &begun, bytes)?;
        if copied == Copied::Whole {
            self.files.rename(&begun, &whole).map_err(failed(&whole, "cannot name"))?;
        }
        Ok(copied)
    }

    /// Copies the first `bytes` bytes of a file.
    fn copy(&self, from: &Path, to: &Path, bytes: u64) -> Result<Copied, SeriesOpenError> {
        let source = match self.files.open(from, Access::READ) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Copied::Gone),
            other => other.map_err(failed(from, "cannot open"))?,
        };
        let target = self.files.open(to, Access::CREATE).map_err(failed(to, "cannot create"))?;
        target.set_size(0).map_err(failed(to, "cannot empty"))?;
        let (mut buffer, mut at) = (vec![0; COPY_BYTES], 0);
        while at < bytes {
            let room = usize::try_from(bytes - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let into = buffer.get_mut(..room).unwrap_or_default();
            let read = source.read_at(into, at).map_err(failed(from, "cannot read"))?;
            let Some(some) = buffer.get(..read).filter(|some| !some.is_empty()) else {
                let what = format!("the file ends here instead of at {bytes}");
                return Err(SeriesDamage { file: from.to_owned(), offset: at, what }.into());
            };
            target.write_all_at(some, at).map_err(failed(to, "cannot write"))?;
            at += read as u64;
        }
        target.persist().map_err(failed(to, "cannot persist"))?;
        Ok(Copied::Whole)
    }

    fn catalog(&self, manifest: &Manifest) -> Result<Copied, SeriesOpenError> {
        let name = manifest.catalog_name();
        if manifest.catalog_bytes == 0 {
            return Ok(Copied::Whole);
        }
        self.copy(&self.from.join(&name), &self.to.join(&name), manifest.catalog_bytes)
    }

    /// Writes the records that the log holds after the parts into a new log. Returns their number,
    /// or `None` if some of them were removed while they were read.
    fn log(&self, manifest: &Manifest) -> Result<Option<u64>, SeriesOpenError> {
        let (from, to) = (self.from.join("log"), self.to.join("log"));
        let names = self.files.list(&to).map_err(failed(&to, "cannot list"))?;
        for name in names {
            let path = to.join(name);
            self.files.remove(&path).map_err(failed(&path, "cannot remove"))?;
        }
        let names = self.files.list(&from).unwrap_or_default();
        if !names.iter().any(|n| n.starts_with("segment-") || n.starts_with("ring-")) {
            return Ok(Some(0));
        }
        let options = journal::Options {
            background: false,
            files: Arc::clone(self.files),
            ..journal::Options::default()
        };
        let (journal, _) = Journal::open(&to, options)?;
        let first = (manifest.sealed + 1).saturating_sub(manifest.log_base);
        let mut reading = Reading { next: first, gap: false, failed: None };
        let read = journal::dump_with(&**self.files, &from, first, |group| {
            reading.read_group(&journal, &group)
        });
        let closed = journal.close();
        if let Some(e) = reading.failed.or(closed.err()) {
            return Err(failed(&to, "cannot write the log")(std::io::Error::other(e.to_string())));
        }
        // A segment was removed while the folder was read, or is being rewritten: the next attempt
        // reads the current state.
        let whole = read.is_ok() && !reading.gap && reading.next > manifest.log_expected;
        Ok(whole.then_some(reading.next - first))
    }

    /// Stores the manifest and removes the files that it does not name.
    fn finish(&self, manifest: &Manifest) -> Result<(), SeriesOpenError> {
        let dir = self.to.join("parts");
        let names = self.files.list(&dir).map_err(failed(&dir, "cannot list"))?;
        for name in names.iter().filter(|n| manifest.parts.iter().all(|p| p.file_name() != **n)) {
            let path = dir.join(name);
            self.files.remove(&path).map_err(failed(&path, "cannot remove"))?;
        }
        self.files.persist_dir(&dir).map_err(failed(&dir, "cannot persist"))?;
        let stored = manifest.store(&**self.files, self.to);
        stored.map(drop).map_err(|e| {
            failed(self.to, "cannot write the manifest")(std::io::Error::other(e.to_string()))
        })
    }
}

/// Reads the records to be written to the log of the copy.
struct Reading {
    /// Position of the next record.
    next: u64,
    /// True if the record at this position is missing.
    gap: bool,
    failed: Option<journal::AppendError>,
}

impl Reading {
    fn read_group(&mut self, journal: &Journal, group: &DumpedGroup) -> ControlFlow<()> {
        if group.first_position > self.next {
            self.gap = true;
            return ControlFlow::Break(());
        }
        let skipped = usize::try_from(self.next - group.first_position).unwrap_or(usize::MAX);
        let records: Vec<&[u8]> = group.records.iter().skip(skipped).map(Vec::as_slice).collect();
        if records.is_empty() {
            return ControlFlow::Continue(());
        }
        match journal.append_all(&records, Durability::Flush) {
            Ok(_) => {
                self.next += records.len() as u64;
                ControlFlow::Continue(())
            }
            Err(e) => {
                self.failed = Some(e);
                ControlFlow::Break(())
            }
        }
    }
}
