//! The note that the server knows which gaps are open on this agent.
//!
//! It may not know after the agent's database was lost, after the server's was, after events were
//! dropped, and after an upgrade from a version that reported a gap at its end only. The agent then
//! reports the start of each open gap again. A start that the server knows already replaces the
//! earlier one.

use rusqlite::Connection;

use crate::error::QueueError;
use crate::queue::Queue;

/// `1` if the server knows them.
const NOTE: &str = "queue.gaps_known";

/// Returns true if the server knows the open gaps.
///
/// # Errors
/// Returns an error if the queue cannot be read.
pub fn are_known(queue: &Queue) -> Result<bool, QueueError> {
    Ok(queue.meta_get(NOTE)?.is_some_and(|note| note == b"1"))
}

/// Notes that all open gaps were reported.
///
/// # Errors
/// Returns an error if the queue cannot be written.
pub fn set_known(queue: &Queue) -> Result<(), QueueError> {
    queue.meta_set(NOTE, b"1")
}

/// Notes that the server may not know them.
///
/// # Errors
/// Returns an error if the queue cannot be written.
pub fn set_unknown(queue: &Queue) -> Result<(), QueueError> {
    queue.meta_set(NOTE, b"0")
}

/// Does the same within a transaction.
pub(crate) fn forget(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM note WHERE name = ?1", [NOTE]).map(drop)
}
