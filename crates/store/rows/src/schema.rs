//! The tables of a database, as far as rows need to know them.

use rusqlite::Connection;

use crate::{RowsError, RowsResult};

/// Most columns of a table: the set of changed columns is a number.
pub(crate) const COLUMNS_MAX: usize = 60;

/// The tables and columns that belong to one database alone, or are kept by triggers: they are not logged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Excluded {
    pub tables: &'static [&'static str],
    pub columns: &'static [ExcludedColumn],
}

/// A column that is not logged. A row that is replaced keeps its value.
#[derive(Debug, Clone, Copy)]
pub struct ExcludedColumn {
    pub table: &'static str,
    pub column: &'static str,
    /// A column that says which life of the key a row is: if it differs, the row is another one,
    /// and gets the default.
    pub life: Option<&'static str>,
}

/// One table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    /// Numbers of the key's columns, in its order.
    pub(crate) key: Vec<usize>,
    /// Columns of the key and of unique indexes: a change of one makes the row a whole row.
    pub(crate) unique: u64,
    /// Columns that are not logged, each with the column of its life.
    pub(crate) own: Vec<(usize, Option<usize>)>,
    pub(crate) has_rowid: bool,
}

impl Table {
    /// Returns true if changes of a column are logged.
    pub(crate) fn is_logged(&self, column: usize) -> bool {
        self.own.iter().all(|(own, _)| *own != column)
    }

    /// Returns the name of a column for SQL.
    pub(crate) fn quoted(&self, column: usize) -> String {
        self.columns.get(column).map(|name| format!("\"{name}\"")).unwrap_or_default()
    }

    /// Returns the condition that finds a row by its key; the parameters begin with `first`.
    pub(crate) fn where_key(&self, first: usize) -> String {
        let equal = |(n, at): (usize, &usize)| format!("{} = ?{}", self.quoted(*at), n + first);
        self.key.iter().enumerate().map(equal).collect::<Vec<_>>().join(" AND ")
    }

    /// Returns the query for all columns of a row by its key.
    pub(crate) fn select(&self) -> String {
        let columns: Vec<_> = (0..self.columns.len()).map(|at| self.quoted(at)).collect();
        format!("SELECT {} FROM \"{}\" WHERE {}", columns.join(", "), self.name, self.where_key(1))
    }
}

/// Reads the tables that are logged, by name.
pub(crate) fn tables(conn: &Connection, own: &Excluded) -> RowsResult<Vec<Table>> {
    let mut names = conn.prepare(
        "SELECT name, wr FROM pragma_table_list
         WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         ORDER BY name",
    )?;
    let names: Vec<(String, bool)> =
        names.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    let logged = names.into_iter().filter(|(name, _)| !own.tables.contains(&name.as_str()));
    logged.map(|(name, without_rowid)| table(conn, own, name, !without_rowid)).collect()
}

fn table(conn: &Connection, own: &Excluded, name: String, has_rowid: bool) -> RowsResult<Table> {
    let mut info = conn.prepare("SELECT name, pk FROM pragma_table_xinfo(?1) ORDER BY cid")?;
    let info: Vec<(String, i64)> =
        info.query_map([&name], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut key: Vec<(i64, usize)> = Vec::new();
    for (at, (_, place)) in info.iter().enumerate() {
        if *place > 0 {
            key.push((*place, at));
        }
    }
    key.sort_unstable();
    let key: Vec<usize> = key.into_iter().map(|(_, at)| at).collect();
    if key.is_empty() || info.len() > COLUMNS_MAX {
        let why = format!("table {name} has no key, or more than {COLUMNS_MAX} columns");
        return Err(RowsError::Unfit(why));
    }
    let unique = key.iter().fold(unique_columns(conn, &name)?, |set, at| set | 1 << at);
    let columns: Vec<String> = info.into_iter().map(|(name, _)| name).collect();
    let at = |column: &str| columns.iter().position(|c| c == column);
    let own = own
        .columns
        .iter()
        .filter(|own| own.table == name)
        .filter_map(|own| Some((at(own.column)?, own.life.and_then(at))))
        .collect();
    Ok(Table { name, columns, key, unique, own, has_rowid })
}

/// Returns the columns that a unique index names.
fn unique_columns(conn: &Connection, table: &str) -> RowsResult<u64> {
    let mut of = conn.prepare(
        "SELECT c.cid FROM pragma_index_list(?1) i, pragma_index_xinfo(i.name) c
         WHERE i.\"unique\" AND c.key",
    )?;
    let numbers = of.query_map([table], |r| r.get::<_, i64>(0))?;
    numbers.into_iter().try_fold(0, |set, number| {
        // An expression (number -2) may depend on each column.
        Ok(set | u32::try_from(number?).map_or((1 << COLUMNS_MAX) - 1, |at| 1 << at))
    })
}
