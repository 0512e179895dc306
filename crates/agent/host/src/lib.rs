//! The host's inventory, installed packages, its metrics ([`metrics`]), and its name and operating
//! system ([`system`]).
//!
//! - [`Dpkg::read`] reads the dpkg status database, stanza by stanza, and gives an [`Inventory`]
//!   or says why there is none. It is whole or it is an error: a database that is missing, cut
//!   off, malformed or beyond a limit never looks like one with fewer packages.
//! - [`plan()`] compares an inventory with the baseline of documents and gives the [`Plan`] to
//!   commit: documents to put and to delete, and the events to tell.
//! - A package that dpkg is in the midst of changing (unpacked and not yet configured) stays as it
//!   last was: an upgrade is one change, not a removal and an installation.
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
