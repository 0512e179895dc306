//! The baseline: the last observations, read with one range query per directory.

use std::sync::Arc;

use model::traits::PortError;
use model::{Baseline, BaselineItem, ItemKey, Observation};
use rusqlite::{Connection, OptionalExtension as _};

use crate::body::DOCUMENT_TAG;
use crate::error::QueueError;
use crate::inner::Inner;

/// A dataset's baseline on a separate read connection; see [`crate::Queue::baseline`]. Each call
/// sees everything committed before it, and leaves no read transaction open.
pub struct QueueBaseline {
    inner: Arc<Inner>,
    conn: Connection,
    dataset: i64,
}

impl QueueBaseline {
    pub(crate) fn new(inner: Arc<Inner>, dataset: i64) -> Result<Self, QueueError> {
        let conn = inner.open_reader()?;
        Ok(Self { inner, conn, dataset })
    }

    fn read(
        &self,
        directory: &[u8],
        id: i64,
        into: &mut Vec<BaselineItem>,
    ) -> Result<(), QueueError> {
        let failed = |error| self.inner.classify("read the baseline", error);
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT name, observation FROM item \
                 WHERE dataset = ?1 AND directory = ?2 AND gone = 0",
            )
            .map_err(failed)?;
        let mut rows = select.query((self.dataset, id)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let name: Vec<u8> = row.get(0).map_err(failed)?;
            let bytes = row.get_ref(1).map_err(failed)?.as_blob().map_err(|e| failed(e.into()))?;
            let Some(observation) = Observation::decode(bytes) else {
                return Err(self.inner.undecodable(&ItemKey::new(directory, name)));
            };
            into.push(BaselineItem { name, observation });
        }
        Ok(())
    }
}

impl Baseline for QueueBaseline {
    fn directory(
        &mut self,
        directory: &[u8],
        into: &mut Vec<BaselineItem>,
    ) -> Result<(), PortError> {
        into.clear();
        let id = {
            let catalog = self.inner.catalog.read();
            let state = catalog.datasets.get(&self.dataset);
            state.and_then(|state| state.paths.get(directory).copied())
        };
        match id {
            Some(id) => Ok(self.read(directory, id, into)?),
            None => Ok(()),
        }
    }

    fn item(&mut self, key: &ItemKey) -> Result<Option<Observation>, PortError> {
        let Some(bytes) = self.inner.stored(self.dataset, key)? else { return Ok(None) };
        match Observation::decode(&bytes) {
            Some(observation) => Ok(Some(observation)),
            None => Err(self.inner.undecodable(key).into()),
        }
    }

    fn directories_below(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        let mut prefix = directory.to_vec();
        if !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        let catalog = self.inner.catalog.read();
        let Some(state) = catalog.datasets.get(&self.dataset) else { return Ok(Vec::new()) };
        Ok(state
            .paths
            .range::<[u8], _>((std::ops::Bound::Included(&prefix[..]), std::ops::Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter(|(path, _)| path[..] != prefix[..])
            .map(|(path, _)| path.to_vec())
            .collect())
    }
}

impl Inner {
    /// Returns the stored bytes of an item that is not deleted.
    pub(crate) fn stored(
        &self,
        dataset: i64,
        key: &ItemKey,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let directory = {
            let catalog = self.catalog.read();
            let state = catalog.datasets.get(&dataset);
            state.and_then(|state| state.paths.get(key.directory.as_slice()).copied())
        };
        let Some(directory) = directory else { return Ok(None) };
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT observation FROM item \
                 WHERE dataset = ?1 AND directory = ?2 AND name = ?3 AND gone = 0",
            )?
            .query_row((dataset, directory, &key.name), |row| row.get(0))
            .optional()
        })
    }
}

/// Visits the name and body of each document of a dataset. Deleted items and observations are
/// skipped.
pub(crate) fn documents(
    conn: &Connection,
    dataset: i64,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached(
        "SELECT name, observation FROM item WHERE dataset = ?1 AND gone = 0 ORDER BY directory, name",
    )?;
    let mut rows = select.query([dataset])?;
    while let Some(row) = rows.next()? {
        if let Some((&DOCUMENT_TAG, body)) = row.get_ref(1)?.as_blob()?.split_first() {
            visit(row.get_ref(0)?.as_blob()?, body);
        }
    }
    Ok(())
}
