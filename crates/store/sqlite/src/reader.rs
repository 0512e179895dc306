//! The user on whose behalf queries run, and the cost of those queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Statements that every store of this process has run since its start.
static STATEMENTS: AtomicU64 = AtomicU64::new(0);

/// The cost of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Statements that read or wrote. Transaction marks and pragmas do not count; the steps of a
    /// trigger are part of the statement that fired it.
    pub queries: u64,
    /// Rows that they returned.
    pub rows: u64,
}

/// The user on whose behalf queries run, and the counter of their cost. A store lends one user all
/// of its connections for queries but one. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    user: Option<Arc<str>>,
    cost: Arc<Counter>,
}

#[derive(Debug, Default)]
struct Counter {
    queries: AtomicU64,
    rows: AtomicU64,
}

impl Reader {
    /// Returns the reader of the server itself: its queries count towards no user's share.
    pub fn server() -> Self {
        Self::default()
    }

    /// Returns a reader for a user, or for another party that shares the connections. It has the
    /// same counter.
    #[must_use]
    pub fn with_user(&self, user: &str) -> Self {
        Self { user: Some(user.into()), cost: Arc::clone(&self.cost) }
    }

    /// Returns the cost of all queries of this reader so far.
    pub fn cost(&self) -> Cost {
        Cost {
            queries: self.cost.queries.load(Ordering::Relaxed),
            rows: self.cost.rows.load(Ordering::Relaxed),
        }
    }

    /// Adds the cost of a query. Stores call this.
    pub fn spend(&self, cost: Cost) {
        self.cost.queries.fetch_add(cost.queries, Ordering::Relaxed);
        self.cost.rows.fetch_add(cost.rows, Ordering::Relaxed);
    }

    pub(crate) fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }
}

/// Returns the number of statements that all stores of this process have run since its start.
pub fn statements() -> u64 {
    STATEMENTS.load(Ordering::Relaxed)
}

/// Counts one statement of this process.
pub(crate) fn count_statement() {
    STATEMENTS.fetch_add(1, Ordering::Relaxed);
}
