//! The rows of an SQLite database that a transaction changed, as bytes, and the way to apply them to
//! a copy of that database. The bytes are described in `docs/format/registry-rows.md`.
//!
//! # Invariants
//! - Rows are net effects by key, with absolute values: applying a record twice, or after a later
//!   state of the same rows has been applied in full, gives the same rows.
//! - Everything is captured: rows that triggers change, upserts, REPLACE, tables without a rowid,
//!   and rowid sequences. Not captured are the tables and columns that [`Excluded`] names.
//! - The schema's triggers run at both sides, so what they keep is named in [`Excluded`], and not logged.
//! - Columns are numbers. A table only gets further columns at its end.
//!
//! All calls block. A [`Capture`] belongs to one connection, whose caller holds it alone.

mod apply;
mod capture;
mod contents;
mod record;
mod schema;
#[cfg(test)]
mod tests;

pub use apply::Applier;
pub use capture::{Capture, Captured};
pub use contents::contents;
pub use record::{Rows, TableRows, Value};
pub use schema::{Excluded, ExcludedColumn};

/// Error of a call on rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// A later program wrote the rows.
    #[error("its rows have schema version {found}, this database has {known}")]
    Newer {
        /// Schema version of the rows.
        found: u32,
        /// Schema version of the database.
        known: u32,
    },
    /// The bytes are not rows, or the rows do not fit this database.
    #[error("{0}")]
    Unfit(String),
    /// The database failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Short for results of this crate.
pub type RowsResult<T> = Result<T, RowsError>;
