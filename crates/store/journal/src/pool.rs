//! The pool of spare files: created, allocated and filled with zeros before they become segments,
//! and recycled after their segments were trimmed.
//!
//! Writing to blocks that were written before does not change file-system metadata. That is why
//! zeros are written ahead of the writer, and why trimmed segments are recycled. A streaming
//! writer, which writes at least `ahead` bytes between two flushes, skips the zeros: they would
//! double the bytes written without saving metadata changes. A spare keeps its own name until its
//! header is persisted; only then is it renamed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::files::{Access, File, Files};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::bytes::Blocks;
use crate::error::AppendError;
use crate::folder::spare_name;
use crate::meter::Totals;
use crate::options::{BLOCK_BYTES, IoPath, Options};

/// Zeros written at a time, in bytes.
const ZERO_BYTES: usize = 256 << 10;

/// The reason why a write failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// Nothing was written; the caller may try again.
    Refused(AppendError),
    /// The content of the medium is in doubt.
    Fatal(String),
}

/// Returns an error that occurred before anything was published.
pub(crate) fn harmless(what: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> WriteError {
    move |e| {
        let full = matches!(
            e.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        WriteError::Refused(if full {
            AppendError::Full(format!("{}: {what}: {e}", path.display()))
        } else {
            AppendError::Io { path: path.display().to_string(), what, cause: e.to_string() }
        })
    }
}

/// Returns an error after which the content of the medium is in doubt.
pub(crate) fn fatal(what: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> WriteError {
    move |e| WriteError::Fatal(format!("{}: {what}: {e}", path.display()))
}

/// A file that is ready to become a segment.
pub(crate) struct SpareFile {
    pub(crate) path: PathBuf,
    pub(crate) fill: Arc<Fill>,
    pub(crate) recycled: bool,
}

/// The extent to which a file is filled with zeros (or older content).
pub(crate) struct Fill {
    pub(crate) file: Arc<dyn File>,
    path: PathBuf,
    size: u64,
    pub(crate) ahead: u64,
    frontier: Mutex<u64>,
    /// True if space was allocated before data was written.
    reserved: bool,
    /// True while the writer streams.
    streams: AtomicBool,
    /// Set when a flush of this file failed: other unpersisted data in it may be lost.
    doubt: AtomicBool,
    totals: Arc<Totals>,
}

impl Fill {
    /// Returns true if a flush of zeros failed. Such a flush may also have covered groups.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.load(Ordering::Acquire)
    }

    /// Records whether the writer streams.
    pub(crate) fn set_streams(&self, streams: bool) {
        self.streams.store(streams && self.reserved, Ordering::Release);
    }

    fn streams(&self) -> bool {
        self.streams.load(Ordering::Acquire)
    }

    /// Fills at least up to `end`, which is written next, so that the write changes no metadata.
    /// While the writer streams, only moves the frontier.
    pub(crate) fn ensure(&self, end: u64) -> Result<(), WriteError> {
        let mut frontier = self.frontier.lock();
        if end <= *frontier {
            return Ok(());
        }
        if self.streams() {
            *frontier = end.next_multiple_of(BLOCK_BYTES as u64);
            return Ok(());
        }
        self.fill_zeros(frontier, end)
    }

    /// Writes zeros from the frontier up to `end`, and at least `ahead` bytes, but not beyond the
    /// size of the file.
    fn fill_zeros(&self, mut frontier: MutexGuard<'_, u64>, end: u64) -> Result<(), WriteError> {
        let to =
            end.max(*frontier + self.ahead).min(self.size).next_multiple_of(BLOCK_BYTES as u64);
        let mut zeros = Blocks::new();
        let zeros = zeros.reset(ZERO_BYTES.min((to - *frontier) as usize));
        let mut at = *frontier;
        while at < to {
            let n = (to - at).min(zeros.len() as u64);
            let piece = zeros.get(..n as usize).unwrap_or_default();
            let wrote = self.file.write_all_at(piece, at);
            wrote.map_err(harmless("cannot fill with zeros", self.path.clone()))?;
            at += n;
        }
        self.totals.zeros(to - *frontier);
        let persisted = self.file.persist();
        self.doubt.fetch_or(persisted.is_err(), Ordering::AcqRel);
        persisted.map_err(harmless("cannot persist the zeros", self.path.clone()))?;
        *frontier = to;
        Ok(())
    }

    /// Fills ahead of a writer that is at `next`, if less than `ahead` bytes are filled.
    pub(crate) fn keep_ahead(&self, next: u64) -> Result<(), WriteError> {
        let wanted = (next + self.ahead).min(self.size);
        let frontier = self.frontier.lock();
        // A stream may have begun while this call waited for the lock.
        if self.streams() || wanted <= *frontier {
            return Ok(());
        }
        self.fill_zeros(frontier, wanted)
    }

    pub(crate) fn is_behind(&self, next: u64) -> bool {
        if self.streams() {
            return false;
        }
        let wanted = (next + self.ahead / 2).min(self.size);
        self.frontier.try_lock().is_some_and(|frontier| wanted > *frontier)
    }
}

/// The spares of one journal.
pub(crate) struct Pool {
    files: Arc<dyn Files>,
    dir: PathBuf,
    io: IoPath,
    ahead: u64,
    keep: usize,
    state: Mutex<State>,
    signal: Condvar,
    pub(crate) totals: Arc<Totals>,
}

struct State {
    ready: Vec<SpareFile>,
    /// Numbers of trimmed files whose new name is persisted, and of spares found at open.
    idle: Vec<u64>,
    number: u64,
    active: Option<(Arc<Fill>, u64)>,
    wanted: bool,
    stopped: bool,
}

impl Pool {
    pub(crate) fn new(options: &Options, dir: PathBuf, io: IoPath, found: Vec<u64>) -> Self {
        let number = found.iter().max().map_or(0, |n| n + 1);
        let state = Mutex::new(State {
            ready: Vec::new(),
            idle: found,
            number,
            active: None,
            wanted: false,
            stopped: false,
        });
        let signal = Condvar::new();
        Self {
            files: Arc::clone(&options.files),
            dir,
            io,
            ahead: options.fill_ahead_bytes,
            keep: options.spares,
            state,
            signal,
            totals: Arc::default(),
        }
    }

    /// Returns the access mode for plain writes and zeros.
    pub(crate) fn plain(&self) -> Access {
        Access { direct: self.io == IoPath::Direct, ..Access::WRITE }
    }

    /// Returns the number of a new spare.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.number += 1;
        state.number - 1
    }

    /// Recycles file `number`, whose name is persisted. Returns true if it is kept.
    pub(crate) fn recycle(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let room = state.idle.len() + state.ready.len() < self.keep;
        if room {
            state.idle.push(number);
        }
        room
    }

    /// Returns a file of at least `size` bytes whose beginning is filled.
    pub(crate) fn take_file(&self, size: u64) -> Result<SpareFile, WriteError> {
        let ready = {
            let mut state = self.state.lock();
            let found = state.ready.iter().position(|s| s.fill.size >= size);
            found.map(|i| state.ready.swap_remove(i))
        };
        ready.map_or_else(|| self.make(size), Ok)
    }

    /// Puts back a spare that did not become a segment. Removes its file if `failed`.
    pub(crate) fn give_back(&self, spare: SpareFile, failed: bool) {
        if failed {
            let _ = self.files.remove(&spare.path);
        } else {
            self.state.lock().ready.push(spare);
        }
    }

    fn make(&self, size: u64) -> Result<SpareFile, WriteError> {
        loop {
            let idle = self.state.lock().idle.pop();
            let number = idle.unwrap_or_else(|| self.number());
            let path = self.dir.join(spare_name(number));
            let made = self.prepare(&path, size, idle.is_some());
            let full = matches!(made, Err(WriteError::Refused(AppendError::Full(_))));
            if made.is_err() && idle.is_some() && full {
                self.state.lock().idle.push(number);
            } else if made.is_err() {
                let _ = self.files.remove(&path);
            }
            // An idle spare that cannot be used (created by another user, for instance) is skipped.
            if made.is_ok() || full || idle.is_none() {
                return made;
            }
        }
    }

    fn prepare(
        &self,
        path: &std::path::Path,
        size: u64,
        recycled: bool,
    ) -> Result<SpareFile, WriteError> {
        let failed = |what| harmless(what, path.to_owned());
        let access = Access { create: !recycled, ..self.plain() };
        let file = self.files.open(path, access).map_err(failed("cannot open a spare"))?;
        let have = file.size().map_err(failed("cannot size a spare"))?;
        // A segment that was replaced early, or whose process ended, is not filled to its end.
        let filled = file.filled().map_err(failed("cannot size a spare"))?;
        let mut reserved = false;
        if have.min(filled) < size {
            reserved = file.allocate(size).map_err(failed("cannot reserve a segment"))?;
        }
        let frontier = filled.min(have).min(size) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let fill = Fill {
            file,
            path: path.to_owned(),
            size,
            ahead: self.ahead,
            frontier: Mutex::new(frontier),
            reserved,
            streams: AtomicBool::new(false),
            doubt: AtomicBool::new(false),
            totals: Arc::clone(&self.totals),
        };
        fill.ensure(self.ahead.min(size))?;
        Ok(SpareFile { path: path.to_owned(), fill: Arc::new(fill), recycled })
    }

    /// Records that the writer is at `next` of this file. Returns true if work ahead of it is due.
    pub(crate) fn writing(&self, fill: &Arc<Fill>, next: u64) -> bool {
        let mut state = self.state.lock();
        state.active = Some((Arc::clone(fill), next));
        let due = fill.is_behind(next) || (next > fill.size / 2 && state.ready.is_empty());
        if due && !state.wanted {
            state.wanted = true;
            self.signal.notify_one();
        }
        due
    }

    /// Runs the fill thread: prepares files ahead of the writer until [`Pool::stop`] is called.
    pub(crate) fn serve(&self, size: u64) {
        let mut state = self.state.lock();
        while !state.stopped {
            if state.wanted {
                state.wanted = false;
                drop(state);
                self.work_ahead(size);
                state = self.state.lock();
            } else {
                self.signal.wait(&mut state);
            }
        }
    }

    /// Makes [`Pool::serve`] return.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.signal.notify_all();
    }

    /// Fills ahead of the writer and prepares the next spare. What fails here is tried again by the
    /// writer when it needs it.
    pub(crate) fn work_ahead(&self, size: u64) {
        let Some((fill, next)) = self.state.lock().active.clone() else { return };
        if let Err(error) = fill.keep_ahead(next) {
            return self.warn(&error);
        }
        if next > fill.size / 2 && self.state.lock().ready.is_empty() {
            match self.make(size) {
                Ok(spare) => self.state.lock().ready.push(spare),
                Err(error) => self.warn(&error),
            }
        }
    }

    /// Logs an I/O error. A full disk is reported by the writer.
    fn warn(&self, error: &WriteError) {
        if let WriteError::Refused(error @ AppendError::Io { .. }) = error {
            tracing::warn!("{}: no space prepared for the writer: {error}", self.dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use env::files::{FilesOver, SimDisk};

    use super::*;

    /// A disk on which existing files cannot be opened for writing.
    struct Foreign(SimDisk);

    impl FilesOver for Foreign {
        fn under(&self) -> &dyn Files {
            &self.0
        }

        fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
            if access.write && !access.create {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            self.0.open(path, access)
        }
    }

    #[test]
    fn unwritable_spare_is_replaced_by_a_new_file() {
        let (disk, dir) = (SimDisk::new(1), PathBuf::from("/log"));
        disk.create_dir(&dir).unwrap();
        let foreign = dir.join(spare_name(3));
        disk.open(&foreign, Access::CREATE).unwrap();
        let files: Arc<dyn Files> = Arc::new(Foreign(disk.clone()));
        let options = Options { files, fill_ahead_bytes: 4096, spares: 8, ..Options::default() };
        let pool = Pool::new(&options, dir.clone(), IoPath::Fdatasync, vec![3]);
        let spare = pool.take_file(64 << 10).map_err(|_| "refused").unwrap();
        assert_eq!(spare.path, dir.join(spare_name(4)));
        assert!(!disk.list(&dir).unwrap().contains(&spare_name(3)));
    }
}
