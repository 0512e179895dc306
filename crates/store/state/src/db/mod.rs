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
mod fleet;
mod gaps;
mod kinds;
mod quarantine;
mod ranges;
mod replay;
mod reports;
mod retain;
mod schema;
mod server_events;
mod sessions;
mod statements;
mod terms;
#[cfg(test)]
mod tests;
mod transaction_cache;
mod wal;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::random::{Random, SystemRandom};
use model::{AgentId, Applied, Dataset, Position, Record};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use crate::error::{Context, StateError};
use crate::query::{ChangeQuery, Condition, FleetQuery};
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
    /// Size of the write-ahead log above which a checkpoint is due, bytes.
    pub wal_bytes_max: u64,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            readers: crate::limits::READERS,
            random: Arc::new(SystemRandom),
            wal_bytes_max: crate::limits::WAL_BYTES_MAX,
        }
    }
}

impl fmt::Debug for StateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateOptions").field("readers", &self.readers).finish_non_exhaustive()
    }
}

/// A store of what agents report: documents, events and the position of the last record applied, in
/// `state.db`. Calls block; call them from a thread that may. Only one caller may apply at a time,
/// any number may read; each query names its [`Reader`].
pub struct StateStore {
    file: PathBuf,
    store_id: String,
    writer: Mutex<Connection>,
    /// Copies the write-ahead log into the database without holding the writer.
    checkpointer: Mutex<Connection>,
    readers: ReaderPool,
    applied: AtomicU64,
    persisted: AtomicU64,
    wal_bytes_max: u64,
}

impl fmt::Debug for StateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateStore").field("file", &self.file).finish_non_exhaustive()
    }
}

impl StateStore {
    /// Opens or creates the database file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is not a state database, or was written by a newer
    /// version.
    pub fn open(file: &Path, options: StateOptions) -> Result<Self, StateError> {
        let StateOptions { readers, random, wal_bytes_max } = options;
        env::files::drop_cached_pages(file);
        let mut writer = open_writer(file, wal_bytes_max)?;
        let new = schema::migrate(&mut writer, file)?;
        let store_id = match stored_id(&writer)? {
            Some(id) => id,
            None => draw_id(&writer, file, &*random)?,
        };
        if new {
            // A new store's name must survive a power cut before it is sent to any agent.
            wal::checkpoint(&writer)?;
            sync_folder(file)?;
        } else {
            wal::truncate_left_behind(&writer)?;
        }
        let applied = Progress::load(&writer).context("read the state's position")?.applied;
        let checkpointer = open_writer(file, wal_bytes_max)?;
        let readers =
            ReaderPool::open(readers, || open_reader(file)).context("open state.db for queries")?;
        Ok(Self {
            file: file.to_owned(),
            store_id,
            writer: Mutex::new(writer),
            checkpointer: Mutex::new(checkpointer),
            readers,
            applied: AtomicU64::new(applied),
            persisted: AtomicU64::new(0),
            wal_bytes_max,
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
    /// See [`StateStore::open`].
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
    /// See [`StateStore::open`].
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

impl StateStore {
    /// Applies records in journal order, in one transaction that also stores the last position. A
    /// record at or below the stored position is skipped (its [`Applied`] is empty). A session that
    /// is among the agent's last [`crate::limits::SESSIONS_KEPT`] by id and content writes nothing
    /// ([`Applied::replayed`]), nor does one whose id has an earlier time than theirs
    /// ([`Applied::outdated`]) or one of a life that has ended ([`Applied::refused`]). A record
    /// that cannot be applied is set aside with a coverage event ([`Applied::quarantined`]) and
    /// does not fail the batch. Returns one result per record, in order.
    ///
    /// # Errors
    /// Returns an error if the transaction fails; then nothing of the batch was applied.
    pub fn apply(&self, batch: &[(Position, Record)]) -> Result<Vec<Applied>, StateError> {
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

    /// Sets aside the bytes of a record that cannot be decoded, with a coverage event, and stores
    /// its position. Does nothing when the position is already applied.
    ///
    /// # Errors
    /// Returns an error if the transaction fails.
    pub fn quarantine(
        &self,
        position: Position,
        bytes: &[u8],
        reason: &str,
    ) -> Result<(), StateError> {
        let written = self.write("set a record aside", |applier| {
            if position > applier.applied() {
                applier
                    .set_aside(position, AgentId::SERVER, None, bytes, reason)
                    .map_err(Failure::Database)?;
                applier.advance(position);
            }
            Ok(())
        })?;
        written.map_err(|_| StateError::Query("the record cannot be set aside".into()))
    }

    /// Returns the position of the last record applied.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn applied(&self) -> Result<Position, StateError> {
        Ok(Position(self.applied.load(Ordering::Acquire)))
    }

    /// Returns the store's random name, drawn at its creation. An agent uses it to check that this
    /// store is still the one that holds what the agent reported.
    pub fn store_id(&self) -> String {
        self.store_id.clone()
    }

    /// Writes a consistent copy to a new file while the store is in use.
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be written.
    pub fn backup_to(&self, file: &Path) -> Result<(), StateError> {
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
