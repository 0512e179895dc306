//! Options of a queue, and the report of its opening.

use std::path::PathBuf;
use std::time::Duration;

/// Failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDurability {
    /// The death of the process at any instant (WAL, synchronous NORMAL). A power cut may take the
    /// last commits, never the database; the restart scan finds what they held.
    #[default]
    Process,
    /// A power cut too (WAL, synchronous FULL): writers that arrive together share one flush.
    Power,
}

/// Size of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transaction {
    /// A whole batch, and the batches of all writers that wait at that moment.
    #[default]
    Group,
    /// One change with its event, of files and of documents alike: the published design.
    PerEvent,
}

/// Settings of a queue; each has a default and shows in [`crate::QueueStatus`].
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// Failures that an acknowledged write survives.
    pub durability: QueueDurability,
    /// Size of one transaction.
    pub transaction: Transaction,
    /// With [`QueueDurability::Power`]: how long a small group waits for other writers before it is
    /// flushed. Zero: not at all.
    pub window: Duration,
    /// Bytes of database above which the oldest events are dropped, with a coverage event.
    pub byte_limit: u64,
    /// Bytes of one database page, a power of two from 512 to 65,536. Counts at creation only.
    pub page_bytes: u32,
    /// Pages in the write-ahead log after which they are copied into the database. `None`: 8,000,
    /// or with [`Transaction::PerEvent`] SQLite's own 1,000.
    pub wal_autocheckpoint_pages: Option<u32>,
    /// Bytes to which the write-ahead log is cut back once it was copied.
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

/// Pages of log between two checkpoints where a transaction is a group.
const CHECKPOINT_PAGES: u32 = 8000;
/// SQLite's default (`sqlite.org/pragma.html#pragma_wal_autocheckpoint`), as the published design
/// has it.
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
    /// The database was made new.
    pub created: bool,
    /// The last use did not end with [`crate::Queue::close`]: the process or the machine died.
    pub unclean: bool,
    /// The old database was damaged and moved aside.
    pub rebuilt: Option<Rebuilt>,
    /// Items that could not be decoded were dropped.
    pub dropped: Option<Dropped>,
    /// Items held, gone ones included.
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
    /// The first of them, as shown to people.
    pub first: String,
}

/// A damaged database that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Path of the damaged file now.
    pub moved_to: PathBuf,
    /// Description of the damage.
    pub reason: String,
}
