//! A write-ahead log of byte records: group commit, verified recovery, cost accounting.
//!
//! An append takes bytes and returns a position: the number of the record, from 1. [`Durability`]
//! says what an acknowledged append survives; [`AppendOutcome`] says what it cost.
//!
//! ```
//! use journal::{Durability, Journal, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("journal");
//! let (journal, recovery) = Journal::open(&dir, Options::default())?;
//! println!("positions {}..={}", recovery.first_position, recovery.last_position);
//! let outcome = journal.append(b"paid 10 to bob", Durability::Persist)?;
//! println!("persisted as {}, {} bytes written", outcome.position, outcome.bytes_written);
//! journal.append_all(&[b"all of these", b"or none"], Durability::Persist)?;
//! for record in journal.read_from(outcome.position)? {
//!     let (position, bytes) = record?;
//!     println!("{position}: {}", String::from_utf8_lossy(&bytes));
//! }
//! journal.trim(outcome.position)?;
//! journal.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What survives what
//! - `Persist`: a power cut. `Within`: a kill, and a power cut after that time. `Flush`: a kill.
//! - The records of one `append_all` survive all together or not at all.
//! - After a failed write or flush the journal is poisoned: all waiters and all later calls get the
//!   error, and nothing is acknowledged any more. Opening it again recovers it.
//! - On a full disk an append fails with [`AppendError::Full`]; this does not poison the journal.
//!
//! # What recovery promises
//! Recovery returns a verified prefix of the appended records, in order. A torn tail (a group that
//! was never acknowledged) is cut and reported. Damage to data that later data proves to have been
//! persisted makes the opening fail with file, block and position; [`verify`], [`dump`] and
//! [`repair`] handle it. Nothing follows the last group of a journal that was not closed: damage to
//! it alone looks like a torn tail, unless a [`Consumer`] or [`Options::position_expected`] records
//! its position.
//!
//! # Limits
//! A group fits in a segment; see [`Options`]. Memory: two groups, the ring, one index entry per
//! 256 KiB, and one window and one group per reader.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod begin;
mod bytes;
mod consumer;
mod core;
mod error;
mod fill;
mod folder;
mod format;
mod group_commit;
mod journal;
mod meter;
mod options;
mod place;
mod pool;
mod reader;
mod recover;
mod ring;
mod scan;
mod sync;
mod tools;
mod writer;

pub use begin::{begin_at, begin_at_with};
pub use consumer::Consumer;
pub use error::{AppendError, Damage, OpenError, ReadError};
pub use journal::Journal;
pub use meter::{AppendOutcome, Recovery, Stats, TornTail, TrimOutcome};
pub use options::{
    BLOCK_BYTES, Durability, IoPath, Layout, Options, RING_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT,
};
pub use reader::JournalReader;
pub use tools::{
    DumpedGroup, FolderStat, RepairReport, SegmentReport, VerifyReport, dump, dump_with,
    holds_journal, repair, repair_with, stat, stat_with, verify, verify_with,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
