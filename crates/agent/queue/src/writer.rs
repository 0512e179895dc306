//! The one writing connection: transactions, and the grouping of writers that arrive together.
//!
//! Writers stand in a [`Line`]: what waits at that moment commits in one transaction, sorted by
//! key.

use std::ops::Range;

use model::ItemKey;
use rusqlite::{Connection, OptionalExtension as _};

use crate::apply::apply;
use crate::catalog::{Catalog, Delta};
use crate::directory::{BLOCK_ROWS, Directory, Stretch};
use crate::error::QueueError;
use crate::feed::Feed;
use crate::line::{Line, Window};
use crate::options::{Durability, Transaction};
use crate::queue::Inner;
use crate::transition::{HybridClock, Row};
use crate::upkeep::fold_quietly;

/// A group of so many changes does not wait for more.
const WINDOW_CHANGES_MAX: usize = 1000;

/// The connection that writes.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Where a group's rows are laid down for it.
    pub(crate) feed: Feed,
    pub(crate) clock: HybridClock,
    pub(crate) poisoned: Option<String>,
    /// Bytes written since upkeep last looked.
    pub(crate) written_bytes: u64,
    /// The byte limit was reported since the queue was opened.
    pub(crate) limit_reported: bool,
    /// Bytes that the log can have grown by since its size was looked at.
    pub(crate) log_bytes_max: u64,
    /// The log's size was reported since it last fitted.
    pub(crate) log_reported: bool,
}

impl Writer {
    pub(crate) fn new(conn: Connection, clock: HybridClock) -> rusqlite::Result<Self> {
        let feed = Feed::attach(&conn)?;
        Ok(Self {
            conn,
            feed,
            clock,
            poisoned: None,
            written_bytes: 0,
            limit_reported: false,
            log_bytes_max: 0,
            log_reported: false,
        })
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

/// A job given back, and what it came to.
pub(crate) type Submitted = (Job, Result<JobOutcome, QueueError>);

/// Writers waiting for their turn.
pub(crate) type Writers = Line<Job, Submitted>;

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

    /// Whether items of the dataset may stand among the exceptions.
    pub(crate) fn may_have_exceptions(&self, dataset: i64) -> bool {
        let held = self.catalog.datasets.get(&dataset).map_or(0, |state| state.exceptions);
        let changed = self.delta.exceptions.get(&dataset).copied().unwrap_or(0);
        held.saturating_add_signed(changed) > 0
    }

    /// The item is no exception any more.
    pub(crate) fn clear_exception(&mut self, place: (i64, i64, &[u8])) -> rusqlite::Result<()> {
        if self.may_have_exceptions(place.0) {
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
        self.touch(place, 0, -(removed as i64));
        Ok(())
    }

    /// The item was written or removed.
    pub(crate) fn touch(&mut self, place: (i64, i64, &[u8]), seen: u64, rows: i64) {
        let held = self.catalog.directory(place.0, place.1);
        let block = held.map_or(0, |held| held.block_from(0, place.2));
        self.delta.touch((place.0, place.1, block), seen, rows);
    }

    /// Number of a directory; a new one is entered when `create`.
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

    /// Directories that hold nothing any more leave the dictionary.
    fn drop_empty_directories(&self) -> rusqlite::Result<()> {
        let created = self.delta.created.iter().map(|((dataset, _), id)| (*dataset, *id));
        let shrunk = self.delta.changed.iter().filter(|(_, change)| change.1 < 0);
        for (dataset, id) in created.chain(shrunk.map(|((dataset, id, _), _)| (*dataset, *id))) {
            if self.catalog.rows_after(&self.delta, dataset, id) == 0 {
                self.conn.prepare_cached("DELETE FROM directory WHERE id = ?1")?.execute([id])?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Commit the job, together with those of other writers. Gives the job back.
    pub(crate) fn submit(&self, job: Job) -> Submitted {
        let weight = job.steps.len() + job.events.len();
        let answer = self.line.submit(job, weight, self.window(), |jobs| self.commit_line(jobs));
        answer.unwrap_or_else(|| {
            let detail = "a writer died while it committed".to_owned();
            (Job::default(), Err(QueueError::Poisoned { path: self.path.clone(), detail }))
        })
    }

    /// How long a group waits for company: only where every commit is flushed.
    fn window(&self) -> Option<Window> {
        let at_most = self.options.window;
        let waits = self.options.durability == Durability::Power
            && self.options.transaction == Transaction::Group
            && !at_most.is_zero();
        waits.then_some(Window { at_most, weight: WINDOW_CHANGES_MAX })
    }

    fn commit_line(&self, jobs: Vec<Job>) -> Vec<Submitted> {
        match self.writer.lock().as_mut() {
            None => fail(jobs, &self.closed()),
            Some(writer) if self.options.transaction == Transaction::PerEvent => {
                jobs.into_iter().flat_map(|job| self.commit_group(writer, vec![job])).collect()
            }
            Some(writer) => self.commit_group(writer, jobs),
        }
    }

    fn commit_group(&self, writer: &mut Writer, jobs: Vec<Job>) -> Vec<Submitted> {
        let bytes: usize = jobs
            .iter()
            .map(|job| job.bodies.len() + job.events.iter().map(Vec::len).sum::<usize>())
            .sum();
        let feed = writer.feed.clone();
        let all: Vec<&Job> = jobs.iter().collect();
        match self.transact(writer, "commit changes", |txn| apply(txn, &feed, &all)) {
            Err(error) => fail(jobs, &error),
            Ok(outcomes) => {
                self.upkeep(writer, bytes as u64);
                self.watch_log(writer, jobs.iter().map(|job| job.steps.len() as u64).sum());
                jobs.into_iter().zip(outcomes.into_iter().map(Ok)).collect()
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
        let settled = settle(&writer.conn);
        settled.map_err(|error| self.failed(writer, "roll back", error))?;
        match self.try_transact(writer, change) {
            Ok((value, delta)) => {
                let grown = self.catalog.write().apply(delta);
                for directory in grown {
                    self.divide(&writer.conn, directory);
                }
                Ok(value)
            }
            Err(error) => {
                if !writer.conn.is_autocommit()
                    && let Err(error) = writer.conn.execute_batch("ROLLBACK")
                {
                    writer.poisoned = Some(format!("cannot roll back: {error}"));
                }
                let error = self.failed(writer, action, error);
                if error.is_disk_full() {
                    // Where the log only repeats pages that the database already has, folding it
                    // in makes its space usable for the next try.
                    fold_quietly(&writer.conn);
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

impl Inner {
    /// Divide a directory's large blocks. When their names cannot be read they stay as they are:
    /// a lease then reads more than it needs to.
    fn divide(&self, conn: &Connection, (dataset, id): (i64, i64)) {
        let large = {
            let catalog = self.catalog.read();
            catalog.directory(dataset, id).map(Directory::large).unwrap_or_default()
        };
        for stretch in large {
            match boundaries(conn, (dataset, id), &stretch) {
                Ok(at) => self.catalog.write().divide((dataset, id), &stretch, at),
                Err(error) => tracing::debug!(%error, "dividing a large directory"),
            }
        }
    }
}

/// The names in a stretch of which each stands [`BLOCK_ROWS`] rows behind the one before.
fn boundaries(
    conn: &Connection,
    (dataset, directory): (i64, i64),
    stretch: &Stretch,
) -> rusqlite::Result<Vec<Box<[u8]>>> {
    let mut select = conn.prepare_cached(
        "SELECT name FROM item WHERE dataset = ?1 AND directory = ?2 AND name >= ?3 \
         AND name < ?4 ORDER BY name",
    )?;
    let mut rows = select.query((dataset, directory, &stretch.from, stretch.to()))?;
    let (mut found, mut row_number) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if row_number > 0 && row_number % BLOCK_ROWS == 0 {
            found.push(row.get_ref(0)?.as_blob()?.into());
        }
        row_number += 1;
    }
    Ok(found)
}

/// Roll back what a panic left open.
pub(crate) fn settle(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { conn.execute_batch("ROLLBACK") }
}

fn fail(jobs: Vec<Job>, error: &QueueError) -> Vec<Submitted> {
    jobs.into_iter().map(|job| (job, Err(error.clone()))).collect()
}
