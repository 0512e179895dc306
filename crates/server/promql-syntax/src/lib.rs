//! The syntax of `PromQL`, the query language of Prometheus: text in, a checked tree out, and the tree
//! as text or JSON again.
//!
//! The reference is Prometheus 3.16 with its default flags. What is different here:
//! - Names of Unicode letters, digits, `_`, `:` and dots need no quotes (a feature flag there).
//! - Experimental functions need no flag; fill modifiers, `info`, `integral`, `histogram_quantiles`
//!   and `start_timestamp` are refused.
//! - A text has at most [`limits::TEXT_BYTES_MAX`] bytes, a tree at most [`limits::DEPTH_MAX`] levels.
//!
//! Every node has the [`Span`] of bytes that it was read from. An error has Prometheus' text and the
//! line and column of the span. Nothing here knows the store.

mod check;
mod duration;
mod durations;
mod error;
mod function;
mod json;
mod lexer;
pub mod limits;
mod number;
mod parser;
mod pretty;
mod print;
mod quote;
mod regexp;
mod selector;
mod token;
mod tree;

pub use error::{ParseError, Span};
pub use function::{Function, function};
pub use json::to_json;
pub use pretty::pretty;
pub use regexp::Regexp;
pub use tree::{
    Aggregate, Aggregation, At, Binary, BinaryOp, Cardinality, Duration, DurationKind, DurationOp,
    Expr, ExprKind, LabelMatcher, Length, MatchOp, Selector, Sign, Type, VectorMatching,
};

/// Parses and checks an expression.
///
/// # Errors
/// Returns the first error of the text.
pub fn parse(text: &str) -> Result<Expr, ParseError> {
    parser::parse(text)
}

/// Parses a selector of series, such as `up{job="api"}`.
///
/// # Errors
/// Returns the first error of the text.
pub fn parse_selector(text: &str) -> Result<Selector, ParseError> {
    parser::parse_selector(text)
}
