//! The state that all handles of a store share.
//!
//! Batches and deletes get consecutive positions. They are logged and applied in the order of their
//! positions, so a head that is closed at position P holds exactly what came up to P.
//!
//! # Locking
//! A thread that holds a lock takes only locks after it in this list:
//!
//! 1. `manifest`: held while files are replaced. Seals, merges, steps of retention and of
//!    forgetting come one after another, each with the manifest that the one before stored.
//! 2. the commit queue. The log thread takes a group and unlocks it. Without background threads a
//!    writer keeps it locked while it commits, so that positions follow the order of the writers.
//! 3. `commit`: held from the logging of a group to its application. A seal closes the active head,
//!    and forgetting drops rows, with it held: nothing is then in the log that is not in a head.
//! 4. `live`: held to copy or to replace what readers see, never while a file is read or written.
//! 5. a head: locked by the log thread while it applies a batch, by readers while they copy rows.
//! 6. the catalogue's locks: see its module.
//!
//! `journal` and the locks within [`Folder`], [`Upkeep`], [`Forgetting`] and the spares are held
//! for a moment, and no other lock is taken while they are held. The exception is
//! `Forgetting::rows_in_parts`, which is held while parts are read.
//!
//! `manifest` before `commit`: a long seal or merge stops no writer. `commit` before `live`: no
//! reader waits for the disk. Do not wait for a [`Ticket`](crate::Ticket) with one of 1 to 5 held:
//! the log thread needs 2 to 5 to complete it, and writers wait for a seal, which needs 1.

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
use crate::pending::Spares;
use crate::record::Tombstone;
use crate::unread::Unread;

mod commit;
mod folder;
mod forgetting;
mod heads;
mod queue;
mod submit;
mod upkeep;

use folder::Folder;
pub(crate) use folder::FolderChange;
use forgetting::Forgetting;
use queue::CommitQueue;
use upkeep::Upkeep;

/// Parts by partition, in the order of their positions.
pub(crate) type Parts = BTreeMap<i64, Vec<Arc<Part>>>;

/// The parts and heads that readers see.
pub(crate) struct Live {
    /// Oldest first; the last one is active: it takes batches.
    pub(crate) heads: Vec<Arc<HeadCell>>,
    pub(crate) parts: Arc<Parts>,
    /// Roll-ups: one per partition at most.
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
    /// `None` with the log off, and when it is closed.
    pub(crate) journal: RwLock<Option<Journal>>,
    queue: CommitQueue,
    pub(crate) commit: Mutex<LogState>,
    pub(crate) live: RwLock<Live>,
    /// As it was last stored.
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) upkeep: Upkeep,
    pub(crate) forgetting: Forgetting,
    /// The cache of opened parts.
    pub(crate) open_parts: Arc<OpenParts>,
    /// Batches that were stored, to be filled again.
    pub(crate) spares: Spares,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn new(
        dir: PathBuf,
        options: StoreOptions,
        manifest: Manifest,
        lock: Box<dyn Lock>,
    ) -> Self {
        let live = Live {
            heads: vec![Arc::new(HeadCell::new(manifest.sealed + 1))],
            parts: Arc::default(),
            rollups: Arc::default(),
            tombstones: Arc::new(manifest.tombstones.clone()),
            position: manifest.sealed,
        };
        let now = options.clock.monotonic();
        Self {
            folder: Folder::new(&dir, lock),
            catalog: Catalog::new(options.series_max),
            journal: RwLock::new(None),
            queue: CommitQueue::default(),
            commit: Mutex::new(LogState { rows_logged: 0, base: manifest.log_base }),
            live: RwLock::new(live),
            upkeep: Upkeep::new(now, Unread::of(&manifest.unread)),
            manifest: Mutex::new(manifest),
            forgetting: Forgetting::default(),
            open_parts: Arc::default(),
            spares: Spares::default(),
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
