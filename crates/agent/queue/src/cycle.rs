//! Cycles: telling everything seen up to a moment, session by session.
//!
//! A walk goes through the directories by number and the names in each; it reads only directories
//! whose newest item is pending, and hands out each pending item as it is when visited. The place
//! reached is stored with every acknowledgement; nothing is written per item, but for items that
//! are gone (their row goes) and items that the server skipped.

use std::sync::Arc;

use model::{Dataset, ItemKey, SkipReason};
use rusqlite::Connection;

use crate::body::Body;
use crate::catalog::Head;
use crate::error::QueueError;
use crate::queue::Inner;
use crate::transition::{Row, acknowledge, restamp};
use crate::writer::Txn;

/// What a document's fixed parts take on the wire, bytes: for the budget of a lease.
const DOCUMENT_OVERHEAD_BYTES: usize = 800;
/// Directories looked up at a time.
const DIRECTORIES_PER_STEP: usize = 512;

/// A cycle that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Everything seen up to here is told when it ends.
    pub leased: u64,
    /// Everything seen up to here was told before.
    pub told: u64,
    /// It goes on from where an earlier one broke off.
    pub resumed: bool,
}

/// One item to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedItem {
    /// Which.
    pub key: ItemKey,
    /// Its version.
    pub seen: u64,
    /// What it holds, or that it is gone.
    pub body: Body,
}

/// Where a walk stands: the next item is the first at or behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    /// Directory number.
    pub(crate) directory: i64,
    /// Name in it; the smallest name not yet visited.
    pub(crate) name: Vec<u8>,
}

/// Items handed out for one session; answer with [`crate::Queue::ack`] or
/// [`crate::Queue::return_`]. Dropping it is the same as returning it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) dataset: Dataset,
    pub(crate) cycle: u64,
    pub(crate) start: Cursor,
    /// Place of each item, parallel to `items`.
    pub(crate) places: Vec<i64>,
    items: Vec<LeasedItem>,
}

impl Lease {
    /// The items in the order of their keys; at least one.
    pub fn items(&self) -> &[LeasedItem] {
        &self.items
    }

    /// Which dataset they belong to.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Keep the first `count` items (at least one) and give back the rest: the next lease begins
    /// with them. For sessions that turn out too large.
    pub fn truncate(&mut self, count: usize) {
        self.items.truncate(count.max(1));
        self.places.truncate(count.max(1));
    }
}

/// One item of a lease that the server left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// Its place in [`Lease::items`].
    pub index: usize,
    /// Why.
    pub reason: SkipReason,
    /// For `stale` the version that the server holds.
    pub version: u64,
}

/// What an acknowledgement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckOutcome {
    /// Rows of gone items removed.
    pub removed: u64,
    /// Items that will be sent again above the server's version.
    pub restamped: u64,
    /// Items set aside until their next change.
    pub exceptions: u64,
}

/// Write the dataset's watermarks and cursor.
pub(crate) fn store(conn: &Connection, id: i64, head: &Head) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE dataset SET leased = ?2, told = ?3, reached = ?4, unfinished = ?5, cycle = ?6, \
         cursor_directory = ?7, cursor_name = ?8, last_cycle_us = ?9 WHERE id = ?1",
    )?
    .execute((
        id,
        head.marks.leased as i64,
        head.marks.told as i64,
        head.marks.reached as i64,
        head.marks.unfinished,
        head.cycle as i64,
        head.cursor.directory,
        &head.cursor.name,
        head.last_cycle_us.map(|us| us as i64),
    ))
    .map(drop)
}

/// What a lease needs to know of its dataset.
struct Walk {
    id: i64,
    told: u64,
    leased: u64,
    cycle: u64,
    start: Cursor,
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
            head.marks = head.marks.begin(writer.clock.last());
            head.cycle += 1;
            head.cursor = Cursor::default();
            head.last_directory = last_directory;
            self.transact(writer, "begin a cycle", |txn| store(txn.conn, id, &head))?;
            self.set_head(id, &head);
        }
        Ok(Cycle { leased: head.marks.leased, told: head.marks.told, resumed })
    }

    pub(crate) fn lease(
        &self,
        dataset: &Dataset,
        byte_budget: usize,
    ) -> Result<Option<Lease>, QueueError> {
        let walk = self.walk(dataset)?;
        let mut lease = Lease {
            dataset: dataset.clone(),
            cycle: walk.cycle,
            start: walk.start.clone(),
            places: Vec::new(),
            items: Vec::new(),
        };
        self.read(|conn| {
            conn.execute_batch("BEGIN")?;
            let filled = self.fill(conn, &walk, byte_budget, &mut lease);
            conn.execute_batch("COMMIT")?;
            filled
        })??;
        Ok((!lease.items.is_empty()).then_some(lease))
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
                told: head.marks.told,
                leased: head.marks.leased,
                cycle: head.cycle,
                start: head.cursor.clone(),
            })
            .ok_or_else(|| QueueError::NoCycle { dataset: dataset.to_string() })
    }

    /// The next directories from `from` on that may hold something pending.
    fn candidates(&self, walk: &Walk, from: i64) -> Vec<(i64, Arc<[u8]>)> {
        let catalog = self.catalog.read();
        let Some(state) = catalog.datasets.get(&walk.id) else { return Vec::new() };
        let last_directory = state.head.last_directory;
        if from > last_directory {
            return Vec::new();
        }
        state
            .directories
            .range(from..=last_directory)
            .filter(|(_, directory)| directory.newest > walk.told)
            .take(DIRECTORIES_PER_STEP)
            .map(|(id, directory)| (*id, Arc::clone(&directory.path)))
            .collect()
    }

    /// Collect items until the budget is used up. The outer error is the engine's.
    fn fill(
        &self,
        conn: &Connection,
        walk: &Walk,
        byte_budget: usize,
        lease: &mut Lease,
    ) -> rusqlite::Result<Result<(), QueueError>> {
        let mut select = conn.prepare_cached(
            "SELECT name, seen, gone, observation FROM item \
             WHERE dataset = ?1 AND directory = ?2 AND name >= ?3 AND seen > ?4 ORDER BY name",
        )?;
        let mut bytes = 0;
        let mut from = walk.start.directory;
        loop {
            let candidates = self.candidates(walk, from);
            let Some((last, _)) = candidates.last() else { return Ok(Ok(())) };
            from = last + 1;
            for (id, path) in &candidates {
                let first = if *id == walk.start.directory { &walk.start.name[..] } else { &[] };
                let mut rows = select.query((walk.id, id, first, walk.told as i64))?;
                while let Some(row) = rows.next()? {
                    let name = row.get_ref(0)?.as_blob()?;
                    let blob = row.get_ref(3)?.as_blob()?;
                    bytes += estimate(path, name, blob);
                    let full = bytes > byte_budget
                        || lease.items.len() >= model::limits::SESSION_VALUES_MAX;
                    if full && !lease.items.is_empty() {
                        return Ok(Ok(()));
                    }
                    let body = if row.get(2)? { Some(Body::Gone) } else { Body::decode(blob) };
                    let key = ItemKey::new(&path[..], name);
                    let Some(body) = body else { return Ok(Err(self.undecodable(&key))) };
                    lease.places.push(*id);
                    lease.items.push(LeasedItem { key, seen: row.get::<_, i64>(1)? as u64, body });
                }
            }
        }
    }

    pub(crate) fn ack(&self, lease: &Lease, skipped: &[Skip]) -> Result<AckOutcome, QueueError> {
        let stale = || QueueError::StaleLease { dataset: lease.dataset.to_string() };
        let id = self.catalog.read().id_of(&lease.dataset).ok_or_else(stale)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let mut head = self.head(id, &lease.dataset)?;
        let (Some(directory), Some(item)) = (lease.places.last(), lease.items.last()) else {
            return Err(stale());
        };
        if !head.marks.unfinished || head.cycle != lease.cycle || head.cursor != lease.start {
            return Err(stale());
        }
        let mut name = item.key.name.clone();
        // The smallest name behind it.
        name.push(0);
        head.cursor = Cursor { directory: *directory, name };
        let outcome = self.transact(writer, "acknowledge", |txn| {
            store(txn.conn, id, &head)?;
            answer(txn, id, lease, skipped)
        })?;
        self.set_head(id, &head);
        self.upkeep(writer, 0);
        Ok(outcome)
    }

    pub(crate) fn end_cycle(&self, dataset: &Dataset) -> Result<(), QueueError> {
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let walk = self.walk(dataset)?;
        if self.left_over(&writer.conn, &walk).map_err(|e| self.classify("end a cycle", e))? {
            return Err(QueueError::CycleUnfinished { dataset: dataset.to_string() });
        }
        let mut head = self.head(walk.id, dataset)?;
        head.marks = head.marks.end(writer.clock.last());
        head.cursor = Cursor::default();
        head.last_cycle_us = Some(self.clock.now_us());
        self.transact(writer, "end a cycle", |txn| store(txn.conn, walk.id, &head))?;
        self.set_head(walk.id, &head);
        Ok(())
    }

    /// Whether anything of the cycle was not acknowledged.
    fn left_over(&self, conn: &Connection, walk: &Walk) -> rusqlite::Result<bool> {
        let mut select = conn.prepare_cached(
            "SELECT EXISTS(SELECT 1 FROM item WHERE dataset = ?1 AND directory = ?2 \
             AND name >= ?3 AND seen > ?4 AND seen <= ?5)",
        )?;
        let mut from = walk.start.directory;
        loop {
            let candidates = self.candidates(walk, from);
            let Some((last, _)) = candidates.last() else { return Ok(false) };
            from = last + 1;
            for (id, _) in &candidates {
                let first = if *id == walk.start.directory { &walk.start.name[..] } else { &[] };
                let found = select.query_row(
                    (walk.id, id, first, walk.told as i64, walk.leased as i64),
                    |row| row.get(0),
                )?;
                if found {
                    return Ok(true);
                }
            }
        }
    }

    pub(crate) fn resend(&self, dataset: &Dataset, keys: &[ItemKey]) -> Result<u64, QueueError> {
        let id = self.dataset_id(dataset)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        self.transact(writer, "mark for sending", |txn| {
            let mut count = 0;
            for key in keys {
                let directory = txn
                    .catalog
                    .datasets
                    .get(&id)
                    .and_then(|state| state.paths.get(key.directory.as_slice()));
                let Some(directory) = directory.copied() else { continue };
                let place = (id, directory, key.name.as_slice());
                if let Some(row) = txn.row(place)? {
                    stamp(txn, place, row)?;
                    txn.clear_exception(place)?;
                    count += 1;
                }
            }
            Ok(count)
        })
    }

    pub(crate) fn resend_all(&self, dataset: &Dataset) -> Result<(), QueueError> {
        let id = self.dataset_id(dataset)?;
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let mut head = self.head(id, dataset)?;
        head.marks.told = 0;
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

/// About what an item takes in a session, bytes.
fn estimate(directory: &[u8], name: &[u8], blob: &[u8]) -> usize {
    match blob.first() {
        None => DOCUMENT_OVERHEAD_BYTES / 4,
        Some(&crate::body::DOCUMENT_TAG) => blob.len() + DOCUMENT_OVERHEAD_BYTES / 4,
        // The path stands in the document whole and in parts; digests and names grow as text.
        Some(_) => DOCUMENT_OVERHEAD_BYTES + 2 * (directory.len() + name.len()) + 2 * blob.len(),
    }
}

/// Give the row the clock's next value.
fn stamp(txn: &mut Txn<'_>, place: (i64, i64, &[u8]), row: Row) -> rusqlite::Result<()> {
    let row = restamp(row, txn.tick());
    txn.conn
        .prepare_cached(
            "UPDATE item SET seen = ?4, known = ?5 \
             WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
        )?
        .execute((place.0, place.1, place.2, row.seen as i64, row.known))?;
    txn.delta.touch(place.0, place.1, row.seen, 0);
    Ok(())
}

/// Carry out what the session's answer says of its items.
fn answer(
    txn: &mut Txn<'_>,
    id: i64,
    lease: &Lease,
    skipped: &[Skip],
) -> rusqlite::Result<AckOutcome> {
    let mut outcome = AckOutcome::default();
    let mut skips = skipped.to_vec();
    skips.sort_by_key(|skip| skip.index);
    let mut skips = skips.into_iter().peekable();
    for (index, (item, directory)) in lease.items.iter().zip(&lease.places).enumerate() {
        let place = (id, *directory, item.key.name.as_slice());
        match skips.next_if(|skip| skip.index == index) {
            Some(skip) => refuse(txn, place, item, skip, &mut outcome)?,
            None if item.body.is_gone() => {
                if let Some(row) = txn.row(place)?
                    && acknowledge(row, item.seen).is_none()
                {
                    txn.remove(place)?;
                    outcome.removed += 1;
                }
            }
            None => {}
        }
    }
    if outcome != AckOutcome::default() {
        // The highest version may have gone with its row.
        crate::schema::set_meta(txn.conn, crate::schema::META_CLOCK, txn.clock.last() as i64)?;
    }
    Ok(outcome)
}

/// The server left the item out.
fn refuse(
    txn: &mut Txn<'_>,
    place: (i64, i64, &[u8]),
    item: &LeasedItem,
    skip: Skip,
    outcome: &mut AckOutcome,
) -> rusqlite::Result<()> {
    let Some(row) = txn.row(place)? else { return Ok(()) };
    if skip.reason == SkipReason::Stale && txn.clock.lift(skip.version) {
        if row.seen == item.seen || row.seen <= skip.version {
            stamp(txn, place, row)?;
            outcome.restamped += 1;
        }
        return Ok(());
    }
    if row.seen != item.seen {
        // It changed meanwhile and will be sent as it is now.
        return Ok(());
    }
    if row.gone {
        // A server that refuses the delete holds nothing under that name.
        txn.clear_exception(place)?;
        txn.remove(place)?;
        outcome.removed += 1;
        return Ok(());
    }
    let known = txn
        .conn
        .prepare_cached(
            "DELETE FROM exception WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
        )?
        .execute(place)?;
    let reason = reason_name(skip.reason);
    txn.conn.prepare_cached("INSERT INTO exception VALUES(?1, ?2, ?3, ?4, ?5)")?.execute((
        place.0,
        place.1,
        place.2,
        item.seen as i64,
        reason,
    ))?;
    *txn.delta.exceptions.entry(place.0).or_default() += 1 - known as i64;
    outcome.exceptions += 1;
    Ok(())
}

const REASONS: [(SkipReason, &str); 5] = [
    (SkipReason::Stale, "stale"),
    (SkipReason::Index, "index"),
    (SkipReason::Id, "id"),
    (SkipReason::Json, "json"),
    (SkipReason::TooLarge, "too_large"),
];

fn reason_name(reason: SkipReason) -> &'static str {
    REASONS.iter().find(|(known, _)| *known == reason).map_or("other", |(_, name)| name)
}

/// The reason behind a stored word. A word of a later version counts as a refused body.
pub(crate) fn reason_of(name: &str) -> SkipReason {
    REASONS.iter().find(|(_, known)| *known == name).map_or(SkipReason::Json, |(reason, _)| *reason)
}
