//! The agent's side of the link: enrolment, cycles of sessions, heartbeats, integrity checks.
//!
//! - A **session** is one message, one POST, one answer. Nothing leaves the queue before the 200;
//!   a session that fails returns everything it leased.
//! - A **cycle** tells everything that was pending when it began, documents and events together,
//!   and can break off anywhere: the next one goes on at the last acknowledged item.
//! - A **check** compares one dataset's digest with the server's; on mismatch both sides compare
//!   sums of ranges down to the few documents that differ, and only those are sent again, as
//!   ordinary versioned values.
//!
//! Nothing here retries on its own: a failed call says whether and when trying again can help
//! ([`SyncError::is_transient`], [`SyncError::retry_after`]), [`backoff::delay`] says when.
//! Sessions are bounded by what the server announces and halved when it answers 413.

pub mod backoff;
mod check;
mod client;
mod control;
mod difference;
mod documents;
mod enroll;
mod error;
mod identity;
mod lost;
mod machine;
mod pace;
mod rows;
mod session;
mod syncer;
pub mod tls;

pub use check::{CheckReport, Compared, Surplus};
pub use client::Client;
pub use control::Begun;
pub use enroll::{EnrollOptions, certify_again, enroll};
pub use error::SyncError;
pub use identity::{Identity, IdentityFolder};
pub use lost::{LostReport, Watched};
pub use machine::Machine;
pub use rows::RowsReport;
pub use syncer::{CycleReport, SyncOptions, Syncer};
