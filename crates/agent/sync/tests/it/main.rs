//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unused_imports,
    reason = "a test that cannot go on fails"
)]

mod checks;
mod common;
mod contact;
mod copies;
mod cycles;
mod due_checks;
mod enrolment;
mod interrupted;
mod lost;
