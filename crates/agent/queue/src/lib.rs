//! The agent's durable queue, `agent.db`. It holds items, with their observed state and version,
//! and events (`docs/format/agent-db.md`).
//!
//! - An item's row is both its baseline and its entry in the queue. The item is pending while its
//!   version is above the dataset's acknowledged version. An acknowledgement moves that watermark
//!   and writes nothing per item. A change and its event commit in one transaction.
//! - A **cycle** sends all items that were pending when it began: [`Queue::begin_cycle`], then
//!   [`Queue::lease`], send, [`Queue::ack`] or [`Queue::return_`] until no lease is left, then
//!   [`Queue::end_cycle`]. An interrupted cycle continues after the last acknowledged item. Sending
//!   an item twice is harmless, because its version is the same.
//! - Events are append-only and first in, first out. An event's id is never reused.
//!
//! **Durability.** With [`QueueDurability::Process`] every acknowledged write survives the death of
//! the process; with [`QueueDurability::Power`] it survives a power cut as well. After either,
//! [`QueueOpenReport::unclean`] is set. At every open new events get a new epoch, and the server is
//! assumed to have any item.
//!
//! Limits: one writing process, which a lock file ensures, and any number of readers;
//! [`QueueOptions::byte_limit`] bounds the events, never the state; a key has at most
//! [`KEY_BYTES_MAX`] bytes.
//!
//! All calls block on the disk. Async code must call them from a blocking thread.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod answer;
mod apply;
mod baseline;
mod body;
mod catalog;
mod cycle;
mod damage;
mod directory;
mod error;
mod events;
mod feed;
mod files;
mod gather;
#[cfg(all(test, feature = "loom"))]
mod hand_off_model;
mod head;
mod inner;
mod job;
pub mod known_gaps;
mod lease;
mod open;
mod options;
mod peek;
mod place;
mod queue;
mod readers;
mod schema;
mod sink;
mod snapshot;
mod space;
mod status;
mod submit;
mod tools;
mod transact;
pub mod transition;
mod txn;
mod upkeep;
mod writer;

pub use answer::{AckOutcome, Skip};
pub use baseline::QueueBaseline;
pub use body::Body;
pub use cycle::Cycle;
pub use error::QueueError;
pub use events::{EventLease, QueuedEvent};
pub use files::is_open;
pub use gather::ScanSink;
pub use lease::{Lease, LeasedItem};
pub use options::{Dropped, QueueDurability, QueueOpenReport, QueueOptions, Rebuilt, Transaction};
pub use peek::{DatabaseSummary, DatasetSummary, peek, peek_note};
pub use queue::Queue;
pub use readers::{ReaderProcess, readers};
pub use sink::{DocumentStep, QueueSink};
pub use snapshot::{Exception, QueueSnapshot, ReportedItem};
pub use status::{DatasetStatus, QueueStatus};
pub use tools::{Compacted, ListFilter, ListedItem, Verified, compact, list, verify};

/// Longest name of an item and longest path of its directory, bytes.
pub const KEY_BYTES_MAX: usize = model::limits::PATH_BYTES_MAX;
/// Longest value of a note ([`Queue::meta_set`]), bytes.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;
/// Most notes of one database.
pub const NOTES_MAX: u64 = 1000;
