//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod acknowledgements;
mod common;
mod digests;
mod identity;
mod local;
mod replays;
mod silence;
mod size_limits;
mod slow_bodies;
