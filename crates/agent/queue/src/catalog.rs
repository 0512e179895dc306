//! The catalog: state kept in memory in addition to the database. For each dataset it has the
//! watermarks and the directories. Each directory, and each block of a large one, has the highest
//! version of its items, so that a lease skips it without reading. The catalog is rebuilt at open
//! and changed only after the commit that it mirrors.
//!
//! It takes about 170 bytes and the path for each directory that holds items.
//!
//! **Locking.** The catalog is behind the read-write lock `Inner::catalog`. Only the holder of
//! `Inner::writer` takes it for writing, and only to mirror a commit, to add a dataset or to set a
//! cycle's head. The holder of the writer therefore sees no change but its own, and a transaction
//! may keep the shared lock from its first read to its commit. Every other thread takes the shared
//! lock for a short time: it copies what it needs, and releases the lock before it reads the
//! database. A lease copies some hundred directories at a time; the status and a baseline copy
//! everything that they need. The first copy of a lease may be older than the rows that it reads
//! afterwards, and later copies may be newer than its snapshot. In both cases a lease may miss
//! items, which a later lease finds. A thread that holds this lock in either mode must not take
//! `writer`, which comes before it in the lock order ([`crate::writer`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Dataset, ItemKey};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::body::Body;
use crate::directory::{BlockSize, Directory, NameRange};
use crate::head::{Cursor, Head};
use crate::place::{BlockPlace, DirectoryPlace};
use crate::transition::Marks;

#[derive(Debug)]
pub(crate) struct DatasetState {
    pub(crate) name: Dataset,
    pub(crate) head: Head,
    /// Items that the server refused.
    pub(crate) exceptions: u64,
    pub(crate) directories: BTreeMap<i64, Directory>,
    pub(crate) paths: BTreeMap<Arc<[u8]>, i64>,
}

impl DatasetState {
    fn new(name: Dataset) -> Self {
        Self {
            name,
            head: Head {
                marks: Marks::default(),
                cycle: 0,
                cursor: Cursor::default(),
                last_directory: i64::MAX,
                last_cycle_us: None,
            },
            exceptions: 0,
            directories: BTreeMap::new(),
            paths: BTreeMap::new(),
        }
    }
}

/// The state in memory.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) datasets: BTreeMap<i64, DatasetState>,
    pub(crate) next_directory: i64,
    /// Epochs of event ids, sorted by their first event.
    pub(crate) epochs: Vec<Epoch>,
}

/// An epoch of event ids, which applies to the events from `first_seq` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    pub(crate) first_seq: u64,
    pub(crate) epoch: u64,
}

/// A catalog as read from the database.
pub(crate) struct LoadedCatalog {
    pub(crate) catalog: Catalog,
    /// Highest version in the database.
    pub(crate) last: u64,
    /// Rows that cannot be decoded.
    pub(crate) unsound: Vec<UndecodableRow>,
}

/// A row whose content cannot be decoded.
#[derive(Debug)]
pub(crate) struct UndecodableRow {
    pub(crate) dataset: i64,
    pub(crate) directory: i64,
    pub(crate) name: Vec<u8>,
    /// Path for display.
    pub(crate) path: String,
}

/// Changes of a transaction in directories, applied after its commit.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    /// New directories by dataset and path.
    pub(crate) created: BTreeMap<(i64, Vec<u8>), i64>,
    pub(crate) changed: BTreeMap<BlockPlace, BlockChange>,
    /// Change in the number of exceptions, by dataset.
    pub(crate) exceptions: BTreeMap<i64, i64>,
}

/// Changes of a transaction in one block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BlockChange {
    /// Highest version written; 0 if rows were only removed.
    pub(crate) newest: u64,
    /// Number of rows added, minus rows removed.
    pub(crate) rows: i64,
}

impl Delta {
    /// Records that rows of a block were written, up to `version`, or removed.
    pub(crate) fn touch(&mut self, block: BlockPlace, version: u64, rows: i64) {
        let change = self.changed.entry(block).or_default();
        change.newest = change.newest.max(version);
        change.rows += rows;
    }
}

impl Catalog {
    pub(crate) fn id_of(&self, name: &Dataset) -> Option<i64> {
        self.datasets.iter().find(|(_, state)| state.name == *name).map(|(id, _)| *id)
    }

    pub(crate) fn add_dataset(&mut self, id: i64, name: Dataset) {
        self.datasets.insert(id, DatasetState::new(name));
    }

    /// Returns the number of rows that a directory holds after `delta` is applied.
    pub(crate) fn rows_after(&self, delta: &Delta, place: DirectoryPlace) -> u64 {
        let DirectoryPlace { dataset, directory } = place;
        let before = self.directory(dataset, directory).map_or(0, |directory| directory.rows);
        let block = |block| BlockPlace { dataset, directory, block };
        let blocks = delta.changed.range(block(0)..=block(usize::MAX));
        let change: i64 = blocks.map(|(_, change)| change.rows).sum();
        before.saturating_add_signed(change)
    }

    /// Returns a directory, if it holds items.
    pub(crate) fn directory(&self, dataset: i64, id: i64) -> Option<&Directory> {
        self.datasets.get(&dataset).and_then(|state| state.directories.get(&id))
    }

    /// Divides the block with this range of names; see [`Directory::divide`].
    pub(crate) fn divide(
        &mut self,
        place: DirectoryPlace,
        stretch: &NameRange,
        at: Vec<Box<[u8]>>,
    ) {
        let state = self.datasets.get_mut(&place.dataset);
        let directory = state.and_then(|state| state.directories.get_mut(&place.directory));
        if let Some(directory) = directory {
            directory.divide(&stretch.from, at);
        }
    }

    /// Mirrors a commit, and removes directories without rows. Returns the directories that have
    /// blocks to be divided.
    pub(crate) fn apply(&mut self, delta: Delta) -> BTreeSet<DirectoryPlace> {
        let mut grown = BTreeSet::new();
        let mut shrunk = BTreeSet::new();
        for ((dataset, path), id) in delta.created {
            self.next_directory = self.next_directory.max(id + 1);
            if let Some(state) = self.datasets.get_mut(&dataset) {
                let path: Arc<[u8]> = path.into();
                state.paths.insert(Arc::clone(&path), id);
                state.directories.insert(id, Directory::new(path));
            }
            // The same commit may have emptied it again.
            shrunk.insert(DirectoryPlace { dataset, directory: id });
        }
        for (BlockPlace { dataset, directory: id, block }, change) in delta.changed {
            let Some(state) = self.datasets.get_mut(&dataset) else { continue };
            let Some(directory) = state.directories.get_mut(&id) else { continue };
            let place = DirectoryPlace { dataset, directory: id };
            if directory.change(block, change.newest, change.rows) == BlockSize::TooLarge {
                grown.insert(place);
            }
            if change.rows < 0 {
                shrunk.insert(place);
            }
        }
        for place in shrunk {
            self.shrink(place);
        }
        for (dataset, change) in delta.exceptions {
            if let Some(state) = self.datasets.get_mut(&dataset) {
                state.exceptions = state.exceptions.saturating_add_signed(change);
            }
        }
        grown
    }

    /// Removes a directory that is empty, or the empty blocks of one that is not.
    fn shrink(&mut self, place: DirectoryPlace) {
        let DirectoryPlace { dataset, directory: id } = place;
        let Some(state) = self.datasets.get_mut(&dataset) else { return };
        let Some(directory) = state.directories.get_mut(&id) else { return };
        if directory.rows == 0 {
            let path = Arc::clone(&directory.path);
            state.directories.remove(&id);
            state.paths.remove(&path);
        } else {
            directory.drop_empty_blocks();
        }
    }

    /// Returns an event's id on the wire: epoch and number.
    pub(crate) fn event_id(&self, seq: u64) -> String {
        let at = self.epochs.partition_point(|epoch| epoch.first_seq <= seq);
        let epoch = at.checked_sub(1).and_then(|i| self.epochs.get(i)).map_or(0, |e| e.epoch);
        format!("{epoch:016x}-{seq}")
    }

    /// Returns the epoch of new events.
    pub(crate) fn epoch(&self) -> String {
        format!("{:016x}", self.epochs.last().map_or(0, |e| e.epoch))
    }

    /// Reads the catalog from the database.
    pub(crate) fn load(conn: &Connection) -> rusqlite::Result<LoadedCatalog> {
        let mut catalog = Self { next_directory: 1, ..Self::default() };
        let mut last = catalog.load_datasets(conn)?;
        let mut statement = conn.prepare("SELECT id, dataset, path FROM directory")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, dataset, path): (i64, i64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            catalog.next_directory = catalog.next_directory.max(id + 1);
            if let Some(state) = catalog.datasets.get_mut(&dataset) {
                let path: Arc<[u8]> = path.into();
                state.paths.insert(Arc::clone(&path), id);
                state.directories.insert(id, Directory::new(path));
            }
        }
        let mut unsound = Vec::new();
        last = last.max(catalog.load_items(conn, &mut unsound)?);
        for (id, state) in &mut catalog.datasets {
            let count: i64 =
                conn.query_row("SELECT count(*) FROM exception WHERE dataset = ?1", [id], |row| {
                    row.get(0)
                })?;
            state.exceptions = count as u64;
            state.head.last_directory = catalog.next_directory;
        }
        Ok(LoadedCatalog { catalog, last, unsound })
    }

    /// Counts the rows of each directory and checks every row, because a row that cannot be decoded
    /// would stop every scan and cycle that reads it. Returns the highest version.
    fn load_items(
        &mut self,
        conn: &Connection,
        unsound: &mut Vec<UndecodableRow>,
    ) -> rusqlite::Result<u64> {
        let mut statement = conn.prepare(
            "SELECT dataset, directory, seen, gone, observation, name, known FROM item \
             ORDER BY dataset, directory, name",
        )?;
        let mut rows = statement.query([])?;
        let mut last = 0;
        let (mut at, mut files) = ((0, 0), false);
        let mut held: Option<&mut Directory> = None;
        while let Some(row) = rows.next()? {
            let place: (i64, i64) = (row.get(0)?, row.get(1)?);
            if place != at || held.is_none() {
                at = place;
                let state = self.datasets.get_mut(&place.0);
                files = state.as_ref().is_some_and(|state| state.name == Dataset::fim_files());
                held = state.and_then(|state| state.directories.get_mut(&place.1));
            }
            let seen = row.get_ref(2)?.as_i64().unwrap_or(0) as u64;
            last = last.max(seen);
            if let Some(directory) = &mut held {
                directory.load(row.get_ref(5)?.as_bytes()?, seen);
            }
            if !is_sound(row, files)? {
                let name = row.get_ref(5)?.as_bytes()?.to_vec();
                let path = held.as_ref().map_or(&[][..], |directory| &directory.path);
                let key = ItemKey::new(path, name.clone());
                let path = model::path::show_terminal(&key.path());
                unsound.push(UndecodableRow { dataset: place.0, directory: place.1, name, path });
            }
        }
        Ok(last)
    }

    fn load_datasets(&mut self, conn: &Connection) -> rusqlite::Result<u64> {
        let mut last = 0;
        let mut statement = conn.prepare(
            "SELECT id, name, leased, told, reached, unfinished, cycle, cursor_directory, \
             cursor_name, last_cycle_us FROM dataset",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut state = DatasetState::new(Dataset::new(row.get::<_, String>(1)?));
            let head = &mut state.head;
            head.marks = Marks {
                leased_version: row.get::<_, i64>(2)? as u64,
                acked_version: row.get::<_, i64>(3)? as u64,
                opened_version: row.get::<_, i64>(4)? as u64,
                unfinished: row.get(5)?,
            };
            head.cycle = row.get::<_, i64>(6)? as u64;
            head.cursor = Cursor { directory: row.get(7)?, name: row.get(8)? };
            head.last_cycle_us = row.get::<_, Option<i64>>(9)?.map(|us| us as u64);
            let Marks { leased_version, acked_version, opened_version, .. } = head.marks;
            last = last.max(leased_version).max(acked_version).max(opened_version);
            self.datasets.insert(row.get(0)?, state);
        }
        let mut statement =
            conn.prepare("SELECT first_seq, epoch FROM epoch ORDER BY first_seq")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (first_seq, epoch): (i64, i64) = (row.get(0)?, row.get(1)?);
            self.epochs.push(Epoch { first_seq: first_seq as u64, epoch: epoch as u64 });
        }
        Ok(last)
    }

    /// Returns a contradiction between the database's rows and its dictionaries, if there is one:
    /// an item without a directory, or a directory without a dataset.
    pub(crate) fn contradiction(conn: &Connection) -> rusqlite::Result<Option<String>> {
        let orphans: i64 = conn.query_row(
            "SELECT count(*) FROM (SELECT DISTINCT dataset, directory FROM item) AS held \
             LEFT JOIN directory ON directory.id = held.directory \
                AND directory.dataset = held.dataset WHERE directory.id IS NULL",
            [],
            |row| row.get(0),
        )?;
        Ok((orphans > 0).then(|| format!("items in {orphans} unknown directories")))
    }
}

/// Returns true if a row of [`Catalog::load_items`] is valid: each column has its type, and the
/// content can be decoded.
fn is_sound(row: &Row<'_>, files: bool) -> rusqlite::Result<bool> {
    let typed = row.get_ref(2)?.as_i64().is_ok()
        && row.get_ref(6)?.as_i64().is_ok()
        && matches!(row.get_ref(5)?, ValueRef::Blob(_));
    Ok(match (row.get_ref(3)?, row.get_ref(4)?) {
        (ValueRef::Integer(0), ValueRef::Blob(bytes)) => typed && Body::is_sound(bytes, files),
        (ValueRef::Integer(1), ValueRef::Blob(bytes)) => typed && bytes.is_empty(),
        _ => false,
    })
}
