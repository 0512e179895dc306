//! What all handles of a store share: the queue of batches, the log, the live state.
//!
//! Batches are logged and applied in one order, that of their positions, with the commit lock held
//! (see `commit`). So a head that is closed at position P holds exactly what came up to P.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use env::files::Lock;
use journal::Journal;
use parking_lot::{Condvar, Mutex, RwLock};
use roaring::RoaringBitmap;

use crate::batch::Batch;
use crate::catalog::Catalog;
use crate::error::WriteError;
use crate::head::HeadCell;
use crate::manifest::Manifest;
use crate::options::{Ack, StoreOptions};
use crate::part::{Part, Shelf};
use crate::pending::{Pending, Spares, What};
use crate::record::Tombstone;
use crate::unread::Unread;
use crate::wait::{Line, Ticket};

mod commit;
mod submit;

/// Bytes of records that are logged together at most; half a segment if that is less.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// What the log adds to a record at most, in bytes.
const RECORD_BYTES_ADDED: usize = 10;
/// Rows whose definitions stand in one record at most.
const DEFINITIONS_MAX: u32 = 2000;
/// Memory of all heads at which writers wait for a seal, in heads of the configured size.
const HEADS_MAX: usize = 3;

/// Which folder it is, whatever its name; `None` where that cannot be told.
pub(crate) fn identity(dir: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(dir).ok().map(|found| (found.dev(), found.ino()))
}

/// Parts by partition, in the order of their positions.
pub(crate) type Parts = BTreeMap<i64, Vec<Arc<Part>>>;

/// What readers see.
pub(crate) struct Live {
    /// Oldest first; the last one takes batches.
    pub(crate) heads: Vec<Arc<HeadCell>>,
    pub(crate) parts: Arc<Parts>,
    /// Roll-ups: one per partition at most.
    pub(crate) rollups: Arc<BTreeMap<i64, Arc<Part>>>,
    pub(crate) tombstones: Arc<Vec<Tombstone>>,
    /// Last position applied.
    pub(crate) position: u64,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<Pending>,
    samples: usize,
    closed: bool,
    line: Line,
}

/// A writer's place in the line; it is left when the writer goes, served or not.
struct Turn<'a> {
    core: &'a Core,
    number: Option<u64>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let next = {
            let mut queue = self.core.queue.lock();
            queue.line.leave(number);
            queue.line.first()
        };
        next.into_iter().for_each(Waker::wake);
    }
}

/// What the commit lock guards.
#[derive(Default)]
pub(crate) struct Committer {
    /// Rows whose definitions are in the log or in the catalogue's file.
    pub(crate) logged_rows: u32,
    pub(crate) log_base: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) samples: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    /// Samples and events dropped by retention, and the bytes of their files.
    pub(crate) dropped_samples: AtomicU64,
    pub(crate) dropped_bytes: AtomicU64,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) dir: PathBuf,
    pub(crate) options: StoreOptions,
    pub(crate) catalog: Catalog,
    /// What is kept of parts between reads.
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) journal: RwLock<Option<Journal>>,
    pub(crate) live: RwLock<Live>,
    pub(crate) commit: Mutex<Committer>,
    /// Held while files are written: seals, merges and retention come one after another.
    pub(crate) maintain: Mutex<Manifest>,
    pub(crate) counters: Counters,
    /// Batches that were stored, to be filled again.
    pub(crate) spares: Spares,
    pub(crate) trouble: Mutex<Option<String>>,
    pub(crate) unread: Mutex<Unread>,
    /// Idle rows by the part in which a look found them.
    pub(crate) held: Mutex<HashMap<u64, RoaringBitmap>>,
    /// Looks for rows to be forgotten that are due, and whether the catalogue's file still has the
    /// names of some that were.
    pub(crate) looks: AtomicU32,
    pub(crate) names_on_disk: AtomicBool,
    /// The store is being closed: merges end where they are.
    pub(crate) stopping: AtomicBool,
    pub(crate) lock: Mutex<Option<Box<dyn Lock>>>,
    /// When the active head began, by the clock's monotone side.
    pub(crate) began: Mutex<Duration>,
    pub(crate) tick: Mutex<bool>,
    pub(crate) ticked: Condvar,
    queue: Mutex<Queue>,
    work: Condvar,
    room: Condvar,
    full: AtomicBool,
    /// Which folder it was when the store was opened, and whether that is gone.
    pub(crate) found: Option<(u64, u64)>,
    pub(crate) folder_lost: AtomicBool,
    /// There was no room to note on disk that the store is open: see [`Core::ensure_marked`].
    pub(crate) unmarked: AtomicBool,
}

impl Core {
    pub(crate) fn new(
        dir: PathBuf,
        options: StoreOptions,
        manifest: Manifest,
        lock: Box<dyn Lock>,
    ) -> Self {
        let heads = vec![Arc::new(HeadCell::new(manifest.sealed + 1))];
        let live = Live {
            heads,
            parts: Arc::default(),
            rollups: Arc::default(),
            tombstones: Arc::new(manifest.tombstones.clone()),
            position: manifest.sealed,
        };
        let committer = Committer { logged_rows: 0, log_base: manifest.log_base };
        let unread = Mutex::new(Unread::of(&manifest.unread));
        Self {
            found: identity(&dir),
            folder_lost: AtomicBool::new(false),
            unmarked: AtomicBool::new(false),
            dir,
            catalog: Catalog::new(options.series_max),
            shelf: Arc::default(),
            began: Mutex::new(options.clock.monotonic()),
            options,
            journal: RwLock::new(None),
            live: RwLock::new(live),
            commit: Mutex::new(committer),
            maintain: Mutex::new(manifest),
            counters: Counters::default(),
            spares: Spares::default(),
            trouble: Mutex::new(None),
            unread,
            held: Mutex::default(),
            looks: AtomicU32::new(0),
            names_on_disk: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
            tick: Mutex::new(false),
            ticked: Condvar::new(),
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            full: AtomicBool::new(false),
        }
    }

    /// The oldest time that retention keeps; `i64::MIN` if it keeps all.
    pub(crate) fn oldest_ns(&self) -> i64 {
        let Some(age) = self.options.retention.age else { return i64::MIN };
        let now_ns =
            i64::try_from(self.options.clock.guarded_us()).unwrap_or(i64::MAX).saturating_mul(1000);
        now_ns.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
    }

    fn pending(&self, batch: Batch, ack: Ack) -> Result<Pending, WriteError> {
        let forgotten = self.catalog.forgotten();
        self.catalog.check(&batch)?;
        let times = || batch.times.iter().chain(&batch.event_times);
        if let Some(time_ns) = times().copied().find(|t| *t == i64::MAX) {
            return Err(WriteError::EndOfTime { time_ns });
        }
        let oldest_ns = self.oldest_ns();
        if let Some(time) = times().find(|t| **t < oldest_ns) {
            return Err(WriteError::TooOld { time_ns: *time, oldest_ns });
        }
        let logged = self.journal.read().is_some();
        let record = if logged { self.spares.record(&batch) } else { Vec::new() };
        Ok(Pending { what: What::Batch(batch), record, ack, slot: Arc::default(), forgotten })
    }

    /// Whether a batch can be queued now; an error if it never can.
    fn admit(&self, queue: &Queue) -> Result<bool, WriteError> {
        if queue.closed {
            return Err(WriteError::Closed);
        }
        if self.folder_lost.load(Ordering::Acquire) {
            let dir = self.dir.display();
            return Err(WriteError::Failed(format!("{dir} is gone: put it back")));
        }
        if !self.options.background {
            return Ok(true);
        }
        if self.full.load(Ordering::Acquire) {
            return match &*self.trouble.lock() {
                Some(why) => {
                    Err(WriteError::Full(format!("the head is full and cannot be sealed: {why}")))
                }
                None => Ok(false),
            };
        }
        Ok(queue.samples < self.options.queued_samples_max)
    }

    /// Put a batch on its way when there is room.
    pub(crate) fn submit(&self, batch: Batch, ack: Ack) -> Result<Ticket, WriteError> {
        let pending = self.pending(batch, ack)?;
        let mut queue = self.queue.lock();
        while !self.admit(&queue)? {
            self.room.wait(&mut queue);
        }
        Ok(self.enqueue(queue, pending))
    }

    pub(crate) async fn submit_async(&self, batch: Batch, ack: Ack) -> Result<Ticket, WriteError> {
        let mut pending = Some(self.pending(batch, ack)?);
        let mut turn = Turn { core: self, number: None };
        std::future::poll_fn(|cx| {
            let mut queue = self.queue.lock();
            match self.admit(&queue).map(|room| room && queue.line.is_turn(turn.number)) {
                Err(e) => Poll::Ready(Err(e)),
                Ok(false) => {
                    turn.number = Some(queue.line.wait(turn.number, cx.waker()));
                    Poll::Pending
                }
                Ok(true) => match pending.take() {
                    Some(pending) => Poll::Ready(Ok(self.enqueue(queue, pending))),
                    None => Poll::Ready(Err(WriteError::Closed)),
                },
            }
        })
        .await
    }

    fn wake_writers(&self, queue: parking_lot::MutexGuard<'_, Queue>) {
        let first = queue.line.first();
        drop(queue);
        self.room.notify_all();
        first.into_iter().for_each(Waker::wake);
    }

    /// Heads became smaller, or sealing them failed: writers that wait look again.
    pub(crate) fn head_changed(&self) {
        self.measure();
        self.wake_writers(self.queue.lock());
    }

    /// Note whether the heads are so large that writers wait. They stay as they are meanwhile: what
    /// is noted is never older than what another thread noted before.
    fn measure(&self) {
        let live = self.live.read();
        let bytes: usize = live.heads.iter().map(|h| h.head.read().bytes()).sum();
        self.full.store(bytes > HEADS_MAX * self.options.head_bytes_max, Ordering::Release);
    }

    /// Take no more.
    pub(crate) fn close_queue(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.work.notify_all();
        self.wake_writers(queue);
    }

    /// Put a batch into the head. Called in the order of positions.
    pub(crate) fn apply(&self, batch: &Batch, position: u64) {
        let Some(active) = self.live.read().heads.last().cloned() else { return };
        let mut head = active.head.write();
        head.apply(batch, &self.catalog.sharing());
        let bytes = head.bytes();
        drop(head);
        self.live.write().position = position;
        if bytes > self.options.head_bytes_max {
            self.freeze();
            self.measure();
            self.nudge();
        }
    }

    /// Put a tombstone in force: it hits all that came before.
    pub(crate) fn bury(&self, tombstone: Tombstone) {
        self.freeze();
        let mut live = self.live.write();
        live.position = tombstone.position;
        if let Some(active) = live.heads.last_mut() {
            *active = Arc::new(HeadCell::new(tombstone.position + 1));
        }
        let mut tombstones = live.tombstones.to_vec();
        tombstones.push(tombstone);
        live.tombstones = Arc::new(tombstones);
    }

    /// Close the active head, if there is anything in it, and begin another. The caller holds the
    /// commit lock, or is alone.
    pub(crate) fn freeze(&self) {
        let mut live = self.live.write();
        let position = live.position;
        let Some(active) = live.heads.last() else { return };
        if active.head.read().is_empty() {
            return;
        }
        active.close(position);
        live.heads.push(Arc::new(HeadCell::new(position + 1)));
        *self.began.lock() = self.options.clock.monotonic();
    }

    /// Let the store's thread look what there is to do.
    pub(crate) fn nudge(&self) {
        self.ticked.notify_all();
    }
}
