//! Ships the server's journal to followers: other folders that keep a copy of every persisted
//! record at the same positions (`docs/format/follow.md`).
//!
//! # Invariants
//! - Only persisted records are sent, in order, without a hole, each with its checksum.
//! - A follower is taken on only when its store is this one and the last record it holds is the
//!   record that this journal holds at that position; otherwise it is refused by name.
//! - The journal keeps what a follower has not acknowledged, and the last record that it has, so
//!   that both can be compared again. That is bounded: beyond
//!   [`ShipOptions::held_bytes_max`] the follower is dropped, loudly, and must begin anew.
//! - Nobody is served without being known: the unix socket by the kernel's word, everybody else
//!   by the follower's token.
//!
//! # What survives
//! What a follower acknowledged is stored in the journal's folder, at most a second later; after a
//! kill of the server it is a little lower, which keeps more.

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
pub use refusal::Refusal;
pub use seed_source::{Part, SeedSource};
pub use service::{LocalCaller, router};
