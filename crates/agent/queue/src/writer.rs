//! The writing connection, and the locks of the queue.
//!
//! **Locking.** Locks are always taken in this order:
//!
//! 1. The state of the [`WriterQueue`](writers::WriterQueue), for a short time only.
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

use std::sync::{Arc, OnceLock};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::feed::Feed;
use crate::transition::HybridClock;

/// The writing connection with its state.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Buffer for a group's rows.
    pub(crate) feed: Feed,
    pub(crate) clock: HybridClock,
    /// The failure after which the content of the disk is unknown.
    pub(crate) poisoned: Poison,
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
    pub(crate) fn new(
        conn: Connection,
        clock: HybridClock,
        poisoned: Poison,
    ) -> rusqlite::Result<Self> {
        let feed = Feed::attach(&conn)?;
        Ok(Self {
            conn,
            feed,
            clock,
            poisoned,
            written_bytes: 0,
            limit_reported: false,
            log_bytes_max: 0,
            log_reported: false,
        })
    }

    /// Refuses writes from now on, and leaves the log as it is when the connection is closed.
    pub(crate) fn poison(&self, detail: &str) {
        let _ = self.poisoned.set(detail.to_owned());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.poisoned.get().is_some() {
            // The last connection that is closed would copy the log into the database.
            let setting = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.conn.set_db_config(setting, true);
        }
    }
}

/// A failure of the disk, set by the writer and by its checkpoints.
pub(crate) type Poison = Arc<OnceLock<String>>;

/// Rolls back a transaction that a panic left open.
pub(crate) fn roll_back_open(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { conn.execute_batch("ROLLBACK") }
}
