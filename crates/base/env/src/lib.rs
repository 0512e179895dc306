//! The outside world behind small traits, so that tests can put a faulty or a frozen one in its
//! place: [`clock`] (time), [`guard`] (time that a wrong wall clock does not move), [`uptime`] (time since the boot), [`random`]
//! (entropy) and [`files`] (the disk). Also limits that several listeners have in common:
//! [`sources`] (failures per address) and [`budget`] (bytes in flight), and [`regular`], which reads
//! small files without waiting for a pipe.
//!
//! Imports nothing of the product, so that a crate that is used alone (the journal) stays free of
//! product types.

pub mod budget;
pub mod clock;
pub mod files;
pub mod guard;
pub mod listen;
pub mod random;
pub mod regular;
pub mod sources;
pub mod uptime;
