//! The syntax of `PromQL`, the query language of Prometheus: text in, a checked tree out, and the tree
//! as text or JSON again.
//!
//! The reference is Prometheus 3.16 with its default flags. What is different here:
//! - Names of Unicode letters, digits, `_`, `:` and dots need no quotes (a feature flag there).
//! - Experimental functions need no flag; fill modifiers, `info`, `integral`, `histogram_quantiles`
//!   and `start_timestamp` are refused.
//! - A text has at most [`limits::TEXT_BYTES_MAX`] bytes, a tree at most [`limits::DEPTH_MAX`] levels.
//!
//! Every node has the [`TextSpan`] of bytes that it was read from. An error has Prometheus' text and the
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

pub use duration::parse as parse_duration;
pub use error::{ParseError, TextSpan};
pub use function::{Function, function};
pub use json::to_json;
pub use number::{parse_float, show as show_number};
pub use pretty::pretty;
pub use quote::quote;
pub use regexp::Regexp;
pub use tree::{
    Aggregate, Aggregation, AtModifier, Binary, BinaryOp, Cardinality, DurationExpr, DurationKind,
    DurationOp, Expr, ExprKind, LabelMatcher, Length, MatchOp, Type, UnarySign, VectorMatching,
    VectorSelector,
};

/// Parses and checks an expression.
///
/// # Errors
/// Returns the first error of the text.
pub fn parse(text: &str) -> Result<Expr, ParseError> {
    parser::parse(text)
}
