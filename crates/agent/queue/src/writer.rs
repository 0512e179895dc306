//! The one writing connection.

use rusqlite::Connection;

use crate::feed::Feed;
use crate::transition::HybridClock;

/// The connection that writes.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Where a group's rows are laid down for it.
    pub(crate) feed: Feed,
    pub(crate) clock: HybridClock,
    pub(crate) poisoned: Option<String>,
    /// Bytes written since upkeep last looked.
    pub(crate) written_bytes: u64,
    /// The byte limit was reported since the queue was opened.
    pub(crate) limit_reported: bool,
    /// Bytes that the log can have grown by since its size was looked at.
    pub(crate) log_bytes_max: u64,
    /// The log's size was reported since it last fitted.
    pub(crate) log_reported: bool,
}

impl Writer {
    pub(crate) fn new(conn: Connection, clock: HybridClock) -> rusqlite::Result<Self> {
        let feed = Feed::attach(&conn)?;
        Ok(Self {
            conn,
            feed,
            clock,
            poisoned: None,
            written_bytes: 0,
            limit_reported: false,
            log_bytes_max: 0,
            log_reported: false,
        })
    }
}

/// Roll back what a panic left open.
pub(crate) fn settle(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { conn.execute_batch("ROLLBACK") }
}
