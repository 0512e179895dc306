//! Power cuts while real threads append, the ring is archived in the background and segments are
//! prepared ahead. The disk holds a synchronous write in its cache for a while before it flushes
//! it, so that writes of several threads are unflushed at once; a cut then keeps any of their
//! sectors. Images are taken while the writers continue, so one run gives many cuts.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{DIR, Noise, options};
use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};
use journal::{Durability, Journal, Layout, Options};
use parking_lot::Mutex;

/// Timeout that is longer than any test, but detects a hang.
const PATIENCE: Duration = Duration::from_mins(10);

/// A disk whose synchronous writes are unflushed for some turns of the scheduler.
struct Queued {
    disk: SimDisk,
    noise: Arc<AtomicU64>,
}

struct QueuedFile {
    file: Arc<dyn File>,
    /// The same file through the page cache, if this one is synchronous.
    cached: Option<Arc<dyn File>>,
    noise: Arc<AtomicU64>,
}

impl FileOver for QueuedFile {
    fn under(&self) -> &dyn File {
        &*self.file
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        let Some(cached) = &self.cached else { return self.file.write_at(from, offset) };
        cached.write_all_at(from, offset)?;
        let turns = Noise(self.noise.fetch_add(1, Ordering::Relaxed)).below(6);
        (0..turns).for_each(|_| thread::yield_now());
        self.file.write_at(from, offset)
    }
}

impl FilesOver for Queued {
    fn under(&self) -> &dyn Files {
        &self.disk
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, access)?;
        let cached = access.dsync.then(|| self.disk.open(path, Access::WRITE)).transpose()?;
        Ok(Arc::new(QueuedFile { file, cached, noise: Arc::clone(&self.noise) }))
    }
}

fn queued(disk: &SimDisk, layout: Layout) -> Options {
    let files = Arc::new(Queued { disk: disk.clone(), noise: Arc::default() });
    Options { background: true, spares: 8, files, ..options(disk, layout) }
}

/// Returns the `n`-th append of writer `t`: two records with these numbers.
fn batch(t: u64, n: u64) -> [Vec<u8>; 2] {
    [0u64, 1].map(|half| {
        let id = t << 40 | n << 1 | half;
        let bytes = 8 + (n as usize * 37) % 90;
        id.to_le_bytes().into_iter().cycle().take(bytes).collect()
    })
}

/// The acknowledged appends, by position of the first record: writer and number.
type Acknowledged = Mutex<BTreeMap<u64, (u64, u64)>>;

/// Appends until stopped, and trims old records.
fn write_until(journal: &Journal, t: u64, stop: &AtomicBool, told: &Acknowledged) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let records = batch(t, n);
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let outcome = journal.append_all(&records, Durability::Persist).unwrap();
        told.lock().insert(outcome.first, (t, n));
        if (outcome.first - 1).is_multiple_of(64) {
            // Segments are recycled with stale content.
            journal.trim(outcome.first.saturating_sub(150)).unwrap();
        }
    }
}

/// Recovers an image and compares it with what had been acknowledged before it was taken.
fn check(image: &SimDisk, told: &BTreeMap<u64, (u64, u64)>, what: &str) {
    let (journal, recovery) =
        Journal::open(Path::new(DIR), options(image, Layout::Packed)).expect(what);
    let last_told = told.last_key_value().map_or(0, |(first, _)| first + 1);
    assert!(recovery.last_position >= last_told, "{what}: {recovery:?} of {last_told}");
    let records: Vec<_> = journal.read_from(0).unwrap().map(|r| r.expect(what)).collect();
    assert_eq!(records.first().map_or(0, |r| r.0), recovery.first_position, "{what}");
    let mut next = BTreeMap::new();
    for pair in records.chunks(2) {
        let [(first, one), (second, two)] = pair else { panic!("{what}: half an append") };
        assert_eq!((first % 2, first + 1), (1, *second), "{what}");
        let id = u64::from_le_bytes(one[..8].try_into().unwrap());
        let (t, n) = (id >> 40, (id & ((1 << 40) - 1)) >> 1);
        let expected = batch(t, n);
        assert!(expected[0] == *one && expected[1] == *two, "{what}: position {first}");
        let before = next.insert(t, n + 1);
        assert!(before.is_none_or(|b| b == n), "{what}: writer {t} jumps to {n}");
        assert!(told.get(first).is_none_or(|known| *known == (t, n)), "{what}: {first} differs");
    }
}

/// Stops the writers when the test ends, also after a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn acknowledged_records_survive_cuts_during_appends() {
    let crashes = std::env::var("HOLDFAST_CRASHES").ok().and_then(|v| v.parse().ok());
    let images: u64 = crashes.unwrap_or(100_000) / 40;
    for layout in [Layout::Sparse, Layout::Ring, Layout::Packed] {
        let disk = SimDisk::new(1);
        let (journal, _) = Journal::open(Path::new(DIR), queued(&disk, layout)).unwrap();
        let (stop, told) = (AtomicBool::new(false), Acknowledged::default());
        thread::scope(|scope| {
            for t in 0..4 {
                let (journal, stop, told) = (&journal, &stop, &told);
                scope.spawn(move || write_until(journal, t, stop, told));
            }
            let _stop = Stop(&stop);
            let mut seen = 0;
            let further = |told: &BTreeMap<u64, _>| told.last_key_value().map_or(0, |(p, _)| *p);
            for seed in 0..images {
                let until = Instant::now() + PATIENCE;
                while further(&told.lock()) <= seen {
                    assert!(Instant::now() < until, "{layout:?}: a hang");
                    thread::yield_now();
                }
                let before = told.lock().clone();
                let image = disk.crash(seed);
                seen = further(&before);
                let what = format!("{layout:?} image={seed}");
                check(&image, &before, &what);
                let mut told = told.lock();
                while told.len() > 400 {
                    told.pop_first();
                }
            }
        });
        let stats = journal.stats();
        assert!(stats.segments_recycled > 0, "{stats:?}");
        assert!(layout != Layout::Ring || stats.archive_bytes > 0, "{stats:?}");
        journal.close().unwrap();
    }
}
