//! Functions over the rows of one line. Each keeps its state per column.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value as Json;
use series::Value;

use super::eval::Expression;
use super::row::{Cells, Column, RowOut};
use crate::time::SECOND_NS;

/// Names of the functions that `apply` knows.
pub const FUNCTIONS: &[&str] = &[
    "abs",
    "accumulate",
    "cma",
    "cusum",
    "derivative",
    "diff",
    "divide",
    "eval",
    "ewma",
    "ewma-error",
    "frequent-items",
    "heavy-hitters",
    "multiply",
    "rate",
    "scale",
    "sma",
    "sma-error",
    "sum",
    "top",
];
/// Widest window of a moving average, in samples.
const WINDOW_MAX: usize = 1 << 16;

/// A function that a query requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Function {
    Abs,
    Rate,
    Accumulate,
    Mean,
    Scale(Vec<f64>),
    Ewma {
        decay: f64,
        error: bool,
    },
    Sma {
        width: usize,
        error: bool,
    },
    /// Folds the columns of a row into one.
    Fold(Fold),
    /// Evaluates an expression over the columns of a row.
    Eval(Expression),
    /// Keeps the N lines with the largest sums of values.
    Top(usize),
    /// Keeps the lines that have at least a share of the total.
    Share(Share),
}

/// The minimum share of all samples, or of the sum of all values, that a line must have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    pub(super) of_values: bool,
    pub(super) portion: f64,
}

/// The ways to combine the columns of a row into one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Diff,
    Multiply,
    Divide,
}

impl Share {
    /// Returns the amount that a row adds to the share of its line.
    pub(super) fn of(self, cells: &Cells) -> f64 {
        let values = values(cells).into_iter().flatten();
        match cells {
            _ if self.of_values => values.sum(),
            Cells::Text(_) => 1.0,
            _ => values.count() as f64,
        }
    }
}

impl Function {
    pub(super) fn read(value: &Json) -> Result<Self, String> {
        let name = value.get("name").and_then(Json::as_str).unwrap_or_default();
        let invalid = || format!("Query object has invalid apply field: {value}");
        let number = |field: &str| value.get(field).and_then(Json::as_f64).ok_or_else(invalid);
        let width = || {
            let width = value.get("window-width").and_then(Json::as_u64).ok_or_else(invalid)?;
            usize::try_from(width).ok().filter(|w| (1..=WINDOW_MAX).contains(w)).ok_or_else(invalid)
        };
        Ok(match name {
            "abs" => Self::Abs,
            "rate" | "derivative" => Self::Rate,
            "accumulate" | "cusum" => Self::Accumulate,
            "cma" => Self::Mean,
            "scale" => {
                let weights = value.get("weights").and_then(Json::as_array).ok_or_else(invalid)?;
                let weights = weights.iter().map(Json::as_f64).collect::<Option<Vec<f64>>>();
                Self::Scale(weights.ok_or_else(invalid)?)
            }
            "ewma" | "ewma-error" => {
                Self::Ewma { decay: number("decay")?, error: name == "ewma-error" }
            }
            "sma" | "sma-error" => Self::Sma { width: width()?, error: name == "sma-error" },
            "sum" => Self::Fold(Fold::Sum),
            "diff" => Self::Fold(Fold::Diff),
            "multiply" => Self::Fold(Fold::Multiply),
            "divide" => Self::Fold(Fold::Divide),
            "eval" => {
                let text = value.get("expr").and_then(Json::as_str).ok_or_else(invalid)?;
                Self::Eval(Expression::parse(text)?)
            }
            "top" => {
                let n = value.get("N").or_else(|| value.get("n")).and_then(Json::as_u64);
                Self::Top(n.and_then(|n| usize::try_from(n).ok()).ok_or_else(invalid)?)
            }
            "frequent-items" | "heavy-hitters" => {
                let (error, portion) = (number("error")?, number("portion")?);
                // The results are exact, so any valid error bound is satisfied.
                if !(0.0..1.0).contains(&error) || !(0.0..1.0).contains(&portion) {
                    return Err(invalid());
                }
                Self::Share(Share { of_values: name == "heavy-hitters", portion })
            }
            _ => return Err(format!("Query object has invalid apply field: unknown name {name}")),
        })
    }

    /// Returns the number of lines to keep if this is `Top`.
    pub(super) fn top(&self) -> Option<usize> {
        if let Self::Top(most) = self { Some(*most) } else { None }
    }

    /// Returns the share that lines must have if this is `Share`.
    pub(super) fn share(&self) -> Option<Share> {
        if let Self::Share(share) = self { Some(*share) } else { None }
    }

    /// Returns true if it is a function over the rows of a line, not over lines.
    pub(super) fn is_of_rows(&self) -> bool {
        !matches!(self, Self::Top(_) | Self::Share(_))
    }

    /// Returns the names of the columns that the function reads.
    pub(super) fn columns(&self) -> Vec<&str> {
        if let Self::Eval(expression) = self { expression.columns() } else { Vec::new() }
    }

    /// Starts the function on a line with these columns.
    pub(super) fn start(&self, columns: &Arc<[Column]>) -> FunctionState {
        FunctionState { function: self.clone(), names: Arc::clone(columns), columns: Vec::new() }
    }
}

/// The state of a function while it processes a line.
pub(super) struct FunctionState {
    function: Function,
    /// The columns of the line.
    names: Arc<[Column]>,
    columns: Vec<Memory>,
}

/// The state of a function for one column.
#[derive(Debug, Clone, Default)]
struct Memory {
    before: Option<(i64, f64)>,
    sum: f64,
    count: u64,
    window: VecDeque<f64>,
}

impl FunctionState {
    /// Applies the function to a row. Returns the resulting row, if there is one.
    pub(super) fn apply(&mut self, row: RowOut) -> Option<RowOut> {
        let time_ns = row.time_ns;
        let cells = match (&self.function, row.cells) {
            (_, cells @ (Cells::Empty | Cells::Text(_)))
            | (Function::Top(_) | Function::Share(_), cells) => cells,
            (Function::Eval(expression), cells) => {
                let values = values(&cells);
                let column =
                    |name: &str| *values.get(self.names.iter().position(|c| c.is(name))?)?;
                Cells::One(Value::F64(expression.value(column)?))
            }
            (Function::Fold(fold), cells) => Cells::One(Value::F64(fold.of(&cells)?)),
            (_, Cells::One(value)) => {
                Cells::One(Value::F64(self.step(0, time_ns, value.as_f64())?))
            }
            (_, Cells::Many(cells)) => {
                let step = |(i, cell): (usize, Option<Value>)| {
                    cell.and_then(|v| self.step(i, time_ns, v.as_f64())).map(Value::F64)
                };
                let cells: Vec<Option<Value>> = cells.into_iter().enumerate().map(step).collect();
                cells.iter().any(Option::is_some).then_some(Cells::Many(cells))?
            }
        };
        Some(RowOut { time_ns, cells })
    }

    fn step(&mut self, column: usize, time_ns: i64, x: f64) -> Option<f64> {
        if self.columns.len() <= column {
            self.columns.resize(column + 1, Memory::default());
        }
        let m = self.columns.get_mut(column)?;
        let before = m.before.replace((time_ns, x));
        m.sum += x;
        m.count += 1;
        Some(match &self.function {
            Function::Abs => x.abs(),
            Function::Accumulate => m.sum,
            Function::Mean => m.sum / m.count as f64,
            Function::Scale(weights) => x * weights.get(column).copied().unwrap_or(1.0),
            Function::Rate => {
                let (time, value) = before?;
                let seconds = time_ns.checked_sub(time)? as f64 / SECOND_NS as f64;
                (x - value) / seconds
            }
            Function::Ewma { decay, error } => {
                // The sample is compared with the mean of the samples before it.
                let mean = m.window.pop_front().unwrap_or(x);
                let now = mean + decay * (x - mean);
                m.window.push_back(now);
                if *error { x - mean } else { now }
            }
            Function::Sma { width, error } => {
                let mean = m.window.iter().sum::<f64>() / m.window.len().max(1) as f64;
                let expected = if m.window.is_empty() { x } else { mean };
                m.window.push_back(x);
                if m.window.len() > *width {
                    m.window.pop_front();
                }
                let now = m.window.iter().sum::<f64>() / m.window.len() as f64;
                if *error { x - expected } else { now }
            }
            Function::Fold(_) | Function::Eval(_) | Function::Top(_) | Function::Share(_) => {
                return None;
            }
        })
    }
}

impl Fold {
    /// Combines the present values; `None` if the function needs every column and one is missing.
    fn of(self, cells: &Cells) -> Option<f64> {
        let values = values(cells);
        match self {
            Self::Sum => values.iter().copied().flatten().reduce(|a, b| a + b),
            Self::Multiply => values.iter().copied().flatten().reduce(|a, b| a * b),
            Self::Diff => reduced(&values, |a, b| a - b),
            Self::Divide => reduced(&values, |a, b| a / b),
        }
    }
}

/// Returns the values of a row, by column.
pub(super) fn values(cells: &Cells) -> Vec<Option<f64>> {
    match cells {
        Cells::One(value) => vec![Some(value.as_f64())],
        Cells::Many(cells) => cells.iter().map(|c| c.map(Value::as_f64)).collect(),
        Cells::Empty | Cells::Text(_) => Vec::new(),
    }
}

fn reduced(values: &[Option<f64>], with: impl Fn(f64, f64) -> f64) -> Option<f64> {
    let (first, rest) = values.split_first()?;
    rest.iter().try_fold((*first)?, |all, value| Some(with(all, (*value)?)))
}
