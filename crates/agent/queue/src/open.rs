//! Opens agent.db: takes the lock, checks the file, drops rows that cannot be decoded, moves a
//! damaged file aside, and loads the catalog.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use env::clock::Clock;
use env::random::Random;
use model::{Coverage, CoverageKind, EventBody};
use rusqlite::{Connection, OptionalExtension as _};

use crate::catalog::{Catalog, Epoch, LoadedCatalog, UndecodableRow};
use crate::error::{QueueError, classify, io_error, is_damage};
use crate::events::event_count;
use crate::files::{FILE_MODE, lock, with_suffix};
use crate::head;
use crate::inner::Parts;
use crate::options::{Dropped, QueueOpenReport, QueueOptions, Rebuilt};
use crate::schema;
use crate::space::checkpoint_after_commits;
use crate::transition::HybridClock;
use crate::writer::{Poison, Writer};

/// Most damaged files that are kept; older ones are removed.
const DAMAGED_FILES_MAX: usize = 3;

/// Most rows that cannot be decoded and are dropped. A file with more of them is damaged.
const DROPPED_MAX: usize = 10_000;

/// Number of consecutive runs that met damage although the checks at open found none. After these
/// the file is replaced; otherwise the agent would restart endlessly.
const DAMAGE_MET_MAX: i64 = 3;

/// Most names tried for the damaged copy. The name is a time in seconds.
const COPY_NAMES_MAX: u64 = 1000;

/// An opened database.
pub(crate) struct Opened {
    pub(crate) parts: Parts,
    pub(crate) report: QueueOpenReport,
}

/// A database ready for use.
struct Database {
    writer: Writer,
    catalog: Catalog,
}

/// The reason why an attempt to open failed.
enum Attempt {
    /// The content is damaged, and the file is to be moved aside.
    Damaged(String),
    Engine(rusqlite::Error),
    Failed(QueueError),
}

impl From<rusqlite::Error> for Attempt {
    fn from(error: rusqlite::Error) -> Self {
        if is_damage(&error) { Self::Damaged(error.to_string()) } else { Self::Engine(error) }
    }
}

impl Attempt {
    fn into_error(self, path: &Path) -> QueueError {
        match self {
            Self::Damaged(detail) => QueueError::Corrupt { path: path.to_path_buf(), detail },
            Self::Engine(error) => classify(path, "open", error),
            Self::Failed(error) => error,
        }
    }
}

/// Opens the database. A damaged file is moved aside and replaced by a new one.
pub(crate) fn open(
    path: &Path,
    options: &QueueOptions,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<Opened, QueueError> {
    let lock = lock(path)?;
    env::files::drop_cached_pages(path);
    let opening = Opening { path, options, clock, random, from_us: modified_us(path) };
    let mut report = QueueOpenReport::default();
    let Database { writer, catalog } = match opening.attempt(&mut report) {
        Ok(opened) => opened,
        Err(Attempt::Damaged(reason)) => {
            // SQLite reports some failed reads as damage. The file may then be intact.
            read_through(path)?;
            tracing::error!(path = %path.display(), reason, "agent database damaged: rebuilding");
            let moved_to = move_aside(path, clock.now_us() / 1_000_000)?;
            let rebuilt = Some(Rebuilt { moved_to, reason });
            report = QueueOpenReport { rebuilt, ..QueueOpenReport::default() };
            opening.attempt(&mut report).map_err(|again| again.into_error(path))?
        }
        Err(other) => return Err(other.into_error(path)),
    };
    Ok(Opened { parts: Parts { lock, writer, catalog }, report })
}

/// Reads the database and its log, and returns the error of the first read that fails.
fn read_through(path: &Path) -> Result<(), QueueError> {
    for file in [path.to_path_buf(), with_suffix(path, "-wal")] {
        let read = File::open(&file).and_then(|mut opened| io::copy(&mut opened, &mut io::sink()));
        match read {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error(&file, "read", error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The arguments of an open.
struct Opening<'a> {
    path: &'a Path,
    options: &'a QueueOptions,
    clock: &'a dyn Clock,
    random: &'a dyn Random,
    /// When the file was last written.
    from_us: u64,
}

impl Opening<'_> {
    fn attempt(&self, report: &mut QueueOpenReport) -> Result<Database, Attempt> {
        let poisoned = Poison::default();
        let mut conn = self.connect(report, &poisoned)?;
        let Some(clean) = schema::meta(&conn, schema::META_CLEAN)? else {
            return Err(Attempt::Damaged("the clean-shutdown flag is missing".into()));
        };
        report.unclean = clean == 0;
        if clean == 0 {
            check(&conn)?;
        }
        let LoadedCatalog { mut catalog, mut last, unsound } = Catalog::load(&conn)?;
        if !unsound.is_empty() {
            if clean != 0 {
                check(&conn)?;
            }
            let newest = last;
            report.dropped = Some(drop_rows(&mut conn, &unsound)?);
            let again = Catalog::load(&conn)?;
            if let Some(row) = again.unsound.first() {
                return Err(Attempt::Damaged(format!("{} cannot be dropped", row.path)));
            }
            (catalog, last) = (again.catalog, again.last.max(newest));
        } else if schema::meta(&conn, schema::META_DAMAGE_MET)?.unwrap_or(0) >= DAMAGE_MET_MAX {
            return Err(Attempt::Damaged("damage that no opening finds was met again".into()));
        }
        if let Some(rebuilt) = &report.rebuilt {
            let copy = rebuilt.moved_to.display();
            let detail = format!("{}; the damaged file is kept as {copy}", rebuilt.reason);
            append_gap(&conn, self.gap(detail))?;
        }
        let clock = schema::meta(&conn, schema::META_CLOCK)?.unwrap_or(0) as u64;
        self.finish((conn, poisoned), catalog, last.max(clock), report)
    }

    /// Returns the writing connection. Creates the database if it does not exist.
    fn connect(
        &self,
        report: &mut QueueOpenReport,
        poisoned: &Poison,
    ) -> Result<Connection, Attempt> {
        let path = self.path;
        // Created here for its permissions; SQLite uses them for its other files as well.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(path)
            .map_err(|error| Attempt::Failed(io_error(path, "create", error)))?;
        let mut conn = schema::open_writer(path)?;
        // A damaged header is detected here, before anything is written.
        let version = schema::pragma(&conn, "user_version")?;
        let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_master", [], |r| r.get(0))?;
        let new = version == 0 && tables == 0;
        if new {
            schema::shape(&conn, self.options)?;
        } else if schema::pragma(&conn, "application_id")? != schema::APPLICATION_ID {
            return Err(Attempt::Failed(QueueError::Foreign { path: path.to_path_buf() }));
        } else if version > schema::VERSION {
            return Err(Attempt::Failed(QueueError::Newer {
                path: path.to_path_buf(),
                found: version,
                known: schema::VERSION,
            }));
        }
        schema::configure(&conn, self.options)?;
        if new {
            schema::create(&mut conn)?;
            report.created = true;
        } else if version < schema::VERSION {
            conn.pragma_update(None, "user_version", schema::VERSION)?;
        }
        checkpoint_after_commits(&mut conn, path, self.options.checkpoint_pages(), poisoned)?;
        Ok(conn)
    }

    /// Marks the database as in use, draws an epoch of event ids, and records that the server may
    /// have any item.
    fn finish(
        &self,
        (conn, poisoned): (Connection, Poison),
        mut catalog: Catalog,
        last: u64,
        report: &mut QueueOpenReport,
    ) -> Result<Database, Attempt> {
        // Both are done at every open, because the file may be a restored copy that was closed
        // cleanly. It must not reuse event ids, and must not drop items, that were sent after it
        // was made.
        let epoch = self
            .random
            .next_u64()
            .map_err(|error| Attempt::Failed(io_error(self.path, "draw an epoch", error)))?;
        prepare(&conn, self.options, &mut catalog, last, epoch)?;
        if let Some(dropped) = &report.dropped {
            // Appended after the new epoch began.
            let detail = format!(
                "{} items of the agent's database could not be decoded and were dropped, the first \
                 of them {}; they are reported as created when they are found again",
                dropped.items, dropped.first
            );
            append_gap(&conn, self.gap(detail))?;
        }
        schema::set_durability(&conn, self.options.durability)?;
        report.items = catalog
            .datasets
            .values()
            .flat_map(|state| state.directories.values())
            .map(|directory| directory.rows)
            .sum();
        report.events = event_count(&conn)?;
        report.epoch = catalog.epoch();
        let writer = Writer::new(conn, HybridClock::after(last), poisoned)?;
        Ok(Database { writer, catalog })
    }

    fn gap(&self, detail: String) -> Coverage {
        let to_us = self.clock.now_us();
        Coverage {
            kind: CoverageKind::DatabaseRebuilt,
            path: String::new(),
            from_us: self.from_us.min(to_us),
            to_us,
            found: None,
            lasting: None,
            detail,
        }
    }
}

/// Checks the structure of the whole file.
fn check(conn: &Connection) -> Result<(), Attempt> {
    let found: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(Attempt::Damaged(found));
    }
    if let Some(found) = Catalog::contradiction(conn)? {
        return Err(Attempt::Damaged(found));
    }
    let odd: i64 = conn.query_row(
        "SELECT count(*) FROM event WHERE typeof(body) NOT IN ('blob', 'text')",
        [],
        |row| row.get(0),
    )?;
    if odd > 0 {
        return Err(Attempt::Damaged(format!("{odd} events without a body")));
    }
    // An exception can be dropped, because the server would refuse the item again.
    conn.execute(
        "DELETE FROM exception WHERE typeof(name) <> 'blob' OR typeof(seen) <> 'integer' \
            OR typeof(reason) <> 'text'",
        [],
    )?;
    Ok(())
}

/// Drops the rows that cannot be decoded. A scan and a check restore their items; their events are
/// kept.
fn drop_rows(conn: &mut Connection, unsound: &[UndecodableRow]) -> Result<Dropped, Attempt> {
    let first = unsound.first().map(|row| row.path.clone()).unwrap_or_default();
    if unsound.len() > DROPPED_MAX {
        return Err(Attempt::Damaged(format!("content of more than {DROPPED_MAX} items")));
    }
    let tx = conn.transaction()?;
    for row in unsound {
        for delete in [
            "DELETE FROM item WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
            "DELETE FROM exception WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
        ] {
            tx.prepare_cached(delete)?.execute((row.dataset, row.directory, &row.name))?;
        }
    }
    tx.execute(
        "DELETE FROM directory WHERE NOT EXISTS(SELECT 1 FROM item AS i \
            WHERE i.dataset = directory.dataset AND i.directory = directory.id)",
        [],
    )?;
    // If the process is killed before the gap is reported, the next open is unclean, and agent and
    // server are compared in any case.
    schema::set_meta(&tx, schema::META_CLEAN, 0)?;
    schema::set_meta(&tx, schema::META_DAMAGE_MET, 0)?;
    tx.commit()?;
    tracing::error!(
        items = unsound.len(),
        first,
        "agent database: items that cannot be decoded dropped"
    );
    Ok(Dropped { items: unsound.len() as u64, first })
}

/// Prepares an opened database in one transaction: marks it as in use, stores the clock and the
/// settings, starts an epoch of event ids, and updates the marks of each dataset. Updates the
/// catalog as well.
fn prepare(
    conn: &Connection,
    options: &QueueOptions,
    catalog: &mut Catalog,
    last: u64,
    epoch: u64,
) -> rusqlite::Result<()> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    schema::set_meta(conn, schema::META_CLEAN, 0)?;
    schema::set_meta(conn, schema::META_CLOCK, last as i64)?;
    schema::set_settings(conn, options)?;
    let next: i64 = conn
        .query_row("SELECT seq + 1 FROM sqlite_sequence WHERE name = 'event'", [], |r| r.get(0))
        .optional()?
        .unwrap_or(1);
    // In a database that was just rebuilt, the first event precedes the first epoch.
    let first = if catalog.epochs.is_empty() { 1 } else { next };
    conn.execute("INSERT OR REPLACE INTO epoch VALUES(?1, ?2)", (first, epoch as i64))?;
    let first_seq = first as u64;
    catalog.epochs.retain(|epoch| epoch.first_seq != first_seq);
    catalog.epochs.push(Epoch { first_seq, epoch });
    // Remove the epochs that have no queued event.
    let oldest: Option<i64> = conn.query_row("SELECT min(seq) FROM event", [], |r| r.get(0))?;
    let keep = oldest.unwrap_or(i64::MAX) as u64;
    let current = catalog.epochs.partition_point(|epoch| epoch.first_seq <= keep).saturating_sub(1);
    for epoch in catalog.epochs.drain(..current) {
        conn.execute("DELETE FROM epoch WHERE first_seq = ?1", [epoch.first_seq as i64])?;
    }
    for (id, state) in &mut catalog.datasets {
        state.head.marks = state.head.marks.open(last);
        head::store(conn, *id, &state.head)?;
    }
    conn.execute_batch("COMMIT")
}

fn append_gap(conn: &Connection, gap: Coverage) -> rusqlite::Result<()> {
    let event = EventBody::of_coverage(gap);
    conn.execute("INSERT INTO event(dataset, body) VALUES(0, ?1)", [event.to_json()]).map(drop)
}

/// Returns the time of the file's last write, microseconds since the epoch; 0 if it is unknown.
fn modified_us(path: &Path) -> u64 {
    std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_micros() as u64)
}

/// Renames the database and its log; returns the new name.
fn move_aside(path: &Path, now_s: u64) -> Result<PathBuf, QueueError> {
    let free = (now_s..now_s + COPY_NAMES_MAX)
        .map(|at| with_suffix(path, &format!(".corrupt-{at}")))
        .find(|copy| !copy.exists());
    let Some(target) = free else {
        return Err(QueueError::Corrupt {
            path: path.to_path_buf(),
            detail: "no name left".into(),
        });
    };
    let rename = |from: PathBuf, to: PathBuf| match std::fs::rename(&from, &to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error(&from, "move aside", error))
        }
        _ => Ok(()),
    };
    // The log is renamed first: a database left without its log would look complete.
    rename(with_suffix(path, "-wal"), with_suffix(&target, "-wal"))?;
    rename(path.to_path_buf(), target.clone())?;
    match std::fs::remove_file(with_suffix(path, "-shm")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error(path, "remove the shared index", error));
        }
        _ => {}
    }
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| io_error(folder, "persist the folder", error))?;
        remove_old_copies(path, folder);
    }
    Ok(target)
}

/// Removes the oldest damaged copies. A failure does not prevent the start.
fn remove_old_copies(path: &Path, folder: &Path) {
    let Some(name) = path.file_name() else { return };
    let prefix = format!("{}.corrupt-", name.to_string_lossy());
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut copies: Vec<(u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let at = entry.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok()?;
            Some((at, entry.path()))
        })
        .collect();
    copies.sort();
    let excess = copies.len().saturating_sub(DAMAGED_FILES_MAX);
    for (_, copy) in copies.into_iter().take(excess) {
        tracing::warn!(path = %copy.display(), "removing an old damaged agent database");
        for file in [with_suffix(&copy, "-wal"), copy] {
            if let Err(error) = std::fs::remove_file(&file)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %file.display(), %error, "cannot remove");
            }
        }
    }
}
