//! Cycles: sending all items that were pending when the cycle began, session by session.
//!
//! A cycle visits the directories by number and the names in each. It reads only directories, and
//! blocks of large directories, that have pending items. Each pending item is leased in its state
//! at that time, except items created since the cycle began ([`crate::transition::Marks::is_due`]).
//! Every acknowledgement stores the cursor. It writes nothing per item, except for deleted items,
//! whose rows are removed, and items that the server skipped.

use std::mem;
use std::sync::Arc;

use model::{Dataset, ItemKey};
use rusqlite::{Connection, Statement};

use crate::answer::{AckOutcome, Skip, apply_answer, stamp};
use crate::directory::NameRange;
use crate::error::QueueError;
use crate::head::{Cursor, store};
use crate::inner::Inner;
use crate::lease::Lease;
use crate::place::ItemPlace;
use crate::transition::Marks;
use crate::txn::Txn;

/// Size of a document's fixed parts on the wire, bytes, for the budget of a lease.
const DOCUMENT_OVERHEAD_BYTES: usize = 800;
/// Directories copied from the catalog at a time.
const DIRECTORIES_PER_STEP: usize = 512;

/// A cycle that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Items up to this version are acknowledged when the cycle ends.
    pub leased_version: u64,
    /// Items up to this version were acknowledged before.
    pub acked_version: u64,
    /// True if this continues an interrupted cycle.
    pub resumed: bool,
}

/// The part of a cycle that a lease needs.
struct Walk {
    id: i64,
    acked_version: u64,
    leased_version: u64,
    cycle: u64,
    start: Cursor,
}

impl Walk {
    /// Returns the first name to visit in a directory.
    fn first_name(&self, directory: i64) -> &[u8] {
        if directory == self.start.directory { &self.start.name } else { &[] }
    }
}

/// A range of names of a directory that may have pending items.
struct Candidate {
    id: i64,
    path: Arc<[u8]>,
    names: NameRange,
}

/// An iterator over all candidates of a walk. It copies a page of directories at a time, so that
/// the catalog is locked only for a short time.
struct Candidates<'a> {
    inner: &'a Inner,
    walk: &'a Walk,
    from: i64,
    page: std::vec::IntoIter<Candidate>,
}

impl<'a> Candidates<'a> {
    fn new(inner: &'a Inner, walk: &'a Walk) -> Self {
        Self { inner, walk, from: walk.start.directory, page: Vec::new().into_iter() }
    }

    /// Copies the next page of directories. Returns false if there are none.
    fn next_page(&mut self) -> bool {
        let catalog = self.inner.catalog.read();
        let Some(state) = catalog.datasets.get(&self.walk.id) else { return false };
        if self.from > state.head.last_directory {
            return false;
        }
        let newer = state
            .directories
            .range(self.from..=state.head.last_directory)
            .filter(|(_, directory)| directory.newest > self.walk.acked_version);
        let mut page = Vec::new();
        let mut last = None;
        for (id, directory) in newer.take(DIRECTORIES_PER_STEP) {
            last = Some(*id);
            let (id, path) = (*id, &directory.path);
            let names =
                directory.newer(self.walk.acked_version, self.walk.first_name(id)).into_iter();
            page.extend(names.map(|names| Candidate { id, path: Arc::clone(path), names }));
        }
        self.from = last.map_or(i64::MAX, |last| last.saturating_add(1));
        self.page = page.into_iter();
        last.is_some()
    }
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            if let Some(candidate) = self.page.next() {
                return Some(candidate);
            }
            if !self.next_page() {
                return None;
            }
        }
    }
}

/// The outcome of collecting items from one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// All due items of the range are in the lease.
    Through,
    /// The lease is full.
    Full,
}

impl Inner {
    pub(crate) fn begin_cycle(&self, dataset: &Dataset) -> Result<Cycle, QueueError> {
        let id = self.dataset_id(dataset)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let mut head = self.head(id, dataset)?;
        let resumed = head.marks.unfinished;
        if !resumed {
            let last_directory = self.catalog.read().next_directory - 1;
            head.marks = head.marks.begin_cycle(writer.clock.last());
            head.cycle += 1;
            head.cursor = Cursor::default();
            head.last_directory = last_directory;
            self.transact(writer, "begin a cycle", |txn| store(txn.conn, id, &head))?;
            self.set_head(id, &head);
        }
        let Marks { leased_version, acked_version, .. } = head.marks;
        Ok(Cycle { leased_version, acked_version, resumed })
    }

    pub(crate) fn lease(
        &self,
        dataset: &Dataset,
        byte_budget: usize,
    ) -> Result<Option<Lease>, QueueError> {
        let walk = self.walk(dataset)?;
        let database = Arc::from(self.path.as_path());
        let buffers = mem::take(&mut *self.lease_buffers.lock());
        let (dataset, start) = (dataset.clone(), walk.start.clone());
        let mut lease = Lease::new(dataset, walk.cycle, start, database, buffers);
        self.read(|conn| {
            conn.execute_batch("BEGIN")?;
            let filled = self.fill_lease(conn, &walk, byte_budget, &mut lease);
            conn.execute_batch("COMMIT")?;
            filled
        })?;
        Ok((lease.len() > 0).then_some(lease))
    }

    fn walk(&self, dataset: &Dataset) -> Result<Walk, QueueError> {
        let catalog = self.catalog.read();
        catalog
            .id_of(dataset)
            .and_then(|id| catalog.datasets.get(&id).map(|state| (id, state)))
            .map(|(id, state)| (id, &state.head))
            .filter(|(_, head)| head.marks.unfinished)
            .map(|(id, head)| Walk {
                id,
                acked_version: head.marks.acked_version,
                leased_version: head.marks.leased_version,
                cycle: head.cycle,
                start: head.cursor.clone(),
            })
            .ok_or_else(|| QueueError::NoCycle { dataset: dataset.to_string() })
    }

    /// Collects items until the budget is used up.
    fn fill_lease(
        &self,
        conn: &Connection,
        walk: &Walk,
        byte_budget: usize,
        lease: &mut Lease,
    ) -> rusqlite::Result<()> {
        let mut left = byte_budget;
        let mut select = conn.prepare_cached(PENDING)?;
        for candidate in Candidates::new(self, walk) {
            if fill_from(&mut select, walk, &candidate, &mut left, lease)? == Filled::Full {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn ack(&self, lease: &Lease, skipped: &[Skip]) -> Result<AckOutcome, QueueError> {
        let stale = || QueueError::StaleLease { dataset: lease.dataset.to_string() };
        let id = self.catalog.read().id_of(&lease.dataset).ok_or_else(stale)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let mut head = self.head(id, &lease.dataset)?;
        let (directory, item) = lease.placed().next_back().ok_or_else(stale)?;
        if !head.marks.unfinished || head.cycle != lease.cycle || head.cursor != lease.start {
            return Err(stale());
        }
        let mut name = item.key.name.to_vec();
        // The smallest name after the last item.
        name.push(0);
        head.cursor = Cursor { directory, name };
        let outcome = self.transact(writer, "acknowledge", |txn| {
            store(txn.conn, id, &head)?;
            apply_answer(txn, id, lease, skipped)
        })?;
        self.set_head(id, &head);
        drop(guard);
        self.give_back();
        Ok(outcome)
    }

    /// Ends the cycle, unless an item of it was not acknowledged. The search for such items runs
    /// without the writer's lock: their number only decreases until the next cycle begins, since
    /// every new write has a higher version.
    pub(crate) fn end_cycle(&self, dataset: &Dataset) -> Result<(), QueueError> {
        let unfinished = || QueueError::CycleUnfinished { dataset: dataset.to_string() };
        let walk = self.walk(dataset)?;
        if self.read(|conn| self.left_over(conn, &walk))? {
            return Err(unfinished());
        }
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        if self.walk(dataset)?.cycle != walk.cycle {
            return Err(unfinished());
        }
        let mut head = self.head(walk.id, dataset)?;
        head.marks = head.marks.end();
        head.cursor = Cursor::default();
        head.last_cycle_us = Some(self.clock.now_us());
        self.transact(writer, "end a cycle", |txn| store(txn.conn, walk.id, &head))?;
        self.set_head(walk.id, &head);
        Ok(())
    }

    /// Returns true if an item of the cycle was not acknowledged.
    fn left_over(&self, conn: &Connection, walk: &Walk) -> rusqlite::Result<bool> {
        let mut select = conn.prepare_cached(
            "SELECT EXISTS(SELECT 1 FROM item WHERE dataset = ?1 AND directory = ?2 \
             AND name >= ?3 AND name < ?4 AND seen > ?5 AND seen <= ?6)",
        )?;
        let (acked_version, leased) = (walk.acked_version as i64, walk.leased_version as i64);
        for Candidate { id, names, .. } in Candidates::new(self, walk) {
            let range = (walk.id, id, &names.from, names.to(), acked_version, leased);
            if select.query_row(range, |row| row.get(0))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn resend(
        &self,
        dataset: &Dataset,
        keys: &[ItemKey],
    ) -> Result<Vec<ItemKey>, QueueError> {
        let id = self.dataset_id(dataset)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        self.transact(writer, "mark for sending", |txn| {
            let mut missing = Vec::new();
            for key in keys {
                let there = resend_one(txn, id, key)?;
                missing.extend((!there).then(|| key.clone()));
            }
            Ok(missing)
        })
    }

    pub(crate) fn resend_all(&self, dataset: &Dataset) -> Result<(), QueueError> {
        let id = self.dataset_id(dataset)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let mut head = self.head(id, dataset)?;
        head.marks.acked_version = 0;
        head.cycle += 1;
        head.cursor = Cursor::default();
        self.transact(writer, "mark all for sending", |txn| {
            store(txn.conn, id, &head)?;
            let cleared = txn.conn.execute("DELETE FROM exception WHERE dataset = ?1", [id])?;
            *txn.delta.exceptions.entry(id).or_default() -= cleared as i64;
            Ok(())
        })?;
        self.set_head(id, &head);
        Ok(())
    }
}

/// Selects the due items of a range, as defined by [`crate::transition::Marks::is_due`]. The
/// observation of a deleted item is empty.
const PENDING: &str = "SELECT name, seen, observation FROM item \
     WHERE dataset = ?1 AND directory = ?2 AND name >= ?3 AND name < ?4 AND seen > ?5 \
     AND (seen <= ?6 OR known) ORDER BY name";

/// Collects the due items of one range.
fn fill_from(
    select: &mut Statement<'_>,
    walk: &Walk,
    Candidate { id, path, names }: &Candidate,
    left: &mut usize,
    lease: &mut Lease,
) -> rusqlite::Result<Filled> {
    let (acked_version, leased) = (walk.acked_version as i64, walk.leased_version as i64);
    let mut rows = select.query((walk.id, id, &names.from, names.to(), acked_version, leased))?;
    lease.enter(path);
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_blob()?;
        let blob = row.get_ref(2)?.as_blob()?;
        let bytes = estimate(path, name, blob);
        let full = bytes > *left || lease.len() >= model::limits::SESSION_VALUES_MAX;
        if full && lease.len() > 0 {
            return Ok(Filled::Full);
        }
        *left = left.saturating_sub(bytes);
        let seen = row.get::<_, i64>(1)? as u64;
        lease.push(*id, name, seen, blob);
    }
    Ok(Filled::Through)
}

/// Gives an item a new version, if it exists.
fn resend_one(txn: &mut Txn<'_>, id: i64, key: &ItemKey) -> rusqlite::Result<bool> {
    let state = txn.catalog.datasets.get(&id);
    let directory = state.and_then(|state| state.paths.get(key.directory.as_slice()));
    let Some(directory) = directory.copied() else { return Ok(false) };
    let place = ItemPlace { dataset: id, directory, name: &key.name };
    let Some(row) = txn.row(place)? else { return Ok(false) };
    stamp(txn, place, row)?;
    txn.clear_exception(place)?;
    Ok(true)
}

/// Returns the approximate size of an item in a session, bytes.
fn estimate(directory: &[u8], name: &[u8], blob: &[u8]) -> usize {
    match blob.first() {
        None => DOCUMENT_OVERHEAD_BYTES / 4,
        Some(&crate::body::DOCUMENT_TAG) => blob.len() + DOCUMENT_OVERHEAD_BYTES / 4,
        // The document has the whole path and its parts; digests and names are longer as text.
        Some(_) => DOCUMENT_OVERHEAD_BYTES + 2 * (directory.len() + name.len()) + 2 * blob.len(),
    }
}

#[cfg(test)]
#[path = "cycle_tests.rs"]
mod tests;
