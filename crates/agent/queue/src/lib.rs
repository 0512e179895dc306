//! The agent's durable queue, `agent.db`: observed and acknowledged versions in one row, and events
//! (`docs/format/agent-db.md`).
//!
//! - An item's row is its baseline *and* its entry in the queue: it is pending while its `seen` is
//!   above the dataset's watermark `told`. An acknowledgement moves the watermark; no byte is written
//!   per item. A change and its event commit in one transaction.
//! - A **cycle** sends everything seen up to its beginning: [`Queue::begin_cycle`], then
//!   [`Queue::lease`], send, [`Queue::ack`] or [`Queue::return_`] until no lease is left, then
//!   [`Queue::end_cycle`]. It may end anywhere; the next one continues at the last
//!   acknowledged item. Sending an item twice is harmless, its version is the same.
//! - Events are append-only, first in first out, each with an id that is never used twice.
//!
//! What survives: with [`QueueDurability::Process`] everything acknowledged survives the death of the
//! process; with [`QueueDurability::Power`] a power cut too. After either, [`QueueOpenReport::unclean`] is
//! set, new events carry a new epoch, and everything held counts as possibly known to the server.
//!
//! Limits: one writing process (a lock file ensures it), and readers;
//! [`QueueOptions::byte_limit`] bounds the events, never the state; a key has at most
//! [`KEY_BYTES_MAX`] bytes.
//!
//! All calls block on the disk; from async code use a blocking thread.

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
#[cfg(all(test, loom))]
mod hand_off_model;
mod head;
mod inner;
mod job;
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
mod writer_queue;

pub use answer::{AckOutcome, Skip};
pub use baseline::QueueBaseline;
pub use body::Body;
pub use cycle::Cycle;
pub use error::QueueError;
pub use events::{EventLease, QueuedEvent};
pub use gather::ScanSink;
pub use lease::{Lease, LeasedItem};
pub use options::{Dropped, QueueDurability, QueueOpenReport, QueueOptions, Rebuilt, Transaction};
pub use peek::{Peeked, PeekedDataset, peek, peek_note};
pub use queue::Queue;
pub use readers::{ReaderProcess, readers};
pub use sink::{DocumentStep, QueueSink};
pub use snapshot::{Exception, QueueSnapshot, ToldItem};
pub use status::{DatasetStatus, QueueStatus};
pub use tools::{Compacted, ListFilter, Listed, Verified, compact, list, verify};

/// Longest name of an item and longest path of its directory, bytes.
pub const KEY_BYTES_MAX: usize = model::limits::PATH_BYTES_MAX;
/// Longest value of a note ([`Queue::meta_set`]), bytes.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;
/// Most notes of one database.
pub const NOTES_MAX: u64 = 1000;
