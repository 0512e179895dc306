//! What the statements of this thread cost: how many ran and how many rows they gave, as the
//! database itself reports them. Transaction marks and pragmas do not count, a trigger's steps are
//! part of the statement that fired it.
//!
//! Counts are kept per thread: a caller takes them before and after the work that it does on one
//! thread. Only the number of statements is also kept for the process; the cost is a few
//! nanoseconds per row.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

thread_local! {
    static COST: Cell<Cost> = const { Cell::new(Cost { queries: 0, rows: 0 }) };
}

/// Statements of all threads since the start.
static STATEMENTS: AtomicU64 = AtomicU64::new(0);

/// What statements cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Statements that read or wrote.
    pub queries: u64,
    /// Rows that they gave.
    pub rows: u64,
}

/// What the statements of this thread cost since the last call on it.
pub fn take() -> Cost {
    COST.take()
}

/// Statements that read or wrote, of all threads since the process started.
pub fn statements() -> u64 {
    STATEMENTS.load(Ordering::Relaxed)
}

/// Count what runs on this connection.
pub(crate) fn attach(conn: &mut Connection) -> rusqlite::Result<()> {
    let codes = TraceEventCodes::SQLITE_TRACE_STMT | TraceEventCodes::SQLITE_TRACE_ROW;
    conn.trace_v2(codes, Some(|event: TraceEvent<'_>| count(&event)))
}

fn count(event: &TraceEvent<'_>) {
    let mut cost = COST.get();
    match event {
        TraceEvent::Stmt(_, sql) if counts(sql) => {
            cost.queries += 1;
            STATEMENTS.fetch_add(1, Ordering::Relaxed);
        }
        TraceEvent::Row(_) => cost.rows += 1,
        _ => return,
    }
    COST.set(cost);
}

/// A trigger's step is announced as a comment.
fn counts(sql: &str) -> bool {
    let word = sql.trim_start().get(..5).unwrap_or(sql);
    !word.starts_with("--")
        && !["BEGIN", "COMMI", "ROLLB", "PRAGM", "SAVEP", "RELEA"]
            .iter()
            .any(|other| word.eq_ignore_ascii_case(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_and_rows_count_and_transactions_do_not() {
        let mut conn = Connection::open_in_memory().unwrap();
        attach(&mut conn).unwrap();
        take();
        conn.execute_batch("CREATE TABLE t (a); CREATE TABLE u (a);").unwrap();
        conn.execute_batch(
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO u VALUES (1); END",
        )
        .unwrap();
        take();
        let tx = conn.transaction().unwrap();
        tx.execute("INSERT INTO t VALUES (1), (2)", []).unwrap();
        assert!(statements() >= 1, "of all threads together");
        let mut all = tx.prepare("SELECT a FROM t").unwrap();
        assert_eq!(all.query_map([], |r| r.get::<_, i64>(0)).unwrap().count(), 2);
        drop(all);
        tx.commit().unwrap();
        assert_eq!(take(), Cost { queries: 2, rows: 2 });
        assert_eq!(take(), Cost::default());
    }
}
