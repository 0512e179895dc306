//! The contents of a database, for comparisons.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};

use crate::RowsResult;
use crate::schema::{Excluded, tables};

/// Returns the rows of all tables that are logged, as text, with their rowids, and the rowid
/// sequences. `own` may name less than the capture does, to compare what triggers keep.
///
/// # Errors
/// Returns an error if the database fails.
pub fn contents(conn: &Connection, own: &Excluded) -> RowsResult<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    for table in tables(conn, own)? {
        let mut columns: Vec<String> = (0..table.columns.len())
            .filter(|at| table.is_logged(*at))
            .map(|at| format!("quote({})", table.quoted(at)))
            .collect();
        if table.has_rowid {
            columns.insert(0, "rowid".into());
        }
        let key: Vec<_> = table.key.iter().map(|at| table.quoted(*at)).collect();
        let sql = format!(
            "SELECT {} FROM \"{}\" ORDER BY {}",
            columns.join("||'|'||"),
            table.name,
            key.join(", ")
        );
        let mut statement = conn.prepare(&sql)?;
        // A text need not be UTF-8.
        let text = |row: &Row<'_>| {
            let bytes = row.get_ref(0)?.as_bytes_or_null().ok().flatten().unwrap_or_default();
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        let rows = statement.query_map([], text)?.collect::<Result<_, _>>()?;
        all.insert(table.name, rows);
    }
    let mut sequences =
        conn.prepare("SELECT name || ' ' || seq FROM sqlite_sequence ORDER BY name")?;
    let rows = sequences.query_map([], |r| r.get(0))?.collect::<Result<Vec<String>, _>>()?;
    all.insert("sqlite_sequence".into(), rows);
    Ok(all)
}
