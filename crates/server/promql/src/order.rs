//! Vectors whose order is part of the answer of an instant query.

use crate::labels::Labels;
use crate::math::{nan_first, nan_last};
use promql_syntax::{Aggregation, AtModifier, Expr, ExprKind};

use crate::Eval;
use crate::calls::date_part;
use crate::eval::{Emit, Evaluator, bare, text};
use crate::rows::Row;

/// Returns true if the order of the series is that of the expression.
pub(crate) fn is_ordered(expr: &Expr) -> bool {
    match &bare(expr).kind {
        ExprKind::Call { function, .. } => function.name.starts_with("sort"),
        ExprKind::Aggregate(aggregate) => {
            matches!(aggregate.op, Aggregation::Topk | Aggregation::Bottomk)
        }
        _ => false,
    }
}

/// Returns true if an expression has the same value at all steps, because its times are fixed.
fn is_fixed(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) => true,
        ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => is_fixed(inner),
        ExprKind::Vector(selector) | ExprKind::Matrix { selector, .. } => {
            selector.at != AtModifier::Evaluation
        }
        ExprKind::Subquery { at, .. } => *at != AtModifier::Evaluation,
        ExprKind::Aggregate(aggregate) => is_fixed(&aggregate.expr),
        ExprKind::Binary(binary) => is_fixed(&binary.left) && is_fixed(&binary.right),
        ExprKind::Call { function, args } => {
            let of_the_step = match function.name {
                "predict_linear" | "time" => true,
                "timestamp" => {
                    !args.iter().all(|arg| matches!(bare(arg).kind, ExprKind::Vector(_)))
                }
                name => date_part(name).is_some(),
            };
            !of_the_step && args.iter().all(is_fixed)
        }
    }
}

impl Evaluator<'_> {
    /// Warns that sorting does nothing at several steps.
    pub(crate) fn note_sort(&self, name: &str, call: &Expr) {
        if name.starts_with("sort") && self.grid.start_ms != self.grid.end_ms && !is_fixed(call) {
            let warning =
                "sort is ineffective for range queries since results are always ordered by labels";
            self.shared.notes.borrow_mut().warn(warning, call.span);
        }
    }

    /// Hands on a vector in the order of a sorting function.
    pub(crate) fn sorted(&self, name: &str, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        let Some((vector, by)) = args.split_first() else { return Ok(()) };
        let mut rows = self.rows(vector)?;
        let by: Vec<String> = by.iter().map(text).collect();
        let first = |row: &Row| row.first().copied().unwrap_or(f64::NAN);
        match name {
            // NaN comes last in both directions.
            "sort" => rows.list.sort_by(|a, b| nan_last(first(&a.1), first(&b.1))),
            "sort_desc" => rows
                .list
                .sort_by(|a, b| nan_first(first(&b.1), first(&a.1)).then_with(|| a.0.cmp(&b.0))),
            "sort_by_label" => rows.list.sort_by(|a, b| by_labels(&a.0, &b.0, &by)),
            _ => rows.list.sort_by(|a, b| by_labels(&b.0, &a.0, &by)),
        }
        Self::emit_all(rows, emit)
    }
}

/// Compares two series by the values of some labels, then by all. Numbers within values are compared
/// as numbers.
fn by_labels(a: &Labels, b: &Labels, names: &[String]) -> std::cmp::Ordering {
    let named = names.iter().map(|name| natural(a.get(name), b.get(name)));
    named.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).then_with(|| a.cmp(b))
}

/// Compares two texts; runs of digits count as numbers.
fn natural(mut a: &str, mut b: &str) -> std::cmp::Ordering {
    loop {
        let (part_a, part_b) = (part(a), part(b));
        let digits = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        let order = if digits(part_a) && digits(part_b) {
            let (a, b) = (part_a.trim_start_matches('0'), part_b.trim_start_matches('0'));
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        } else {
            part_a.cmp(part_b)
        };
        let order = order.then_with(|| part_a.len().cmp(&part_b.len()));
        if !order.is_eq() || part_a.is_empty() {
            return order;
        }
        (a, b) = (a.get(part_a.len()..).unwrap_or(""), b.get(part_b.len()..).unwrap_or(""));
    }
}

/// Returns the digits, or what is no digit, at the beginning.
fn part(text: &str) -> &str {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}
