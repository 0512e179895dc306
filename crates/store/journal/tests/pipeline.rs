//! Power cuts while real threads are in the middle of everything: groups in flight beside each
//! other, a ring archived in the background, segments prepared ahead. The disk holds back what it
//! acknowledges for a while, so that several writes are unflushed at once; a cut then keeps any of
//! their sectors. Images are taken while the writers go on, so one run gives many cuts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::excessive_nesting,
    reason = "tests"
)]

mod support;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use env::files::{Access, Failure, Fault, File, FileOver, Files, FilesOver, SimDisk};
use journal::{AppendError, Durability, Journal, Layout, Options};
use parking_lot::Mutex;
use support::{DIR, Noise, options};

/// Longer than anything here takes, short enough to name a hang.
const PATIENCE: Duration = Duration::from_mins(10);

/// A disk whose synchronous writes are unflushed for some turns of the scheduler.
struct Queued {
    disk: SimDisk,
    noise: Arc<AtomicU64>,
    /// Synchronous writes under way, and the most there were.
    under_way: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

struct QueuedFile {
    file: Arc<dyn File>,
    /// The same file through the page cache, if this one is synchronous.
    cached: Option<Arc<dyn File>>,
    noise: Arc<AtomicU64>,
    under_way: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl Queued {
    fn new(disk: &SimDisk) -> Self {
        let (noise, under_way, most) = Default::default();
        Self { disk: disk.clone(), noise, under_way, most }
    }
}

impl FileOver for QueuedFile {
    fn under(&self) -> &dyn File {
        &*self.file
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        let Some(cached) = &self.cached else { return self.file.write_at(from, offset) };
        let now = 1 + self.under_way.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(now, Ordering::Relaxed);
        let unflushed = cached.write_all_at(from, offset);
        let turns = Noise(self.noise.fetch_add(1, Ordering::Relaxed)).below(6);
        (0..turns).for_each(|_| thread::yield_now());
        let written = unflushed.and_then(|()| self.file.write_at(from, offset));
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        written
    }
}

impl FilesOver for Queued {
    fn under(&self) -> &dyn Files {
        &self.disk
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, access)?;
        let cached = access.dsync.then(|| self.disk.open(path, Access::WRITE)).transpose()?;
        let (under_way, most) = (Arc::clone(&self.under_way), Arc::clone(&self.most));
        Ok(Arc::new(QueuedFile { file, cached, noise: Arc::clone(&self.noise), under_way, most }))
    }
}

fn queued(disk: &SimDisk, layout: Layout, groups: usize) -> (Options, Arc<AtomicU64>) {
    let queued = Queued::new(disk);
    let most = Arc::clone(&queued.most);
    let options = Options {
        groups_in_flight: groups,
        background: true,
        spares: 8,
        files: Arc::new(queued),
        ..options(disk, layout)
    };
    (options, most)
}

/// The `n`-th append of writer `t`: two records, of which each says what it is.
fn batch(t: u64, n: u64) -> [Vec<u8>; 2] {
    [0u64, 1].map(|half| {
        let id = t << 40 | n << 1 | half;
        let bytes = 8 + (n as usize * 37) % 90;
        id.to_le_bytes().into_iter().cycle().take(bytes).collect()
    })
}

/// What was acknowledged, by position of the first record: writer and number.
type Acknowledged = Mutex<BTreeMap<u64, (u64, u64)>>;

/// Append until it is told to stop, and give up what is long past.
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
            // Segments come back, with what is stale in them.
            journal.trim(outcome.first.saturating_sub(150)).unwrap();
        }
    }
}

/// Recover an image and compare it with what had been acknowledged before it was taken.
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

/// Lets the writers end, however the test does.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn cuts_amid_groups_in_flight_and_a_ring_being_archived_lose_nothing_acknowledged() {
    let crashes = std::env::var("HOLDFAST_CRASHES").ok().and_then(|v| v.parse().ok());
    let images: u64 = crashes.unwrap_or(100_000) / 40;
    for (layout, groups) in
        [(Layout::Sparse, 4), (Layout::Sparse, 2), (Layout::Ring, 1), (Layout::Packed, 1)]
    {
        let disk = SimDisk::new(groups as u64);
        let (options, most) = queued(&disk, layout, groups);
        let (journal, _) = Journal::open(Path::new(DIR), options).unwrap();
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
                    assert!(Instant::now() < until, "{layout:?} groups={groups}: a hang");
                    thread::yield_now();
                }
                let before = told.lock().clone();
                let image = disk.crash(seed);
                seen = further(&before);
                let what = format!("{layout:?} groups={groups} image={seed}");
                check(&image, &before, &what);
                let mut told = told.lock();
                while told.len() > 400 {
                    told.pop_first();
                }
            }
        });
        let stats = journal.stats();
        assert!(stats.segments_recycled > 0, "{stats:?}");
        assert!(groups == 1 || most.load(Ordering::Relaxed) > 1, "nothing was in flight together");
        assert!(layout != Layout::Ring || stats.archive_bytes > 0, "{stats:?}");
        journal.close().unwrap();
    }
}

#[test]
fn a_failure_of_one_group_in_flight_reaches_all_and_nothing_later_is_acknowledged() {
    let mut poisoned = 0;
    for call in 5..25 {
        let disk = SimDisk::new(call);
        let (options, _) = queued(&disk, Layout::Sparse, 4);
        let options = Options { segment_bytes: 8 << 20, ..options };
        let (journal, _) = Journal::open(Path::new(DIR), options).unwrap();
        journal.append(b"first", Durability::Persist).unwrap();
        disk.fail(&[Fault { call: disk.calls() + call, failure: Failure::Io }]);
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let journal = journal.clone();
                thread::spawn(move || {
                    let mut last = 0;
                    // A failure while the next segment is prepared harms nobody.
                    for _ in 0..100 {
                        match journal.append(&[t as u8; 40], Durability::Persist) {
                            Ok(outcome) => last = outcome.position,
                            Err(AppendError::Poisoned(_)) => return (last, true),
                            Err(e) => panic!("{e}"),
                        }
                    }
                    (last, false)
                })
            })
            .collect();
        let ends: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(ends.iter().all(|e| e.1 == ends[0].1), "call={call}: not all were told: {ends:?}");
        poisoned += usize::from(ends[0].1);
        let last = ends.iter().map(|e| e.0).max().unwrap();
        drop(journal);
        let image = disk.crash(call);
        let (_, recovery) = Journal::open(Path::new(DIR), support::options(&image, Layout::Sparse))
            .unwrap_or_else(|e| panic!("call={call}: {e}"));
        assert!(recovery.last_position >= last, "call={call}: {recovery:?} of {last}");
    }
    assert!(poisoned > 10, "only {poisoned} failures were noticed");
}

#[test]
fn tasks_have_several_groups_in_flight_too() {
    let disk = SimDisk::new(3);
    let (options, _) = queued(&disk, Layout::Sparse, 4);
    let (journal, _) = Journal::open(Path::new(DIR), options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for t in 0..32u64 {
            let journal = journal.clone();
            tasks.push(tokio::spawn(async move {
                let mut last = 0;
                for n in 0..20 {
                    let records = batch(t, n).to_vec();
                    let outcome = journal.append_async(records, Durability::Persist).await.unwrap();
                    assert!(outcome.first > last);
                    last = outcome.position;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    journal.persist().unwrap();
    assert_eq!(journal.persisted_position(), 32 * 20 * 2);
    assert_eq!(journal.read_from(1).unwrap().map(Result::unwrap).count(), 32 * 20 * 2);
    journal.close().unwrap();
}
