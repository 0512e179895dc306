//! What a queue holds and costs, for people and metrics.

use serde::Serialize;

use crate::options::{Durability, Transaction};

/// State of one dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatasetStatus {
    /// Its name.
    pub name: String,
    /// Rows, gone ones included.
    pub items: u64,
    /// Items to be told.
    pub pending: u64,
    /// When the oldest pending change was seen, microseconds since the epoch.
    pub oldest_pending_us: Option<u64>,
    /// Items that the server refused.
    pub exceptions: u64,
    /// The clock when the current or last cycle began.
    pub leased: u64,
    /// Everything up to here was answered.
    pub told: u64,
    /// A cycle has begun and not ended.
    pub unfinished: bool,
    /// When the last cycle ended, microseconds since the epoch.
    pub last_cycle_us: Option<u64>,
}

/// State of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    /// Every dataset, in the order of their creation.
    pub datasets: Vec<DatasetStatus>,
    /// Events queued.
    pub events: u64,
    /// When the oldest of them happened, microseconds since the epoch.
    pub oldest_event_us: Option<u64>,
    /// Events dropped by the byte limit since the database was made.
    pub events_dropped: u64,
    /// Epoch of new event ids.
    pub epoch: String,
    /// Bytes of the database in use.
    pub bytes: u64,
    /// Bytes of the database file.
    pub file_bytes: u64,
    /// Bytes of the write-ahead log file.
    pub wal_bytes: u64,
    /// See [`crate::QueueOptions::byte_limit`].
    pub byte_limit: u64,
    /// See [`crate::QueueOptions::durability`].
    pub durability: Durability,
    /// See [`crate::QueueOptions::transaction`].
    pub transaction: Transaction,
    /// See [`crate::QueueOptions::page_bytes`], as the database has it.
    pub page_bytes: u32,
    /// See [`crate::QueueOptions::wal_autocheckpoint_pages`].
    pub wal_autocheckpoint_pages: u32,
    /// See [`crate::QueueOptions::journal_size_limit_bytes`].
    pub journal_size_limit_bytes: u64,
}
