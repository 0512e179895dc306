//! Time series: catalogue, head, parts, codecs, merge, retention, query.
//!
//! A *row series* is a tag set with metrics that share timestamps; each metric is addressable
//! alone, as a [`Series`]. Writers put rows into a [`Batch`]; a batch is one record of the store's
//! own journal, and when it is as durable as asked for it is put into the head, where queries see it, and
//! acknowledged. Of a flush that fails nothing is shown; when the store is opened again it may be
//! there. Heads are sealed into parts, one per partition of 2 hours
//! touched; parts are merged in the background.
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
//! # What survives what
//! - [`Wal::Always`]: an acknowledged batch survives a power cut ([`Ack::Persisted`]), or a kill at
//!   once and a power cut after 100 ms ([`Ack::Flushed`]). [`Wal::Interval`]: the same with its
//!   interval. [`Wal::Off`]: a clean stop alone.
//! - A batch survives whole or not at all. Two values of one series and time: the one of the later
//!   batch holds, before and after a restart.
//! - A failed write or flush of the log stops writes until the store is opened again; a full disk
//!   refuses writes until there is room; reads go on in both.
//!
//! - Damage in a block or a part takes with it what is in there alone: reads give the rest, and the
//!   error beside it ([`Partial`], or an item of a [`Scan`]).
//!
//! # Limits
//! See the constants of this crate and [`StoreOptions`]: each has a name and a refusal.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod ask;
mod background;
mod backup;
mod batch;
mod bytes;
mod catalog;
mod codec;
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
pub use error::{Damage, Found, NameError, OpenError, Partial, ReadError, WriteError};
pub use model::*;
pub use name::RowName;
pub use open::verify;
pub use options::*;
pub use query::{EventScan, Extreme, Scan, Snapshot};
pub use store::Store;
pub use ticket::{Ticket, TrySubmit};
