//! The state store: documents and events that agents report, in the [`StateStore`]. It is rebuilt
//! from the journal after a power cut.
//!
//! # Invariants
//! - A batch of records is applied in one transaction together with its position, so that replay
//!   after a crash starts exactly after it and applies nothing twice.
//! - Counters are updated in that same transaction, never counted afterwards.
//! - Every query binds its values; text of a query never becomes part of the SQL.
//!
//! # What survives
//! After the death of the process: everything applied. After a power cut: everything up to the last
//! completed checkpoint (`synchronous=NORMAL`); the journal holds the rest. Limits: see [`limits`].

mod db;
pub mod error;
pub mod limits;
pub mod query;

pub use db::{StateOptions, StateStore};
pub use error::StateError;
pub use query::{
    AgentCounts, ArrivalQuery, Arrivals, ChangePage, ChangeQuery, Collapsed, Comparison, Condition,
    DocumentField, DocumentPage, DocumentQuery, EventKind, FleetQuery, LateChanges, PathMatch,
    QueryValue, Retained, Retention, SortDirection, StateCounts, StoredDocument, StoredEvent,
};
pub use sqlite::{Cost, Reader, statements};
