//! An open transaction, with operations on rows and directories. It collects the changes that the
//! catalog mirrors after the commit.

use rusqlite::{Connection, OptionalExtension as _};

use crate::catalog::{Catalog, Delta};
use crate::place::{BlockPlace, DirectoryPlace, ItemPlace};
use crate::transition::{HybridClock, ItemMarks};

/// An open transaction.
pub(crate) struct Txn<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) now_us: u64,
    pub(crate) catalog: &'a Catalog,
    pub(crate) delta: Delta,
}

impl Txn<'_> {
    /// Returns the next version.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock.tick(self.now_us)
    }

    /// Returns an item's row without its content, if it exists.
    pub(crate) fn row(&self, place: ItemPlace<'_>) -> rusqlite::Result<Option<ItemMarks>> {
        self.conn
            .prepare_cached(
                "SELECT seen, known, gone FROM item \
                 WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
            )?
            .query_row(place.params(), |row| {
                Ok(ItemMarks {
                    version: row.get::<_, i64>(0)? as u64,
                    server_may_have: row.get(1)?,
                    deleted: row.get(2)?,
                })
            })
            .optional()
    }

    /// Returns true if the dataset may have exceptions.
    pub(crate) fn may_have_exceptions(&self, dataset: i64) -> bool {
        let held = self.catalog.datasets.get(&dataset).map_or(0, |state| state.exceptions);
        let changed = self.delta.exceptions.get(&dataset).copied().unwrap_or(0);
        held.saturating_add_signed(changed) > 0
    }

    /// Removes the item's exception, if there is one.
    pub(crate) fn clear_exception(&mut self, place: ItemPlace<'_>) -> rusqlite::Result<()> {
        if self.may_have_exceptions(place.dataset) {
            let cleared = self
                .conn
                .prepare_cached(
                    "DELETE FROM exception WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
                )?
                .execute(place.params())?;
            *self.delta.exceptions.entry(place.dataset).or_default() -= cleared as i64;
        }
        Ok(())
    }

    /// Removes the item's row.
    pub(crate) fn remove(&mut self, place: ItemPlace<'_>) -> rusqlite::Result<()> {
        let removed = self
            .conn
            .prepare_cached("DELETE FROM item WHERE dataset = ?1 AND directory = ?2 AND name = ?3")?
            .execute(place.params())?;
        self.touch(place, 0, -(removed as i64));
        Ok(())
    }

    /// Records in the delta that an item's row was written with this version, or removed.
    pub(crate) fn touch(&mut self, place: ItemPlace<'_>, version: u64, rows: i64) {
        let ItemPlace { dataset, directory, name } = place;
        let held = self.catalog.directory(dataset, directory);
        let block = held.map_or(0, |held| held.block_from(0, name));
        self.delta.touch(BlockPlace { dataset, directory, block }, version, rows);
    }

    /// Returns the number of a directory. With `create`, an unknown directory is added.
    pub(crate) fn directory(
        &mut self,
        dataset: i64,
        path: &[u8],
        create: bool,
    ) -> rusqlite::Result<Option<i64>> {
        let state = self.catalog.datasets.get(&dataset);
        if let Some(id) = state.and_then(|state| state.paths.get(path)) {
            return Ok(Some(*id));
        }
        if self.delta.created.is_empty() && !create {
            return Ok(None);
        }
        let key = (dataset, path.to_vec());
        if let Some(id) = self.delta.created.get(&key) {
            return Ok(Some(*id));
        }
        if !create {
            return Ok(None);
        }
        let id = self.catalog.next_directory + self.delta.created.len() as i64;
        self.conn
            .prepare_cached("INSERT INTO directory(id, dataset, path) VALUES(?1, ?2, ?3)")?
            .execute((id, dataset, path))?;
        self.delta.created.insert(key, id);
        Ok(Some(id))
    }

    /// Deletes the directories that have no rows any more.
    pub(crate) fn drop_empty_directories(&self) -> rusqlite::Result<()> {
        let created = self
            .delta
            .created
            .iter()
            .map(|((dataset, _), id)| DirectoryPlace { dataset: *dataset, directory: *id });
        let shrunk = self.delta.changed.iter().filter(|(_, change)| change.rows < 0);
        let shrunk = shrunk.map(|(block, _)| {
            let BlockPlace { dataset, directory, .. } = *block;
            DirectoryPlace { dataset, directory }
        });
        for place in created.chain(shrunk) {
            if self.catalog.rows_after(&self.delta, place) == 0 {
                self.conn
                    .prepare_cached("DELETE FROM directory WHERE id = ?1")?
                    .execute([place.directory])?;
            }
        }
        Ok(())
    }
}
