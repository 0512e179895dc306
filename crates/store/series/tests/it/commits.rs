//! Group commit by the log thread: which writes share a flush, and the result of a failed flush.

use std::future::Future as _;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{self, contents, options};
use env::files::{Access, Failure, Fault, File, FileOver, Files, FilesOver, SimDisk};
use series::{Ack, Batch, Store, StoreOptions, TrySubmit, Wal, WriteError};

/// Timeout after which a test reports a hang.
const HANG: Duration = Duration::from_mins(1);

#[derive(Default)]
struct State {
    shut: bool,
    fails: bool,
    /// Number of flushes that have reached the gate.
    came: u32,
}

/// Blocks flushes of the log thread until opened.
#[derive(Default)]
struct Gate(Mutex<State>, Condvar);

impl Gate {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap());
        self.1.notify_all();
    }

    fn flushes(&self) -> u32 {
        self.0.lock().unwrap().came
    }

    /// Waits until one more flush than `before` has reached the gate.
    fn until_one_comes(&self, before: u32) {
        let state = self.0.lock().unwrap();
        let waited = self.1.wait_timeout_while(state, HANG, |it| it.came == before).unwrap();
        assert!(!waited.1.timed_out(), "no flush comes");
    }

    fn pass(&self) -> io::Result<()> {
        if std::thread::current().name() != Some("series-log") {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap();
        state.came += 1;
        self.1.notify_all();
        let state = self.1.wait_while(state, |it| it.shut).unwrap();
        if state.fails { Err(io::Error::other("the disk fails")) } else { Ok(()) }
    }
}

/// Opens the gate when the test ends, also after a panic.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.set(|it| it.shut = false);
    }
}

struct GatedFile {
    under: Arc<dyn File>,
    gate: Arc<Gate>,
    /// True if each write is persisted.
    dsync: bool,
}

impl FileOver for GatedFile {
    fn under(&self) -> &dyn File {
        &*self.under
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.under.write_at(from, offset)?;
        if self.dsync {
            self.gate.pass()?;
        }
        Ok(written)
    }

    fn persist(&self) -> io::Result<()> {
        self.under.persist()?;
        self.gate.pass()
    }
}

struct Gated(SimDisk, Arc<Gate>);

impl FilesOver for Gated {
    fn under(&self) -> &dyn Files {
        &self.0
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let under = self.0.open(path, access)?;
        Ok(Arc::new(GatedFile { under, gate: Arc::clone(&self.1), dsync: access.dsync }))
    }
}

fn open(disk: &SimDisk, wal: Wal) -> (Store, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let files = Arc::new(Gated(disk.clone(), Arc::clone(&gate)));
    let options = StoreOptions { background: true, files, ..options(disk, wal) };
    (Store::open(Path::new("/series"), options).unwrap().0, gate)
}

fn one(store: &Store, host: u32, time_ns: i64) -> Batch {
    let mut batch = Batch::new();
    let row = store.row(format!("load host={host}").as_bytes()).unwrap();
    batch.push(row, time_ns, &[1.5]).unwrap();
    batch
}

fn samples(store: &Store) -> usize {
    contents(store).values().map(common::Samples::len).sum()
}

#[test]
fn batches_queued_during_a_flush_share_the_next_one() {
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let (store, gate) = open(&disk, Wal::Always);
        store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
        let came = gate.flushes();
        gate.set(|it| it.shut = true);
        let _open = OpenAtEnd(&gate);
        let mut tickets = vec![store.submit(one(&store, 1, 2), Ack::Persisted).unwrap()];
        gate.until_one_comes(came);
        for time_ns in 3..=5 {
            tickets.push(store.submit(one(&store, 1, time_ns), Ack::Persisted).unwrap());
        }
        assert_eq!(samples(&store), 1, "what is not persisted is not visible");
        let mut context = Context::from_waker(Waker::noop());
        for ticket in &mut tickets {
            assert!(pin!(ticket).poll(&mut context).is_pending(), "it is not persisted");
        }
        gate.set(|it| it.shut = false);
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        assert_eq!(gate.flushes(), came + 2);
        assert_eq!(samples(&store), 5);
        assert_eq!(samples(&common::open(&disk.crash(seed), Wal::Always).0), 5, "seed {seed}");
    }
}

#[test]
fn failed_flush_fails_all_waiters_and_poisons_the_store() {
    let disk = SimDisk::new(1);
    let (store, gate) = open(&disk, Wal::Always);
    store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
    gate.set(|it| (it.shut, it.fails) = (true, true));
    let _open = OpenAtEnd(&gate);
    let tickets: Vec<_> = (2..5)
        .map(|time_ns| store.submit(one(&store, 1, time_ns), Ack::Persisted).unwrap())
        .collect();
    gate.set(|it| it.shut = false);
    for ticket in tickets {
        let refused = ticket.wait();
        assert!(matches!(refused, Err(WriteError::Failed(_))), "{refused:?}");
    }
    assert!(store.write(one(&store, 1, 9), Ack::Persisted).is_err());
    assert_eq!(samples(&store), 1, "what was refused is not visible");
    drop(store);
    let found = samples(&common::open(&disk.crash(1), Wal::Always).0);
    assert!((1..=4).contains(&found), "{found}");
}

#[test]
fn rows_sealed_before_their_log_is_persisted_survive() {
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let (store, _) = open(&disk, Wal::Always);
        store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
        store.write(one(&store, 1, 2), Ack::Flushed).unwrap();
        store.seal().unwrap();
        // Its parts are persisted, even if its record in the log is not.
        let crashed = disk.crash(seed);
        let (again, _) = common::open(&crashed, Wal::Always);
        assert_eq!(samples(&again), 2, "seed {seed}");
        again.write(one(&again, 1, 3), Ack::Persisted).unwrap();
        assert_eq!(samples(&common::open(&crashed.crash(seed), Wal::Always).0), 3, "seed {seed}");
    }
}

#[test]
fn try_submit_returns_the_batch_when_the_queue_is_full() {
    let disk = SimDisk::new(1);
    let options = StoreOptions {
        queued_samples_max: 0,
        background: true,
        files: Arc::new(disk.clone()),
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/s"), options).unwrap();
    let back = store.try_submit(one(&store, 1, 1), Ack::Persisted).unwrap();
    assert!(matches!(back, TrySubmit::Full(batch) if batch == one(&store, 1, 1)));
    let other = store.clone();
    store.close().unwrap();
    let refused = other.try_submit(Batch::new(), Ack::Persisted);
    assert!(matches!(refused, Err(WriteError::Closed)));
}

/// Writes rows of a host one by one until the store is closed. Returns the number of accepted rows.
fn write_many(store: &Store, host: u32) -> usize {
    let write = |i: i64| {
        let ack = if i % 4 == 1 { Ack::Flushed } else { Ack::Persisted };
        store.write(one(store, host, i), ack).map(drop)
    };
    let done = (1..=400).map(write).take_while(|done| match done {
        Ok(()) => true,
        Err(WriteError::Closed) => false,
        Err(e) => panic!("{e}"),
    });
    done.count()
}

/// Writes from four threads at once. Returns the number of acknowledged writes.
fn count_acknowledged(store: &Store, closes: bool) -> usize {
    std::thread::scope(|scope| {
        let writing: Vec<_> =
            (0..4).map(|host| scope.spawn(move || write_many(store, host))).collect();
        while closes && store.stats().batches < 200 {
            std::thread::yield_now();
        }
        if closes {
            store.clone().close().unwrap();
        }
        writing.into_iter().map(|writing| writing.join().unwrap()).sum()
    })
}

#[test]
fn acknowledged_rows_survive_power_loss_and_concurrent_close() {
    for (wal, closes) in [(Wal::Always, false), (Wal::Always, true), (Wal::Off, true)] {
        let disk = SimDisk::new(3);
        let (store, _) = open(&disk, wal);
        let told = count_acknowledged(&store, closes);
        // The last row of each writer is persisted, and so are all before it.
        for seed in 1..=10 {
            let found = samples(&common::open(&disk.crash(seed), wal).0);
            assert_eq!(found, told, "{wal:?}, closed: {closes}, seed {seed}");
        }
    }
}

#[test]
fn failed_log_is_reopened_in_the_background() {
    let disk = SimDisk::new(1);
    let (store, gate) = open(&disk, Wal::Always);
    store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
    gate.set(|it| it.fails = true);
    let refused = store.write(one(&store, 1, 2), Ack::Persisted);
    assert!(matches!(refused, Err(WriteError::Failed(_))), "{refused:?}");
    gate.set(|it| it.fails = false);
    let begun = std::time::Instant::now();
    while store.stats().log_failure.is_some() {
        assert!(begun.elapsed() < HANG, "the log stays failed");
        std::thread::yield_now();
    }
    store.write(one(&store, 1, 3), Ack::Persisted).unwrap();
    assert_eq!(samples(&store), 2);
    assert_eq!(samples(&common::open(&disk.crash(1), Wal::Always).0), 2);
}

#[test]
fn stats_say_that_the_disk_is_full_until_a_write_is_stored() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Path::new("/series"), options(&disk, Wal::Always)).unwrap();
    assert_eq!(store.stats().disk_full, None);
    disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::Full }]);
    let refused = store.write(one(&store, 1, 1), Ack::Persisted);
    assert!(matches!(refused, Err(WriteError::Full(_))), "{refused:?}");
    let cause = store.stats().disk_full.unwrap();
    assert!(cause.contains("/series"), "{cause}");
    store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
    assert_eq!(store.stats().disk_full, None);
}
