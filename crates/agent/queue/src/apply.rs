//! Applying a group of jobs inside one open transaction: sorted by key, each item's row looked up
//! in the cheapest way, carried through the pure transitions, and written.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

use crate::transition::{Marks, Row, delete, put, touch};
use crate::writer::{Job, JobOutcome, Step, StepKind, Txn};

/// Below this many changes in a directory its rows are read one by one.
const RANGE_READ_MIN: usize = 4;
/// A directory's rows are read in one sweep when it holds at most this many times the changes.
const RANGE_READ_ROWS_PER_CHANGE: u64 = 8;

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
pub(crate) fn apply(txn: &mut Txn<'_>, jobs: &[&Job]) -> rusqlite::Result<Vec<JobOutcome>> {
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
