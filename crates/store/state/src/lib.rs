//! What agents report, behind the trait [`StateStore`]: documents and events, rebuilt from the
//! journal after a power cut. [`SqliteState`] implements it; another engine implements the same trait
//! and passes the same conformance suite.
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
mod db;
pub mod disk;
pub mod error;
pub mod limits;
pub mod query;
pub mod store;

pub use db::{SqliteState, StateOptions};
pub use disk::{DiskState, DiskThresholds};
pub use error::StateError;
pub use query::{
    AgentCounts, ArrivalQuery, Arrivals, ChangePage, ChangeQuery, Condition, Direction,
    DocumentField, DocumentPage, DocumentQuery, EventKind, FleetQuery, PathMatch, Retained,
    Retention, StateCounts, StoredDocument, StoredEvent, Test, Value,
};
pub use sqlite::{Cost, Reader, statements};
pub use store::StateStore;
