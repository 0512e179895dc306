//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::excessive_nesting,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod amplification;
mod basics;
mod begin;
mod beside;
mod btrfs;
mod common;
mod concurrent_cuts;
mod crashes;
mod damage;
mod golden;
mod model;
mod power_cut;
mod waiters;
