use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use crate::{
    Applier, Capture, Excluded, ExcludedColumn, Rows, RowsError, TableRows, Value, contents,
};

const EXCLUDED: Excluded = Excluded {
    tables: &["unlogged", "counter"],
    columns: &[
        ExcludedColumn { table: "agent", column: "seen", life: Some("incarnation") },
        ExcludedColumn { table: "grp", column: "members", life: None },
    ],
};
/// The comparison covers counts that triggers keep.
const COMPARED: Excluded = Excluded {
    tables: &["unlogged"],
    columns: &[ExcludedColumn { table: "agent", column: "seen", life: None }],
};

const SCHEMA: &str = "
    CREATE TABLE unlogged (tab TEXT, key BLOB, mask INTEGER, PRIMARY KEY (tab, key)) WITHOUT ROWID;
    CREATE TABLE counter (kind TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE agent (id INTEGER PRIMARY KEY, incarnation INTEGER NOT NULL DEFAULT 0,
        name TEXT NOT NULL UNIQUE, note TEXT, seen INTEGER);
    CREATE TRIGGER agent_added AFTER INSERT ON agent BEGIN
        INSERT INTO counter VALUES ('agent', 1) ON CONFLICT DO UPDATE SET n = n + 1; END;
    CREATE TRIGGER agent_gone AFTER DELETE ON agent BEGIN
        UPDATE counter SET n = n - 1 WHERE kind = 'agent'; END;
    CREATE TABLE grp (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
        members INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE member (agent INTEGER, grp INTEGER, PRIMARY KEY (agent, grp)) WITHOUT ROWID;
    CREATE TRIGGER member_added AFTER INSERT ON member BEGIN
        UPDATE grp SET members = members + 1 WHERE id = NEW.grp; END;
    CREATE TRIGGER member_gone AFTER DELETE ON member BEGIN
        UPDATE grp SET members = members - 1 WHERE id = OLD.grp; END;
    CREATE TABLE outcome (command INTEGER, agent TEXT, state INTEGER, detail TEXT,
        PRIMARY KEY (command, agent)) WITHOUT ROWID;";

/// A database with a capture, and its copy.
struct Pair {
    source: Connection,
    capture: Capture,
    copy: Connection,
    applier: Applier,
}

impl Pair {
    fn new(schema: &str) -> Self {
        let open = || {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(schema).unwrap();
            conn
        };
        let (source, copy) = (open(), open());
        let capture = Capture::start(&source, &EXCLUDED).unwrap();
        let applier = Applier::new(&copy, &EXCLUDED).unwrap();
        Self { source, capture, copy, applier }
    }

    /// Runs statements in one transaction, and commits it without a record.
    fn soft(&mut self, sql: &str) {
        self.source.execute_batch("BEGIN IMMEDIATE").unwrap();
        self.source.execute_batch(sql).unwrap();
        self.capture.postpone(&self.source).unwrap();
        self.source.execute_batch("COMMIT").unwrap();
    }

    /// Runs statements in one transaction, applies its record to the copy and compares both.
    fn run(&mut self, sql: &str) -> Rows {
        self.source.execute_batch("BEGIN IMMEDIATE").unwrap();
        self.source.execute_batch(sql).unwrap();
        let captured = self.capture.take(&self.source, true).unwrap();
        let rows = Rows::decode(&captured.rows.encode()).unwrap();
        assert_eq!(rows, captured.rows);
        self.source.execute_batch("COMMIT").unwrap();
        self.capture.logged(captured);
        let tx = self.copy.transaction().unwrap();
        self.applier.apply(&tx, &rows).unwrap();
        tx.commit().unwrap();
        let of = |conn| contents(conn, &COMPARED).unwrap();
        assert_eq!(of(&self.source), of(&self.copy));
        rows
    }

    fn copied<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        self.copy.query_row(sql, [], |r| r.get(0)).unwrap()
    }
}

#[test]
fn rows_have_the_net_effect_of_a_transaction() {
    let mut pair = Pair::new(SCHEMA);
    let rows = pair.run(
        "INSERT INTO agent (id, name) VALUES (1, 'a'), (2, 'b'), (3, 'c');
         UPDATE agent SET note = 'x' WHERE id = 1; DELETE FROM agent WHERE id = 3;",
    );
    assert_eq!(rows.count(), 3, "the row that is gone again is one that is gone");
    let rows = pair.run("UPDATE agent SET note = 'y', seen = 5 WHERE id = 1");
    let set = (vec![Value::Integer(1)], 1 << 3, vec![Value::Text("y".into())]);
    assert_eq!(rows.tables[0].set, [set]);
    assert!(pair.run("UPDATE agent SET note = note, seen = 6").is_empty());
    assert!(pair.run("DELETE FROM agent WHERE id = 9").is_empty());
    pair.run("DELETE FROM agent");
    assert_eq!(pair.copied::<i64>("SELECT n FROM counter"), 0);
}

#[test]
fn names_that_are_swapped_in_one_record_arrive() {
    let mut pair = Pair::new(SCHEMA);
    pair.run("INSERT INTO agent (id, name) VALUES (1, 'a'), (2, 'b')");
    pair.run(
        "UPDATE agent SET name = 'z' WHERE id = 1; UPDATE agent SET name = 'a' WHERE id = 2;
         UPDATE agent SET name = 'b' WHERE id = 1;",
    );
    pair.run("UPDATE agent SET id = id + 10");
    assert_eq!(pair.copied::<String>("SELECT name FROM agent WHERE id = 12"), "a");
}

#[test]
fn row_that_replaces_another_by_its_name_removes_it() {
    let mut pair = Pair::new(SCHEMA);
    pair.run("INSERT INTO agent (id, name) VALUES (1, 'a'), (2, 'b')");
    pair.run("INSERT OR REPLACE INTO agent (id, name) VALUES (3, 'a')");
    pair.run("UPDATE OR REPLACE agent SET name = 'b' WHERE id = 3");
    assert_eq!(pair.copied::<i64>("SELECT count(*) FROM agent"), 1);
}

#[test]
fn sequence_moves_without_a_row() {
    let mut pair = Pair::new(SCHEMA);
    pair.run("INSERT INTO grp (name) VALUES ('a')");
    let rows = pair.run("INSERT INTO grp (name) VALUES ('b'); DELETE FROM grp WHERE name = 'b'");
    assert_eq!(rows.sequences, [("grp".into(), 2)]);
    pair.run("INSERT OR IGNORE INTO grp (name) VALUES ('a')");
    pair.run("INSERT INTO grp (name) VALUES ('c')");
    assert_eq!(pair.copied::<i64>("SELECT id FROM grp WHERE name = 'c'"), 4);
}

#[test]
fn counts_that_triggers_keep_survive_a_whole_row() {
    let mut pair = Pair::new(SCHEMA);
    pair.run(
        "INSERT INTO grp (name) VALUES ('a'), ('b');
         INSERT INTO member VALUES (1, 1), (2, 1), (3, 2);",
    );
    // A new name makes the group a whole row, in the record that also moves members.
    pair.run(
        "UPDATE grp SET name = 'c' WHERE id = 1; DELETE FROM member WHERE agent = 1;
         INSERT INTO member VALUES (4, 1), (5, 1); UPDATE member SET agent = 6 WHERE agent = 2;",
    );
    assert_eq!(pair.copied::<i64>("SELECT members FROM grp WHERE name = 'c'"), 3);
    pair.run("DELETE FROM member WHERE grp = 1; DELETE FROM grp WHERE id = 1");
}

#[test]
fn unlogged_column_is_kept_only_in_the_same_life() {
    let mut pair = Pair::new(SCHEMA);
    pair.run("INSERT INTO agent (id, incarnation, name) VALUES (1, 7, 'a'), (2, 7, 'b')");
    pair.copy.execute_batch("UPDATE agent SET seen = 99").unwrap();
    pair.run("UPDATE agent SET name = 'c' WHERE id = 1");
    assert_eq!(pair.copied::<Option<i64>>("SELECT seen FROM agent WHERE id = 1"), Some(99));
    pair.run(
        "DELETE FROM agent WHERE id = 2;
         INSERT INTO agent (id, incarnation, name) VALUES (2, 8, 'd')",
    );
    assert_eq!(pair.copied::<Option<i64>>("SELECT seen FROM agent WHERE id = 2"), None);
}

#[test]
fn values_of_all_kinds_arrive() {
    let mut pair = Pair::new(SCHEMA);
    pair.run(
        "INSERT INTO agent VALUES (1, 0, CAST(x'ff41' AS TEXT), NULL, 1);
         INSERT INTO outcome VALUES (1, CAST(x'fe' AS TEXT), 2.5, x'00ff'), (2, 'é', NULL, '');
         UPDATE outcome SET state = -3 WHERE command = 1",
    );
    pair.run("UPDATE outcome SET state = 4; DELETE FROM outcome WHERE agent = CAST(x'fe' AS TEXT)");
}

#[test]
fn tables_have_at_most_sixty_columns() {
    let schema = |n| {
        let columns: Vec<_> = (1..n).map(|n| format!("c{n} INTEGER")).collect();
        format!("{SCHEMA} CREATE TABLE wide (id INTEGER PRIMARY KEY, {})", columns.join(", "))
    };
    let mut pair = Pair::new(&schema(60));
    pair.run("INSERT INTO wide (id, c1, c59) VALUES (1, 2, 3)");
    let rows = pair.run("UPDATE wide SET c59 = 4, c31 = 5");
    assert_eq!(rows.tables[0].set[0].1, 1 << 59 | 1 << 31);
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&schema(61)).unwrap();
    assert!(matches!(Capture::start(&conn, &EXCLUDED), Err(RowsError::Unfit(_))));
}

#[test]
fn rows_of_soft_transactions_come_with_a_later_record() {
    let mut pair = Pair::new(SCHEMA);
    pair.run("INSERT INTO agent (id, name) VALUES (1, 'a'), (2, 'b')");
    pair.soft("UPDATE agent SET note = 'x' WHERE id = 1");
    pair.soft(
        "UPDATE agent SET note = 'y', incarnation = 2 WHERE id = 1; DELETE FROM agent WHERE id = 2",
    );
    // A new process on the same file.
    let before = std::mem::replace(&mut pair.source, Connection::open_in_memory().unwrap());
    let copying = Backup::new(&before, &mut pair.source).unwrap();
    copying.run_to_completion(1_000, Duration::ZERO, None).unwrap();
    drop(copying);
    pair.capture = Capture::start(&pair.source, &EXCLUDED).unwrap();
    assert_eq!(pair.run("").count(), 2);
    assert!(pair.run("").is_empty());
}

#[test]
fn rolled_back_changes_are_not_logged() {
    let mut pair = Pair::new(SCHEMA);
    pair.source
        .execute_batch("BEGIN; INSERT INTO agent (id, name) VALUES (1, 'a'); ROLLBACK")
        .unwrap();
    pair.capture.forget();
    assert!(pair.run("").is_empty());
    pair.run(
        "INSERT INTO agent (id, name) VALUES (1, 'a'); SAVEPOINT one;
         INSERT INTO agent (id, name) VALUES (2, 'b'); UPDATE agent SET note = 'x';
         ROLLBACK TO one; RELEASE one",
    );
    assert_eq!(pair.copied::<i64>("SELECT count(*) FROM agent"), 1);
}

/// Takes one record of `pair`, and applies it to the copy. Returns the number of its rows.
fn take(pair: &mut Pair, sql: &str, waiting: bool) -> usize {
    pair.source.execute_batch("BEGIN IMMEDIATE").unwrap();
    pair.source.execute_batch(sql).unwrap();
    let captured = pair.capture.take(&pair.source, waiting).unwrap();
    pair.source.execute_batch("COMMIT").unwrap();
    pair.applier.apply(&pair.copy, &captured.rows).unwrap();
    let count = captured.rows.count();
    pair.capture.logged(captured);
    count
}

#[test]
fn many_unlogged_rows_come_in_several_records() {
    let mut pair = Pair::new(SCHEMA);
    let insert = |rows: u32, bytes: u32| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO outcome SELECT i, '{bytes}', 0, zeroblob({bytes}) FROM n"
        )
    };
    pair.soft(&insert(60_000, 0));
    assert_eq!(take(&mut pair, "", true), 50_000);
    assert!(pair.capture.has_waiting());
    assert_eq!(pair.run("").count(), 10_000);
    assert!(!pair.capture.has_waiting());
    // Large rows: a record has at most some megabytes of them.
    pair.soft(&insert(100, 100_000));
    let first = take(&mut pair, "", true);
    assert!((40..60).contains(&first), "{first}");
    while pair.capture.has_waiting() {
        take(&mut pair, "", true);
    }
    assert!(pair.run("").is_empty());
}

#[test]
fn decision_on_rows_that_wait_puts_whole_rows() {
    let mut pair = Pair::new(SCHEMA);
    pair.soft(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
         INSERT INTO outcome SELECT i, 'a', 0, 'x' FROM n",
    );
    assert_eq!(take(&mut pair, "UPDATE outcome SET state = 4 WHERE command > 100", false), 59_900);
    assert_eq!(pair.copied::<i64>("SELECT count(*) FROM outcome WHERE detail = 'x'"), 59_900);
    assert_eq!(take(&mut pair, "", false), 0, "nothing was decided");
    assert_eq!(take(&mut pair, "UPDATE outcome SET state = 5 WHERE command = 7", false), 100);
    assert!(pair.run("").is_empty());
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let mut pair = Pair::new(SCHEMA);
    let rows = |rows| Rows { tables: vec![rows], ..Rows::default() };
    let agent = TableRows { table: "agent".into(), ..TableRows::default() };
    let one = || vec![Value::Integer(1)];
    let unfit = [
        rows(TableRows { table: "none".into(), ..TableRows::default() }),
        rows(TableRows { set: vec![(one(), 8, one())], ..agent.clone() }),
        rows(TableRows { set: vec![(one(), 1 << 40, one())], ..agent.clone() }),
        rows(TableRows { put: vec![vec![Value::Null; 9]], ..agent.clone() }),
        rows(TableRows { put: vec![vec![]], ..agent.clone() }),
    ];
    for rows in unfit {
        let refused = pair.applier.apply(&pair.copy, &rows);
        assert!(matches!(refused, Err(RowsError::Unfit(_))), "{rows:?}: {refused:?}");
    }
    let newer = Rows { schema: 1, ..Rows::default() };
    let refused = pair.applier.apply(&pair.copy, &newer);
    assert!(matches!(refused, Err(RowsError::Newer { found: 1, known: 0 })));
    let bytes = rows(agent).encode();
    for bytes in [&bytes[..bytes.len() - 1], &[bytes.as_slice(), &[0]].concat(), b"\xff"] {
        assert!(matches!(Rows::decode(bytes), Err(RowsError::Unfit(_))));
    }
}

#[test]
fn row_of_an_older_schema_gets_the_defaults() {
    let mut pair = Pair::new(SCHEMA);
    let rows = pair.run("INSERT INTO grp (name) VALUES ('a')");
    let newer = Connection::open_in_memory().unwrap();
    newer.execute_batch(SCHEMA).unwrap();
    newer.execute_batch("ALTER TABLE grp ADD COLUMN kind TEXT NOT NULL DEFAULT 'plain'").unwrap();
    Applier::new(&newer, &EXCLUDED).unwrap().apply(&newer, &rows).unwrap();
    let kind: String = newer.query_row("SELECT kind FROM grp", [], |r| r.get(0)).unwrap();
    assert_eq!(kind, "plain");
}
