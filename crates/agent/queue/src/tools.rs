//! Inspection and maintenance of a database by another process: `queue list`, `queue verify` and
//! `queue compact`. The first two only read, and an agent may have the file open. The last one
//! needs exclusive access.

use std::ops::ControlFlow;
use std::path::Path;

use model::ItemKey;
use model::path::show_terminal;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::body::Body;
use crate::error::{QueueError, classify};
use crate::files::{file_bytes, lock, with_suffix};
use crate::schema;
use crate::space::{fold, vacuum};

/// Most problems that a verification lists; further ones are only counted.
const PROBLEMS_MAX: usize = 100;

/// The items that [`list`] returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Only pending items.
    pub pending: bool,
    /// Only items of this dataset.
    pub dataset: Option<String>,
    /// Only items whose path or key has this prefix.
    pub prefix: Vec<u8>,
}

/// An item returned by [`list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedItem {
    /// Its dataset.
    pub dataset: String,
    /// Its key.
    pub key: ItemKey,
    /// Its version: when it last changed, microseconds since the epoch.
    pub seen: u64,
    /// True if it is pending.
    pub pending: bool,
    /// True if the server may have it, regardless of the watermarks.
    pub known: bool,
    /// The reason why the server refused it, if it did.
    pub refused: Option<String>,
    /// Its content.
    pub body: Body,
}

/// Visits every item that matches the filter, in the order of the table, in one read transaction.
///
/// # Errors
/// Returns an error if the database cannot be read, or holds an item that cannot be decoded.
pub fn list(
    path: &Path,
    filter: &ListFilter,
    visit: &mut dyn FnMut(ListedItem) -> ControlFlow<()>,
) -> Result<(), QueueError> {
    let failed = |error| classify(path, "list", error);
    let conn = crate::peek::open(path)?;
    let mut select = conn
        .prepare(
            "SELECT d.name, p.path, i.name, i.seen, i.seen > d.told, i.known, i.gone, \
                    i.observation, e.reason \
             FROM item AS i JOIN dataset AS d ON d.id = i.dataset \
             JOIN directory AS p ON p.id = i.directory \
             LEFT JOIN exception AS e ON e.dataset = i.dataset AND e.directory = i.directory \
                AND e.name = i.name \
             WHERE (?1 IS NULL OR d.name = ?1) AND (NOT ?2 OR i.seen > d.told) \
             ORDER BY i.dataset, i.directory, i.name",
        )
        .map_err(failed)?;
    let mut rows = select.query((&filter.dataset, filter.pending)).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let read = || -> rusqlite::Result<_> {
            let key = ItemKey::new(row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(2)?);
            if !key.path().starts_with(&filter.prefix) {
                return Ok(None);
            }
            let blob = row.get_ref(7)?.as_blob()?;
            let body = if row.get(6)? { Some(Body::Gone) } else { Body::decode(blob) };
            let seen = row.get::<_, i64>(3)? as u64;
            let (pending, known, refused) = (row.get(4)?, row.get(5)?, row.get(8)?);
            let dataset: String = row.get(0)?;
            let listed = body.map(|body| ListedItem {
                dataset,
                key: key.clone(),
                seen,
                pending,
                known,
                refused,
                body,
            });
            Ok(Some(listed.ok_or(key)))
        };
        let Some(found) = read().map_err(failed)? else { continue };
        let listed = found.map_err(|key| {
            let detail = format!("content of {}", show_terminal(&key.path()));
            QueueError::Corrupt { path: path.to_owned(), detail }
        })?;
        if visit(listed).is_break() {
            break;
        }
    }
    Ok(())
}

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Verified {
    /// Items checked.
    pub items: u64,
    /// Events checked.
    pub events: u64,
    /// Directories in the dictionary.
    pub directories: u64,
    /// The first hundred problems; empty if there are none.
    pub problems: Vec<String>,
    /// Number of problems.
    pub problem_count: u64,
}

impl Verified {
    fn add(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// Consistency checks: the description of a problem, and a query that returns one row per problem.
const CONTRADICTIONS: [(&str, &str); 10] = [
    (
        "item outside the dictionary, directory number",
        "SELECT DISTINCT i.directory FROM item AS i LEFT JOIN directory AS p \
            ON p.id = i.directory AND p.dataset = i.dataset WHERE p.id IS NULL",
    ),
    (
        "directory without items",
        "SELECT p.id FROM directory AS p WHERE NOT EXISTS(SELECT 1 FROM item AS i \
            WHERE i.dataset = p.dataset AND i.directory = p.id)",
    ),
    (
        "directory listed twice",
        "SELECT max(id) FROM directory GROUP BY dataset, path HAVING count(*) > 1",
    ),
    (
        "directory of no dataset",
        "SELECT p.id FROM directory AS p LEFT JOIN dataset AS d ON d.id = p.dataset \
            WHERE d.id IS NULL",
    ),
    (
        "dataset acknowledged beyond what was leased",
        "SELECT id FROM dataset WHERE told > leased OR told < 0",
    ),
    (
        "deleted item that no server has or that still has an observation, directory",
        "SELECT directory FROM item WHERE gone AND (NOT known OR length(observation) > 0)",
    ),
    (
        "exception without its item, directory",
        "SELECT e.directory FROM exception AS e LEFT JOIN item AS i USING(dataset, directory, name) \
            WHERE i.seen IS NULL",
    ),
    (
        "item with a column of an odd type, directory",
        "SELECT directory FROM item WHERE typeof(name) <> 'blob' OR typeof(seen) <> 'integer' \
            OR typeof(known) <> 'integer' OR typeof(gone) <> 'integer'",
    ),
    (
        "event with a column of an odd type, number",
        "SELECT seq FROM event WHERE typeof(body) <> 'blob' OR typeof(dataset) <> 'integer'",
    ),
    (
        "hole in the events, missing",
        "SELECT max(seq) - min(seq) + 1 - count(*) FROM event \
            HAVING max(seq) - min(seq) + 1 <> count(*)",
    ),
];

/// Checks the file's structure and the consistency of its tables, in one read transaction.
///
/// # Errors
/// Returns an error if the database cannot be opened. Problems of its content are in the result.
pub fn verify(path: &Path) -> Result<Verified, QueueError> {
    let conn = crate::peek::open(path)?;
    let mut found = Verified::default();
    if let Err(error) = verify_into(&conn, &mut found) {
        // The database is damaged so that it cannot be read further.
        found.add(error.to_string());
    }
    Ok(found)
}

fn verify_into(conn: &Connection, found: &mut Verified) -> rusqlite::Result<()> {
    let mut check = conn.prepare("PRAGMA integrity_check(100)")?;
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            found.add(line);
        }
    }
    for (what, query) in CONTRADICTIONS {
        let mut select = conn.prepare(query)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            found.add(format!("{what} {}", row.get::<_, i64>(0)?));
        }
    }
    found.events = count(conn, "event")?;
    found.directories = count(conn, "directory")?;
    let mut select = conn.prepare(
        "SELECT i.name, i.observation, i.directory, d.name = ?1 FROM item AS i \
         LEFT JOIN dataset AS d ON d.id = i.dataset WHERE NOT i.gone",
    )?;
    let mut rows = select.query([model::Dataset::fim_files().name()])?;
    while let Some(row) = rows.next()? {
        let files = row.get::<_, Option<bool>>(3)?.unwrap_or_default();
        // The same check as at open, which drops invalid rows.
        if !matches!(row.get_ref(1)?, ValueRef::Blob(bytes) if Body::is_sound(bytes, files)) {
            let name = show_terminal(row.get_ref(0)?.as_bytes()?);
            let directory: i64 = row.get(2)?;
            found.add(format!("content of {name} in directory {directory} cannot be decoded"));
        }
    }
    found.items = count(conn, "item")?;
    Ok(())
}

fn count(conn: &Connection, table: &str) -> rusqlite::Result<u64> {
    let count: i64 = conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0))?;
    Ok(count as u64)
}

/// Result of compacting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    /// Bytes of file and log before.
    pub bytes_before: u64,
    /// Bytes of file and log afterwards.
    pub bytes_after: u64,
}

/// Checkpoints the log and gives back all unused space. The file is rewritten, which temporarily
/// takes its size once more. If there is not enough space, only unused pages are given back. The
/// clean-shutdown mark does not change.
///
/// # Errors
/// Returns [`QueueError::Locked`] while an agent has it open, or an error if it is not an agent's
/// database or is damaged.
pub fn compact(path: &Path) -> Result<Compacted, QueueError> {
    let _lock = lock(path)?;
    let failed = |error| classify(path, "compact", error);
    drop(crate::peek::open(path)?);
    let bytes = || file_bytes(path) + file_bytes(&with_suffix(path, "-wal"));
    let bytes_before = bytes();
    let conn = schema::open_writer(path).map_err(failed)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    let quick: String =
        conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if quick != "ok" {
        return Err(QueueError::Corrupt { path: path.to_owned(), detail: quick });
    }
    if let Err(error) = conn.execute_batch("VACUUM") {
        tracing::info!(path = %path.display(), %error, "no space to rewrite the file");
        vacuum(&conn, 0).map_err(failed)?;
    }
    fold(&conn).map_err(failed)?;
    drop(conn);
    Ok(Compacted { bytes_before, bytes_after: bytes() })
}
