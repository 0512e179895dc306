//! The agent's side of the protocol: enrolment, cycles of sessions, heartbeats, integrity checks.
//!
//! - A **session** is one message in one POST with one answer. Items stay in the queue until the
//!   server answers 200. A session that fails returns all leased items.
//! - A **cycle** sends everything that was pending when it began, documents and events together.
//!   After an interruption the next one continues after the last acknowledged item.
//! - A **check** compares one dataset's digest with the server's. On mismatch both sides compare
//!   sums of ranges down to the few documents that differ, and only those are sent again, as
//!   ordinary versioned values.
//!
//! This crate does not retry. The error says whether and when a retry can help
//! ([`SyncError::is_transient`], [`SyncError::retry_after`]), and [`backoff::delay`] returns the
//! delay. The size of a session is bounded by the server's limits, and halved if the server answers
//! 413.

pub mod backoff;
mod check;
mod client;
mod contact;
mod control;
mod difference;
mod documents;
mod enroll;
mod error;
mod identity;
mod leave;
mod lost;
mod machine;
mod pace;
mod report;
mod rows;
mod session;
mod syncer;
pub mod tls;

pub use check::{CheckReport, Compared, SurplusPolicy};
pub use client::Client;
pub use contact::{Contact, OwnView};
pub use control::StartedCheck;
pub use enroll::{EnrollOptions, certify_again, enroll};
pub use error::SyncError;
pub use identity::{Identity, IdentityFolder};
pub use lost::{LostReport, Watched};
pub use machine::Machine;
pub use rows::RowsReport;
pub use syncer::{CycleReport, SyncOptions, Syncer};
