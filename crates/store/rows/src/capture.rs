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
use crate::schema::{Own, Table, tables};
use crate::{Rows, RowsResult, TableRows, Value};

/// In a set of columns: the whole row is logged.
const WHOLE: u64 = 1 << 62;
/// Most rows of earlier transactions that one record takes along; the next one takes the rest.
const UNLOGGED_ROWS_MAX: i64 = 50_000;

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
    pub fn start(conn: &Connection, own: &Own) -> RowsResult<Self> {
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
    pub fn forget(&mut self) {
        self.notes.lock().clear();
        self.waiting = true;
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

    /// Returns the rows that were changed since the last record, in the transaction that is open.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn take(&mut self, conn: &Connection) -> RowsResult<Captured> {
        let mut notes: BTreeMap<(u8, Key), u64> =
            std::mem::take(&mut *self.notes.lock()).into_iter().collect();
        let waiting = self.waiting && self.take_unlogged(conn, &mut notes)?;
        let mut rows = Rows { schema: self.schema, ..Rows::default() };
        let mut notes = notes.into_iter().peekable();
        for (number, table) in self.tables.iter().enumerate() {
            let own = |((n, _), _): &((u8, Key), u64)| usize::from(*n) == number;
            let mut of_table = std::iter::from_fn(|| notes.next_if(own)).peekable();
            if of_table.peek().is_some() {
                let out = read(conn, table, of_table.map(|((_, key), set)| (key, set)))?;
                rows.tables.push(out);
            }
        }
        let sequences = sequences(conn)?;
        for (name, last) in &sequences {
            if self.sequences.get(name) != Some(last) {
                rows.sequences.push((name.clone(), *last));
            }
        }
        Ok(Captured { rows, sequences, waiting })
    }

    /// Moves notes of earlier transactions from the table `unlogged` to `notes`. Returns true if
    /// more are there.
    fn take_unlogged(
        &self,
        conn: &Connection,
        notes: &mut BTreeMap<(u8, Key), u64>,
    ) -> RowsResult<bool> {
        let mut first = conn.prepare_cached("SELECT tab, key, mask FROM unlogged LIMIT ?1")?;
        let mut found = first.query([UNLOGGED_ROWS_MAX])?;
        let mut count = 0;
        let number = |name: &str| self.tables.iter().position(|table| table.name == name);
        while let Some(row) = found.next()? {
            count += 1;
            let (table, key): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            // A table that a later schema dropped has no rows to log.
            let Some(Ok(table)) = number(&table).map(u8::try_from) else { continue };
            let set: i64 = row.get(2)?;
            let key: Key = unfit(postcard::from_bytes(&key))?;
            *notes.entry((table, key)).or_default() |= set.cast_unsigned();
        }
        if count < UNLOGGED_ROWS_MAX {
            conn.prepare_cached("DELETE FROM unlogged")?.execute([])?;
            return Ok(false);
        }
        conn.prepare_cached(
            "DELETE FROM unlogged WHERE (tab, key) IN (SELECT tab, key FROM unlogged LIMIT ?1)",
        )?
        .execute([UNLOGGED_ROWS_MAX])?;
        Ok(true)
    }

    /// Called after the commit of what [`Capture::take`] returned.
    pub fn logged(&mut self, captured: Captured) {
        self.sequences = captured.sequences;
        self.waiting = captured.waiting;
    }
}

/// Reads the rows of a table that notes name.
fn read(
    conn: &Connection,
    table: &Table,
    notes: impl Iterator<Item = (Key, u64)>,
) -> RowsResult<TableRows> {
    let mut out = TableRows { table: table.name.clone(), ..TableRows::default() };
    let mut select = conn.prepare_cached(&table.select())?;
    for (key, set) in notes {
        let key = key.values()?;
        let mut found = select.query(params_from_iter(&key))?;
        let Some(row) = found.next()? else {
            out.gone.push(key);
            continue;
        };
        let value = |at| Ok::<Value, rusqlite::Error>(row.get_ref(at)?.into());
        if set & (WHOLE | table.unique) == 0 {
            let values = columns_of(set).map(value).collect::<Result<_, _>>()?;
            out.set.push((key, set, values));
        } else {
            let logged = |at| if table.is_logged(at) { value(at) } else { Ok(Value::Null) };
            out.put.push((0..table.columns.len()).map(logged).collect::<Result<_, _>>()?);
        }
    }
    Ok(out)
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
