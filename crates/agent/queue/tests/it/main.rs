//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod acknowledgements;
mod checkpoints;
mod coalescing;
mod common;
mod conformance;
mod damage;
mod datasets;
mod faults;
mod gathering;
mod kills;
mod large_directory;
mod limits;
mod model;
mod power_cut;
mod races;
mod readers;
mod recovery;
mod tools;
mod versions;
