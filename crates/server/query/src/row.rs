//! The rows of an answer and the lines to which they belong.

use std::sync::Arc;

use series::Value;

use super::budget::HeldMemory;
use super::func::Func;

/// One row of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowOut {
    pub(super) time_ns: i64,
    pub(super) cells: Cells,
}

/// The values of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cells {
    /// The row consists of its time only.
    Empty,
    One(Value),
    /// One cell per column; `None` for a missing value.
    Many(Vec<Option<Value>>),
    Text(Vec<u8>),
}

/// Rows on demand, in the direction of the query.
pub(super) type Rows = Box<dyn Iterator<Item = Result<RowOut, String>> + Send>;

/// A column of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) metric: String,
}

impl Column {
    /// Returns the column for the samples of a metric.
    pub(super) fn of(metric: &str) -> Self {
        Self { name: metric.into(), metric: metric.into() }
    }

    /// Returns the column of an aggregate of a metric.
    pub(super) fn by(metric: &str, func: Func) -> Self {
        Self { name: format!("{metric}:{}", func.name()), metric: metric.into() }
    }

    /// Returns true if a query may refer to the column by this name: its own name or its metric.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.metric == name
    }
}

/// All rows of one name.
pub(super) struct NamedRows {
    pub(super) name: String,
    pub(super) columns: Arc<[Column]>,
    pub(super) rows: Rows,
}

/// Lines and the memory reserved for them.
pub(super) struct NamedRowSet {
    pub(super) lines: Vec<NamedRows>,
    pub(super) held: HeldMemory,
}
