//! Notes which rows a connection changes: a temporary trigger on each table calls a function with the
//! key and the set of changed columns. At the end of a transaction the rows are read by their keys, so
//! a note about a change that was rolled back does no harm.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params, params_from_iter};
use serde::{Deserialize, Serialize};

use crate::record::columns_of;
use crate::schema::{Excluded, Table, tables};
use crate::{Rows, RowsResult, TableRows, Value};

/// About the bytes of a key.
const KEY_BYTES: usize = 16;
/// In a set of columns: the whole row is logged.
const WHOLE: u64 = 1 << 62;
/// Most rows of earlier transactions that one record takes along, and about the most bytes of them; the
/// next record takes the rest.
const UNLOGGED_ROWS_MAX: i64 = 50_000;
const UNLOGGED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows of a transaction above which its record takes none of earlier ones along.
const OWN_ROWS_MAX: usize = 1_000;

/// The values of a row's key. Nearly all are one or two integers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Key {
    One(i64),
    Two(i64, i64),
    /// The values, encoded.
    Other(Vec<u8>),
}

impl Key {
    /// Reads the key from the third argument of `row_changed` on.
    fn of(call: &Context<'_>) -> Self {
        use ValueRef::Integer;
        match (call.len(), call.get_raw(2)) {
            (3, Integer(one)) => return Self::One(one),
            (4, Integer(one)) => {
                if let Integer(two) = call.get_raw(3) {
                    return Self::Two(one, two);
                }
            }
            _ => {}
        }
        let values: Vec<Value> = (2..call.len()).map(|n| call.get_raw(n).into()).collect();
        // Serialising plain owned data into a growing buffer cannot fail.
        Self::Other(postcard::to_allocvec(&values).unwrap_or_default())
    }

    fn values(&self) -> RowsResult<Vec<Value>> {
        Ok(match self {
            Self::One(one) => vec![Value::Integer(*one)],
            Self::Two(one, two) => vec![Value::Integer(*one), Value::Integer(*two)],
            Self::Other(bytes) => unfit(postcard::from_bytes(bytes))?,
        })
    }
}

fn unfit<T>(decoded: Result<T, postcard::Error>) -> RowsResult<T> {
    decoded.map_err(|e| crate::RowsError::Unfit(format!("a key in `unlogged`: {e}")))
}

/// The set of changed columns by the number of the table and the key.
type Notes = HashMap<(u8, Key), u64>;

/// Notes the rows that one connection changes.
pub struct Capture {
    tables: Vec<Table>,
    notes: Arc<Mutex<Notes>>,
    /// `sqlite_sequence` as it was logged last.
    sequences: BTreeMap<String, i64>,
    schema: u32,
    /// Rows may be waiting in the table `unlogged`.
    waiting: bool,
}

/// The rows of a transaction, with what [`Capture::logged`] needs once it is committed.
pub struct Captured {
    pub rows: Rows,
    sequences: BTreeMap<String, i64>,
    waiting: bool,
}

impl Capture {
    /// Starts on a connection that has the table `unlogged (tab TEXT, key BLOB, mask INTEGER,
    /// PRIMARY KEY (tab, key))`, which `own` names. Call it before any statement is prepared.
    ///
    /// # Errors
    /// Returns an error if a table has no key or too many columns, or the database fails.
    pub fn start(conn: &Connection, own: &Excluded) -> RowsResult<Self> {
        // Without this, REPLACE removes another row with the same unique value unseen.
        conn.pragma_update(None, "recursive_triggers", true)?;
        let notes: Arc<Mutex<Notes>> = Arc::default();
        let into = Arc::clone(&notes);
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        conn.create_scalar_function("row_changed", -1, flags, move |call| {
            let (table, set): (u8, i64) = (call.get(0)?, call.get(1)?);
            if set != 0 {
                *into.lock().entry((table, Key::of(call))).or_default() |= set.cast_unsigned();
            }
            Ok(0)
        })?;
        let tables = tables(conn, own)?;
        for (number, table) in tables.iter().enumerate() {
            conn.execute_batch(&triggers(number, table))?;
        }
        let schema = conn.query_row("PRAGMA user_version", [], |r| r.get(0))?;
        let sequences = sequences(conn)?;
        Ok(Self { tables, notes, sequences, schema, waiting: true })
    }

    /// Returns the number of rows noted since the last record.
    pub fn noted(&self) -> usize {
        self.notes.lock().len()
    }

    /// Forgets what a transaction that was rolled back had changed.
    pub fn forget(&self) {
        self.notes.lock().clear();
    }

    /// Stores the notes of a transaction that is committed without a record, in that transaction: a
    /// later record has its rows.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn postpone(&mut self, conn: &Connection) -> RowsResult<()> {
        let notes = std::mem::take(&mut *self.notes.lock());
        let mut insert = conn.prepare_cached(
            "INSERT INTO unlogged VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET mask = mask | excluded.mask",
        )?;
        self.waiting |= !notes.is_empty();
        for ((table, key), set) in notes {
            let key = postcard::to_allocvec(&key).unwrap_or_default();
            let Some(table) = self.tables.get(usize::from(table)) else { continue };
            insert.execute(params![table.name, key, set.cast_signed()])?;
        }
        Ok(())
    }

    /// Returns true if rows of earlier transactions may wait for a record.
    pub fn has_waiting(&self) -> bool {
        self.waiting
    }

    /// Returns the rows that the open transaction changed, and those that earlier ones changed, as far
    /// as one record should hold them; see [`Capture::has_waiting`] for the rest. If this transaction
    /// changed nothing, those of earlier ones are taken only with `reports`.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn take(&mut self, conn: &Connection, reports: bool) -> RowsResult<Captured> {
        let mut notes: BTreeMap<(u8, Key), u64> =
            std::mem::take(&mut *self.notes.lock()).into_iter().collect();
        if self.waiting {
            self.join_waiting(conn, &mut notes)?;
        }
        let own = notes.len();
        let mut rows = Rows { schema: self.schema, ..Rows::default() };
        self.read_all(conn, notes, usize::MAX, &mut rows)?;
        let mut more = self.waiting;
        if self.waiting && (reports || own > 0) && own <= OWN_ROWS_MAX {
            more = self.take_waiting(conn, &mut rows)?;
        }
        let sequences = sequences(conn)?;
        for (name, last) in &sequences {
            if self.sequences.get(name) != Some(last) {
                rows.sequences.push((name.clone(), *last));
            }
        }
        Ok(Captured { rows, sequences, waiting: more })
    }

    /// Adds to each note what an earlier transaction noted of the same row: else a record could change
    /// some columns of a row that no record has put yet.
    fn join_waiting(
        &self,
        conn: &Connection,
        notes: &mut BTreeMap<(u8, Key), u64>,
    ) -> RowsResult<()> {
        let sql = "DELETE FROM unlogged WHERE tab = ?1 AND key = ?2 RETURNING mask";
        let mut take = conn.prepare_cached(sql)?;
        for ((table, key), set) in notes {
            let Some(table) = self.tables.get(usize::from(*table)) else { continue };
            let key = postcard::to_allocvec(key).unwrap_or_default();
            let mut found = take.query(params![table.name, key])?;
            while let Some(row) = found.next()? {
                *set |= row.get::<_, i64>(0)?.cast_unsigned();
            }
        }
        Ok(())
    }

    /// Takes rows of earlier transactions, up to the limits. Returns true if more are there.
    fn take_waiting(&self, conn: &Connection, rows: &mut Rows) -> RowsResult<bool> {
        let mut first = conn.prepare_cached("SELECT tab, key, mask FROM unlogged LIMIT ?1")?;
        let mut found = first.query([UNLOGGED_ROWS_MAX])?;
        let mut notes = BTreeMap::new();
        let mut count = 0;
        while let Some(row) = found.next()? {
            count += 1;
            let (table, key): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let number = self.tables.iter().position(|known| known.name == table);
            // A table that a later schema dropped has no rows to log.
            let Some(Ok(number)) = number.map(u8::try_from) else { continue };
            let set: i64 = row.get(2)?;
            notes.insert((number, unfit(postcard::from_bytes(&key))?), set.cast_unsigned());
        }
        drop(found);
        let left = self.read_all(conn, notes.clone(), UNLOGGED_BYTES_MAX, rows)?;
        if left.is_empty() && count < UNLOGGED_ROWS_MAX {
            conn.prepare_cached("DELETE FROM unlogged")?.execute([])?;
            return Ok(false);
        }
        let mut delete = conn.prepare_cached("DELETE FROM unlogged WHERE tab = ?1 AND key = ?2")?;
        for (table, key) in notes.into_keys().filter(|key| !left.contains_key(key)) {
            let Some(table) = self.tables.get(usize::from(table)) else { continue };
            let key = postcard::to_allocvec(&key).unwrap_or_default();
            delete.execute(params![table.name, key])?;
        }
        Ok(true)
    }

    /// Reads the rows that notes name, at least one and up to about `bytes_max`. Returns the notes of the
    /// others.
    fn read_all(
        &self,
        conn: &Connection,
        mut notes: BTreeMap<(u8, Key), u64>,
        bytes_max: usize,
        rows: &mut Rows,
    ) -> RowsResult<BTreeMap<(u8, Key), u64>> {
        let mut bytes = 0;
        while bytes < bytes_max {
            let Some(((number, key), set)) = notes.pop_first() else { break };
            let Some(table) = self.tables.get(usize::from(number)) else { continue };
            let at = rows.tables.iter().position(|rows| rows.table == table.name);
            let at = at.unwrap_or_else(|| {
                rows.tables.push(TableRows { table: table.name.clone(), ..TableRows::default() });
                rows.tables.len() - 1
            });
            if let Some(out) = rows.tables.get_mut(at) {
                bytes += read(conn, table, &key, set, out)?;
            }
        }
        Ok(notes)
    }

    /// Called after the commit of what [`Capture::take`] returned.
    pub fn logged(&mut self, captured: Captured) {
        self.sequences = captured.sequences;
        self.waiting = captured.waiting;
    }
}

/// Reads the row that a note names. Returns about the bytes that it needs.
fn read(
    conn: &Connection,
    table: &Table,
    key: &Key,
    set: u64,
    out: &mut TableRows,
) -> RowsResult<usize> {
    let key = key.values()?;
    let mut select = conn.prepare_cached(&table.select())?;
    let mut found = select.query(params_from_iter(&key))?;
    let Some(row) = found.next()? else {
        out.gone.push(key);
        return Ok(KEY_BYTES);
    };
    let value = |at| Ok::<Value, rusqlite::Error>(row.get_ref(at)?.into());
    let values: Vec<Value> = if set & (WHOLE | table.unique) == 0 {
        columns_of(set).map(value).collect::<Result<_, _>>()?
    } else {
        let logged = |at| if table.is_logged(at) { value(at) } else { Ok(Value::Null) };
        (0..table.columns.len()).map(logged).collect::<Result<_, _>>()?
    };
    let bytes = KEY_BYTES + values.iter().map(Value::bytes).sum::<usize>();
    if set & (WHOLE | table.unique) == 0 {
        out.set.push((key, set, values));
    } else {
        out.put.push(values);
    }
    Ok(bytes)
}

/// Returns the last rowids of the tables that count them. A trigger cannot note them: a row that is
/// added and removed again, or ignored, moves them.
fn sequences(conn: &Connection) -> RowsResult<BTreeMap<String, i64>> {
    let mut all = conn.prepare_cached("SELECT name, seq FROM sqlite_sequence")?;
    let all = all.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(all)
}

/// Returns the statements that make the triggers of a table.
fn triggers(number: usize, table: &Table) -> String {
    let name = &table.name;
    let list = |columns: &[usize], prefix: &str| {
        let one = |at: &usize| format!("{prefix}{}", table.quoted(*at));
        columns.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let (new, old) = (list(&table.key, "NEW."), list(&table.key, "OLD."));
    let mut sql = format!(
        "CREATE TEMP TRIGGER \"rows_{name}_i\" AFTER INSERT ON main.\"{name}\" BEGIN
             SELECT row_changed({number}, {WHOLE}, {new}); END;
         CREATE TEMP TRIGGER \"rows_{name}_d\" AFTER DELETE ON main.\"{name}\" BEGIN
             SELECT row_changed({number}, {WHOLE}, {old}); END;
         CREATE TEMP TRIGGER \"rows_{name}_k\" AFTER UPDATE OF {key} ON main.\"{name}\" BEGIN
             SELECT row_changed({number}, {WHOLE}, {old});
             SELECT row_changed({number}, {WHOLE}, {new}); END;",
        key = list(&table.key, ""),
    );
    let rest: Vec<usize> = (0..table.columns.len())
        .filter(|at| !table.key.contains(at) && table.is_logged(*at))
        .collect();
    if !rest.is_empty() {
        let bit = |at: &usize| {
            let column = table.quoted(*at);
            format!("((OLD.{column} IS NOT NEW.{column}) << {at})")
        };
        let set = rest.iter().map(bit).collect::<Vec<_>>().join(" | ");
        let _ = write!(
            sql,
            "CREATE TEMP TRIGGER \"rows_{name}_u\" AFTER UPDATE OF {of} ON main.\"{name}\" BEGIN
                 SELECT row_changed({number}, {set}, {new}); END;",
            of = list(&rest, ""),
        );
    }
    sql
}
