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
mod service;
mod stream;
pub mod wire;

pub use followers::{FollowerStatus, Refusal, ShipOptions, Shipping};
pub use service::{LocalCaller, router};
pub use stream::{Part, SeedSource};

/// Longest name of a follower, bytes; letters, digits, `-` and `_`.
pub const FOLLOWER_NAME_BYTES_MAX: usize = 48;
/// Most followers of one server.
pub const FOLLOWERS_MAX: usize = 8;
/// Header of a stream's answer: the last position persisted when it began.
pub const HEADER_PERSISTED: &str = "x-holdfast-persisted";
/// Header of a stream's answer: the store's name.
pub const HEADER_STORE: &str = "x-holdfast-store";

/// Whether a text may name a follower.
pub fn is_follower_name(text: &str) -> bool {
    (1..=FOLLOWER_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
