//! What the server knows, behind two traits: [`StateStore`] (what agents tell: documents and
//! events, rebuilt from the journal after a power cut) and the registry's store (what people
//! decide). Both on SQLite here; another engine implements the same traits and passes the same
//! conformance suite.
//!
//! # Invariants
//! - A batch of records is applied in one transaction together with its position, so that replay
//!   after a crash starts exactly behind it and applies nothing twice.
//! - Counters are kept in that same transaction, never counted afterwards.
//! - Every query binds its values; text of a query never reaches SQL as text.
//!
//! # What survives
//! The death of the process: everything applied. A power cut: everything up to the last completed
//! checkpoint (`synchronous=NORMAL`); the journal holds the rest. Limits: see [`limits`].

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod disk;
pub mod error;
mod lend;
pub mod limits;
mod meter;
mod pool;
pub mod query;
mod reader;
pub mod registry;
mod sqlite;
pub mod store;

pub use disk::{DiskState, DiskThresholds};
pub use error::StateError;
pub use query::{
    AgentCounts, ArrivalQuery, Arrivals, ChangePage, ChangeQuery, Condition, Direction,
    DocumentField, DocumentPage, DocumentQuery, EventKind, FleetQuery, PathMatch, Retained,
    Retention, StateCounts, StoredDocument, StoredEvent, Test, Value,
};
pub use reader::{Cost, Reader, statements};
pub use sqlite::{SqliteState, StateOptions};
pub use store::StateStore;
