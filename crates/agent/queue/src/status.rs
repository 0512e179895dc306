//! The state of a queue: numbers, sizes and settings, for display and metrics.

use std::sync::atomic::Ordering;

use rusqlite::Connection;
use serde::Serialize;

use crate::catalog::DatasetState;
use crate::error::QueueError;
use crate::events::{event_count, oldest_event_us};
use crate::files::{file_bytes, with_suffix};
use crate::inner::Inner;
use crate::options::{QueueDurability, Transaction};
use crate::schema;
use crate::space::Size;

/// State of one dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatasetStatus {
    /// The dataset's name.
    pub name: String,
    /// Number of rows, including deleted items.
    pub items: u64,
    /// Pending items.
    pub pending: u64,
    /// Time of the oldest pending change, microseconds since the epoch.
    pub oldest_pending_us: Option<u64>,
    /// Items that the server refused.
    pub exceptions: u64,
    /// The clock when the current or last cycle began.
    #[serde(rename = "leased")]
    pub leased_version: u64,
    /// Every item up to this version was acknowledged.
    #[serde(rename = "told")]
    pub acked_version: u64,
    /// True if a cycle has begun and not ended.
    pub unfinished: bool,
    /// Time at which the last cycle ended, microseconds since the epoch.
    pub last_cycle_us: Option<u64>,
}

/// State of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    /// Every dataset, in the order of their creation.
    pub datasets: Vec<DatasetStatus>,
    /// Events queued.
    pub events: u64,
    /// Time of the oldest event, microseconds since the epoch.
    pub oldest_event_us: Option<u64>,
    /// Events dropped by the byte limit since the database was created.
    pub events_dropped: u64,
    /// Epoch of new event ids.
    pub epoch: String,
    /// Bytes of the database in use.
    pub bytes: u64,
    /// Bytes of the database file.
    pub file_bytes: u64,
    /// Bytes of the write-ahead log file.
    pub wal_bytes: u64,
    /// Time since which a reader has kept the log above its limit, microseconds since the epoch.
    pub wal_held_since_us: Option<u64>,
    /// Age of the oldest read transaction of this process, milliseconds.
    pub oldest_reader_ms: Option<u64>,
    /// See [`crate::QueueOptions::byte_limit`].
    pub byte_limit: u64,
    /// See [`crate::QueueOptions::durability`].
    pub durability: QueueDurability,
    /// See [`crate::QueueOptions::transaction`].
    pub transaction: Transaction,
    /// Bytes of a page of this database; see [`crate::QueueOptions::page_bytes`].
    pub page_bytes: u32,
    /// See [`crate::QueueOptions::checkpoint_pages`].
    pub wal_autocheckpoint_pages: u32,
    /// See [`crate::QueueOptions::journal_size_limit_bytes`].
    pub journal_size_limit_bytes: u64,
}

/// The number of pending items, and the time of the oldest one.
struct Pending {
    items: u64,
    oldest_us: Option<u64>,
}

impl Inner {
    pub(crate) fn status(&self) -> Result<QueueStatus, QueueError> {
        // The catalog is locked only for a short time at each step.
        let ids: Vec<i64> = self.catalog.read().datasets.keys().copied().collect();
        let epoch = self.catalog.read().epoch();
        // Taken before this function's own read transaction begins.
        let oldest_reader = self.reading.oldest(&*self.clock);
        self.read(|conn| {
            let size = Size::of(conn)?;
            let datasets = ids
                .iter()
                .map(|id| self.dataset_status(conn, *id))
                .filter_map(Result::transpose)
                .collect::<rusqlite::Result<_>>()?;
            let oldest_event_us = oldest_event_us(conn)?;
            Ok(QueueStatus {
                datasets,
                events: event_count(conn)?,
                oldest_event_us,
                events_dropped: schema::meta(conn, schema::META_DROPPED)?.unwrap_or(0) as u64,
                epoch,
                bytes: size.used_bytes(),
                file_bytes: file_bytes(&self.path),
                wal_bytes: file_bytes(&with_suffix(&self.path, "-wal")),
                wal_held_since_us: Some(self.log_held_us.load(Ordering::Relaxed))
                    .filter(|us| *us > 0),
                oldest_reader_ms: oldest_reader.map(|age| age.as_millis() as u64),
                byte_limit: self.options.byte_limit,
                durability: self.options.durability,
                transaction: self.options.transaction,
                page_bytes: size.page_bytes as u32,
                wal_autocheckpoint_pages: self.options.checkpoint_pages(),
                journal_size_limit_bytes: self.options.journal_size_limit_bytes,
            })
        })
    }

    fn dataset_status(
        &self,
        conn: &Connection,
        id: i64,
    ) -> rusqlite::Result<Option<DatasetStatus>> {
        let pending = self.pending(conn, id)?;
        let catalog = self.catalog.read();
        Ok(catalog.datasets.get(&id).map(|state| describe(state, &pending)))
    }

    /// Counts pending items. Reads only the blocks that may have some.
    fn pending(&self, conn: &Connection, id: i64) -> rusqlite::Result<Pending> {
        let (acked_version, stretches) = {
            let catalog = self.catalog.read();
            let Some(state) = catalog.datasets.get(&id) else {
                return Ok(Pending { items: 0, oldest_us: None });
            };
            let acked_version = state.head.marks.acked_version;
            let newer = state.directories.iter().flat_map(|(id, held)| {
                held.newer(acked_version, &[]).into_iter().map(move |names| (*id, names))
            });
            (acked_version, newer.collect::<Vec<_>>())
        };
        let mut select = conn.prepare_cached(
            "SELECT count(*), min(seen) FROM item \
             WHERE dataset = ?1 AND directory = ?2 AND name >= ?3 AND name < ?4 AND seen > ?5",
        )?;
        let mut pending = Pending { items: 0, oldest_us: None };
        for (directory, names) in stretches {
            let (count, oldest): (i64, Option<i64>) = select.query_row(
                (id, directory, &names.from, names.to(), acked_version as i64),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            pending.items += count as u64;
            let oldest = oldest.map(|us| us as u64);
            pending.oldest_us = pending.oldest_us.into_iter().chain(oldest).min();
        }
        Ok(pending)
    }
}

fn describe(state: &DatasetState, pending: &Pending) -> DatasetStatus {
    let marks = state.head.marks;
    DatasetStatus {
        name: state.name.to_string(),
        items: state.directories.values().map(|directory| directory.rows).sum(),
        pending: pending.items,
        oldest_pending_us: pending.oldest_us,
        exceptions: state.exceptions,
        leased_version: marks.leased_version,
        acked_version: marks.acked_version,
        unfinished: marks.unfinished,
        last_cycle_us: state.head.last_cycle_us,
    }
}
