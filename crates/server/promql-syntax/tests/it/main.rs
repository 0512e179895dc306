//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod check;
mod parse;
