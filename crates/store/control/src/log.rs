//! The log in which the rows of decisions are persisted before they are committed.

use std::collections::BTreeMap;

use rows::{Excluded, ExcludedColumn, Rows};

use crate::ControlResult;

/// The tables and columns that belong to one database alone, or are kept by triggers: they are not logged.
pub const EXCLUDED: Excluded = Excluded {
    tables: &["counter", "progress", "unlogged"],
    columns: &[
        // Hundreds of megabytes a day with 50,000 agents; another server hears the agents itself.
        ExcludedColumn { table: "agent", column: "keepalive_at_s", life: Some("incarnation") },
        ExcludedColumn { table: "agent_group", column: "agents", life: None },
    ],
};

/// An ordered log of records, of which some are rows of this database. Implementations may be called
/// on any thread. [`RowLog::append`] is called with the writer's lock held, so that positions of rows
/// and commits have one order.
pub trait RowLog: Send + Sync {
    /// Persists rows. Returns the position of their record.
    ///
    /// # Errors
    /// See [`RowLogError`].
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError>;

    /// Returns the position of the last record that is persisted.
    fn end(&self) -> u64;

    /// Returns the position before the first record that the log still has.
    fn start(&self) -> u64;

    /// Passes on the rows of all records after a position, in their order.
    ///
    /// # Errors
    /// `Behind` if the log no longer has all of them, `Journal` if it cannot be read, and what
    /// `apply` returns.
    fn read(
        &self,
        after: u64,
        apply: &mut dyn FnMut(u64, &[u8]) -> ControlResult<()>,
    ) -> ControlResult<()>;

    /// Called once the rows of a record are committed, with the writer's lock held.
    fn committed(&self, _position: u64) {}
}

/// The reason why rows were not persisted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowLogError {
    /// Nothing was stored: the decision is refused.
    Refused(String),
    /// One record cannot hold them: nothing was stored.
    TooLarge { bytes_max: u64 },
    /// The record may be in the log: only reading the log again, by a restart, can say so.
    Unknown(String),
}

/// Returns the number of rows of each table in a record, for people; empty if it cannot be decoded.
pub fn describe(rows: &[u8]) -> BTreeMap<String, usize> {
    let rows = Rows::decode(rows).unwrap_or_default();
    let count = |t: &rows::TableRows| t.gone.len() + t.put.len() + t.set.len();
    rows.tables.iter().map(|table| (table.table.clone(), count(table))).collect()
}
