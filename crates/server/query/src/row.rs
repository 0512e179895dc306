//! The rows of an answer and the lines to which they belong.

use std::sync::Arc;

use series::Value;

use super::func::Func;
use budget::HeldMemory;

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
    /// The name in the answer.
    pub(super) name: String,
    metric: String,
    /// The function if it is an aggregate.
    func: Option<&'static str>,
}

impl Column {
    /// Returns the column for the samples of a metric.
    pub(super) fn of(metric: &str) -> Self {
        Self { name: metric.into(), metric: metric.into(), func: None }
    }

    /// Returns the column of an aggregate of a metric.
    pub(super) fn by(metric: &str, func: Func) -> Self {
        let name = format!("{metric}:{}", func.name());
        Self { name, metric: metric.into(), func: Some(func.name()) }
    }

    /// Returns the column of an aggregate that the answer names by its metric alone.
    pub(super) fn joined(metric: &str, func: Func) -> Self {
        Self { name: metric.into(), ..Self::by(metric, func) }
    }

    /// Returns true if a query may refer to the column by this name: `metric`, or for an aggregate
    /// also `function` or `metric:function`.
    pub(super) fn is(&self, name: &str) -> bool {
        let behind = || name.strip_prefix(&self.metric)?.strip_prefix(':');
        self.metric == name || self.func.is_some_and(|func| name == func || behind() == Some(func))
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
