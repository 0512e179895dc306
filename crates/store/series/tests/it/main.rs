//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod backfill;
mod backup;
mod behaviour;
mod commits;
mod common;
mod crashes;
mod damage;
mod deletes;
mod forget;
mod golden;
mod look;
mod model;
mod names;
mod overlap;
mod present;
mod recovery;
mod refusals;
mod reopen;
mod retention;
mod retention_rolled;
mod rollups;
mod trims;
