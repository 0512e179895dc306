//! Appends during a flush on request.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::common::{DIR, options};
use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};
use journal::{AppendError, Durability, Journal, Layout, OpenError, Options};

/// Timeout after which a test reports a hang.
const HANG: Duration = Duration::from_mins(1);

#[derive(Default)]
struct State {
    shut: bool,
    fails: bool,
    /// Number of flushes that have reached the gate since it was closed.
    came: u32,
}

/// Name of the thread that flushes on request.
const FLUSHER: &str = "flusher";

/// Blocks flushes on request at their end until opened.
#[derive(Default)]
struct GroupCommit(Mutex<State>, Condvar);

impl GroupCommit {
    fn shut(&self, fails: bool) {
        *self.0.lock().unwrap() = State { shut: true, fails, came: 0 };
    }

    fn open(&self) {
        self.0.lock().unwrap().shut = false;
        self.1.notify_all();
    }

    fn until_one_comes(&self) {
        let state = self.0.lock().unwrap();
        let waited = self.1.wait_timeout_while(state, HANG, |it| it.came == 0).unwrap();
        assert!(!waited.1.timed_out(), "no flush comes");
    }

    fn pass(&self) -> io::Result<()> {
        if thread::current().name() != Some(FLUSHER) {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap();
        state.came += 1;
        self.1.notify_all();
        let mut state = self.1.wait_while(state, |it| it.shut).unwrap();
        // The operating system reports a failure once.
        if std::mem::take(&mut state.fails) {
            Err(io::Error::other("the disk fails"))
        } else {
            Ok(())
        }
    }
}

/// Opens the gate when the test ends, also after a panic.
struct OpenAtEnd<'a>(&'a GroupCommit);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct GatedFile(Arc<dyn File>, Arc<GroupCommit>);

impl FileOver for GatedFile {
    fn under(&self) -> &dyn File {
        &*self.0
    }

    fn persist(&self) -> io::Result<()> {
        // Data written after this call is not covered by the flush.
        self.0.persist()?;
        self.1.pass()
    }
}

struct Gated(SimDisk, Arc<GroupCommit>);

impl FilesOver for Gated {
    fn under(&self) -> &dyn Files {
        &self.0
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(path, access)?;
        Ok(Arc::new(GatedFile(file, Arc::clone(&self.1))))
    }
}

fn open(disk: &SimDisk, layout: Layout) -> (Journal, Arc<GroupCommit>) {
    let gate = Arc::<GroupCommit>::default();
    let files = Arc::new(Gated(disk.clone(), Arc::clone(&gate)));
    let options = Options { files, segment_bytes: 64 << 10, ..options(disk, layout) };
    (Journal::open(Path::new(DIR), options).unwrap().0, gate)
}

/// Starts a flush on request and waits until the gate blocks it.
fn flushing<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    (journal, gate): (&'scope Journal, &GroupCommit),
    fails: bool,
) -> ScopedJoinHandle<'scope, Result<(), AppendError>> {
    gate.shut(fails);
    let flusher = thread::Builder::new().name(FLUSHER.into());
    let flushing = flusher.spawn_scoped(scope, || journal.persist()).unwrap();
    gate.until_one_comes();
    flushing
}

/// Waits until an append leads a group, and so waits for the flush.
fn until_it_waits<T>(journal: &Journal, appending: &ScopedJoinHandle<'_, T>) {
    let began = Instant::now();
    while !journal.is_busy() {
        assert!(!appending.is_finished(), "it does not wait for the flush");
        assert!(began.elapsed() < HANG, "the append does not begin");
        thread::yield_now();
    }
}

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::Sparse];

#[test]
fn appends_continue_during_a_flush_and_persist_with_the_next() {
    for (layout, seed) in LAYOUTS.into_iter().zip(1..) {
        let disk = SimDisk::new(seed);
        let (journal, gate) = open(&disk, layout);
        journal.append(b"first", Durability::Flush).unwrap();
        thread::scope(|scope| {
            let _open = OpenAtEnd(&gate);
            let flushing = flushing(scope, (&journal, &gate), false);
            for _ in 0..10 {
                journal.append(b"beside", Durability::Flush).unwrap();
            }
            assert!(!journal.is_busy(), "{layout:?}: others wait");
            assert_eq!(journal.persisted_position(), 0, "{layout:?}");
            for seed in 1..=20 {
                let crashed = disk.crash(seed);
                let found = Journal::open(Path::new(DIR), options(&crashed, layout)).unwrap().1;
                let last = found.last_position;
                assert!((1..=11).contains(&last), "{layout:?}, seed {seed}: {last}");
            }
            gate.open();
            flushing.join().unwrap().unwrap();
        });
        assert_eq!(journal.persisted_position(), 1, "{layout:?}: what came later is not persisted");
        let read = journal.read_from(1).unwrap().count();
        assert_eq!(read, 1, "{layout:?}: readers have what is persisted");
        journal.persist().unwrap();
        assert_eq!(journal.persisted_position(), 11, "{layout:?}");
        for seed in 1..=20 {
            let crashed = disk.crash(seed);
            let (again, found) = Journal::open(Path::new(DIR), options(&crashed, layout)).unwrap();
            assert_eq!(found.last_position, 11, "{layout:?}, seed {seed}");
            assert_eq!(again.read_from(1).unwrap().count(), 11, "{layout:?}, seed {seed}");
        }
    }
}

#[test]
fn durable_append_and_segment_roll_wait_for_a_flush() {
    let (large, small) = (vec![7; 40 << 10], vec![7; 100]);
    for layout in LAYOUTS {
        for (record, durability) in [(&small, Durability::Persist), (&large, Durability::Flush)] {
            let disk = SimDisk::new(3);
            let (journal, gate) = open(&disk, layout);
            journal.append(&large, Durability::Flush).unwrap();
            thread::scope(|scope| {
                let _open = OpenAtEnd(&gate);
                let flushing = flushing(scope, (&journal, &gate), false);
                let appending = scope.spawn(|| journal.append(record, durability));
                until_it_waits(&journal, &appending);
                assert_eq!(journal.persisted_position(), 0);
                gate.open();
                flushing.join().unwrap().unwrap();
                assert_eq!(appending.join().unwrap().unwrap().position, 2);
            });
            journal.persist().unwrap();
            assert_eq!(journal.persisted_position(), 2);
            for seed in 1..=20 {
                let crashed = disk.crash(seed);
                let (_, found) = Journal::open(Path::new(DIR), options(&crashed, layout)).unwrap();
                assert_eq!(found.last_position, 2, "{layout:?}, {durability:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn failed_flush_poisons_waiting_appends_and_persists_nothing() {
    for layout in LAYOUTS {
        for rolls in [false, true] {
            let disk = SimDisk::new(5);
            let (journal, gate) = open(&disk, layout);
            journal.append(&vec![7; 40 << 10], Durability::Flush).unwrap();
            thread::scope(|scope| {
                let _open = OpenAtEnd(&gate);
                let flushing = flushing(scope, (&journal, &gate), true);
                journal.append(b"beside", Durability::Flush).unwrap();
                let record = if rolls { vec![8; 40 << 10] } else { vec![8; 100] };
                let journal = &journal;
                let appending = scope.spawn(move || journal.append(&record, Durability::Persist));
                until_it_waits(journal, &appending);
                gate.open();
                let poisoned = |result| matches!(result, Err(AppendError::Poisoned(_)));
                assert!(poisoned(flushing.join().unwrap()), "{layout:?}");
                assert!(poisoned(appending.join().unwrap().map(drop)), "{layout:?}: {rolls}");
            });
            assert_eq!(journal.persisted_position(), 0);
            assert!(journal.append(b"later", Durability::Flush).is_err());
            assert!(journal.persist().is_err());
        }
    }
}

#[test]
fn has_room_predicts_whether_an_append_begins_a_segment() {
    for layout in LAYOUTS {
        let (journal, _) = open(&SimDisk::new(1), layout);
        assert!(!journal.has_space(1), "{layout:?}: the first segment has to begin");
        let mut began = 0;
        for _ in 0..200 {
            let (room, before) = (journal.has_space(1000), journal.stats().segments);
            journal.append(&[7; 1000], Durability::Flush).unwrap();
            let begins = journal.stats().segments > before;
            assert!(!(room && begins), "{layout:?}: it said that there was room");
            began += u32::from(begins);
        }
        assert!(began > 2, "{layout:?}: {began}");
        assert!(!journal.has_space(64 << 10), "{layout:?}: more than a segment");
    }
}

/// Flips a bit of the file content that begins with `begin`.
fn damage(disk: &SimDisk, begin: &[u8]) {
    for name in disk.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(name);
        let content = disk.content(&path).unwrap();
        let found = content.windows(begin.len()).position(|window| window == begin);
        if let Some(at) = found {
            assert!(disk.flip(&path, at, 1));
            return;
        }
    }
    panic!("it is in no file");
}

#[test]
fn damage_before_a_long_flush_is_detected_at_open() {
    for layout in LAYOUTS {
        let disk = SimDisk::new(9);
        let gate = Arc::<GroupCommit>::default();
        let files = Arc::new(Gated(disk.clone(), Arc::clone(&gate)));
        let large = Options { files, segment_bytes: 8 << 20, ..options(&disk, layout) };
        let journal = Journal::open(Path::new(DIR), large).unwrap().0;
        let marked = [0xa7; 64];
        journal.append(&marked, Durability::Flush).unwrap();
        thread::scope(|scope| {
            let _open = OpenAtEnd(&gate);
            let flushing = flushing(scope, (&journal, &gate), false);
            let journal = &journal;
            let appending = scope.spawn(move || {
                (0..300).try_for_each(|_| journal.append(b"beside", Durability::Flush).map(drop))
            });
            let began = Instant::now();
            while journal.stats().last_position < 200 {
                assert!(began.elapsed() < HANG, "they wait for the flush");
                thread::yield_now();
            }
            gate.open();
            flushing.join().unwrap().unwrap();
            appending.join().unwrap().unwrap();
        });
        journal.append(b"behind", Durability::Flush).unwrap();
        let crashed = disk.kill();
        damage(&crashed, &marked);
        let opened = Journal::open(Path::new(DIR), options(&crashed, layout));
        assert!(
            matches!(opened, Err(OpenError::Corrupt(_))),
            "{layout:?}: {:?}",
            opened.map(|o| o.1)
        );
    }
}
