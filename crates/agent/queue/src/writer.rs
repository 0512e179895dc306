//! The one writing connection: transactions, and the grouping of writers that arrive together.
//!
//! Writers put their job into a line and then ask for the connection. Whoever gets it commits all
//! jobs of the line in one transaction, sorted by key, and leaves each its outcome. While one
//! group commits, the next one gathers: under load many writers share one flush, a lone writer
//! never waits.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use model::ItemKey;
use parking_lot::Mutex;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

use crate::catalog::{Catalog, Delta};
use crate::error::QueueError;
use crate::options::Transaction;
use crate::queue::Inner;
use crate::transition::{HybridClock, Marks, Row, delete, put, touch};

/// Below this many changes in a directory its rows are read one by one.
const RANGE_READ_MIN: usize = 4;
/// A directory's rows are read in one sweep when it holds at most this many times the changes.
const RANGE_READ_ROWS_PER_CHANGE: u64 = 8;

/// The connection that writes.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) clock: HybridClock,
    pub(crate) poisoned: Option<String>,
    /// Bytes written since upkeep last looked.
    pub(crate) written_bytes: u64,
    /// The byte limit was reported since the queue was opened.
    pub(crate) limit_reported: bool,
    /// The log's size was reported since it last fitted.
    pub(crate) wal_reported: bool,
}

impl Writer {
    pub(crate) fn new(conn: Connection, clock: HybridClock) -> Self {
        Self {
            conn,
            clock,
            poisoned: None,
            written_bytes: 0,
            limit_reported: false,
            wal_reported: false,
        }
    }
}

/// What a step of a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    Put,
    /// As `Put`, but an equal body changes nothing.
    PutIfDifferent,
    Touch,
    Delete,
}

/// One change of one item.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: ItemKey,
    pub(crate) kind: StepKind,
    /// Its body in [`Job::bodies`].
    pub(crate) body: Range<usize>,
}

/// What one writer wants committed.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) dataset: i64,
    pub(crate) steps: Vec<Step>,
    pub(crate) bodies: Vec<u8>,
    pub(crate) events: Vec<Vec<u8>>,
}

/// What it came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JobOutcome {
    pub(crate) items: u64,
    pub(crate) events: u64,
}

type Answer = Option<(Job, Result<JobOutcome, QueueError>)>;

/// A job in line and the place for its answer.
pub(crate) struct Waiting {
    job: Job,
    slot: Arc<Mutex<Answer>>,
}

/// One open transaction.
pub(crate) struct Txn<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) now_us: u64,
    pub(crate) catalog: &'a Catalog,
    pub(crate) delta: Delta,
}

impl Txn<'_> {
    /// The next version.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock.tick(self.now_us)
    }

    /// An item's flags, if it has a row.
    pub(crate) fn row(&self, place: (i64, i64, &[u8])) -> rusqlite::Result<Option<Row>> {
        self.conn
            .prepare_cached(
                "SELECT seen, known, gone FROM item \
                 WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
            )?
            .query_row(place, |row| {
                Ok(Row {
                    seen: row.get::<_, i64>(0)? as u64,
                    known: row.get(1)?,
                    gone: row.get(2)?,
                })
            })
            .optional()
    }

    /// The item is no exception any more.
    pub(crate) fn clear_exception(&mut self, place: (i64, i64, &[u8])) -> rusqlite::Result<()> {
        let held = self.catalog.datasets.get(&place.0).map_or(0, |state| state.exceptions);
        let changed = self.delta.exceptions.get(&place.0).copied().unwrap_or(0);
        if held.saturating_add_signed(changed) > 0 {
            let cleared = self
                .conn
                .prepare_cached(
                    "DELETE FROM exception WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
                )?
                .execute(place)?;
            *self.delta.exceptions.entry(place.0).or_default() -= cleared as i64;
        }
        Ok(())
    }

    /// Remove a row.
    pub(crate) fn remove(&mut self, place: (i64, i64, &[u8])) -> rusqlite::Result<()> {
        let removed = self
            .conn
            .prepare_cached("DELETE FROM item WHERE dataset = ?1 AND directory = ?2 AND name = ?3")?
            .execute(place)?;
        self.delta.touch(place.0, place.1, 0, -(removed as i64));
        Ok(())
    }

    /// Number of a directory; a new one is entered when `create`.
    fn directory(
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

    /// Directories that hold nothing any more leave the dictionary.
    fn drop_empty_directories(&self) -> rusqlite::Result<()> {
        let created = self.delta.created.iter().map(|((dataset, _), id)| (*dataset, *id));
        let shrunk =
            self.delta.changed.iter().filter(|(_, change)| change.1 < 0).map(|(at, _)| *at);
        for (dataset, id) in created.chain(shrunk) {
            if self.catalog.rows_after(&self.delta, dataset, id) == 0 {
                self.conn.prepare_cached("DELETE FROM directory WHERE id = ?1")?.execute([id])?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Commit the job, together with those of other writers. Gives the job back.
    pub(crate) fn submit(&self, job: Job) -> (Job, Result<JobOutcome, QueueError>) {
        let slot: Arc<Mutex<Answer>> = Arc::default();
        self.line.lock().push(Waiting { job, slot: Arc::clone(&slot) });
        let mut guard = self.writer.lock();
        if let Some(answer) = slot.lock().take() {
            return answer;
        }
        let waiting = mem::take(&mut *self.line.lock());
        match guard.as_mut() {
            None => answer_all(waiting, &Err(self.closed())),
            Some(writer) if self.options.transaction == Transaction::PerEvent => {
                for one in waiting {
                    self.commit_group(writer, vec![one]);
                }
            }
            Some(writer) => self.commit_group(writer, waiting),
        }
        let own = slot.lock().take();
        // The line held this job, so it was answered above.
        own.unwrap_or_else(|| (Job::default(), Err(self.closed())))
    }

    fn commit_group(&self, writer: &mut Writer, waiting: Vec<Waiting>) {
        let jobs: Vec<&Job> = waiting.iter().map(|one| &one.job).collect();
        let bytes: usize = jobs
            .iter()
            .map(|job| job.bodies.len() + job.events.iter().map(Vec::len).sum::<usize>())
            .sum();
        match self.transact(writer, "commit changes", |txn| apply(txn, &jobs)) {
            Err(error) => answer_all(waiting, &Err(error)),
            Ok(outcomes) => {
                for (one, outcome) in waiting.into_iter().zip(outcomes) {
                    *one.slot.lock() = Some((one.job, Ok(outcome)));
                }
                self.upkeep(writer, bytes as u64);
            }
        }
    }

    /// Run `change` in one transaction; the catalog follows its commit.
    pub(crate) fn transact<T>(
        &self,
        writer: &mut Writer,
        action: &'static str,
        change: impl FnOnce(&mut Txn<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, QueueError> {
        if let Some(detail) = &writer.poisoned {
            return Err(QueueError::Poisoned { path: self.path.clone(), detail: detail.clone() });
        }
        match self.try_transact(writer, change) {
            Ok((value, delta)) => {
                self.catalog.write().apply(delta);
                Ok(value)
            }
            Err(error) => {
                if !writer.conn.is_autocommit()
                    && let Err(error) = writer.conn.execute_batch("ROLLBACK")
                {
                    writer.poisoned = Some(format!("cannot roll back: {error}"));
                }
                Err(self.failed(writer, action, error))
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
        // Only the holder of the writer changes the catalog, so this never waits for long.
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
}

fn answer_all(waiting: Vec<Waiting>, answer: &Result<JobOutcome, QueueError>) {
    for one in waiting {
        *one.slot.lock() = Some((one.job, answer.clone()));
    }
}

/// A step with its place.
struct Placed<'a> {
    dataset: i64,
    directory: i64,
    step: &'a Step,
    body: &'a [u8],
    job: usize,
}

/// The statements of a group, looked up once.
struct Statements<'a> {
    insert: CachedStatement<'a>,
    update: CachedStatement<'a>,
}

impl<'a> Statements<'a> {
    fn new(conn: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            insert: conn.prepare_cached(
                "INSERT INTO item(dataset, directory, name, seen, known, gone, observation) \
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            update: conn.prepare_cached(
                "UPDATE item SET seen = ?4, known = ?5, gone = ?6, observation = ?7 \
                 WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
            )?,
        })
    }
}

/// Apply the jobs inside the open transaction.
fn apply(txn: &mut Txn<'_>, jobs: &[&Job]) -> rusqlite::Result<Vec<JobOutcome>> {
    let mut outcomes = vec![JobOutcome::default(); jobs.len()];
    let mut placed = place(txn, jobs)?;
    placed.sort_by(|a, b| {
        (a.dataset, a.directory, &a.step.key.name).cmp(&(b.dataset, b.directory, &b.step.key.name))
    });
    let conn = txn.conn;
    let mut statements = Statements::new(conn)?;
    for run in placed.chunk_by(|a, b| (a.dataset, a.directory) == (b.dataset, b.directory)) {
        apply_run(txn, &mut statements, run, &mut outcomes)?;
    }
    for (job, outcome) in jobs.iter().zip(&mut outcomes) {
        if job.events.is_empty() {
            continue;
        }
        let mut insert = conn.prepare_cached("INSERT INTO event(dataset, body) VALUES(?1, ?2)")?;
        for body in &job.events {
            insert.execute((job.dataset, body))?;
            outcome.events += 1;
        }
    }
    Ok(outcomes)
}

/// Number every step's directory; deletes in unknown directories fall out.
fn place<'a>(txn: &mut Txn<'_>, jobs: &[&'a Job]) -> rusqlite::Result<Vec<Placed<'a>>> {
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
            placed.push(Placed { dataset: job.dataset, directory, step, body, job: index });
        }
    }
    Ok(placed)
}

/// How the rows before a run are found.
enum Before {
    /// The directory is new: there are none.
    Empty,
    /// Read in one sweep, by name.
    Swept(std::vec::IntoIter<(Vec<u8>, Row)>, Option<(Vec<u8>, Row)>),
    /// Read one by one.
    Single,
}

impl Before {
    fn new(txn: &Txn<'_>, run: &[Placed<'_>]) -> rusqlite::Result<Self> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Self::Empty) };
        let held = txn
            .catalog
            .datasets
            .get(&first.dataset)
            .and_then(|state| state.directories.get(&first.directory))
            .map_or(0, |directory| directory.rows);
        if held == 0 {
            return Ok(Self::Empty);
        }
        if run.len() < RANGE_READ_MIN || held > run.len() as u64 * RANGE_READ_ROWS_PER_CHANGE {
            return Ok(Self::Single);
        }
        let mut select = txn.conn.prepare_cached(
            "SELECT name, seen, known, gone FROM item \
             WHERE dataset = ?1 AND directory = ?2 AND name BETWEEN ?3 AND ?4 ORDER BY name",
        )?;
        let found = select
            .query_map(
                (first.dataset, first.directory, &first.step.key.name, &last.step.key.name),
                |row| {
                    let seen = row.get::<_, i64>(1)? as u64;
                    let flags = Row { seen, known: row.get(2)?, gone: row.get(3)? };
                    Ok((row.get(0)?, flags))
                },
            )?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let mut found = found.into_iter();
        let head = found.next();
        Ok(Self::Swept(found, head))
    }

    fn get(&mut self, txn: &Txn<'_>, place: (i64, i64, &[u8])) -> rusqlite::Result<Option<Row>> {
        match self {
            Self::Empty => Ok(None),
            Self::Single => txn.row(place),
            Self::Swept(rest, head) => {
                while head.as_ref().is_some_and(|(name, _)| name.as_slice() < place.2) {
                    *head = rest.next();
                }
                Ok(head.as_ref().filter(|(name, _)| name == place.2).map(|(_, row)| *row))
            }
        }
    }
}

/// Apply the steps of one directory, sorted by name; equal names in the order they came.
fn apply_run(
    txn: &mut Txn<'_>,
    statements: &mut Statements<'_>,
    run: &[Placed<'_>],
    outcomes: &mut [JobOutcome],
) -> rusqlite::Result<()> {
    let mut before = Before::new(txn, run)?;
    let marks = run
        .first()
        .and_then(|one| txn.catalog.datasets.get(&one.dataset))
        .map_or_else(Marks::default, |state| state.head.marks);
    let mut current: Option<(&[u8], Option<Row>)> = None;
    for one in run {
        let name = one.step.key.name.as_slice();
        let place = (one.dataset, one.directory, name);
        let old = match current {
            Some((last, row)) if last == name => row,
            _ => before.get(txn, place)?,
        };
        let (row, changed) = apply_step(txn, statements, one, old, marks)?;
        current = Some((name, row));
        if changed && let Some(outcome) = outcomes.get_mut(one.job) {
            outcome.items += 1;
        }
    }
    Ok(())
}

/// Apply one step to a row. Gives the row afterwards and whether anything was written.
fn apply_step(
    txn: &mut Txn<'_>,
    statements: &mut Statements<'_>,
    one: &Placed<'_>,
    old: Option<Row>,
    marks: Marks,
) -> rusqlite::Result<(Option<Row>, bool)> {
    let place = (one.dataset, one.directory, one.step.key.name.as_slice());
    let new = match one.step.kind {
        StepKind::Touch if touch(old).is_some() => {
            txn.conn
                .prepare_cached(
                    "UPDATE item SET observation = ?4 \
                     WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
                )?
                .execute((place.0, place.1, place.2, one.body))?;
            return Ok((old, true));
        }
        StepKind::PutIfDifferent if touch(old).is_some() && holds(txn, place, one.body)? => {
            return Ok((old, false));
        }
        StepKind::Put | StepKind::PutIfDifferent | StepKind::Touch => {
            let seen = txn.tick();
            Some(put(old, marks, seen))
        }
        StepKind::Delete => {
            if old.is_none_or(|row| row.gone) {
                return Ok((old, false));
            }
            let seen = txn.tick();
            delete(old, marks, seen)
        }
    };
    txn.clear_exception(place)?;
    let Some(row) = new else {
        txn.remove(place)?;
        return Ok((None, true));
    };
    // A gone item needs its place only.
    let body = if row.gone { &[][..] } else { one.body };
    let values = (place.0, place.1, place.2, row.seen as i64, row.known, row.gone, body);
    if old.is_some() {
        statements.update.execute(values)?;
    } else {
        statements.insert.execute(values)?;
    }
    txn.delta.touch(one.dataset, one.directory, row.seen, i64::from(old.is_none()));
    Ok((Some(row), true))
}

/// Whether the row holds exactly these bytes.
fn holds(txn: &Txn<'_>, place: (i64, i64, &[u8]), body: &[u8]) -> rusqlite::Result<bool> {
    txn.conn
        .prepare_cached(
            "SELECT observation = ?4 FROM item WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
        )?
        .query_row((place.0, place.1, place.2, body), |row| row.get(0))
        .optional()
        .map(Option::unwrap_or_default)
}
