//! The state that all handles of a store share.
//!
//! Batches and deletes get consecutive positions. They are logged and applied in the order of their
//! positions, so a head that is closed at position P contains exactly the batches up to P.
//!
//! # Locking
//! A thread that holds a lock takes only locks after it in this list:
//!
//! 1. `manifest`: held while files are replaced. Seals, merges, retention steps and forgetting
//!    steps run one at a time, each based on the manifest that the previous one stored.
//! 2. the commit queue. The log thread takes a group and unlocks it. Without background threads a
//!    writer keeps it locked while it commits, so that positions follow the order of the writers.
//! 3. `commit`: held from the logging of a group until it is applied. A seal closes the active
//!    head, and forgetting drops rows, with it held, when every logged batch is in a head.
//! 4. `live`: held to copy or to replace the state that readers see, never during file I/O.
//! 5. a head: locked by the log thread while it applies a batch, by readers while they copy rows.
//! 6. the catalogue's locks: see its module.
//!
//! `journal` and the locks within [`Folder`], [`Upkeep`], [`ForgetQueue`] and the spares are held
//! briefly, and no other lock is taken while they are held. The exception is
//! `ForgetQueue::rows_in_parts`, which is held while parts are read.
//!
//! `manifest` comes before `commit`, so that a long seal or merge does not block writers. `commit`
//! comes before `live`, so that no reader waits for the disk. Do not wait for a
//! [`QueuedBatch`](crate::QueuedBatch) with one of 1 to 5 held: the log thread needs 2 to 5 to complete it,
//! and writers wait for a seal, which needs 1.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use env::files::Lock;
use journal::Journal;
use parking_lot::{Mutex, RwLock};

use crate::catalog::Catalog;
use crate::head::HeadCell;
use crate::manifest::Manifest;
use crate::options::StoreOptions;
use crate::part::{OpenParts, Part};
use crate::pending::BufferPool;
use crate::record::Tombstone;
use crate::unread::Unread;

mod commit;
mod folder;
mod forgetting;
mod heads;
mod queue;
mod reopen;
mod submit;
mod upkeep;

use folder::Folder;
pub(crate) use folder::FolderChange;
use forgetting::ForgetQueue;
use queue::CommitQueue;
use upkeep::Upkeep;

/// Parts by partition, in the order of their positions.
pub(crate) type Parts = BTreeMap<i64, Vec<Arc<Part>>>;

/// The parts and heads that readers see.
pub(crate) struct LiveParts {
    /// Oldest first. The last one is active: batches are applied to it.
    pub(crate) heads: Vec<Arc<HeadCell>>,
    pub(crate) parts: Arc<Parts>,
    /// Roll-ups, at most one per partition.
    pub(crate) rollups: Arc<BTreeMap<i64, Arc<Part>>>,
    pub(crate) tombstones: Arc<Vec<Tombstone>>,
    /// Last position applied.
    pub(crate) position: u64,
}

/// The position of the log.
pub(crate) struct LogState {
    /// Rows whose definitions are in the log or in the catalogue's file.
    pub(crate) rows_logged: u32,
    /// Position of a record minus its position in the log.
    pub(crate) base: u64,
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
    pub(crate) folder: Folder,
    pub(crate) catalog: Catalog,
    /// `None` if the log is off or closed.
    pub(crate) journal: RwLock<Option<Journal>>,
    queue: CommitQueue,
    pub(crate) commit: Mutex<LogState>,
    pub(crate) live: RwLock<LiveParts>,
    /// The manifest as it was last stored.
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) upkeep: Upkeep,
    pub(crate) forgetting: ForgetQueue,
    /// The cache of opened parts.
    pub(crate) open_parts: Arc<OpenParts>,
    /// Memory of stored batches, for reuse.
    pub(crate) spares: BufferPool,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn new(
        dir: PathBuf,
        options: StoreOptions,
        manifest: Manifest,
        lock: Box<dyn Lock>,
    ) -> Self {
        let live = LiveParts {
            heads: vec![Arc::new(HeadCell::new(manifest.sealed + 1))],
            parts: Arc::default(),
            rollups: Arc::default(),
            tombstones: Arc::new(manifest.tombstones.clone()),
            position: manifest.sealed,
        };
        let now = options.clock.monotonic();
        Self {
            folder: Folder::new(&dir, lock),
            catalog: Catalog::new(options.series_max, options.labels_max),
            journal: RwLock::new(None),
            queue: CommitQueue::default(),
            commit: Mutex::new(LogState { rows_logged: 0, base: manifest.log_base }),
            live: RwLock::new(live),
            upkeep: Upkeep::new(now, Unread::of(&manifest.unread)),
            manifest: Mutex::new(manifest),
            forgetting: ForgetQueue::default(),
            open_parts: Arc::default(),
            spares: BufferPool::default(),
            counters: Counters::default(),
            dir,
            options,
        }
    }

    /// Returns the guarded time, in nanoseconds since the epoch.
    pub(crate) fn now_ns(&self) -> i64 {
        i64::try_from(self.options.clock.guarded_us()).unwrap_or(i64::MAX).saturating_mul(1000)
    }

    /// Returns the oldest time that retention keeps; `i64::MIN` if it keeps all.
    pub(crate) fn oldest_ns(&self) -> i64 {
        let Some(age) = self.options.retention.age else { return i64::MIN };
        self.now_ns().saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
    }
}
