//! Operators between two numbers.

use crate::math::same;
use promql_syntax::BinaryOp;

use crate::ABSENT;

/// Returns the value of an operator between two numbers; 1 or 0 for a comparison.
pub(crate) fn of_scalars(op: BinaryOp, left: f64, right: f64) -> f64 {
    match keeps(op, left, right) {
        Some(kept) => f64::from(u8::from(kept)),
        None => arithmetic(op, left, right),
    }
}

/// Returns the answer to a comparison; `None` for other operators.
pub(crate) fn keeps(op: BinaryOp, left: f64, right: f64) -> Option<bool> {
    Some(match op {
        BinaryOp::Equal => same(left, right),
        BinaryOp::NotEqual => !same(left, right),
        BinaryOp::Less => left < right,
        BinaryOp::LessEqual => left <= right,
        BinaryOp::Greater => left > right,
        BinaryOp::GreaterEqual => left >= right,
        _ => return None,
    })
}

/// Returns the value of an operator that is no comparison.
pub(crate) fn arithmetic(op: BinaryOp, left: f64, right: f64) -> f64 {
    match op {
        BinaryOp::Add => left + right,
        BinaryOp::Sub => left - right,
        BinaryOp::Mul => left * right,
        BinaryOp::Div => left / right,
        BinaryOp::Mod => left % right,
        BinaryOp::Pow => left.powf(right),
        BinaryOp::Atan2 => left.atan2(right),
        // Only histograms are trimmed.
        _ => ABSENT,
    }
}
