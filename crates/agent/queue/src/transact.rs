//! Transactions of the writing connection. All writes go through [`Inner::transact`], which mirrors
//! each commit in the catalog.

use model::Dataset;
use rusqlite::Connection;

use crate::catalog::Delta;
use crate::directory::{BLOCK_ROWS, Directory, NameRange};
use crate::error::{QueueError, is_damage, is_failed_flush};
use crate::inner::Inner;
use crate::place::DirectoryPlace;
use crate::space::fold_quietly;
use crate::txn::Txn;
use crate::writer::{Writer, roll_back_open};

impl Inner {
    /// Returns the number of the dataset, and adds a new one. May take the writer's lock.
    pub(crate) fn dataset_id(&self, dataset: &Dataset) -> Result<i64, QueueError> {
        if let Some(id) = self.catalog.read().id_of(dataset) {
            return Ok(id);
        }
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        if let Some(id) = self.catalog.read().id_of(dataset) {
            return Ok(id);
        }
        let id = self.transact(writer, "enter a dataset", |txn| {
            txn.conn.execute("INSERT INTO dataset(name) VALUES(?1)", [dataset.name()])?;
            Ok(txn.conn.last_insert_rowid())
        })?;
        self.catalog.write().add_dataset(id, dataset.clone());
        Ok(id)
    }

    /// Classifies an error of the writer like [`Inner::classify`]. Damage or a failed flush poisons
    /// the writer, because the content of the disk is unknown then.
    pub(crate) fn failed(
        &self,
        writer: &mut Writer,
        action: &'static str,
        error: rusqlite::Error,
    ) -> QueueError {
        if is_failed_flush(&error) || is_damage(&error) {
            tracing::error!(path = %self.path.display(), %error, "agent database closed");
            writer.poison(&error.to_string());
            self.damage.doubt();
        }
        self.classify(action, error)
    }

    /// Runs `change` in one transaction, and updates the catalog after the commit. After an error
    /// the transaction is rolled back and the catalog is unchanged.
    pub(crate) fn transact<T>(
        &self,
        writer: &mut Writer,
        action: &'static str,
        change: impl FnOnce(&mut Txn<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, QueueError> {
        if let Some(detail) = writer.poisoned.get() {
            self.damage.doubt();
            return Err(QueueError::Poisoned { path: self.path.clone(), detail: detail.clone() });
        }
        let settled = roll_back_open(&writer.conn);
        settled.map_err(|error| self.failed(writer, "roll back", error))?;
        match self.try_transact(writer, change) {
            Ok((value, delta)) => {
                let grown = self.catalog.write().apply(delta);
                for place in grown {
                    self.divide(&writer.conn, place);
                }
                Ok(value)
            }
            Err(error) => {
                if !writer.conn.is_autocommit()
                    && let Err(error) = writer.conn.execute_batch("ROLLBACK")
                {
                    writer.poison(&format!("cannot roll back: {error}"));
                }
                let error = self.failed(writer, action, error);
                if error.is_disk_full() {
                    // A checkpoint that needs no new pages in the database makes the log's space
                    // usable for the next attempt.
                    fold_quietly(writer);
                }
                Err(error)
            }
        }
    }

    fn try_transact<T>(
        &self,
        writer: &mut Writer,
        change: impl FnOnce(&mut Txn<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<(T, Delta)> {
        let conn = &writer.conn;
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // Only the holder of the writer changes the catalog, so this does not wait long.
        let catalog = self.catalog.read();
        let mut txn = Txn {
            conn,
            clock: &mut writer.clock,
            now_us: self.clock.now_us(),
            catalog: &catalog,
            delta: Delta::default(),
        };
        let value = change(&mut txn)?;
        txn.drop_empty_directories()?;
        let delta = txn.delta;
        conn.prepare_cached("COMMIT")?.execute([])?;
        Ok((value, delta))
    }

    /// Divides a directory's large blocks. If their names cannot be read, they stay undivided, and
    /// a lease reads more rows than necessary.
    fn divide(&self, conn: &Connection, place: DirectoryPlace) {
        let large = {
            let catalog = self.catalog.read();
            catalog
                .directory(place.dataset, place.directory)
                .map(Directory::large)
                .unwrap_or_default()
        };
        for stretch in large {
            match boundaries(conn, place, &stretch) {
                Ok(at) => self.catalog.write().divide(place, &stretch, at),
                Err(error) => tracing::debug!(%error, "dividing a large directory"),
            }
        }
    }
}

/// Returns every [`BLOCK_ROWS`]-th name of a range, without the first name.
fn boundaries(
    conn: &Connection,
    place: DirectoryPlace,
    stretch: &NameRange,
) -> rusqlite::Result<Vec<Box<[u8]>>> {
    let mut select = conn.prepare_cached(
        "SELECT name FROM item WHERE dataset = ?1 AND directory = ?2 AND name >= ?3 \
         AND name < ?4 ORDER BY name",
    )?;
    let range = (place.dataset, place.directory, &stretch.from, stretch.to());
    let mut rows = select.query(range)?;
    let (mut found, mut row_number) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if row_number > 0 && row_number % BLOCK_ROWS == 0 {
            found.push(row.get_ref(0)?.as_blob()?.into());
        }
        row_number += 1;
    }
    Ok(found)
}
