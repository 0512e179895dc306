//! The cost of the statements of one SQLite connection, as SQLite itself reports it. Counting costs
//! a few nanoseconds per row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use crate::reader::{Cost, Reader, count_statement};

/// Counts the statements and rows of one connection.
pub struct Meter(Arc<Counts>);

#[derive(Default)]
struct Counts {
    queries: AtomicU64,
    rows: AtomicU64,
}

impl Meter {
    /// Starts counting on a connection.
    pub fn attach(conn: &mut Connection) -> rusqlite::Result<Self> {
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let codes = TraceEventCodes::SQLITE_TRACE_STMT | TraceEventCodes::SQLITE_TRACE_ROW;
        conn.trace_v2(codes, Some(move |event: TraceEvent<'_>| counted.count(&event)))?;
        Ok(Self(counts))
    }

    /// Charges everything that runs until the returned value is dropped to a reader.
    pub fn charge(&self, reader: &Reader) -> Charge {
        self.0.take_cost();
        Charge { counts: Arc::clone(&self.0), reader: reader.clone() }
    }
}

/// See [`Meter::charge`].
pub struct Charge {
    counts: Arc<Counts>,
    reader: Reader,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.reader.spend(self.counts.take_cost());
    }
}

impl Counts {
    fn count(&self, event: &TraceEvent<'_>) {
        match event {
            TraceEvent::Stmt(_, sql) if counts(sql) => {
                self.queries.fetch_add(1, Ordering::Relaxed);
                count_statement();
            }
            TraceEvent::Row(_) => {
                self.rows.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn take_cost(&self) -> Cost {
        Cost {
            queries: self.queries.swap(0, Ordering::Relaxed),
            rows: self.rows.swap(0, Ordering::Relaxed),
        }
    }
}

/// Returns true if a statement reads or writes. A trigger's step is announced as a comment.
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
    use crate::reader::statements;

    #[test]
    fn meter_counts_statements_and_rows_but_not_transactions() {
        let mut conn = Connection::open_in_memory().unwrap();
        let meter = Meter::attach(&mut conn).unwrap();
        conn.execute_batch("CREATE TABLE t (a); CREATE TABLE u (a);").unwrap();
        conn.execute_batch(
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO u VALUES (1); END",
        )
        .unwrap();
        let reader = Reader::server();
        let charge = meter.charge(&reader);
        let tx = conn.transaction().unwrap();
        tx.execute("INSERT INTO t VALUES (1), (2)", []).unwrap();
        assert!(statements() >= 1, "of all connections together");
        let mut all = tx.prepare("SELECT a FROM t").unwrap();
        assert_eq!(all.query_map([], |r| r.get::<_, i64>(0)).unwrap().count(), 2);
        drop(all);
        tx.commit().unwrap();
        drop(charge);
        assert_eq!(reader.cost(), Cost { queries: 2, rows: 2 });
    }
}
