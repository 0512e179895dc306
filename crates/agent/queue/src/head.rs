//! The progress of a dataset's cycles: the row of the table `dataset`.

use rusqlite::Connection;

use crate::transition::Marks;

/// Progress of sending a dataset.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) marks: Marks,
    /// Number of cycles begun. A lease of another cycle is stale.
    pub(crate) cycle: u64,
    pub(crate) cursor: Cursor,
    /// The last directory that this cycle visits. A later one has no item from before the cycle.
    pub(crate) last_directory: i64,
    pub(crate) last_cycle_us: Option<u64>,
}

/// Position of a cycle. The next item is the first one at or after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    pub(crate) directory: i64,
    /// The smallest name in the directory that was not visited yet.
    pub(crate) name: Vec<u8>,
}

/// Writes the dataset's watermarks and cursor.
pub(crate) fn store(conn: &Connection, id: i64, head: &Head) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE dataset SET leased = ?2, told = ?3, reached = ?4, unfinished = ?5, cycle = ?6, \
         cursor_directory = ?7, cursor_name = ?8, last_cycle_us = ?9 WHERE id = ?1",
    )?
    .execute((
        id,
        head.marks.leased_version as i64,
        head.marks.acked_version as i64,
        head.marks.opened_version as i64,
        head.marks.unfinished,
        head.cycle as i64,
        head.cursor.directory,
        &head.cursor.name,
        head.last_cycle_us.map(|us| us as i64),
    ))
    .map(drop)
}
