//! The agents' side of the server: HTTPS with agents' certificates and HTTP on a unix socket, both
//! in front of the same routes (`docs/format/session.md`).
//!
//! # Invariants
//! - A session is answered 200 only after its record is persisted in the journal and applied.
//! - Sessions of one agent are committed in the order in which they arrived; a check is compared
//!   after everything that this agent was answered before.
//! - Over TLS the certificate says who speaks, looked up anew for each request: a revoked
//!   certificate is refused from the moment of its revocation. On the unix socket the kernel says
//!   whose process it is, and a process that may connect may speak for any agent.
//! - One instance at a time speaks as an agent: a copy of its identity on a second machine is
//!   refused by name.
//! - Nothing is read of a body before its sender is known and its length admitted; nothing waits
//!   without bound. Beyond a limit the answer is 503 with Retry-After, or 413.
//!
//! # What survives
//! Nothing is kept here but the last `/stats` and `/config` of each agent, in memory. Work that
//! was begun is finished even when its sender goes away.

mod admit;
mod agent_queues;
mod answer;
mod app;
mod body;
mod control;
mod digest;
mod enroll;
mod error;
mod header;
mod identity;
mod instances;
mod leases;
mod listen;
mod local;
mod meter;
mod options;
mod plan;
mod remove;
mod reports;
mod router;
mod rows;
mod server;
mod stateful;
mod stats;
mod strict;
mod tls;
mod unix;
mod unread;
mod verifier;

pub use error::SessionsError;
pub use options::{
    AGENT_SERIES_MAX_DEFAULT, LocalCaller, Renderer, SessionsLimits, SessionsOptions, Timeouts,
};
pub use reports::ReportKind;
pub use server::{Sessions, SessionsHandle};
