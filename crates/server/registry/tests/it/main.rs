//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod certificates;
mod clock;
mod commands;
mod common;
mod counters;
mod enrolment;
mod keys;
mod lists;
mod liveness;
mod logins;
mod remembered;
mod reopening;
