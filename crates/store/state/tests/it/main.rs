//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod datasets;
mod file;
mod fleet;
mod model;
mod promises;
mod replicas;
mod wal_size;
