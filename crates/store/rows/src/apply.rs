//! Applies rows to a copy of the database that made them.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Row, params, params_from_iter};

use crate::record::columns_of;
use crate::schema::{Excluded, Table, tables};
use crate::{Rows, RowsError, RowsResult, TableRows, Value};

/// Applies records of rows. The schema's triggers run, and keep what is not logged.
pub struct Applier {
    tables: BTreeMap<String, Table>,
    schema: u32,
    /// Statements by table and set of columns.
    updates: HashMap<(String, u64), String>,
}

/// Values of the columns that are not logged, by table and place in its whole rows.
type OwnValues<'a> = HashMap<(&'a str, usize), Vec<(usize, Value)>>;

impl Applier {
    /// Reads the schema.
    ///
    /// # Errors
    /// Returns an error if a table has no key or too many columns, or the database fails.
    pub fn new(conn: &Connection, own: &Excluded) -> RowsResult<Self> {
        let tables = tables(conn, own)?.into_iter().map(|table| (table.name.clone(), table));
        let schema = conn.query_row("PRAGMA user_version", [], |r| r.get(0))?;
        Ok(Self { tables: tables.collect(), schema, updates: HashMap::new() })
    }

    /// Applies one record, in the transaction that is open.
    ///
    /// # Errors
    /// `Newer`, or `Unfit` if a row does not fit: then the caller must roll back.
    pub fn apply(&mut self, conn: &Connection, rows: &Rows) -> RowsResult<()> {
        if rows.schema > self.schema {
            return Err(RowsError::Newer { found: rows.schema, known: self.schema });
        }
        let mut order = Vec::with_capacity(rows.tables.len());
        for rows in &rows.tables {
            order.push((rows, self.table(&rows.table)?.clone()));
        }
        // First everything that goes or is replaced, so that no unique value is there twice. Tables
        // with columns that are not logged come last, and first afterwards: triggers of the others
        // count in them.
        order.sort_by_key(|(_, table)| !table.own.is_empty());
        let mut kept = OwnValues::new();
        for (rows, table) in &order {
            remove(conn, table, rows, &mut kept)?;
        }
        for (rows, table) in order.iter().rev() {
            insert(conn, table, rows, &mut kept)?;
            self.update(conn, table, rows)?;
        }
        for (name, last) in &rows.sequences {
            let sql = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1";
            if conn.prepare_cached(sql)?.execute(params![name, last])? == 0 {
                let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
                conn.prepare_cached(sql)?.execute(params![name, last])?;
            }
        }
        Ok(())
    }

    fn update(&mut self, conn: &Connection, table: &Table, rows: &TableRows) -> RowsResult<()> {
        for (key, set, values) in &rows.set {
            if set >> table.columns.len() != 0 || key.len() != table.key.len() {
                return Err(unfit(table, "names a column that is not there"));
            }
            let sql = self.updates.entry((table.name.clone(), *set)).or_insert_with(|| {
                let first = table.key.len() + 1;
                let one = |(n, at)| format!("{} = ?{}", table.quoted(at), n + first);
                let columns: Vec<_> = columns_of(*set).enumerate().map(one).collect();
                let condition = table.where_key(1);
                format!("UPDATE \"{}\" SET {} WHERE {condition}", table.name, columns.join(", "))
            });
            let mut update = conn.prepare_cached(sql)?;
            if update.execute(params_from_iter(key.iter().chain(values)))? != 1 {
                return Err(unfit(table, &format!("changes the row {key:?}, which is not there")));
            }
        }
        Ok(())
    }

    fn table(&self, name: &str) -> RowsResult<&Table> {
        let unknown = || RowsError::Unfit(format!("a record names the unknown table {name}"));
        self.tables.get(name).ok_or_else(unknown)
    }
}

fn unfit(table: &Table, why: &str) -> RowsError {
    RowsError::Unfit(format!("a record of table {} {why}", table.name))
}

/// Removes the rows that are gone or replaced. Keeps what the latter have in columns that are not
/// logged.
fn remove<'a>(
    conn: &Connection,
    table: &Table,
    rows: &'a TableRows,
    kept: &mut OwnValues<'a>,
) -> RowsResult<()> {
    let sql = format!("DELETE FROM \"{}\" WHERE {}", table.name, table.where_key(1));
    let mut delete = conn.prepare_cached(&sql)?;
    for key in &rows.gone {
        delete.execute(params_from_iter(key))?;
    }
    let mut select = conn.prepare_cached(&table.select())?;
    for (n, row) in rows.put.iter().enumerate() {
        if row.len() > table.columns.len() || table.key.iter().any(|at| *at >= row.len()) {
            return Err(unfit(table, "has a row of another length"));
        }
        let key: Vec<&Value> = table.key.iter().filter_map(|at| row.get(*at)).collect();
        if !table.own.is_empty()
            && let Some(old) = select.query(params_from_iter(&key))?.next()?
        {
            kept.insert((&rows.table, n), own_values(table, row, old)?);
        }
        delete.execute(params_from_iter(&key))?;
    }
    Ok(())
}

/// Returns what a row has in the columns that are not logged, as far as `new` is of the same life.
fn own_values(
    table: &Table,
    new: &[Value],
    old: &Row<'_>,
) -> rusqlite::Result<Vec<(usize, Value)>> {
    let mut values = Vec::new();
    for (own, life) in &table.own {
        let same = match life {
            Some(at) => new.get(*at) == Some(&old.get_ref(*at)?.into()),
            None => true,
        };
        if same {
            values.push((*own, old.get_ref(*own)?.into()));
        }
    }
    Ok(values)
}

/// Inserts whole rows.
fn insert<'a>(
    conn: &Connection,
    table: &Table,
    rows: &'a TableRows,
    kept: &mut OwnValues<'a>,
) -> RowsResult<()> {
    for (n, row) in rows.put.iter().enumerate() {
        let own = kept.remove(&(rows.table.as_str(), n)).unwrap_or_default();
        // A row of an older program lacks the last columns: they get their defaults, and so do those
        // that are not logged.
        let logged = row.iter().enumerate().filter(|(at, _)| table.is_logged(*at));
        let all: Vec<(usize, &Value)> =
            logged.chain(own.iter().map(|(at, value)| (*at, value))).collect();
        let columns: Vec<_> = all.iter().map(|(at, _)| table.quoted(*at)).collect();
        let marks: Vec<_> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
        let (columns, marks) = (columns.join(", "), marks.join(", "));
        let sql = format!("INSERT INTO \"{}\" ({columns}) VALUES ({marks})", table.name);
        conn.prepare_cached(&sql)?.execute(params_from_iter(all.into_iter().map(|(_, v)| v)))?;
    }
    Ok(())
}
