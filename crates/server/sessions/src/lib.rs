//! The agents' side of the server: HTTPS with agents' certificates and HTTP on a unix socket, both
//! in front of the same routes (`docs/format/session.md`).
//!
//! # Invariants
//! - A session is answered 200 only after its record is persisted in the journal and applied.
//! - Sessions of one agent are committed in the order in which they arrived. A check sees
//!   everything for which this agent got a 200 before.
//! - Over TLS the certificate identifies the sender and is looked up for each request: a revoked
//!   certificate is refused from the moment of its revocation. On the unix socket the kernel
//!   identifies the process, and a process of an allowed user may act as any agent.
//! - One instance at a time acts as an agent: a copy of its identity on a second machine is refused
//!   with an error that names the holder.
//! - No body is read before its sender is identified, except that of an enrolment, and its length
//!   is checked. Its bytes count towards the memory in flight as they arrive. Every queue and every
//!   wait is bounded. Above a limit the answer is 503 with Retry-After, or 413.
//!
//! # What survives
//! This crate stores nothing itself. A session that has begun is completed even if its sender
//! disconnects.

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
    refused_max,
};
pub use server::{Sessions, SessionsHandle};
pub use silence::SilenceOptions;
