//! The one writing connection.
//!
//! **Locking.** A writing thread takes these locks in this order; none is ever taken in another:
//!
//! 1. the state of the [`WriterQueue`](crate::writer_queue::WriterQueue), for moments only. The leader releases it before
//!    it commits and takes it again to leave the answers, so jobs gather during a commit.
//! 2. `Inner::writer`, from before the first read of a transaction until the catalog mirrors its
//!    commit.
//! 3. `Inner::catalog`: shared during the transaction, exclusive for the moment that mirrors it
//!    (see [`crate::catalog`]).
//!
//! Holding `writer` over commit and mirror rules out two races. A cycle that began in between would
//! take its mark from a clock that is ahead of the catalog: its walk would skip the new item, and
//! its end would set `acked_version` above it, so that the item would never be sent. And two
//! transactions that read before either commits could give versions in the wrong order. The model
//! in `hand_off_model.rs` checks both, in every interleaving with at most three preemptions.
//!
//! The mutexes of the feed, the reader pool, the list of read transactions and the lease buffers are
//! leaves: no lock is taken while one of them is held.
//!
//! A caller must not hold `catalog`, a leaf, or a read transaction when it takes `writer`: a writer
//! may wait for readers to end when it truncates the log. The closure given to `transact` must not
//! call `transact`, `submit` or `dataset_id`, which would wait for the writer that it holds.

use rusqlite::Connection;

use crate::feed::Feed;
use crate::transition::HybridClock;

/// The connection that writes.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Buffer for a group's rows.
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

/// Rolls back what a panic left open.
pub(crate) fn roll_back_open(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { conn.execute_batch("ROLLBACK") }
}
