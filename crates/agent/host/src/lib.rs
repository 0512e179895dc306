//! The host: its installed packages, its metrics ([`metrics`]), and its name and operating system
//! ([`system`]).
//!
//! - [`Dpkg::read`] reads the dpkg status database and returns a complete [`Inventory`] or an
//!   error. A database that is missing, truncated, malformed or above a limit never looks like one
//!   with fewer packages.
//! - [`plan()`] compares an inventory with the stored documents and returns the [`Plan`] to commit:
//!   documents to put and to delete, and the events to report.
//! - A package that dpkg is changing at present, for example unpacked but not configured, keeps its
//!   last state. An upgrade is therefore one change, not a removal and an installation. Once no dpkg
//!   runs, the package counts with the state that it was left in ([`Inventory::settle`]).
//!
//! Limits: [`limits`]. Every call blocks on the disk. Nothing is written.

mod deb822;
mod dpkg;
mod error;
pub mod limits;
pub mod metrics;
mod plan;
pub mod system;

pub use dpkg::{Dpkg, Inventory, Stamp};
pub use error::InventoryError;
pub use plan::{Plan, Put, StoredDocuments, plan};
