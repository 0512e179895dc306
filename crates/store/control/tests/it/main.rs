//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod checkpoints;
mod faults;
mod log;
mod memory_log;
mod promises;
mod shared;
mod versions;
