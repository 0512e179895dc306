//! The promises of the crate through its public interface, a module for each kind of behaviour.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod change;
mod document;
mod event;
mod package;
mod writer_body;
