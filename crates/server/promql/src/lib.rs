//! `PromQL` over the series store. The reference is Prometheus 3.16.
//!
//! [`run()`] evaluates a checked tree. A node hands its series to the node above one after the other,
//! each with the values of all steps; so an aggregation holds its groups and never its input, and the
//! samples of one series are in memory at a time. A step without a value holds [`ABSENT`].
//!
//! Times are milliseconds. Windows and lookback are open on the left and closed on the right.

mod aggregate;
mod binary;
mod blocks;
mod calls;
mod date;
mod duration;
mod eval;
mod extended;
mod histogram;
mod labels;
mod math;
mod notes;
mod operator;
mod order;
mod relabel;
mod rolled;
mod rows;
mod run;
mod samples;
mod select;
mod window;

use budget::Budget;
use promql_syntax::Expr;
use series::Store;

pub use labels::Labels;
pub use notes::Annotations;
pub use select::{Found, find};

/// The value of a step without one: the float with which Prometheus marks the end of a series, which
/// is no value there either.
pub const ABSENT: f64 = f64::from_bits(series::END_OF_SERIES);
/// Default of [`Query::lookback_ms`].
pub const LOOKBACK_MS: i64 = 300_000;
/// Step of a subquery that names none.
pub const SUBQUERY_STEP_MS: i64 = 60_000;

/// The times of a query.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// Time of the first step.
    pub start_ms: i64,
    /// Time up to which there are steps.
    pub end_ms: i64,
    /// Time between two steps; 0 for an instant query, which has one.
    pub step_ms: i64,
    /// Age up to which a sample is the value of a selector.
    pub lookback_ms: i64,
}

/// The samples of a series: milliseconds and values.
pub type Points = Vec<(i64, f64)>;

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Scalar(f64),
    String(Vec<u8>),
    /// One value for each series.
    Vector(Vec<(Labels, f64)>),
    /// The values of each series at the steps, or the samples of a range vector.
    Matrix(Vec<(Labels, Points)>),
}

/// A query that has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The query asks for something that there is not.
    #[error("{0}")]
    BadData(String),
    /// It failed while it ran.
    #[error("{0}")]
    Execution(String),
    /// Its time or its memory is over, or its client has left.
    #[error("{0}")]
    Over(String),
    /// The store cannot be read.
    #[error("{0}")]
    Store(String),
}

pub(crate) type Eval<T> = Result<T, QueryError>;

pub(crate) fn failed<T>(text: impl Into<String>) -> Eval<T> {
    Err(QueryError::Execution(text.into()))
}

/// Evaluates an expression.
///
/// # Errors
/// Returns an error if the query has no complete answer.
pub fn run(
    store: &Store,
    expr: &Expr,
    query: Query,
    budget: &Budget,
) -> Result<(Answer, Annotations), QueryError> {
    run::run(store, expr, query, budget)
}
