//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod common;
mod put;
mod refusals;
mod sockets;
