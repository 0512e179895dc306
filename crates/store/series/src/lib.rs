//! A time-series store: catalogue, head, parts, merge, retention, query.
//!
//! A *row series* is a tag set with metrics that share timestamps; each metric can be addressed
//! alone, as a [`Series`]. Writers put rows into a [`Batch`], which is one record of the store's
//! own journal. When the record is as durable as requested, the batch is added to the head, where
//! queries see it, and acknowledged. If a flush fails, its batches are not visible; they may
//! reappear after the store is opened again. Heads are sealed into parts, one for each partition of
//! 2 hours that they touch. Parts are merged in the background.
//!
//! ```
//! use series::{Ack, Batch, Direction, Selector, Store, StoreOptions, TimeRange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("series");
//! let (store, _) = Store::open(&dir, StoreOptions::default())?;
//! let row = store.row(b"cpu.user|cpu.sys host=a")?;
//! let mut batch = Batch::new();
//! batch.push(row, 1_000_000_000, &[12.5, 3.25])?;
//! store.write(batch, Ack::Persisted)?;
//! let snapshot = store.snapshot();
//! for series in store.find(&Selector::metric("cpu.sys").with("host", "a")) {
//!     for run in snapshot.scan(&series, TimeRange::ALL, Direction::Forward) {
//!         println!("{}: {:?}", series.name(), run?);
//!     }
//! }
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//! - [`Wal::Always`]: an acknowledged batch survives a power cut ([`Ack::Persisted`]), or a kill at
//!   once and a power cut after 100 ms ([`Ack::Flushed`]). [`Wal::Interval`]: the same with its
//!   interval. [`Wal::Off`]: batches survive only a clean stop.
//! - A batch survives completely or not at all. Of two values of one series and time, the one of
//!   the later batch is valid, before and after a restart.
//! - A failed write or flush of the log stops writes until the store is opened again. With a full
//!   disk, writes fail until there is space. Reads continue in both cases.
//! - Damage in a block or a part affects only the data in it: reads return the rest together with
//!   the error ([`Partial`], or an item of a [`Scan`]).
//!
//! # Limits
//! See the constants of this crate and [`StoreOptions`]. Exceeding a limit returns an error that
//! names it.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod background;
mod backup;
mod batch;
mod catalog;
mod core;
#[allow(missing_docs, reason = "fields whose names say what they are")]
mod error;
mod forget;
mod head;
mod manifest;
mod merge;
#[allow(missing_docs, reason = "fields whose names say what they are")]
mod model;
mod name;
mod open;
mod options;
mod pages;
mod part;
mod pending;
#[doc(hidden)]
pub mod probe;
mod query;
mod record;
mod retain;
mod rollup;
mod seal;
mod sharing;
mod store;
mod table;
mod ticket;
mod unread;

pub use backup::{BackupReport, backup};
pub use batch::Batch;
pub use error::{
    Found, NameError, Partial, SeriesDamage, SeriesOpenError, SeriesReadError, WriteError,
};
pub use model::*;
pub use name::{NewRow, RowLookup, RowName, escape as escape_name};
pub use open::verify;
pub use options::*;
pub use query::{EventScan, Extreme, Scan, Snapshot};
pub use store::Store;
pub use ticket::{QueuedBatch, TrySubmit};
