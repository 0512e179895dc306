//! Options of a queue, and the report of its opening.

use std::path::PathBuf;
use std::time::Duration;

/// Failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDurability {
    /// The death of the process at any point (WAL, synchronous NORMAL). A power cut may lose the
    /// last commits, but does not damage the database; the restart scan finds the lost changes.
    #[default]
    Process,
    /// A power cut as well (WAL, synchronous FULL). Concurrent writers share one flush.
    Power,
}

/// Size of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transaction {
    /// A whole batch, together with the batches of all waiting writers.
    #[default]
    Group,
    /// One change with its event, as in the published design.
    PerEvent,
}

/// Settings of a queue. Most are shown in [`crate::QueueStatus`].
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// Failures that an acknowledged write survives.
    pub durability: QueueDurability,
    /// Size of one transaction.
    pub transaction: Transaction,
    /// Time that a small group waits for other writers before it is flushed, with
    /// [`QueueDurability::Power`]. Zero does not wait.
    pub window: Duration,
    /// Bytes of database above which the oldest events are dropped and reported by a coverage
    /// event.
    pub byte_limit: u64,
    /// Bytes of a database page, a power of two from 512 to 65,536. Used only at creation.
    pub page_bytes: u32,
    /// Pages in the write-ahead log after which it is checkpointed. `None` means 8,000, or SQLite's
    /// default of 1,000 with [`Transaction::PerEvent`].
    pub wal_autocheckpoint_pages: Option<u32>,
    /// Bytes to which the write-ahead log is truncated after a checkpoint.
    pub journal_size_limit_bytes: u64,
    /// Bytes of pages the writer keeps in memory.
    pub cache_bytes: u32,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            durability: QueueDurability::default(),
            transaction: Transaction::default(),
            window: Duration::ZERO,
            byte_limit: 1_000_000_000,
            page_bytes: 4096,
            wal_autocheckpoint_pages: None,
            journal_size_limit_bytes: 32 * 1024 * 1024,
            cache_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Pages of log between two checkpoints with [`Transaction::Group`].
const CHECKPOINT_PAGES: u32 = 8000;
/// Pages of log between two checkpoints with [`Transaction::PerEvent`]: SQLite's default
/// (`sqlite.org/pragma.html#pragma_wal_autocheckpoint`), which the published design uses.
const CHECKPOINT_PAGES_PER_EVENT: u32 = 1000;

impl QueueOptions {
    /// Returns the value of [`QueueOptions::wal_autocheckpoint_pages`], or its default.
    pub fn checkpoint_pages(&self) -> u32 {
        self.wal_autocheckpoint_pages.unwrap_or(match self.transaction {
            Transaction::Group => CHECKPOINT_PAGES,
            Transaction::PerEvent => CHECKPOINT_PAGES_PER_EVENT,
        })
    }
}

/// Report of an opening.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueOpenReport {
    /// True if the database was created.
    pub created: bool,
    /// True if the last use did not end with [`crate::Queue::close`], because the process or the
    /// machine died.
    pub unclean: bool,
    /// Set if the old database was damaged and moved aside.
    pub rebuilt: Option<Rebuilt>,
    /// Set if items that could not be decoded were dropped.
    pub dropped: Option<Dropped>,
    /// Number of rows, including deleted items.
    pub items: u64,
    /// Events queued.
    pub events: u64,
    /// The epoch of new event ids.
    pub epoch: String,
}

impl QueueOpenReport {
    /// Returns true if agent and server must be compared before the next cycle.
    pub fn needs_check(&self) -> bool {
        self.unclean || self.rebuilt.is_some() || self.dropped.is_some()
    }
}

/// Items that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Their number.
    pub items: u64,
    /// Path of the first one, for display.
    pub first: String,
}

/// A damaged database that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// New path of the damaged file.
    pub moved_to: PathBuf,
    /// Description of the damage.
    pub reason: String,
}
