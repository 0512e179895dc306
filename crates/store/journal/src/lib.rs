//! A write-ahead log over bytes: group commit, verified recovery, a meter.
//!
//! Bytes in, positions out. A position is the number of a record, from 1, in every layout. What an
//! acknowledged append survives is said by [`Durability`]; what it cost is in its [`AppendOutcome`].
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
//! - `Persist`: a power cut, from the acknowledgement on. `Within`: a kill at once, a power cut
//!   after that time. `Flush`: a kill.
//! - `append_all` survives whole or not at all, whatever happens when.
//! - After a failed write or flush the journal is poisoned: every waiter and every later call
//!   learns of it at once, and nothing is acknowledged any more. Opening it again recovers.
//! - A full disk refuses ([`AppendError::Full`]); it does not poison.
//!
//! # What recovery promises
//! What is read is a prefix of what was appended, verified, in order, with nothing invented. A
//! torn tail (a group that was never acknowledged) is cut and reported. Damage to anything that
//! something later proves to have been persisted stops the opening with file, block and position;
//! [`verify`], [`dump`] and [`repair`] are for that. The last group of a journal that was not
//! closed has nothing later: damage to it alone looks like a torn tail, unless a [`Consumer`] or
//! [`Options::position_expected`] knows of it.
//!
//! # Limits
//! A group fits in a segment; see [`Options`]. Memory: two groups, the
//! ring, one index entry per 256 KiB, one window and one group per reader.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod begin;
mod bytes;
mod consumer;
mod core;
mod error;
mod folder;
mod format;
mod gate;
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
