//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(
    clippy::excessive_nesting,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod access;
mod access_log;
mod assignments;
mod authentication;
mod causes;
mod common;
mod configuration;
mod empty_lists;
mod files;
mod fleet;
mod forms;
mod history;
mod hostile;
mod known_errors;
mod lists;
mod log_ring;
mod narrowing;
mod own_roles;
mod policies;
mod prometheus;
mod proxies;
mod rbac;
mod readiness;
mod reference;
mod removal;
mod rules_files;
mod security;
mod serving;
mod shares;
mod stream;
mod writes;
