//! The tables of `registry.db` and the migration steps that create them. A released step is never
//! changed; a new version appends one (`docs/format/registry-db.md`).

use rusqlite::Connection;

use super::{ControlError, ControlResult, defaults};

/// `PRAGMA application_id`: `HFRG` in ASCII.
const APPLICATION_ID: i64 = 0x4846_5247;

/// The steps; step n migrates from version n - 1 to n.
const STEPS: [&str; 13] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
    include_str!("schema_12.sql"),
    include_str!("schema_13.sql"),
];

/// The version that this program writes.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// Migrates the database to [`VERSION`], each step in a transaction of its own. Returns an error for
/// another program's database.
pub(super) fn migrate(conn: &mut Connection) -> ControlResult<()> {
    let found = expect_known(conn)?;
    for (step, sql) in (1..).zip(STEPS).filter(|(step, _)| *step > found) {
        let tx = conn.transaction()?;
        tx.execute_batch(sql)?;
        if step == 1 {
            defaults::insert(&tx)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", step)?;
        tx.commit()?;
    }
    Ok(())
}

/// Returns the version of the database, or an error if this program cannot bring it to its own.
pub(super) fn expect_known(conn: &Connection) -> ControlResult<i64> {
    let found: i64 = conn.query_row("PRAGMA user_version", [], |r| r.get(0))?;
    if found > VERSION {
        return Err(ControlError::Newer { found, known: VERSION });
    }
    let application: i64 = conn.query_row("PRAGMA application_id", [], |r| r.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    let ours = application == APPLICATION_ID || (found == 0 && tables == 0);
    if !ours {
        return Err(ControlError::Corrupt(
            "the file is another program's database: name another folder".into(),
        ));
    }
    Ok(found)
}

/// Returns an error for rows that a later program made.
pub(super) fn expect_version(found: u32) -> Result<(), rows::RowsError> {
    match u32::try_from(VERSION) {
        Ok(known) if found > known => Err(rows::RowsError::Newer { found, known }),
        _ => Ok(()),
    }
}
