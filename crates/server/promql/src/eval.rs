//! Evaluates a tree: scalars step by step, vectors series by series.

use std::cell::RefCell;

use crate::labels::Labels;
use budget::Budget;
use promql_syntax::{Expr, ExprKind, Length, UnarySign};
use series::{Snapshot, Store};

use crate::duration::milliseconds;
use crate::extended::Extension;
use crate::notes::Annotations;
use crate::operator::of_scalars;
use crate::rolled::Rolled;
use crate::rows::{HeldRow, Row, Rows, is_absent, over};
use crate::samples::Samples;
use crate::window::Window;
use crate::{Eval, Query, SUBQUERY_STEP_MS, failed};

/// Most steps of a subquery.
const STEPS_MAX: usize = 4 << 20;

/// Takes the series of a vector, one after the other.
pub(crate) type Emit<'e> = &'e mut dyn FnMut(Labels, Row) -> Eval<()>;

/// The steps of an evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) step_ms: i64,
    pub(crate) count: usize,
}

impl Grid {
    /// Returns the steps from a start up to an end.
    pub(crate) fn new(start_ms: i64, end_ms: i64, step_ms: i64) -> Self {
        let steps =
            if step_ms > 0 { end_ms.saturating_sub(start_ms).div_euclid(step_ms) } else { 0 };
        let count = usize::try_from(steps.saturating_add(1)).unwrap_or(0);
        Self { start_ms, end_ms, step_ms, count }
    }

    /// Returns the times of the steps.
    pub(crate) fn times(self) -> impl Iterator<Item = i64> {
        (0..self.count).map(move |step| self.time(step))
    }

    pub(crate) fn time(self, step: usize) -> i64 {
        self.start_ms.saturating_add(self.step_ms.saturating_mul(step as i64))
    }
}

/// The parts that all evaluations of one query share.
pub(crate) struct Shared<'q> {
    pub(crate) store: &'q Store,
    pub(crate) snapshot: Snapshot,
    pub(crate) rolled: Option<Rolled>,
    pub(crate) query: Query,
    pub(crate) budget: &'q Budget,
    pub(crate) notes: RefCell<Annotations>,
}

/// Evaluates expressions at the steps of a grid.
#[derive(Clone, Copy)]
pub(crate) struct Evaluator<'q> {
    pub(crate) shared: &'q Shared<'q>,
    pub(crate) grid: Grid,
}

impl Evaluator<'_> {
    /// Returns the evaluator of the same query at other steps.
    pub(crate) fn at(&self, grid: Grid) -> Self {
        Self { shared: self.shared, grid }
    }

    /// Returns a row with one value at all steps.
    pub(crate) fn constant(&self, value: f64) -> Row {
        vec![value; self.grid.count]
    }

    /// Returns the values of a number at all steps.
    pub(crate) fn scalar(&self, expr: &Expr) -> Eval<HeldRow> {
        HeldRow::new(self.grid.count, self.shared.budget, || self.scalar_row(expr))
    }

    fn scalar_row(&self, expr: &Expr) -> Eval<Row> {
        match &expr.kind {
            ExprKind::Number { value, .. } => Ok(self.constant(*value)),
            ExprKind::Paren(inner) => self.scalar_row(inner),
            ExprKind::Unary { sign: UnarySign::Plus, expr } => self.scalar_row(expr),
            ExprKind::Unary { expr, .. } => {
                Ok(self.scalar_row(expr)?.into_iter().map(|value| -value).collect())
            }
            ExprKind::Binary(binary) => {
                let (left, right) = (self.scalar(&binary.left)?, self.scalar(&binary.right)?);
                let pair = |(left, right): (&f64, &f64)| of_scalars(binary.op, *left, *right);
                Ok(left.iter().zip(right.iter()).map(pair).collect())
            }
            ExprKind::Call { function, args } => self.scalar_call(function.name, args),
            _ => Ok(self.constant(f64::NAN)),
        }
    }

    /// Evaluates a vector. Each series comes once.
    pub(crate) fn each(&self, expr: &Expr, emit: Emit<'_>) -> Eval<()> {
        match &expr.kind {
            ExprKind::Vector(selector) => self.select(selector, false, emit),
            ExprKind::Paren(inner) => self.each(inner, emit),
            ExprKind::Unary { sign: UnarySign::Plus, expr } => self.each(expr, emit),
            ExprKind::Unary { sign: UnarySign::Minus, expr } => {
                self.map(expr, &|value, _| Some(-value), emit)
            }
            ExprKind::Binary(binary) => self.binary(binary, expr.span, emit),
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate, emit),
            ExprKind::Call { function, args } => {
                self.note_sort(function.name, expr);
                self.call(function.name, args, emit)
            }
            _ => Ok(()),
        }
    }

    /// Returns the rows of a vector.
    pub(crate) fn rows(&self, expr: &Expr) -> Eval<Rows> {
        let mut rows = Rows::new(self.grid.count, self.shared.budget);
        self.each(expr, &mut |labels, row| rows.push(labels, row))?;
        Ok(rows)
    }

    /// Hands on rows.
    pub(crate) fn emit_all(rows: Rows, emit: Emit<'_>) -> Eval<()> {
        rows.list.into_iter().try_for_each(|(labels, row)| emit(labels, row))
    }

    /// Changes each value of a vector by a function of it and its step, and drops the name.
    pub(crate) fn map(
        &self,
        expr: &Expr,
        change: &dyn Fn(f64, usize) -> Option<f64>,
        emit: Emit<'_>,
    ) -> Eval<()> {
        // Without the name, two series may be one.
        let mut rows = Rows::new(self.grid.count, self.shared.budget);
        self.each(expr, &mut |labels, mut row| {
            let present = row.iter_mut().enumerate().filter(|(_, value)| !is_absent(**value));
            present
                .for_each(|(step, value)| *value = change(*value, step).unwrap_or(crate::ABSENT));
            // A series without a value is none.
            if row.iter().all(|value| is_absent(*value)) {
                return Ok(());
            }
            rows.add(&labels.without_name(), &row)
        })?;
        Self::emit_all(rows, emit)
    }

    /// Hands on the samples of each series of a range vector, with its windows.
    pub(crate) fn windows(
        &self,
        expr: &Expr,
        take: &mut dyn FnMut(Labels, &Samples, &RangeWindows) -> Eval<()>,
    ) -> Eval<()> {
        let query = &self.shared.query;
        match &expr.kind {
            ExprKind::Paren(inner) => self.windows(inner, take),
            ExprKind::Matrix { selector, range } => {
                let range_ms = milliseconds(range, query, false)?;
                let offset_ms = milliseconds(&selector.offset, query, true)?;
                let fixed_ms = self.fixed(selector.at);
                let age = query.lookback_ms;
                let extended = Extension::of(selector).map(|extension| (extension, age));
                let ranged = RangeWindows { range_ms, offset_ms, fixed_ms, extended };
                self.select_windows(selector, &ranged, take)
            }
            ExprKind::Subquery { expr, range, step, at, offset } => {
                let range_ms = milliseconds(range, query, false)?;
                let offset_ms = milliseconds(offset, query, true)?;
                let step = step.as_ref().map(|step: &Length| milliseconds(step, query, false));
                let step_ms = step.transpose()?.unwrap_or(SUBQUERY_STEP_MS).max(1);
                let fixed_ms = self.fixed(*at);
                let ranged = RangeWindows { range_ms, offset_ms, fixed_ms, extended: None };
                let last = self.grid.count.saturating_sub(1);
                let first_ms = ranged.end(self.grid.start_ms).saturating_sub(range_ms);
                let end_ms = ranged.end(self.grid.time(last));
                let mut start_ms = first_ms / step_ms * step_ms;
                if start_ms <= first_ms {
                    start_ms = start_ms.saturating_add(step_ms);
                }
                let inner = self.at(Grid::new(start_ms, end_ms, step_ms));
                if inner.grid.count == 0 {
                    return Ok(());
                }
                if inner.grid.count > STEPS_MAX {
                    return failed(
                        "query processing would load too many samples into memory in query execution",
                    );
                }
                // A row, and the samples that are made of it.
                let mut held = self.shared.budget.nothing();
                held.set(24 * inner.grid.count).map_err(over)?;
                inner.each(expr, &mut |labels, row| {
                    let points = inner.grid.times().zip(row);
                    let samples: Samples = points.filter(|(_, value)| !is_absent(*value)).collect();
                    take(labels, &samples, &ranged)
                })
            }
            _ => Ok(()),
        }
    }
}

/// The windows of a range vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeWindows {
    pub(crate) range_ms: i64,
    pub(crate) offset_ms: i64,
    /// The time of modifier `@`.
    pub(crate) fixed_ms: Option<i64>,
    /// The modifiers `anchored` and `smoothed`, with the age of samples beyond the bounds.
    pub(crate) extended: Option<(Extension, i64)>,
}

impl RangeWindows {
    /// Returns the end of the window of a step at this time.
    pub(crate) fn end(&self, time_ms: i64) -> i64 {
        self.fixed_ms.unwrap_or(time_ms).saturating_sub(self.offset_ms)
    }

    /// Returns how far samples before and after the window count, milliseconds.
    pub(crate) fn beyond(&self) -> (i64, i64) {
        match self.extended {
            None => (0, 0),
            Some((Extension::Anchored, age)) => (age, 0),
            Some((Extension::Smoothed, age)) => (age, age),
        }
    }

    /// Returns the window of each step at these times, which must not fall: the samples within it, and
    /// those that count beyond it.
    ///
    /// The bounds only move forward. Both move before the window is cut, because the new begin may
    /// be after the end of the step before. Falls are dropped after the begin has moved: for a fall
    /// at the begin, the value before it is not in the window. A later fall is only peeked at: the
    /// next window may contain it too.
    pub(crate) fn windows<'s>(
        self,
        samples: &'s Samples,
        times: impl Iterator<Item = i64> + 's,
    ) -> impl Iterator<Item = Window<'s>> + 's {
        let (before, after) = self.beyond();
        let mut falls = samples.falls().peekable();
        let (mut begin, mut end) = (0, 0);
        let advance = |from: &mut usize, last: i64| {
            while samples.times.get(*from).is_some_and(|time| *time <= last) {
                *from += 1;
            }
        };
        times.map(move |step_ms| {
            let to_ms = self.end(step_ms);
            let from_ms = to_ms.saturating_sub(self.range_ms);
            advance(&mut begin, from_ms.saturating_sub(before));
            advance(&mut end, to_ms.saturating_add(after));
            while falls.next_if(|at| *at <= begin).is_some() {}
            Window {
                times: samples.times.get(begin..end).unwrap_or_default(),
                values: samples.values.get(begin..end).unwrap_or_default(),
                buckets: samples
                    .buckets
                    .get(begin..end.min(samples.buckets.len()))
                    .unwrap_or_default(),
                falls: falls.peek().is_some_and(|at| *at < end),
                from_ms,
                to_ms,
                step_ms,
            }
        })
    }
}

/// Returns the expression within parentheses.
pub(crate) fn bare(expr: &Expr) -> &Expr {
    if let ExprKind::Paren(inner) = &expr.kind { bare(inner) } else { expr }
}

/// Returns the bytes of a string.
pub(crate) fn string(expr: &Expr) -> &[u8] {
    if let ExprKind::String(bytes) = &bare(expr).kind { bytes } else { &[] }
}

/// Returns a string as text; what is not UTF-8 is replaced.
pub(crate) fn text(expr: &Expr) -> String {
    String::from_utf8_lossy(string(expr)).into_owned()
}
