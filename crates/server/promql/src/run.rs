//! Answers to whole queries.

use std::cell::RefCell;

use crate::labels::Labels;
use budget::Budget;
use promql_syntax::{Expr, Type};
use series::Store;

use crate::eval::{Evaluator, Grid, Shared, string};
use crate::notes::Annotations;
use crate::rolled::Rolled;
use crate::rows::{Row, is_absent, over};
use crate::window::Window;
use crate::{Answer, Eval, Points, Query, QueryError, order};

pub(crate) fn run(
    store: &Store,
    expr: &Expr,
    query: Query,
    budget: &Budget,
) -> Result<(Answer, Annotations), QueryError> {
    let snapshot = store.snapshot();
    let rolled = snapshot.rolled_up().map(|(until_ns, width_ns)| Rolled { until_ns, width_ns });
    let shared = Shared { store, snapshot, rolled, query, budget, notes: RefCell::default() };
    let grid = Grid::new(query.start_ms, query.end_ms, query.step_ms);
    let evaluator = Evaluator { shared: &shared, grid };
    let answer = if query.step_ms == 0 { evaluator.instant(expr) } else { evaluator.range(expr) };
    let answer = answer?;
    Ok((answer, shared.notes.into_inner()))
}

impl Evaluator<'_> {
    /// Returns the answer at one step.
    fn instant(&self, expr: &Expr) -> Eval<Answer> {
        match expr.ty() {
            Type::Scalar => {
                let row = self.scalar(expr)?;
                Ok(Answer::Scalar(row.first().copied().unwrap_or(f64::NAN)))
            }
            Type::String => Ok(Answer::String(string(expr).to_vec())),
            Type::Vector => {
                let rows = self.rows(expr)?;
                let mut list: Vec<(Labels, f64)> = rows
                    .list
                    .into_iter()
                    .filter_map(|(labels, row)| Some((labels, *row.first()?)))
                    .filter(|(_, value)| !is_absent(*value))
                    .collect();
                if !order::is_ordered(expr) {
                    list.sort_by(|a, b| a.0.cmp(&b.0));
                }
                Ok(Answer::Vector(list))
            }
            Type::Matrix => {
                let mut list: Vec<(Labels, Points)> = Vec::new();
                let mut held = self.shared.budget.nothing();
                let mut bytes = 0;
                self.windows(expr, &mut |labels, samples, ranged| {
                    let times = std::iter::once(self.grid.start_ms);
                    let points = |window: Window<'_>| match ranged.extended {
                        Some((extension, _)) => window.extended(extension),
                        None => window.points(),
                    };
                    let points: Points = ranged.windows(samples, times).flat_map(points).collect();
                    bytes += labels.bytes() + 16 * points.len();
                    held.set(bytes).map_err(over)?;
                    list.push((labels, points));
                    Ok(())
                })?;
                list.retain(|(_, points)| !points.is_empty());
                list.sort_by(|a, b| a.0.cmp(&b.0));
                Ok(Answer::Matrix(list))
            }
        }
    }

    /// Returns the answer at all steps.
    fn range(&self, expr: &Expr) -> Eval<Answer> {
        // Held until the rows are points.
        let mut held = self.shared.budget.nothing();
        let list = match expr.ty() {
            Type::Scalar => vec![(Labels::default(), self.scalar(expr)?.row)],
            Type::Vector => {
                let rows = self.rows(expr)?;
                held.set(rows.bytes()).map_err(over)?;
                let mut list = rows.list;
                list.sort_by(|a, b| a.0.cmp(&b.0));
                list
            }
            other => {
                return Err(QueryError::BadData(format!(
                    "invalid parameter \"query\": invalid expression type {:?} for range query, must \
                     be Scalar or instant Vector",
                    other.documented()
                )));
            }
        };
        let points = |row: Row| -> Points {
            self.grid.times().zip(row).filter(|(_, value)| !is_absent(*value)).collect()
        };
        let list = list.into_iter().map(|(labels, row)| (labels, points(row)));
        Ok(Answer::Matrix(list.filter(|(_, points)| !points.is_empty()).collect()))
    }
}
