//! Durations that are known only when the query runs.

use promql_syntax::{DurationExpr, DurationKind, DurationOp, Length, UnarySign};

use crate::{Eval, Query, failed};

/// Longest duration, seconds.
const SECONDS_MAX: f64 = i64::MAX as f64 / 1e9;

/// Returns a length in milliseconds, which must be positive unless `signed`.
pub(crate) fn milliseconds(length: &Length, query: &Query, signed: bool) -> Eval<i64> {
    let Some(expr) = &length.expr else { return Ok(length.ms) };
    let wrong = |what: &str| failed(format!("{}:{}: {what}", expr.span.start, expr.span.end));
    let seconds = match value(expr, query) {
        Ok(seconds) => seconds,
        Err(what) => return wrong(what),
    };
    if !seconds.is_finite() {
        return wrong("duration is NaN or infinite");
    }
    if seconds <= 0.0 && !signed {
        return wrong("duration must be greater than 0");
    }
    if seconds.abs() > SECONDS_MAX {
        return wrong("duration is out of range");
    }
    Ok((seconds * 1000.0) as i64)
}

/// Returns milliseconds as seconds, rounded as Go's `Duration.Seconds` rounds them.
pub(crate) fn seconds(ms: i64) -> f64 {
    (ms / 1000) as f64 + (ms % 1000) as f64 / 1000.0
}

/// Returns the seconds of a duration.
fn value(expr: &DurationExpr, query: &Query) -> Result<f64, &'static str> {
    Ok(match &expr.kind {
        DurationKind::Literal { seconds, .. } => *seconds,
        DurationKind::Step => seconds(query.step_ms),
        DurationKind::Range => seconds(query.end_ms.saturating_sub(query.start_ms)),
        DurationKind::Unary { sign: UnarySign::Plus, of } => value(of, query)?,
        DurationKind::Unary { sign: UnarySign::Minus, of } => -value(of, query)?,
        DurationKind::Binary { op, left, right } => {
            let (left, right) = (value(left, query)?, value(right, query)?);
            match op {
                DurationOp::Add => left + right,
                DurationOp::Sub => left - right,
                DurationOp::Mul => left * right,
                DurationOp::Div if right == 0.0 => return Err("division by zero"),
                DurationOp::Div => left / right,
                DurationOp::Mod if right == 0.0 => return Err("modulo by zero"),
                DurationOp::Mod => left % right,
                DurationOp::Pow => left.powf(right),
                DurationOp::MinOf => crate::math::min(left, right),
                DurationOp::MaxOf => crate::math::max(left, right),
            }
        }
    })
}
