//! Snapshots for integrity checks: one dataset in one read transaction.

use model::{Dataset, ItemKey, SkipReason};
use rusqlite::{Connection, OptionalExtension as _};

use crate::answer::reason_of;
use crate::body::Body;
use crate::error::{QueueError, classify};
use crate::inner::Inner;
use crate::readers::ReadGuard;

/// An item of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedItem {
    /// The item's key.
    pub key: ItemKey,
    /// Its version.
    pub seen: u64,
    /// Its content, never [`Body::Gone`].
    pub body: Body,
}

/// One item that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// The item's key.
    pub key: ItemKey,
    /// The version that was refused.
    pub seen: u64,
    /// The reason of the server.
    pub reason: SkipReason,
}

/// The state of one dataset at one point in time, for digests. It holds a read transaction, which
/// keeps the write-ahead log growing: drop it soon.
pub struct QueueSnapshot {
    conn: Connection,
    path: std::path::PathBuf,
    dataset: i64,
    acked_version: u64,
    pending: Vec<ItemKey>,
    exceptions: Vec<Exception>,
    _reads: ReadGuard,
}

impl QueueSnapshot {
    pub(crate) fn new(inner: &Inner, dataset: &Dataset) -> Result<Self, QueueError> {
        let id = inner.dataset_id(dataset)?;
        let conn = inner.open_reader()?;
        let failed = |error| inner.classify("take a snapshot", error);
        let reads = inner.reading.begin_read(&*inner.clock);
        conn.execute_batch("BEGIN").map_err(failed)?;
        // The first read fixes the state that all later reads see.
        let acked_version: i64 = conn
            .query_row("SELECT told FROM dataset WHERE id = ?1", [id], |row| row.get(0))
            .map_err(failed)?;
        let pending = pending(&conn, id, acked_version).map_err(failed)?;
        let exceptions = exceptions(&conn, id, acked_version).map_err(failed)?;
        let path = inner.path.clone();
        Ok(Self {
            conn,
            path,
            dataset: id,
            acked_version: acked_version as u64,
            pending,
            exceptions,
            _reads: reads,
        })
    }

    /// Returns the version up to which all items were acknowledged.
    pub fn acked_version(&self) -> u64 {
        self.acked_version
    }

    /// Returns the pending items, including deleted ones. A check leaves them out on both sides.
    pub fn pending(&self) -> &[ItemKey] {
        &self.pending
    }

    /// Returns the items that the server refused. A check leaves them out on both sides.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// Visits every item that is neither pending nor an exception, in the order of the table.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read, or the error of `visit`.
    pub fn for_each(
        &self,
        visit: &mut dyn FnMut(ReportedItem) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        self.for_each_up_to(self.acked_version as i64, visit)
    }

    /// Like [`QueueSnapshot::for_each`], but includes pending items that are not deleted.
    ///
    /// # Errors
    /// See [`QueueSnapshot::for_each`].
    pub fn for_each_held(
        &self,
        visit: &mut dyn FnMut(ReportedItem) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        self.for_each_up_to(i64::MAX, visit)
    }

    fn for_each_up_to(
        &self,
        last: i64,
        visit: &mut dyn FnMut(ReportedItem) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        let failed = |error| classify(&self.path, "read a snapshot", error);
        let mut paths = Paths::new(&self.conn);
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT directory, name, seen, observation FROM item AS i \
                 WHERE dataset = ?1 AND seen <= ?2 AND gone = 0 AND NOT EXISTS( \
                    SELECT 1 FROM exception AS e WHERE e.dataset = i.dataset \
                    AND e.directory = i.directory AND e.name = i.name)",
            )
            .map_err(failed)?;
        let mut rows = select.query((self.dataset, last)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let read = || -> rusqlite::Result<_> { Ok((row.get(0)?, row.get(1)?, row.get(2)?)) };
            let (directory, name, seen): (i64, Vec<u8>, i64) = read().map_err(failed)?;
            let key = ItemKey::new(paths.get(directory).map_err(failed)?, name);
            let bytes = row.get_ref(3).map_err(failed)?.as_blob().map_err(|e| failed(e.into()))?;
            let Some(body) = Body::decode(bytes) else {
                let detail = format!("content of {}", model::path::show_terminal(&key.path()));
                return Err(QueueError::Corrupt { path: self.path.clone(), detail });
            };
            visit(ReportedItem { key, seen: seen as u64, body })?;
        }
        Ok(())
    }
}

/// A lookup of directory paths by number, which caches the last one.
pub(crate) struct Paths<'a> {
    conn: &'a Connection,
    last: Option<(i64, Vec<u8>)>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(conn: &'a Connection) -> Self {
        Self { conn, last: None }
    }

    pub(crate) fn get(&mut self, id: i64) -> rusqlite::Result<Vec<u8>> {
        if let Some((known, path)) = &self.last
            && *known == id
        {
            return Ok(path.clone());
        }
        let path: Vec<u8> = self
            .conn
            .prepare_cached("SELECT path FROM directory WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?
            .unwrap_or_default();
        self.last = Some((id, path.clone()));
        Ok(path)
    }
}

fn pending(conn: &Connection, dataset: i64, acked_version: i64) -> rusqlite::Result<Vec<ItemKey>> {
    let mut paths = Paths::new(conn);
    let mut select =
        conn.prepare("SELECT directory, name FROM item WHERE dataset = ?1 AND seen > ?2")?;
    let mut rows = select.query((dataset, acked_version))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(ItemKey::new(paths.get(row.get(0)?)?, row.get::<_, Vec<u8>>(1)?));
    }
    Ok(found)
}

fn exceptions(
    conn: &Connection,
    dataset: i64,
    acked_version: i64,
) -> rusqlite::Result<Vec<Exception>> {
    let mut paths = Paths::new(conn);
    let mut select = conn.prepare(
        "SELECT e.directory, e.name, e.seen, e.reason FROM exception AS e \
         JOIN item USING(dataset, directory, name) WHERE e.dataset = ?1 AND item.seen <= ?2",
    )?;
    let mut rows = select.query((dataset, acked_version))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Exception {
            key: ItemKey::new(paths.get(row.get(0)?)?, row.get::<_, Vec<u8>>(1)?),
            seen: row.get::<_, i64>(2)? as u64,
            reason: reason_of(row.get_ref(3)?.as_str()?),
        });
    }
    Ok(found)
}
