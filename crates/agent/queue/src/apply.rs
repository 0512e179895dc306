//! Applies a group of jobs inside an open transaction. The steps are sorted by key. Each item's row
//! is read once, changed by the pure transitions, and written once, even if several steps change
//! it.

use std::mem;

use rusqlite::{Connection, OptionalExtension as _};

use crate::directory::Directory;
use crate::feed::Feed;
use crate::job::{Job, JobOutcome, Step, StepKind};
use crate::place::{BlockPlace, ItemPlace};
use crate::transition::{ItemMarks, Marks, delete, put, touch};
use crate::txn::Txn;

/// With fewer changed items in a directory, their rows are read one by one.
const RANGE_READ_MIN: usize = 4;
/// A directory's rows are read with one range query if it holds at most this many rows per change.
const RANGE_READ_ROWS_PER_CHANGE: u64 = 8;

/// A step with the numbers of its dataset and directory.
struct PlacedStep<'a> {
    dataset: i64,
    directory: i64,
    step: &'a Step,
    body: &'a [u8],
    job: usize,
}

impl PlacedStep<'_> {
    fn item_place(&self) -> ItemPlace<'_> {
        ItemPlace { dataset: self.dataset, directory: self.directory, name: &self.step.key.name }
    }
}

/// Applies the jobs inside the open transaction.
pub(crate) fn apply(
    txn: &mut Txn<'_>,
    feed: &Feed,
    jobs: &[&Job],
) -> rusqlite::Result<Vec<JobOutcome>> {
    feed.clear();
    let mut outcomes = vec![JobOutcome::default(); jobs.len()];
    let mut placed = resolve_places(txn, jobs)?;
    placed.sort_by(|a, b| a.item_place().cmp(&b.item_place()));
    for run in placed.chunk_by(|a, b| (a.dataset, a.directory) == (b.dataset, b.directory)) {
        apply_run(txn, feed, run, &mut outcomes)?;
    }
    feed.write(txn.conn)?;
    for (job, outcome) in jobs.iter().zip(&mut outcomes) {
        if job.events.is_empty() {
            continue;
        }
        let mut insert =
            txn.conn.prepare_cached("INSERT INTO event(dataset, body) VALUES(?1, ?2)")?;
        for body in &job.events {
            insert.execute((job.dataset, body))?;
            outcome.events += 1;
        }
    }
    Ok(outcomes)
}

/// Resolves the directory of every step. A delete in an unknown directory is dropped.
fn resolve_places<'a>(
    txn: &mut Txn<'_>,
    jobs: &[&'a Job],
) -> rusqlite::Result<Vec<PlacedStep<'a>>> {
    let mut placed = Vec::with_capacity(jobs.iter().map(|job| job.steps.len()).sum());
    for (index, job) in jobs.iter().enumerate() {
        let mut last: Option<(&[u8], i64)> = None;
        for step in &job.steps {
            let path = step.key.directory.as_slice();
            let directory = match last {
                Some((known, id)) if known == path => id,
                _ => match txn.directory(job.dataset, path, step.kind != StepKind::Delete)? {
                    Some(id) => id,
                    None => continue,
                },
            };
            last = Some((path, directory));
            let body = job.bodies.get(step.body.clone()).unwrap_or_default();
            placed.push(PlacedStep { dataset: job.dataset, directory, step, body, job: index });
        }
    }
    Ok(placed)
}

/// State that the steps of one directory share.
struct Run {
    dataset: i64,
    directory: i64,
    marks: Marks,
    /// True if the dataset may have exceptions to clear.
    exceptions: bool,
    /// The current block of the directory.
    block: usize,
    /// Highest version written in the block.
    newest: u64,
    /// Number of rows added to the block, minus rows removed.
    rows: i64,
}

impl Run {
    /// Adds the changes of the current block to the transaction's delta.
    fn leave(&mut self, txn: &mut Txn<'_>) {
        if self.newest > 0 || self.rows != 0 {
            let Self { dataset, directory, block, .. } = *self;
            let block = BlockPlace { dataset, directory, block };
            txn.delta.touch(block, mem::take(&mut self.newest), mem::take(&mut self.rows));
        }
    }
}

/// Applies the steps of one directory. They are sorted by name; steps of one item keep their order.
fn apply_run(
    txn: &mut Txn<'_>,
    feed: &Feed,
    steps: &[PlacedStep<'_>],
    outcomes: &mut [JobOutcome],
) -> rusqlite::Result<()> {
    let Some(first) = steps.first() else { return Ok(()) };
    let state = txn.catalog.datasets.get(&first.dataset);
    let mut run = Run {
        dataset: first.dataset,
        directory: first.directory,
        marks: state.map_or_else(Marks::default, |state| state.head.marks),
        exceptions: txn.may_have_exceptions(first.dataset),
        block: 0,
        newest: 0,
        rows: 0,
    };
    let held = txn.catalog.directory(run.dataset, run.directory);
    let items: Vec<&[PlacedStep<'_>]> =
        steps.chunk_by(|a, b| a.step.key.name == b.step.key.name).collect();
    let before = before(txn, &run, held, &items)?;
    for (item, old) in items.into_iter().zip(before) {
        if let (Some(held), Some(first)) = (held, item.first()) {
            let block = held.block_from(run.block, &first.step.key.name);
            if block != run.block {
                run.leave(txn);
                run.block = block;
            }
        }
        apply_item(txn, feed, &mut run, item, old, outcomes)?;
    }
    run.leave(txn);
    Ok(())
}

/// Returns the present row of each item, in the order of the items.
fn before(
    txn: &Txn<'_>,
    run: &Run,
    held: Option<&Directory>,
    items: &[&[PlacedStep<'_>]],
) -> rusqlite::Result<Vec<Option<ItemMarks>>> {
    let held = held.map_or(0, |directory| directory.rows);
    if held == 0 {
        return Ok(vec![None; items.len()]);
    }
    let names = || items.iter().filter_map(|item| item.first()).map(PlacedStep::item_place);
    if items.len() < RANGE_READ_MIN || held > items.len() as u64 * RANGE_READ_ROWS_PER_CHANGE {
        return names().map(|place| txn.row(place)).collect();
    }
    let mut found = Vec::with_capacity(items.len());
    let (Some(first), Some(last)) = (names().next(), names().next_back()) else { return Ok(found) };
    let mut select = txn.conn.prepare_cached(
        "SELECT name, seen, known, gone FROM item \
         WHERE dataset = ?1 AND directory = ?2 AND name BETWEEN ?3 AND ?4 ORDER BY name",
    )?;
    let mut rows = select.query((run.dataset, run.directory, first.name, last.name))?;
    let mut names = names().map(|place| place.name).peekable();
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_blob()?;
        while names.next_if(|wanted| *wanted < name).is_some() {
            found.push(None);
        }
        if names.next_if(|wanted| *wanted == name).is_some() {
            found.push(Some(ItemMarks {
                version: row.get::<_, i64>(1)? as u64,
                server_may_have: row.get(2)?,
                deleted: row.get(3)?,
            }));
        }
    }
    found.resize(items.len(), None);
    Ok(found)
}

/// Applies the steps of one item to its row and passes the result to the feed.
fn apply_item(
    txn: &mut Txn<'_>,
    feed: &Feed,
    run: &mut Run,
    steps: &[PlacedStep<'_>],
    old: Option<ItemMarks>,
    outcomes: &mut [JobOutcome],
) -> rusqlite::Result<()> {
    let Some(place) = steps.first().map(PlacedStep::item_place) else { return Ok(()) };
    let mut row = old;
    // The content of the row after the steps so far; `None` if none of them changed it.
    let mut body: Option<&[u8]> = None;
    let mut stamped = false;
    for one in steps {
        let unchanged = match one.step.kind {
            StepKind::PutIfDifferent if touch(row).is_some() => match body {
                Some(body) => body == one.body,
                None => holds(txn.conn, place, one.body)?,
            },
            StepKind::Delete => row.is_none_or(|row| row.deleted),
            StepKind::Put | StepKind::PutIfDifferent | StepKind::Touch => false,
        };
        if unchanged {
            continue;
        }
        match one.step.kind {
            StepKind::Touch if touch(row).is_some() => {}
            StepKind::Delete => {
                row = delete(row, run.marks, txn.tick());
                stamped = true;
            }
            _ => {
                row = Some(put(row, run.marks, txn.tick()));
                stamped = true;
            }
        }
        // The row of a deleted item has no content.
        body = Some(if row.is_some_and(|row| row.deleted) { &[] } else { one.body });
        if let Some(outcome) = outcomes.get_mut(one.job) {
            outcome.items += 1;
        }
    }
    let Some(body) = body else { return Ok(()) };
    if stamped && run.exceptions {
        txn.clear_exception(place)?;
    }
    match row {
        Some(row) => {
            feed.push(place, row, body);
            run.newest = run.newest.max(row.version);
            run.rows += i64::from(old.is_none());
        }
        None if old.is_some() => txn.remove(place)?,
        None => {}
    }
    Ok(())
}

/// Returns true if the row holds exactly these bytes.
fn holds(conn: &Connection, place: ItemPlace<'_>, body: &[u8]) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT observation = ?4 FROM item WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
    )?
    .query_row((place.dataset, place.directory, place.name, body), |row| row.get(0))
    .optional()
    .map(Option::unwrap_or_default)
}
