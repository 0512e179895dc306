//! A virtual table with the rows that a group writes to the table `item`. One `REPLACE ... SELECT`
//! writes the whole group, and its cursor stays at the last row. This is cheaper than one statement
//! per row.
//!
//! The rows of a group are stored in one buffer, which the next group reuses.

use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor};
use rusqlite::{Connection, Result, ffi};

use crate::place::ItemPlace;
use crate::transition::ItemMarks;

/// Name of the virtual table.
const NAME: &CStr = c"fed";
/// Groups with fewer rows are written row by row.
const ROWS_MIN: usize = 4;
/// Most bytes of buffer that are kept for the next group.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One row. Its name and body are consecutive in [`Rows::bytes`].
#[derive(Debug, Clone, Copy)]
struct FeedRow {
    dataset: i64,
    directory: i64,
    row: ItemMarks,
    start: usize,
    body: usize,
    end: usize,
}

/// The rows of a group, in the order of their keys.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<FeedRow>,
    bytes: Vec<u8>,
}

impl Rows {
    fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.rows.shrink_to(KEPT_BYTES_MAX / size_of::<FeedRow>());
    }

    fn name(&self, fed: &FeedRow) -> &[u8] {
        self.bytes.get(fed.start..fed.body).unwrap_or_default()
    }

    fn body(&self, fed: &FeedRow) -> &[u8] {
        self.bytes.get(fed.body..fed.end).unwrap_or_default()
    }
}

/// The writing connection's feed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feed(Arc<Mutex<Rows>>);

impl Feed {
    /// Registers the virtual table on a connection.
    pub(crate) fn attach(conn: &Connection) -> Result<Self> {
        const MODULE: Module<'static, FeedTable> = Module::eponymous_only_module();
        let feed = Self::default();
        conn.create_module(NAME, &MODULE, Some(feed.clone()))?;
        Ok(feed)
    }

    /// Removes the rows that an abandoned group left.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Adds a row, which replaces the stored one. Rows must be added in the order of their keys,
    /// and each key once.
    pub(crate) fn push(&self, place: ItemPlace<'_>, row: ItemMarks, body: &[u8]) {
        let mut rows = self.0.lock();
        let start = rows.bytes.len();
        rows.bytes.extend_from_slice(place.name);
        let at = rows.bytes.len();
        rows.bytes.extend_from_slice(body);
        let end = rows.bytes.len();
        let ItemPlace { dataset, directory, .. } = place;
        rows.rows.push(FeedRow { dataset, directory, row, start, body: at, end });
    }

    /// Writes the group's rows.
    pub(crate) fn write(&self, conn: &Connection) -> Result<()> {
        let few = {
            let rows = self.0.lock();
            if rows.rows.is_empty() {
                return Ok(());
            }
            rows.rows.len() < ROWS_MIN
        };
        if few {
            return self.write_singly(conn);
        }
        conn.prepare_cached(
            "REPLACE INTO item(dataset, directory, name, seen, known, gone, observation) \
             SELECT dataset, directory, name, seen, known, gone, observation FROM fed",
        )?
        .execute([])
        .map(drop)
    }

    fn write_singly(&self, conn: &Connection) -> Result<()> {
        let mut rows = self.0.lock();
        let mut replace = conn.prepare_cached(
            "REPLACE INTO item(dataset, directory, name, seen, known, gone, observation) \
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        for fed in &rows.rows {
            replace.execute((
                fed.dataset,
                fed.directory,
                rows.name(fed),
                fed.row.version as i64,
                fed.row.server_may_have,
                fed.row.deleted,
                rows.body(fed),
            ))?;
        }
        rows.clear();
        Ok(())
    }
}

#[repr(C)]
struct FeedTable {
    /// The engine's part, first.
    base: ffi::sqlite3_vtab,
    feed: Feed,
}

#[repr(C)]
struct FeedCursor {
    /// The engine's part, first.
    base: ffi::sqlite3_vtab_cursor,
    feed: Feed,
    rows: Rows,
    at: usize,
}

impl Drop for FeedCursor {
    fn drop(&mut self) {
        self.rows.clear();
        *self.feed.0.lock() = mem::take(&mut self.rows);
    }
}

#[expect(unsafe_code, reason = "the engine's part stands first and the layout is C's")]
// SAFETY: `#[repr(C)]` with `sqlite3_vtab` as the first field, as the trait asks for.
unsafe impl VTab<'_> for FeedTable {
    type Aux = Feed;
    type Cursor = FeedCursor;

    fn connect(
        _: &mut VTabConnection,
        feed: Option<&Feed>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let feed = feed.cloned().unwrap_or_default();
        let columns = c"CREATE TABLE x(dataset, directory, name, seen, known, gone, observation)";
        Ok((Cow::Borrowed(columns), Self { base: ffi::sqlite3_vtab::default(), feed }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        info.set_estimated_cost(1.0);
        Ok(true)
    }

    fn open(&mut self) -> Result<FeedCursor> {
        Ok(FeedCursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            feed: self.feed.clone(),
            rows: Rows::default(),
            at: 0,
        })
    }
}

#[expect(unsafe_code, reason = "the engine's part stands first and the layout is C's")]
// SAFETY: `#[repr(C)]` with `sqlite3_vtab_cursor` as the first field, as the trait asks for.
unsafe impl VTabCursor for FeedCursor {
    fn filter(&mut self, _: c_int, _: Option<&str>, _: &Filters<'_>) -> Result<()> {
        self.rows = mem::take(&mut *self.feed.0.lock());
        self.at = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.at >= self.rows.rows.len()
    }

    fn column(&self, cx: &mut Context, column: c_int) -> Result<()> {
        let Some(fed) = self.rows.rows.get(self.at) else { return Ok(()) };
        match column {
            0 => cx.set_result(fed.dataset),
            1 => cx.set_result(fed.directory),
            2 => cx.set_result(self.rows.name(fed)),
            3 => cx.set_result(fed.row.version as i64),
            4 => cx.set_result(fed.row.server_may_have),
            5 => cx.set_result(fed.row.deleted),
            _ => cx.set_result(self.rows.body(fed)),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.at as i64)
    }
}
