//! The state that all handles of an open journal share, and the steps that open it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use env::files::{Access, Files, Lock};
use parking_lot::{Mutex, RwLock};

use crate::bytes::Blocks;
use crate::consumer::{self, Pins};
use crate::error::{AppendError, OpenError};
use crate::folder::{Catalog, LOCK_NAME, SharedCatalog, segment_name, spare_name};
use crate::group_commit::GroupCommit;
use crate::meter::{Recovery, Stats, TrimOutcome};
use crate::options::{
    BLOCK_BYTES, IoPath, Layout, Options, RING_BYTES_MAX, RING_BYTES_MIN, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
};
use crate::pool::Pool;
use crate::recover::{Found, examine, refused};
use crate::writer::{Setup, Writer};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Name of the file with which open tests whether direct I/O works.
const PROBE_NAME: &str = "probe";
/// Limit of one append in bytes, however large the segments are.
pub(crate) const APPEND_BYTES_MAX: u64 = 256 << 20;

/// See the module.
pub(crate) struct Core {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) dir: PathBuf,
    pub(crate) gate: GroupCommit,
    pub(crate) catalog: Arc<SharedCatalog>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) pins: Mutex<Pins>,
    pub(crate) options: Options,
    io: IoPath,
    io_reason: &'static str,
    trimming: Mutex<()>,
    /// Released when the journal is closed, even if readers still exist.
    lock: Mutex<Option<Box<dyn Lock>>>,
}

/// Takes the lock of the journal in `dir`.
pub(crate) fn lock(files: &dyn Files, dir: &Path) -> Result<Box<dyn Lock>, OpenError> {
    let path = dir.join(LOCK_NAME);
    let lock = files.lock(&path).map_err(refused(&path, "cannot lock"))?;
    lock.ok_or_else(|| OpenError::Locked(dir.to_owned()))
}

fn in_range(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), OpenError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(OpenError::Option { name, value, min, max })
}

fn checked(mut options: Options) -> Result<Options, OpenError> {
    let segment = options.segment_bytes;
    in_range("segment_bytes", segment, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
    options.segment_bytes = segment.next_multiple_of(BLOCK);
    if options.layout == Layout::Ring {
        let most = RING_BYTES_MAX.min(options.segment_bytes / 2);
        in_range("ring_bytes", options.ring_bytes, RING_BYTES_MIN.min(most), most)?;
        options.ring_bytes = options.ring_bytes.next_multiple_of(BLOCK);
    }
    options.fill_ahead_bytes = options.fill_ahead_bytes.next_multiple_of(BLOCK).max(BLOCK);
    Ok(options)
}

/// The I/O path that was chosen, and the reason.
struct ChosenIo {
    io: IoPath,
    reason: &'static str,
}

/// Chooses the I/O path for this file system.
fn choose_io(files: &dyn Files, dir: &Path, wanted: IoPath) -> Result<ChosenIo, OpenError> {
    let chosen = |io, reason| Ok(ChosenIo { io, reason });
    if wanted == IoPath::Fdatasync {
        return chosen(wanted, "asked for");
    }
    if wanted == IoPath::Auto && files.compressing(dir).is_some() {
        let why = "the file system may compress, and does not compress direct writes";
        return chosen(IoPath::Fdatasync, why);
    }
    let path = dir.join(PROBE_NAME);
    let access = Access { direct: true, dsync: true, ..Access::CREATE };
    let tried = files.open(&path, access).and_then(|file| {
        let mut block = Blocks::new();
        file.write_all_at(block.reset(BLOCK_BYTES), 0)
    });
    // A probe file that is left behind is harmless: the next open writes and removes it again.
    let _ = files.remove(&path);
    match tried {
        Ok(()) if wanted == IoPath::Direct => chosen(IoPath::Direct, "asked for"),
        Ok(()) => chosen(IoPath::Direct, "the file system takes direct writes"),
        Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {
            chosen(IoPath::Direct, "the file system takes direct writes")
        }
        Err(_) if wanted == IoPath::Auto => {
            chosen(IoPath::Fdatasync, "the file system refuses direct writes")
        }
        Err(e) => Err(refused(&path, "direct writes are refused; choose the fdatasync path")(e)),
    }
}

/// Returns a number that differs from journal to journal.
pub(crate) fn new_journal(dir: &Path) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |d| d.as_nanos() as u64);
    let mut seed = nanos.to_le_bytes().to_vec();
    seed.extend_from_slice(&std::process::id().to_le_bytes());
    seed.extend_from_slice(dir.as_os_str().as_encoded_bytes());
    let high = u64::from(crc32c::crc32c(&seed));
    (high << 32) ^ nanos
}

impl Core {
    /// Recovers the journal in `dir` and makes it ready for appends.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<(Arc<Self>, Recovery), OpenError> {
        let began = Instant::now();
        let options = checked(options)?;
        let files = Arc::clone(&options.files);
        files.create_dir(dir).map_err(refused(dir, "cannot create the folder"))?;
        let lock = lock(&*files, dir)?;
        let found = examine(&*files, dir, true)?;
        if let Some(damage) = &found.damage {
            return Err(OpenError::Corrupt(damage.clone()));
        }
        let pins = consumer::load(&*files, dir, &found.names)?;
        ends_where_it_should(dir, &found, &pins, options.position_expected)?;
        let ChosenIo { io, reason: io_reason } = choose_io(&*files, dir, options.io)?;
        let journal = found.segments.last().map_or_else(|| new_journal(dir), |s| s.header.journal);
        let recovery = Recovery { io_reason, ..recovery(&found, io) };
        let catalog = Catalog {
            segments: found.segments.iter().cloned().collect(),
            ring: found.ring.clone(),
        };
        let catalog = Arc::new(RwLock::new(catalog));
        let pool = Arc::new(Pool::new(&options, dir.to_owned(), io, found.spares.clone()));
        let setup = Setup {
            options: options.clone(),
            dir: dir.to_owned(),
            io,
            catalog: Arc::clone(&catalog),
            pool: Arc::clone(&pool),
        };
        let writer = Writer::new(setup, journal, &found);
        let capacity = options.layout.grid().capacity(options.segment_bytes);
        let append_max = capacity.min(APPEND_BYTES_MAX) as usize - crate::format::HEAD_BYTES_MAX;
        let gate = GroupCommit::new(writer, append_max);
        let (pins, trimming, lock) = (Mutex::new(pins), Mutex::new(()), Mutex::new(Some(lock)));
        let dir = dir.to_owned();
        let core =
            Self { files, dir, gate, catalog, pool, pins, options, io, io_reason, trimming, lock };
        Ok((Arc::new(core), Recovery { elapsed: began.elapsed(), ..recovery }))
    }

    pub(crate) fn first_position(&self) -> u64 {
        self.catalog.read().first_position(self.gate.appended())
    }

    /// Returns the first position of the oldest segment kept, even if it has no records yet.
    pub(crate) fn beginning(&self) -> u64 {
        self.catalog.read().segments.front().map_or(1, |s| s.header.first_position)
    }

    pub(crate) fn stats(&self) -> Stats {
        let catalog = self.catalog.read();
        Stats {
            segments: catalog.segments.len() as u64,
            first_position: catalog.first_position(self.gate.appended()),
            last_position: self.gate.appended(),
            persisted_position: self.gate.persisted(),
            in_flight_bytes: self.gate.in_flight_bytes(),
            layout: self.options.layout,
            io: self.io,
            io_reason: self.io_reason,
            poisoned: self.gate.poisoned(),
            ..self.pool.totals.stats()
        }
    }

    /// Removes whole segments below `below`, but none that a consumer still needs.
    pub(crate) fn trim(&self, below: u64) -> Result<TrimOutcome, AppendError> {
        let _one_at_a_time = self.trimming.lock();
        let below = self.pins.lock().lowest().map_or(below, |pin| below.min(pin + 1));
        let mut outcome = TrimOutcome::default();
        let gone = {
            let mut catalog = self.catalog.write();
            let mut gone = Vec::new();
            while catalog.segments.len() > 1
                && let Some(first) = catalog.segments.front()
                && first.is_sealed()
                && first.last() < below
            {
                gone.extend(catalog.segments.pop_front());
            }
            gone
        };
        let failed = |what: &'static str, path: &Path, e: &std::io::Error| AppendError::Io {
            path: path.display().to_string(),
            what,
            cause: e.to_string(),
        };
        let mut numbers = Vec::new();
        let mut gone = gone.into_iter();
        while let Some(segment) = gone.next() {
            let from = self.dir.join(segment_name(segment.header.epoch));
            let number = self.pool.number();
            let to = self.dir.join(spare_name(number));
            if let Err(e) = self.files.rename(&from, &to) {
                // Segments are removed oldest first, without a gap: this one and all after it stay.
                let mut catalog = self.catalog.write();
                let kept: Vec<_> = std::iter::once(segment).chain(gone).collect();
                kept.into_iter().rev().for_each(|s| catalog.segments.push_front(s));
                return Err(failed("cannot rename a trimmed segment", &from, &e));
            }
            numbers.push((number, to));
        }
        if !numbers.is_empty() {
            let persisted = self.files.persist_dir(&self.dir);
            persisted.map_err(|e| failed("cannot persist the folder", &self.dir, &e))?;
        }
        for (number, path) in numbers {
            if self.pool.recycle(number) {
                outcome.segments_recycled += 1;
            } else {
                let removed = self.files.remove(&path);
                removed.map_err(|e| failed("cannot remove a trimmed segment", &path, &e))?;
                outcome.segments_removed += 1;
            }
        }
        outcome.first_position = self.first_position();
        Ok(outcome)
    }

    /// Stops the gate and the pool. See [`crate::Journal::close`].
    pub(crate) fn close(&self) -> Result<(), AppendError> {
        let closed = self.gate.close();
        self.pool.stop();
        closed
    }

    /// Unlocks the journal, so that it can be opened again.
    pub(crate) fn unlock(&self) {
        self.lock.lock().take();
    }
}

fn ends_where_it_should(
    dir: &Path,
    found: &Found,
    pins: &Pins,
    expected: u64,
) -> Result<(), OpenError> {
    let end = found.next_position - 1;
    let too_early = |expected, by: String| {
        Err(OpenError::EndsTooEarly { dir: dir.to_owned(), end, expected, by })
    };
    if expected > end {
        return too_early(expected, "the caller".into());
    }
    match pins.highest() {
        Some((name, position)) if position > end => too_early(position, format!("consumer {name}")),
        _ => Ok(()),
    }
}

fn recovery(found: &Found, io: IoPath) -> Recovery {
    let last = found.next_position - 1;
    let first = found.segments.first().map_or(0, |s| s.header.first_position);
    Recovery {
        first_position: if first > last { 0 } else { first },
        last_position: last,
        segments: found.segments.len() as u64,
        groups: found.groups,
        bytes_read: found.bytes_read,
        clean: found.closed || found.segments.is_empty(),
        cut: found.cut.clone(),
        io,
        ..Recovery::default()
    }
}
