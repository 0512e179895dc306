//! Ships the server's journal to followers: other folders that keep a copy of every persisted
//! record at the same positions (`docs/format/follow.md`).
//!
//! # Invariants
//! - Only persisted records are sent, in order and without gaps, each with its checksum.
//! - A follower is accepted only when its store is this one and the last record it holds equals the
//!   record that this journal holds at that position; otherwise the error names the reason.
//! - The journal keeps what a follower has not acknowledged, and the last record that it has, so
//!   that both can be compared again. That is bounded: beyond
//!   [`ShipOptions::held_bytes_max`] the follower is dropped with an error and must start over.
//! - Every caller is authenticated: on the unix socket by the kernel's credentials, elsewhere by
//!   the token for followers.
//!
//! # What survives
//! The acknowledged position of a follower is stored in the journal's folder within a second; after
//! the server is killed the stored one may be a little lower, so the journal keeps a little more.

pub mod follow;
mod followers;
mod lag;
mod protocol;
mod refusal;
mod seed_source;
mod service;
mod stream;
pub mod wire;

pub use followers::{FollowerStatus, ShipOptions, Shipping};
pub use protocol::FOLLOWERS_MAX;
pub use refusal::FollowerRefusal;
pub use seed_source::{Part, SeedSource};
pub use service::{LocalFollower, router};
