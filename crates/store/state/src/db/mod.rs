//! The state store on SQLite: `state.db` (`docs/format/state-db.md`).
//!
//! One writer connection behind a lock, a fixed number of readers on snapshots, and explicit
//! checkpoints of the write-ahead log: `synchronous=NORMAL` flushes at checkpoints only, and the
//! journal holds the records that a power cut removes.

mod agent;
mod apply;
mod backup;
mod changes;
mod collapse;
mod connections;
mod counters;
mod documents;
mod event_time;
mod extract;
mod fleet;
mod kinds;
mod packed;
mod quarantine;
mod ranges;
mod replay;
mod reports;
mod retain;
mod schema;
mod server_events;
mod sessions;
mod statements;
#[cfg(test)]
mod tests;
mod transaction_cache;
mod wal;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::clock::{Clock, SystemClock};
use env::random::{Random, SystemRandom};
use model::{
    AgentId, AgentReport, Applied, Dataset, Incarnation, Overlay, Position, Record, ReportKind,
};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use crate::StateStore;
use crate::error::{Context, StateError};
use crate::query::{
    AgentCounts, ArrivalQuery, Arrivals, ChangePage, ChangeQuery, Condition, DocumentPage,
    DocumentQuery, FleetQuery, Retained, Retention, StateCounts, StoredDocument, StoredEvent,
};
use apply::{Applier, Failure};
use connections::{BUSY_WAIT, open_reader, open_writer, snapshot};
use model::Permitted;
use sqlite::Reader;
use sqlite::ReaderPool;
use transaction_cache::Progress;

/// Random bytes of a store's name.
const STORE_ID_BYTES: usize = 16;

/// Options for opening the store.
#[derive(Clone)]
pub struct StateOptions {
    /// Number of connections for queries.
    pub readers: usize,
    /// Source of a new store's name.
    pub random: Arc<dyn Random>,
    /// Clock for the time at which undecodable bytes are set aside.
    pub clock: Arc<dyn Clock>,
    /// Size of the write-ahead log above which a checkpoint is due, bytes.
    pub wal_bytes_max: u64,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            readers: crate::limits::READERS,
            random: Arc::new(SystemRandom),
            clock: Arc::new(SystemClock::new()),
            wal_bytes_max: crate::limits::WAL_BYTES_MAX,
        }
    }
}

impl fmt::Debug for StateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateOptions").field("readers", &self.readers).finish_non_exhaustive()
    }
}

/// A state store in the SQLite file `state.db`.
pub struct SqliteState {
    file: PathBuf,
    store_id: String,
    clock: Arc<dyn Clock>,
    writer: Mutex<Connection>,
    /// Copies the write-ahead log into the database without holding the writer.
    checkpointer: Mutex<Connection>,
    readers: ReaderPool,
    applied: AtomicU64,
    persisted: AtomicU64,
    wal_bytes_max: u64,
}

impl fmt::Debug for SqliteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteState").field("file", &self.file).finish_non_exhaustive()
    }
}

impl SqliteState {
    /// Opens or creates the database file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is not a state database, or was written by a newer
    /// version.
    pub fn open(file: &Path, options: StateOptions) -> Result<Self, StateError> {
        env::files::drop_cached_pages(file);
        let mut writer = open_writer(file, options.wal_bytes_max)?;
        let new = schema::migrate(&mut writer, file)?;
        let store_id = match stored_id(&writer)? {
            Some(id) => id,
            None => draw_id(&writer, file, &*options.random)?,
        };
        if new {
            // A new store's name must survive a power cut before it is sent to any agent.
            wal::checkpoint(&writer)?;
            sync_folder(file)?;
        } else {
            wal::truncate_left_behind(&writer)?;
        }
        let applied = Progress::load(&writer).context("read the state's position")?.applied;
        let checkpointer = open_writer(file, options.wal_bytes_max)?;
        let readers = ReaderPool::open(options.readers, || open_reader(file))
            .context("open state.db for queries")?;
        Ok(Self {
            file: file.to_owned(),
            store_id,
            clock: options.clock,
            writer: Mutex::new(writer),
            checkpointer: Mutex::new(checkpointer),
            readers,
            applied: AtomicU64::new(applied),
            persisted: AtomicU64::new(0),
            wal_bytes_max: options.wal_bytes_max,
        })
    }

    /// Runs the most frequent queries on every reader, so that the first requests find their
    /// statements prepared and their pages cached.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn warm(&self) -> Result<(), StateError> {
        const WHAT: &str = "warm the readers";
        let changes = ChangeQuery { limit: 1, ..ChangeQuery::default() };
        let documents = FleetQuery {
            agents: Permitted::All,
            dataset: Dataset::fim_files(),
            condition: Condition::default(),
            sort: Vec::new(),
            offset: 0,
            limit: 1,
        };
        let query = |db: &Connection| {
            counters::counts(db).context(WHAT)?;
            changes::changes(db, &changes)?;
            fleet::documents(db, &documents).map(drop)
        };
        self.readers.each(|db| snapshot(db, WHAT, query))
    }

    /// Runs a query on one snapshot.
    fn read<T>(
        &self,
        reader: &Reader,
        what: &str,
        query: impl FnOnce(&Connection) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let answer = self.readers.read(reader, |db| snapshot(db, what, query));
        answer.unwrap_or_else(|| Err(StateError::Busy { what: what.to_owned() }))
    }

    /// Returns the position that a database has applied, even if another process has it open. Reads
    /// only.
    ///
    /// # Errors
    /// Returns an error if it cannot be read or is not a state database.
    pub fn peek_applied(file: &Path) -> Result<Position, StateError> {
        const WHAT: &str = "read the state's position";
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = Connection::open_with_flags(file, flags).context(WHAT)?;
        db.busy_timeout(BUSY_WAIT).context(WHAT)?;
        let applied: i64 =
            db.query_row("SELECT applied FROM progress", [], |row| row.get(0)).context(WHAT)?;
        Ok(Position(applied as u64))
    }

    /// Prepares a state for a journal that ends at `end`, before what the state has applied: a
    /// restored copy for a new, empty journal (0), or the state next to a journal that lost its
    /// end. Positions continue from there, and the store draws a new name, so that every agent
    /// checks what it holds.
    ///
    /// # Errors
    /// See [`SqliteState::open`].
    pub fn prepare_restored(file: &Path, end: Position) -> Result<(), StateError> {
        const WHAT: &str = "prepare the restored state";
        let mut db = open_writer(file, crate::limits::WAL_BYTES_MAX)?;
        schema::migrate(&mut db, file)?;
        // A position is the number of a record; it never reaches 2^63.
        db.execute("UPDATE progress SET applied = ?1", [end.0.cast_signed()]).context(WHAT)?;
        draw_id(&db, file, &SystemRandom)?;
        wal::checkpoint(&db)?;
        db.close().map_err(|(_, e)| e).context(WHAT)
    }

    /// Gives the store of a copy that replaces the original a new name, so that every agent checks
    /// what the copy holds. Positions continue.
    ///
    /// # Errors
    /// See [`SqliteState::open`].
    pub fn prepare_promoted(file: &Path) -> Result<(), StateError> {
        let mut db = open_writer(file, crate::limits::WAL_BYTES_MAX)?;
        schema::migrate(&mut db, file)?;
        draw_id(&db, file, &SystemRandom)?;
        wal::checkpoint(&db)?;
        db.close().map_err(|(_, e)| e).context("prepare the promoted state")
    }

    /// Runs `work` in one write transaction and publishes the position at which it ends.
    fn write<T>(
        &self,
        what: &str,
        work: impl FnOnce(&mut Applier<'_>) -> Result<T, Failure>,
    ) -> Result<Result<T, Failure>, StateError> {
        let mut db = self.writer.lock();
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).context(what)?;
        let mut applier = Applier::in_transaction(&tx).context(what)?;
        match work(&mut applier) {
            Ok(answer) => {
                let position = applier.finish().context(what)?;
                tx.commit().context(what)?;
                self.applied.store(position.0, Ordering::Release);
                Ok(Ok(answer))
            }
            Err(Failure::Database(error)) => Err(error).context(what),
            Err(failure) => Ok(Err(failure)),
        }
    }
}

impl StateStore for SqliteState {
    fn apply(&self, batch: &[(Position, Record)]) -> Result<Vec<Applied>, StateError> {
        const WHAT: &str = "apply records";
        let mut aside: Vec<Option<String>> = vec![None; batch.len()];
        loop {
            let (place, reason) = match self.write(WHAT, |applier| applier.apply(batch, &aside))? {
                Ok(answers) => return Ok(answers),
                Err(Failure::Database(error)) => return Err(error).context(WHAT),
                Err(Failure::Record(place, reason)) => (place, reason),
            };
            if let Some(slot) = aside.get_mut(place) {
                *slot = Some(reason);
            }
        }
    }

    fn quarantine(&self, position: Position, bytes: &[u8], reason: &str) -> Result<(), StateError> {
        let now_us = self.clock.guarded_us();
        let written = self.write("set a record aside", |applier| {
            if position > applier.applied() {
                applier
                    .set_aside(position, AgentId::SERVER, now_us, bytes, reason)
                    .map_err(Failure::Database)?;
                applier.advance(position);
            }
            Ok(())
        })?;
        written.map_err(|_| StateError::Query("the record cannot be set aside".into()))
    }

    fn applied(&self) -> Result<Position, StateError> {
        Ok(Position(self.applied.load(Ordering::Acquire)))
    }

    fn checkpoint(&self) -> Result<Position, StateError> {
        self.checkpoint_wal()
    }

    fn checkpoint_due(&self) -> bool {
        self.log_bytes() > self.wal_bytes_max
    }

    fn log_bytes(&self) -> u64 {
        wal::bytes(&self.file)
    }

    fn shrink(&self) -> Result<bool, StateError> {
        self.truncate_wal(wal::PAUSE)
    }

    fn store_id(&self) -> String {
        self.store_id.clone()
    }

    fn last_session(&self, reader: &Reader, agent: AgentId) -> Result<Option<String>, StateError> {
        self.read(reader, "read the last session", |db| {
            db.prepare_cached("SELECT last_session FROM agent WHERE number = ?1")
                .and_then(|mut s| s.query_row([agent.0], |r| r.get(0)).optional())
                .map(Option::flatten)
                .context("read the last session")
        })
    }

    fn overlay(&self, reader: &Reader, agent: AgentId) -> Result<Option<Overlay>, StateError> {
        self.read(reader, "read what an agent is", |db| {
            let read = |r: &rusqlite::Row<'_>| Ok((r.get(0)?, r.get(1)?));
            let found: Option<(String, String)> = db
                .prepare_cached("SELECT overlay, name FROM agent WHERE number = ?1")
                .and_then(|mut s| s.query_row([agent.0], read).optional())
                .context("read what an agent is")?;
            Ok(found.and_then(|(overlay, name)| agent::read_overlay(&overlay, &name)))
        })
    }

    fn report(
        &self,
        reader: &Reader,
        agent: AgentId,
        incarnation: Incarnation,
        kind: ReportKind,
    ) -> Result<Option<AgentReport>, StateError> {
        self.read(reader, "read a report", |db| {
            reports::report(db, agent, incarnation, kind).context("read a report")
        })
    }

    fn document(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        id: &str,
    ) -> Result<Option<StoredDocument>, StateError> {
        self.read(reader, "read a document", |db| documents::document(db, agent, dataset, id))
    }

    fn documents(
        &self,
        reader: &Reader,
        query: &DocumentQuery,
    ) -> Result<DocumentPage, StateError> {
        self.read(reader, "read documents", |db| documents::documents(db, query))
    }

    fn fleet_documents(
        &self,
        reader: &Reader,
        query: &FleetQuery,
    ) -> Result<DocumentPage, StateError> {
        self.read(reader, "read documents of the fleet", |db| fleet::documents(db, query))
    }

    fn checksum(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
    ) -> Result<String, StateError> {
        self.read(reader, "read checksums", |db| documents::checksum(db, agent, dataset))
    }

    fn each_in_ranges(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        ranges: &[(u64, u64)],
        visit: &mut dyn FnMut(&str, u64, &str) -> bool,
    ) -> Result<(), StateError> {
        self.read(reader, "read documents of ranges", |db| {
            ranges::each_in_ranges(db, agent, dataset, ranges, visit)
        })
    }

    fn changes(&self, reader: &Reader, query: &ChangeQuery) -> Result<ChangePage, StateError> {
        self.read(reader, "read changes", |db| changes::changes(db, query))
    }

    fn arrivals(
        &self,
        reader: &Reader,
        query: &ArrivalQuery,
        visit: &mut dyn FnMut(StoredEvent) -> bool,
    ) -> Result<Arrivals, StateError> {
        self.read(reader, "read arrivals", |db| changes::arrivals(db, query, visit))
    }

    fn counts(&self, reader: &Reader) -> Result<StateCounts, StateError> {
        self.read(reader, "read the counters", |db| {
            counters::counts(db).context("read the counters")
        })
    }

    fn agent_counts(&self, reader: &Reader, agent: AgentId) -> Result<AgentCounts, StateError> {
        self.read(reader, "read the counters", |db| {
            counters::agent_counts(db, agent).context("read the counters")
        })
    }

    fn retain(&self, policy: &Retention, now_us: u64) -> Result<Retained, StateError> {
        let mut dropped = retain::Dropped::default();
        // The lock is released between the chunks, so that the applier can run.
        while retain::events(&mut self.writer.lock(), policy, now_us, &mut dropped)? {}
        let mut tombstones = 0;
        loop {
            match retain::tombstones(&mut self.writer.lock(), now_us)? {
                0 => break,
                some => tombstones += some,
            }
        }
        retain::unused_datasets(&mut self.writer.lock())?;
        Ok(dropped.retained(tombstones))
    }

    fn backup_to(&self, file: &Path) -> Result<(), StateError> {
        // A separate connection: no query waits for the copy, and its time is not limited.
        backup::backup(&open_reader(&self.file).context("open state.db for a copy")?, file)
    }
}

fn stored_id(db: &Connection) -> Result<Option<String>, StateError> {
    db.query_row("SELECT value FROM meta WHERE key = 'store_id'", [], |r| r.get(0))
        .optional()
        .context("read the store's name")
}

fn draw_id(db: &Connection, file: &Path, random: &dyn Random) -> Result<String, StateError> {
    let mut bytes = [0; STORE_ID_BYTES];
    random
        .fill_bytes(&mut bytes)
        .map_err(|source| StateError::Io { path: file.to_owned(), source })?;
    let id = hex::encode(bytes);
    db.execute(
        "INSERT INTO meta VALUES ('store_id', ?1)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [&id],
    )
    .context("name the store")?;
    Ok(id)
}

fn sync_folder(file: &Path) -> Result<(), StateError> {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|f| f.sync_all())
        .map_err(|source| StateError::Io { path: folder.to_owned(), source })
}
