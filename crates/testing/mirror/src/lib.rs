//! The registry's database for tests. Every record of rows is applied to a second database, and after
//! each commit all tables of both are compared: so every test of a decision also shows that a follower
//! would have it.
//!
//! `HOLDFAST_MIRROR=off` leaves the second database out; then nothing is logged.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::log::{EXCLUDED, RowLog, RowLogError};
use control::{ControlResult, ControlStore};
use parking_lot::Mutex;
use rows::{Applier, Excluded, ExcludedColumn, Rows, contents};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

/// Connections for queries.
const READERS: usize = 3;
/// Above this number of rows, only each 200th record is compared.
const ROWS_EACH_TIME: i64 = 3_000;
const RECORDS_PER_COMPARISON: u64 = 200;

/// The parts that are left out of the comparison, which covers what triggers keep.
const UNCOMPARED: Excluded = Excluded {
    tables: &["progress", "unlogged"],
    columns: &[ExcludedColumn { table: "agent", column: "keepalive_at_s", life: None }],
};

/// Opens the database at `path` as [`ControlStore::open_logged`] does.
///
/// # Errors
/// Returns the errors of that call.
pub fn open(path: &Path) -> ControlResult<ControlStore> {
    if std::env::var_os("HOLDFAST_MIRROR").is_some_and(|mirror| mirror == "off") {
        return ControlStore::open_with(path, READERS);
    }
    let applied = if path.exists() { ControlStore::position_of(path)? } else { None };
    let log = MirrorLog { path: path.to_owned(), inner: Mutex::default() };
    log.inner.lock().end = applied.unwrap_or_default();
    ControlStore::open_logged(path, READERS, Arc::new(log))
}

struct MirrorLog {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Made before the first record.
    copy: Option<Connection>,
    end: u64,
    record: Vec<u8>,
}

impl MirrorLog {
    /// Opens the compared database as one that only reads.
    fn source(&self) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.path, flags).expect("the registry's database")
    }

    /// Returns a copy of the database as the last commit left it.
    fn copied(&self) -> Connection {
        let mut copy = Connection::open_in_memory().expect("a database in memory");
        let source = self.source();
        let copying = Backup::new(&source, &mut copy).expect("a copy");
        copying.run_to_completion(10_000, Duration::ZERO, None).expect("a copy");
        drop(copying);
        copy
    }
}

impl RowLog for MirrorLog {
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError> {
        let mut inner = self.inner.lock();
        if inner.copy.is_none() {
            inner.copy = Some(self.copied());
        }
        inner.record = rows;
        inner.end += 1;
        Ok(inner.end)
    }

    fn end(&self) -> u64 {
        self.inner.lock().end
    }

    fn start(&self) -> u64 {
        0
    }

    fn read(
        &self,
        _after: u64,
        _apply: &mut dyn FnMut(u64, &[u8]) -> ControlResult<()>,
    ) -> ControlResult<()> {
        Ok(())
    }

    fn committed(&self, position: u64) {
        let mut inner = self.inner.lock();
        let Inner { copy: Some(copy), record, .. } = &mut *inner else { return };
        let rows = Rows::decode(record).expect("rows");
        let tx = copy.transaction().expect("a transaction");
        let applied =
            Applier::new(&tx, &EXCLUDED).and_then(|mut applier| applier.apply(&tx, &rows));
        applied.unwrap_or_else(|error| panic!("record {position}: {error}\n{rows:?}"));
        tx.commit().expect("a commit");
        let source = self.source();
        if large(&source) && !position.is_multiple_of(RECORDS_PER_COMPARISON) {
            return;
        }
        let of = |conn| {
            let mut all = contents(conn, &UNCOMPARED).expect("the tables");
            // A count of zero is left behind or not, by the way that led to it.
            all.entry("counter".into()).or_default().retain(|row| !row.ends_with("|0"));
            all
        };
        let (own, copied) = (of(&source), of(copy));
        for (table, rows) in &own {
            let same = copied.get(table) == Some(rows);
            assert!(same, "record {position}: table {table} of the copy differs: {}", {
                let mirrored = copied.get(table).cloned().unwrap_or_default();
                let differ = rows.iter().zip(&mirrored).filter(|(a, b)| a != b).take(3);
                let differ: Vec<_> = differ.collect();
                format!("{} and {} rows, {differ:#?}", rows.len(), mirrored.len())
            });
        }
    }
}

fn large(source: &Connection) -> bool {
    let sql = "SELECT (SELECT count(*) FROM agent) + (SELECT count(*) FROM audit)
               + (SELECT count(*) FROM command_outcome)";
    let count: i64 = source.query_row(sql, [], |row| row.get(0)).expect("a count");
    count > ROWS_EACH_TIME
}
