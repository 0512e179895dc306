//! Reads one directory or one file through descriptors: stat, attributes, content, digests, on
//! bounded reader threads.
//!
//! - [`open`] opens and stats entries. [`Listing::read`] reads a directory with the stat of each
//!   entry, [`XattrReader`] reads extended attributes.
//! - A [`ReadPool`] reads the content of regular files: the caller submits [`Chunk`]s of
//!   [`ReadJob`]s and gets a [`ReadResult`] with an [`model::Observation`] for each.
//! - [`SystemNames`] translates the ids of owners into names.
//!
//! This crate knows one entry at a time. Which entries are read, and what a difference from the
//! last observation means, is decided by `detect`.
//!
//! **Invariants.** Entries are opened by name below an open directory. No path is resolved through
//! a symbolic link unless the caller asks for it. Only regular files are opened for reading. A
//! digest belongs to the stat next to it: a file that changed while it was read is read again, and
//! after [`limits::UNSTABLE_RETRIES`] its observation says so. Nothing is written, and access times
//! are left as they are where the kernel permits it.
//!
//! **Limits.** Threads, queued files, open directories and buffers are bounded; see [`limits`].

mod budget;
mod cancel;
mod digest;
mod directory;
pub mod limits;
mod names;
pub mod open;
mod pool;
mod pseudo;
mod reader;
mod stat;
mod xattrs;

pub use budget::TokenBucket;
pub use cancel::Cancel;
pub use digest::{Algorithm, lacks_digest};
pub use directory::{Directory, Entry, Listing};
pub use names::SystemNames;
pub use pool::{Chunk, PoolError, ReadPool};
pub use pseudo::is_pseudo;
pub use reader::{ReadJob, ReadOptions, ReadOutcome, ReadResult, ReaderContext};
pub use stat::Stat;
pub use xattrs::{XattrReader, XattrSource};
