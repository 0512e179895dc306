//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod common;
mod guards;
mod levels;
mod places;
mod refusals;
mod storm;
