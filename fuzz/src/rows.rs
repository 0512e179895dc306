//! The rows of a registry in a record; see `targets.rs`.

use rusqlite::Connection;

use rows::{Applier, Excluded, Rows};

const SCHEMA: &str = "
    CREATE TABLE a (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, n INTEGER);
    CREATE TABLE b (one INTEGER, two TEXT, kept BLOB, PRIMARY KEY (one, two)) WITHOUT ROWID;
    INSERT INTO a (name) VALUES ('x'), ('y');
    INSERT INTO b VALUES (1, 'z', NULL);";

/// Decodes rows and applies them to a database.
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a fuzzer that finds something panics"
)]
pub fn registry_rows(data: &[u8]) {
    let Ok(rows) = Rows::decode(data) else { return };
    let bytes = rows.encode();
    assert_eq!(Rows::decode(&bytes).unwrap().encode(), bytes);
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(SCHEMA).unwrap();
    let own = Excluded::default();
    let mut applier = Applier::new(&conn, &own).unwrap();
    for _ in 0..2 {
        conn.execute_batch("BEGIN").unwrap();
        let end = if applier.apply(&conn, &rows).is_ok() { "COMMIT" } else { "ROLLBACK" };
        conn.execute_batch(end).unwrap();
    }
}
