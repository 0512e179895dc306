//! Writers that log and apply what they wrote themselves, and the thread that flushes meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::future::Future as _;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};
use series::{Ack, Batch, Store, StoreOptions, Wal, WriteError};
use support::{contents, options};

/// Longest time that a test waits before it says that something hangs.
const HANG: Duration = Duration::from_mins(1);

#[derive(Default)]
struct State {
    shut: bool,
    /// On this thread.
    fails: Option<&'static str>,
    /// Flushes so far that came here.
    came: u32,
}

/// Name of a writer's thread whose flushes are held as the store's.
const WRITER: &str = "writer";

/// A gate at the end of flushes of the store's thread, and of writers of that name.
#[derive(Default)]
struct Gate(Mutex<State>, Condvar);

impl Gate {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap());
        self.1.notify_all();
    }

    /// Wait until one more flush came than at last.
    fn until_one_comes(&self, before: u32) {
        let state = self.0.lock().unwrap();
        let waited = self.1.wait_timeout_while(state, HANG, |it| it.came == before).unwrap();
        assert!(!waited.1.timed_out(), "no flush comes");
    }

    fn pass(&self) -> io::Result<()> {
        if !matches!(std::thread::current().name(), Some("series-log" | WRITER)) {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap();
        state.came += 1;
        self.1.notify_all();
        let state = self.1.wait_while(state, |it| it.shut).unwrap();
        if state.fails == std::thread::current().name() {
            Err(io::Error::other("the disk fails"))
        } else {
            Ok(())
        }
    }
}

/// Nothing waits before it any more when a test ends, however it ends.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.set(|it| it.shut = false);
    }
}

struct GatedFile(Arc<dyn File>, Arc<Gate>);

impl FileOver for GatedFile {
    fn under(&self) -> &dyn File {
        &*self.0
    }

    fn persist(&self) -> io::Result<()> {
        // What comes from here on is not persisted by it.
        self.0.persist()?;
        self.1.pass()
    }
}

struct Gated(SimDisk, Arc<Gate>);

impl FilesOver for Gated {
    fn under(&self) -> &dyn Files {
        &self.0
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(path, access)?;
        Ok(Arc::new(GatedFile(file, Arc::clone(&self.1))))
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
    contents(store).values().map(support::Samples::len).sum()
}

#[test]
fn a_batch_is_applied_while_it_is_flushed_and_acknowledged_behind_both() {
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let (store, gate) = open(&disk, Wal::Always);
        store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
        let came = gate.0.lock().unwrap().came;
        gate.set(|it| it.shut = true);
        let _open = OpenAtEnd(&gate);
        let ticket = store.try_submit(one(&store, 1, 2), Ack::Persisted).unwrap().unwrap();
        gate.until_one_comes(came);
        assert_eq!(samples(&store), 2, "it is applied by who wrote it");
        let mut ticket = pin!(ticket);
        let mut context = Context::from_waker(Waker::noop());
        assert!(ticket.as_mut().poll(&mut context).is_pending(), "it is not persisted");
        // Who comes now is applied beside that flush, and waits behind it for one of its own.
        let next = store.try_submit(one(&store, 1, 3), Ack::Persisted).unwrap().unwrap();
        assert_eq!(samples(&store), 3, "nobody waits for the flush of others");
        let mut next = pin!(next);
        assert!(next.as_mut().poll(&mut context).is_pending(), "it is not persisted");
        gate.set(|it| it.shut = false);
        store.write(Batch::new(), Ack::Persisted).unwrap();
        assert!(next.as_mut().poll(&mut context).is_ready());
        assert!(gate.0.lock().unwrap().came > came + 1, "that flush was not for it");
        let crashed = disk.crash(seed);
        assert!(ticket.as_mut().poll(&mut context).is_ready());
        assert_eq!(samples(&support::open(&crashed, Wal::Always).0), 3, "seed {seed}");
    }
}

#[test]
fn of_a_flush_that_fails_every_writer_learns_and_the_store_takes_no_more() {
    let disk = SimDisk::new(1);
    let (store, gate) = open(&disk, Wal::Always);
    store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
    gate.set(|it| (it.shut, it.fails) = (true, Some("series-log")));
    let _open = OpenAtEnd(&gate);
    let tickets: Vec<_> = (2..5)
        .map(|time_ns| store.try_submit(one(&store, 1, time_ns), Ack::Persisted).unwrap().unwrap())
        .collect();
    gate.set(|it| it.shut = false);
    for ticket in tickets {
        let refused = ticket.wait();
        assert!(matches!(refused, Err(WriteError::Failed(_))), "{refused:?}");
    }
    assert!(store.write(one(&store, 1, 9), Ack::Persisted).is_err());
    drop(store);
    let found = samples(&support::open(&disk.crash(1), Wal::Always).0);
    assert!((1..=4).contains(&found), "{found}");
}

/// Let a thread of that name store a row; what it was told.
fn try_write_on(store: &Store, name: &str, time_ns: i64) -> mpsc::Receiver<Result<(), WriteError>> {
    let (tell, told) = mpsc::channel();
    let (store, batch) = (store.clone(), one(store, 1, time_ns));
    let write = move || {
        let working = store.working();
        tell.send(store.try_write(batch, working).map(|done| assert!(done.is_ok())))
    };
    std::thread::Builder::new().name(name.into()).spawn(write).unwrap();
    told
}

#[test]
fn a_thread_that_waits_flushes_itself_also_beside_a_flush_that_hangs() {
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let (store, gate) = open(&disk, Wal::Always);
        store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
        let came = gate.0.lock().unwrap().came;
        gate.set(|it| it.shut = true);
        let _open = OpenAtEnd(&gate);
        // The store's thread would hang in that flush.
        let told = try_write_on(&store, "another", 2);
        told.recv_timeout(HANG).expect("the store's thread is not asked").unwrap();
        assert_eq!(gate.0.lock().unwrap().came, came);
        assert_eq!(samples(&support::open(&disk.crash(seed), Wal::Always).0), 2, "seed {seed}");
        // One whose flush hangs keeps nobody from being applied, and is not told before its end.
        let told = try_write_on(&store, WRITER, 3);
        gate.until_one_comes(came);
        let ticket = store.try_submit(one(&store, 1, 4), Ack::Persisted).unwrap().unwrap();
        assert_eq!(samples(&store), 4, "nobody waits for the flush of others");
        assert!(told.try_recv().is_err(), "it is not persisted");
        gate.set(|it| it.shut = false);
        ticket.wait().unwrap();
        told.recv_timeout(HANG).unwrap().unwrap();
        assert_eq!(samples(&support::open(&disk.crash(seed), Wal::Always).0), 4, "seed {seed}");
    }
}

#[test]
fn beside_another_writer_at_work_the_thread_of_the_store_flushes_for_one_that_waits() {
    let disk = SimDisk::new(1);
    let (store, gate) = open(&disk, Wal::Always);
    store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
    let came = gate.0.lock().unwrap().came;
    gate.set(|it| it.shut = true);
    let _open = OpenAtEnd(&gate);
    let _another = store.working();
    let told = try_write_on(&store, "another", 2);
    gate.until_one_comes(came);
    assert!(told.try_recv().is_err(), "it is not persisted");
    gate.set(|it| it.shut = false);
    told.recv_timeout(HANG).unwrap().unwrap();
}

#[test]
fn of_a_flush_of_a_writer_that_fails_all_learn_for_whom_it_was_and_the_store_takes_no_more() {
    let disk = SimDisk::new(1);
    let (store, gate) = open(&disk, Wal::Always);
    store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
    let came = gate.0.lock().unwrap().came;
    gate.set(|it| (it.shut, it.fails) = (true, Some(WRITER)));
    let _open = OpenAtEnd(&gate);
    let told = try_write_on(&store, WRITER, 2);
    gate.until_one_comes(came);
    // They wait behind that flush for one of their own.
    let tickets: Vec<_> = (3..5)
        .map(|time_ns| store.try_submit(one(&store, 1, time_ns), Ack::Persisted).unwrap().unwrap())
        .collect();
    gate.set(|it| it.shut = false);
    let waited = tickets.into_iter().map(|ticket| ticket.wait().map(drop));
    for refused in waited.chain([told.recv_timeout(HANG).unwrap()]) {
        assert!(matches!(refused, Err(WriteError::Failed(_))), "{refused:?}");
    }
    assert!(store.write(one(&store, 1, 9), Ack::Persisted).is_err());
    drop(store);
    let found = samples(&support::open(&disk.crash(1), Wal::Always).0);
    assert!((1..=4).contains(&found), "{found}");
}

#[test]
fn rows_that_are_sealed_before_their_flush_is_done_survive_power_loss_and_take_others_behind_them()
{
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let (store, gate) = open(&disk, Wal::Always);
        store.write(one(&store, 1, 1), Ack::Persisted).unwrap();
        let came = gate.0.lock().unwrap().came;
        gate.set(|it| it.shut = true);
        let _open = OpenAtEnd(&gate);
        drop(store.try_submit(one(&store, 1, 2), Ack::Persisted).unwrap().unwrap());
        gate.until_one_comes(came);
        store.seal().unwrap();
        // Its parts are persisted, whatever became of its record in the log.
        let crashed = disk.crash(seed);
        let (again, _) = support::open(&crashed, Wal::Always);
        assert_eq!(samples(&again), 2, "seed {seed}");
        again.write(one(&again, 1, 3), Ack::Persisted).unwrap();
        assert_eq!(samples(&support::open(&crashed.crash(seed), Wal::Always).0), 3, "seed {seed}");
    }
}

/// Write rows of a host one by one until the store is closed; how many it took.
fn write_many(store: &Store, host: u32) -> usize {
    let write = |i: i64| {
        let mut batch = one(store, host, i);
        if i % 4 == 2 {
            match store.try_write(batch, store.working())? {
                Ok(_) => return Ok(()),
                Err(back) => batch = back,
            }
        }
        let ack = if i % 4 == 1 { Ack::Flushed } else { Ack::Persisted };
        store.write(batch, ack).map(drop)
    };
    let done = (1..=400).map(write).take_while(|done| match done {
        Ok(()) => true,
        Err(WriteError::Closed) => false,
        Err(e) => panic!("{e}"),
    });
    done.count()
}

/// What several threads that write at a time were told is stored.
fn told(store: &Store, closes: bool) -> usize {
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
fn what_many_writers_were_told_is_there_after_a_power_cut_and_after_a_close_beside_them() {
    for (wal, closes) in [(Wal::Always, false), (Wal::Always, true), (Wal::Off, true)] {
        let disk = SimDisk::new(3);
        let (store, _) = open(&disk, wal);
        let told = told(&store, closes);
        // The last of each writer is persisted, and so all before it.
        for seed in 1..=10 {
            let found = samples(&support::open(&disk.crash(seed), wal).0);
            assert_eq!(found, told, "{wal:?}, closed: {closes}, seed {seed}");
        }
    }
}
