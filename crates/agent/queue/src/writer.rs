//! The writing connection, and the locks of the queue.
//!
//! **Locking.** Locks are always taken in this order:
//!
//! 1. The state of the [`WriterQueue`](crate::writer_queue::WriterQueue), for a short time only.
//!    The leader releases it before it commits, and takes it again to store the answers, so that
//!    jobs gather during a commit.
//! 2. `Inner::writer`, from before the first read of a transaction until the catalog mirrors its
//!    commit.
//! 3. `Inner::catalog`, shared during the transaction, and exclusive while the commit is mirrored
//!    (see [`crate::catalog`]).
//!
//! Holding `writer` over both the commit and its mirroring rules out two races. First, a cycle that
//! began between them would take its mark from a clock that is ahead of the catalog. It would skip
//! the new item, and at its end set `acked_version` above it, so that the item would never be sent.
//! Second, two transactions that read before either commits could assign versions in the wrong
//! order. The model in `hand_off_model.rs` checks both, in every interleaving with at most three
//! preemptions.
//!
//! The mutexes of the feed, the reader pool, the list of read transactions and the lease buffers
//! are leaves: no lock is taken while one of them is held.
//!
//! A caller must not hold `catalog`, a leaf, or a read transaction when it takes `writer`, because
//! a writer that truncates the log waits for readers to end. The closure passed to `transact` must
//! not call `transact`, `submit` or `dataset_id`: these would deadlock on the writer.

use rusqlite::Connection;

use crate::feed::Feed;
use crate::transition::HybridClock;

/// The writing connection with its state.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Buffer for a group's rows.
    pub(crate) feed: Feed,
    pub(crate) clock: HybridClock,
    pub(crate) poisoned: Option<String>,
    /// Bytes written since the limits were last checked.
    pub(crate) written_bytes: u64,
    /// True if it was reported that the state alone exceeds the byte limit.
    pub(crate) limit_reported: bool,
    /// Most bytes by which the log may have grown since its size was last checked.
    pub(crate) log_bytes_max: u64,
    /// True if it was reported that the log is above its limit.
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

/// Rolls back a transaction that a panic left open.
pub(crate) fn roll_back_open(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { conn.execute_batch("ROLLBACK") }
}
