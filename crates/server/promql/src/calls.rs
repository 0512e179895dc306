//! Calls of functions.

use crate::date::Date;
use crate::labels::{DESCRIBING, Labels, NAME};
use crate::math;
use hashbrown::HashSet;
use promql_syntax::{Expr, ExprKind, LabelMatcher, MatchOp, VectorSelector};

use crate::eval::{Emit, Evaluator, RangeWindows, bare};
use crate::extended::Extension;
use crate::rows::{HeldRow, Row, Rows, is_absent, mark, over, same_labels};
use crate::samples::Samples;
use crate::window::Window;
use crate::{ABSENT, Eval, duration, failed};

/// Ends of the names of counters.
const COUNTERS: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

/// Samples after which a query looks if it may go on.
const CHECKED_SAMPLES: usize = 1 << 20;

impl Evaluator<'_> {
    /// Evaluates a function that gives a number.
    pub(crate) fn scalar_call(&self, name: &str, args: &[Expr]) -> Eval<Row> {
        let query = &self.shared.query;
        let seconds = |ms: i64| ms as f64 / 1000.0;
        Ok(match (name, args) {
            ("time", _) => self.grid.times().map(seconds).collect(),
            ("pi", _) => self.constant(std::f64::consts::PI),
            ("start", _) => self.constant(seconds(query.start_ms)),
            ("end", _) => self.constant(seconds(query.end_ms)),
            ("step", _) if query.start_ms == query.end_ms => self.constant(0.0),
            ("step", _) => self.constant(duration::seconds(query.step_ms)),
            ("range", _) => {
                self.constant(duration::seconds(query.end_ms.saturating_sub(query.start_ms)))
            }
            ("max_of" | "min_of", [a, b]) => {
                let pick = if name == "max_of" { math::max } else { math::min };
                let (a, b) = (self.scalar(a)?, self.scalar(b)?);
                a.iter().zip(b.iter()).map(|(a, b)| pick(*a, *b)).collect()
            }
            ("scalar", [vector]) => self.only_value(vector)?,
            _ => self.constant(f64::NAN),
        })
    }

    /// Returns the only value of a vector at each step; NaN where there is none, or more than one.
    fn only_value(&self, vector: &Expr) -> Eval<Row> {
        let mut found: Vec<(usize, f64)> = vec![(0, f64::NAN); self.grid.count];
        self.each(vector, &mut |_, row| {
            for (found, value) in found.iter_mut().zip(row).filter(|(_, value)| !is_absent(*value))
            {
                *found = (found.0 + 1, value);
            }
            Ok(())
        })?;
        let only = |(count, value)| if count == 1 { value } else { f64::NAN };
        Ok(found.into_iter().map(only).collect())
    }

    /// Evaluates a function that gives a vector.
    pub(crate) fn call(&self, name: &str, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        match (name, args) {
            ("vector", [number]) => emit(Labels::default(), self.scalar(number)?.row),
            ("absent", [vector]) => {
                let mut present = vec![false; self.grid.count];
                self.each(vector, &mut |_, row| {
                    mark(&mut present, &row);
                    Ok(())
                })?;
                Self::absent(&present, vector, emit)
            }
            ("absent_over_time", [matrix]) => {
                Extension::check(matrix, name)?;
                let mut present = vec![false; self.grid.count];
                self.windows(matrix, &mut |_, samples, ranged| {
                    let windows = ranged.windows(samples, self.grid.times());
                    let steps = present.iter_mut().zip(windows);
                    steps.for_each(|(present, window)| *present |= !window.times.is_empty());
                    Ok(())
                })?;
                Self::absent(&present, matrix, emit)
            }
            ("timestamp", [vector]) => self.timestamp(vector, emit),
            ("sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc", _) => {
                self.sorted(name, args, emit)
            }
            ("label_replace", _) => self.label_replace(args, emit),
            ("label_join", _) => self.label_join(args, emit),
            ("histogram_quantile" | "histogram_fraction", _) => self.histogram(name, args, emit),
            // Of native histograms, which there are none.
            _ if name.starts_with("histogram_") => {
                args.iter().try_for_each(|arg| self.each(arg, &mut |_, _| Ok(())))
            }
            _ => match date_part(name) {
                Some(part) => self.date(part, args.first(), emit),
                None if args.iter().any(|arg| arg.ty() == promql_syntax::Type::Matrix) => {
                    self.over_time(name, args, emit)
                }
                None => self.instant_call(name, args, emit),
            },
        }
    }

    /// Hands on the times of samples, or of the steps of what is no selector.
    fn timestamp(&self, vector: &Expr, emit: Emit<'_>) -> Eval<()> {
        let Some(selector) = selector_of(vector) else {
            let time = |_, step| Some(self.grid.time(step) as f64 / 1000.0);
            return self.map(vector, &time, emit);
        };
        let mut rows = Rows::new(self.grid.count, self.shared.budget);
        self.select(selector, true, &mut |labels, row| rows.add(&labels.without_name(), &row))?;
        Self::emit_all(rows, emit)
    }

    /// Hands on 1 for the steps without a value, with the labels that the argument names.
    fn absent(present: &[bool], arg: &Expr, emit: Emit<'_>) -> Eval<()> {
        if present.iter().all(|is| *is) {
            return Ok(());
        }
        let row = present.iter().map(|is| if *is { ABSENT } else { 1.0 }).collect();
        emit(absent_labels(arg), row)
    }

    fn date(&self, part: fn(&Date) -> i64, arg: Option<&Expr>, emit: Emit<'_>) -> Eval<()> {
        let of = |seconds: f64| part(&Date::of(seconds as i64)) as f64;
        if let Some(vector) = arg {
            return self.map(vector, &|value, _| Some(of(value)), emit);
        }
        let row = self.grid.times().map(|ms| of((ms / 1000) as f64)).collect();
        emit(Labels::default(), row)
    }

    /// Evaluates a function of each value.
    fn instant_call(&self, name: &str, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        let Some((vector, numbers)) = args.split_first() else { return Ok(()) };
        let numbers =
            numbers.iter().map(|number| self.scalar(number)).collect::<Eval<Vec<HeldRow>>>()?;
        let number = |at: usize, step: usize| {
            numbers.get(at).and_then(|row| row.get(step)).copied().unwrap_or(1.0)
        };
        if let Some(function) = of_one(name) {
            return self.map(vector, &|value, _| Some(function(value)), emit);
        }
        let change = |value: f64, step: usize| {
            let (first, second) = (number(0, step), number(1, step));
            match name {
                "clamp" if second < first => None,
                "clamp" => Some(math::max(first, math::min(second, value))),
                "clamp_min" => Some(math::max(first, math::min(f64::INFINITY, value))),
                "clamp_max" => Some(math::max(f64::NEG_INFINITY, math::min(first, value))),
                "round" => {
                    let inverse = 1.0 / first;
                    Some((value * inverse + 0.5).floor() / inverse)
                }
                _ => None,
            }
        };
        self.map(vector, &change, emit)
    }

    /// Evaluates a function of windows.
    fn over_time(&self, name: &str, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        let is_matrix = |arg: &&Expr| arg.ty() == promql_syntax::Type::Matrix;
        let Some(matrix) = args.iter().find(is_matrix) else { return Ok(()) };
        let numbers = args.iter().filter(|arg| !is_matrix(arg));
        let numbers = numbers.map(|number| self.scalar(number)).collect::<Eval<Vec<HeldRow>>>()?;
        Extension::check(matrix, name)?;
        let keeps_name = matches!(name, "last_over_time" | "first_over_time");
        // Without what describes the metric, several series may be one.
        let mut merged = Rows::new(self.grid.count, self.shared.budget);
        let merges = !is_of_one_metric(matrix);
        let mut emitted: HashSet<Labels> = HashSet::new();
        let mut finish = |labels: Labels, row: Row| {
            if row.iter().all(|value| is_absent(*value)) {
                return Ok(());
            }
            let metric = labels.get(NAME).to_owned();
            let is_rate = matches!(name, "rate" | "increase");
            if is_rate && !metric.is_empty() && COUNTERS.iter().all(|end| !metric.ends_with(end)) {
                let text = format!(
                    "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \
                     {metric:?}"
                );
                self.shared.notes.borrow_mut().info(&text, bare(matrix).span);
            }
            if keeps_name {
                return emit(labels, row);
            }
            let merges = merges || labels.is_described();
            let labels = labels.without_name();
            if merges {
                return merged.add(&labels, &row);
            }
            emitted.insert(labels.clone());
            emit(labels, row)
        };
        if !self.by_blocks(name, matrix, &mut finish)? {
            self.windows(matrix, &mut |labels, samples, ranged| {
                let row = self.window_row(name, samples, ranged, &numbers)?;
                self.note_quantiles(name, &row, &numbers, args);
                finish(labels, row)
            })?;
        }
        if merged.list.iter().any(|(labels, _)| emitted.contains(labels)) {
            return Err(same_labels());
        }
        Self::emit_all(merged, emit)
    }
}

impl Evaluator<'_> {
    /// Warns of the quantiles of `quantile_over_time` that are none, where there are samples.
    fn note_quantiles(&self, name: &str, row: &[f64], numbers: &[HeldRow], args: &[Expr]) {
        if let ("quantile_over_time", [q], [arg, ..]) = (name, numbers, args) {
            let steps = q.iter().zip(row).filter(|(_, value)| !is_absent(**value));
            steps.for_each(|(q, _)| self.note_quantile(*q, arg));
        }
    }

    /// Returns the values of a function of the windows of one series.
    fn window_row(
        &self,
        name: &str,
        samples: &Samples,
        ranged: &RangeWindows,
        numbers: &[HeldRow],
    ) -> Eval<Row> {
        let number = |at: usize, step: usize| {
            numbers.get(at).and_then(|row| row.get(step)).copied().unwrap_or(f64::NAN)
        };
        let mut row = Vec::with_capacity(self.grid.count);
        let function = of_window(name);
        let mut read = 0;
        for (step, window) in ranged.windows(samples, self.grid.times()).enumerate() {
            read += window.times.len() + 1;
            if read > CHECKED_SAMPLES {
                self.shared.budget.check().map_err(over)?;
                read = 0;
            }
            let (first, second) = (number(0, step), number(1, step));
            if name == "double_exponential_smoothing" && !window.times.is_empty() {
                check_factors(first, second)?;
            }
            let value = match ranged.extended {
                _ if window.times.is_empty() => None,
                Some((extension, _)) => of_extended(name, &window, extension),
                None => function(&window, first, second),
            };
            row.push(value.unwrap_or(ABSENT));
        }
        Ok(row)
    }
}

/// A function of a window that is not empty and of two numbers.
type OfWindow = fn(&Window<'_>, f64, f64) -> Option<f64>;

fn of_window(name: &str) -> OfWindow {
    match name {
        "rate" => |window, _, _| window.change(true, Some(window.range_seconds())),
        "increase" => |window, _, _| window.change(true, None),
        "delta" => |window, _, _| window.change(false, None),
        "irate" => |window, _, _| window.last_change(true),
        "idelta" => |window, _, _| window.last_change(false),
        "deriv" => |window, _, _| window.line(*window.times.first()?).map(|(slope, _)| slope),
        "predict_linear" => |window, ahead_s, _| {
            window.line(window.step_ms).map(|(slope, intercept)| slope * ahead_s + intercept)
        },
        "avg_over_time" => |window, _, _| window.mean(),
        "sum_over_time" => |window, _, _| Some(window.sum()),
        "count_over_time" => |window, _, _| Some(window.count()),
        "present_over_time" => |_, _, _| Some(1.0),
        "min_over_time" => {
            |window, _, _| Some(window.extreme(|some| some.min, |new, old| new < old)?.1)
        }
        "max_over_time" => {
            |window, _, _| Some(window.extreme(|some| some.max, |new, old| new > old)?.1)
        }
        "ts_of_min_over_time" => {
            |window, _, _| Some(seconds(window.extreme(|some| some.min, |new, old| new <= old)?.0))
        }
        "ts_of_max_over_time" => {
            |window, _, _| Some(seconds(window.extreme(|some| some.max, |new, old| new >= old)?.0))
        }
        "first_over_time" => |window, _, _| window.first(),
        "last_over_time" => |window, _, _| window.values.last().copied(),
        "ts_of_first_over_time" => |window, _, _| window.times.first().copied().map(seconds),
        "ts_of_last_over_time" => |window, _, _| window.times.last().copied().map(seconds),
        "stdvar_over_time" => |window, _, _| window.variance(),
        "stddev_over_time" => |window, _, _| window.variance().map(f64::sqrt),
        "quantile_over_time" => |window, q, _| Some(window.quantile(q)),
        "mad_over_time" => |window, _, _| Some(window.median_deviation()),
        "resets" => |window, _, _| Some(window.resets()),
        "changes" => |window, _, _| Some(window.changes()),
        "double_exponential_smoothing" => |window, factor, trend| window.smoothed(factor, trend),
        _ => |_, _, _| None,
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Returns the value of a function of a window with values at its bounds.
fn of_extended(name: &str, window: &Window<'_>, extension: Extension) -> Option<f64> {
    match name {
        "rate" => window.bounded_change(extension, true, Some(window.range_seconds())),
        "increase" => window.bounded_change(extension, true, None),
        "delta" => window.bounded_change(extension, false, None),
        "resets" => window.anchored().map(|window| window.resets()),
        "changes" => window.anchored().map(|window| window.changes()),
        _ => None,
    }
}

/// Refuses factors of smoothing that are not between 0 and 1.
fn check_factors(smoothing: f64, trend: f64) -> Eval<()> {
    for (which, short, value) in [("smoothing", "sf", smoothing), ("trend", "tf", trend)] {
        if value <= 0.0 || value >= 1.0 {
            let sign = if value == f64::INFINITY { "+" } else { "" };
            let shown = format!("{sign}{value:.6}").replace("inf", "Inf");
            return failed(format!(
                "invalid {which} factor. Expected: 0 < {short} < 1, got: {shown}"
            ));
        }
    }
    Ok(())
}

/// Returns the function of one value.
fn of_one(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => f64::abs,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "exp" => f64::exp,
        "sqrt" => f64::sqrt,
        "ln" => f64::ln,
        "log2" => f64::log2,
        "log10" => f64::log10,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        "asinh" => math::asinh,
        "acosh" => math::acosh,
        "atanh" => f64::atanh,
        "rad" => |value| value * (std::f64::consts::PI / 180.0),
        "deg" => |value| value * (180.0 / std::f64::consts::PI),
        "sgn" => math::sign,
        _ => return None,
    })
}

/// Returns the part of a date that a function gives.
pub(crate) fn date_part(name: &str) -> Option<fn(&Date) -> i64> {
    Some(match name {
        "year" => |date| date.year,
        "month" => |date| date.month,
        "day_of_month" => |date| date.day,
        "day_of_week" => Date::weekday,
        "day_of_year" => Date::day_of_year,
        "days_in_month" => Date::days_in_month,
        "hour" => Date::hour,
        "minute" => Date::minute,
        _ => return None,
    })
}

/// Returns the selector that an expression is, within parentheses.
fn selector_of(expr: &Expr) -> Option<&VectorSelector> {
    if let ExprKind::Vector(selector) = &bare(expr).kind { Some(selector) } else { None }
}

/// Returns true if all series of a range selector are of one metric.
fn is_of_one_metric(matrix: &Expr) -> bool {
    let ExprKind::Matrix { selector, .. } = &matrix.kind else { return false };
    let is_name = |m: &LabelMatcher| m.label == NAME && m.op == MatchOp::Equal;
    selector.matchers.iter().any(is_name)
}

/// Returns the labels that the equalities of a selector give.
fn absent_labels(arg: &Expr) -> Labels {
    let (ExprKind::Vector(selector) | ExprKind::Matrix { selector, .. }) = &bare(arg).kind else {
        return Labels::default();
    };
    let mut labels = Labels::default();
    let mut seen = HashSet::new();
    for matcher in selector.matchers.iter().filter(|m| !DESCRIBING.contains(&&*m.label)) {
        let is_equal = matcher.op == MatchOp::Equal;
        if is_equal && seen.insert(&matcher.label) {
            labels.set(&matcher.label, &String::from_utf8_lossy(&matcher.value));
        } else {
            labels.set(&matcher.label, "");
        }
    }
    labels
}
