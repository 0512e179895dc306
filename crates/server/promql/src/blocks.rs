//! Functions that the store's summaries of blocks answer exactly, without reading the samples: only
//! where no two windows share a sample.

use crate::labels::Labels;
use promql_syntax::{Expr, ExprKind};
use series::{Summary, TimeRange};

use crate::duration::milliseconds;
use crate::eval::{Evaluator, bare};
use crate::rows::{Row, over};
use crate::{ABSENT, Eval, QueryError};

/// Returns the value of a function of a window's summary, if that is all it needs. Sums are not: their
/// last bits depend on the order.
fn of_summary(name: &str) -> Option<fn(&Summary) -> f64> {
    Some(match name {
        "min_over_time" => |some| some.min,
        "max_over_time" => |some| some.max,
        "count_over_time" => |some| some.count as f64,
        "present_over_time" => |_| 1.0,
        _ => return None,
    })
}

impl Evaluator<'_> {
    /// Hands on the values of a function if the summaries of blocks give them. Returns false if the
    /// samples must be read.
    pub(crate) fn by_blocks(
        &self,
        name: &str,
        matrix: &Expr,
        take: &mut dyn FnMut(Labels, Row) -> Eval<()>,
    ) -> Eval<bool> {
        let query = &self.shared.query;
        let (Some(value), ExprKind::Matrix { selector, range }) =
            (of_summary(name), &bare(matrix).kind)
        else {
            return Ok(false);
        };
        let width_ms = milliseconds(range, query, false)?;
        let offset_ms = milliseconds(&selector.offset, query, true)?;
        let last_ms = self.grid.time(self.grid.count.saturating_sub(1)).saturating_sub(offset_ms);
        let first_ms = self.grid.start_ms.saturating_sub(offset_ms).saturating_sub(width_ms);
        let nanoseconds = |ms: i64| ms.checked_add(1)?.checked_mul(1_000_000);
        // The steps are counted from the beginning of the range, so it must not be moved.
        let Some((from_ns, to_ns)) = nanoseconds(first_ms).zip(nanoseconds(last_ms)) else {
            return Ok(false);
        };
        let range = TimeRange { from_ns, to_ns };
        let is_apart = self.grid.count == 1 || self.grid.step_ms == width_ms;
        let is_rolled = self.shared.rolled.is_some_and(|rolled| range.from_ns < rolled.until_ns);
        let is_extended = selector.anchored || selector.smoothed;
        if !is_apart || is_rolled || is_extended || self.fixed(selector.at).is_some() {
            return Ok(false);
        }
        let step_ns = width_ms.saturating_mul(1_000_000);
        let (list, _held) = self.series(selector)?;
        for (labels, series) in list {
            self.shared.budget.check().map_err(over)?;
            let mut row = vec![ABSENT; self.grid.count];
            let read = self.shared.snapshot.each_step(&series, range, step_ns, |step, some| {
                let cell = usize::try_from(step).ok().and_then(|step| row.get_mut(step));
                cell.map(|cell| *cell = value(&some)).is_some()
            });
            read.map_err(|error| QueryError::Store(error.to_string()))?;
            take(labels, row)?;
        }
        Ok(true)
    }
}
