//! Aggregations over series. The simple ones hold one accumulator for each group and step.

use crate::labels::Labels;
use crate::math::{self, Mean, Sum, nan_first, nan_last, quantile, short};
use hashbrown::HashMap;
use promql_syntax::{Aggregate, Aggregation, Expr, quote};
use twox_hash::XxHash64;

use crate::eval::{Emit, Evaluator, bare, string};
use crate::rows::{Row, Rows, is_absent, over};
use crate::{ABSENT, Eval, failed};

/// The state of one group at one step.
#[derive(Debug, Clone)]
enum Cell {
    Empty,
    Sum(Sum),
    Mean(Mean),
    /// Count, mean, and sum of squared distances from it.
    Variance(f64, f64, f64),
    Value(f64),
    Values(Vec<f64>),
}

impl Cell {
    fn first(op: Aggregation, value: f64) -> Self {
        match op {
            Aggregation::Sum => Self::Sum(Sum::of(value)),
            Aggregation::Avg => Self::Mean(Mean::of(value)),
            Aggregation::Stddev | Aggregation::Stdvar => {
                Self::Variance(1.0, value, if value.is_finite() { 0.0 } else { f64::NAN })
            }
            Aggregation::Count | Aggregation::Group => Self::Value(1.0),
            Aggregation::Quantile => Self::Values(vec![value]),
            _ => Self::Value(value),
        }
    }

    fn add(&mut self, op: Aggregation, value: f64) {
        match self {
            Self::Empty => *self = Self::first(op, value),
            Self::Sum(sum) => *sum = sum.plus(value),
            Self::Mean(mean) => mean.add(value),
            Self::Variance(count, mean, squares) => {
                *count += 1.0;
                let delta = value - *mean;
                *mean += delta / *count;
                *squares += delta * (value - *mean);
            }
            Self::Values(values) => values.push(value),
            Self::Value(known) => match op {
                Aggregation::Count => *known += 1.0,
                Aggregation::Min if *known > value || known.is_nan() => *known = value,
                Aggregation::Max if *known < value || known.is_nan() => *known = value,
                _ => {}
            },
        }
    }

    fn value(&mut self, op: Aggregation, q: f64) -> f64 {
        match self {
            Self::Empty => ABSENT,
            Self::Sum(sum) => sum.total(),
            Self::Mean(mean) => mean.value(),
            Self::Variance(count, _, squares) if op == Aggregation::Stddev => {
                (*squares / *count).sqrt()
            }
            Self::Variance(count, _, squares) => *squares / *count,
            Self::Value(value) => *value,
            Self::Values(values) => quantile(q, values),
        }
    }
}

impl Evaluator<'_> {
    /// Evaluates an aggregation.
    pub(crate) fn aggregate(&self, aggregate: &Aggregate, emit: Emit<'_>) -> Eval<()> {
        match (aggregate.op, &aggregate.param) {
            (Aggregation::CountValues, Some(label)) => self.count_values(aggregate, label, emit),
            (Aggregation::Topk | Aggregation::Bottomk | Aggregation::Limitk, Some(param)) => {
                self.some_of(aggregate, param, emit)
            }
            (Aggregation::LimitRatio, Some(param)) => self.share_of(aggregate, param, emit),
            _ => self.grouped(aggregate, emit),
        }
    }

    fn grouped(&self, aggregate: &Aggregate, emit: Emit<'_>) -> Eval<()> {
        let op = aggregate.op;
        let q = match (&aggregate.param, op) {
            (Some(param), Aggregation::Quantile) => {
                let q = self.scalar(param)?;
                let (low, high) = bounds(&q);
                let wrong = [(low, low < 0.0), (high, high > 1.0), (f64::NAN, has_nan(&q))];
                let wrong = wrong.into_iter().filter(|(_, is_wrong)| *is_wrong);
                wrong.for_each(|(q, _)| self.note_quantile(q, param));
                Some(q)
            }
            _ => None,
        };
        let mut groups: HashMap<Labels, usize> = HashMap::new();
        let mut list: Vec<(Labels, Vec<Cell>)> = Vec::new();
        let (mut held, mut bytes) = (self.shared.budget.nothing(), 0);
        self.each(&aggregate.expr, &mut |labels, row| {
            let labels = labels.matching(&aggregate.labels, !aggregate.without);
            let at = *groups.entry(labels).or_insert_with_key(|labels| {
                bytes += 2 * labels.bytes() + 64 + row.len() * size_of::<Cell>();
                list.push((labels.clone(), vec![Cell::Empty; row.len()]));
                list.len() - 1
            });
            if op == Aggregation::Quantile {
                bytes += 8 * row.len();
            }
            held.set(bytes).map_err(over)?;
            let Some((_, cells)) = list.get_mut(at) else { return Ok(()) };
            for (cell, value) in cells.iter_mut().zip(row).filter(|(_, value)| !is_absent(*value)) {
                cell.add(op, value);
            }
            Ok(())
        })?;
        for (labels, cells) in list {
            let q = q.as_deref().unwrap_or_default().iter().copied();
            let q = q.chain(std::iter::repeat(f64::NAN));
            let row = cells.into_iter().zip(q).map(|(mut cell, q)| cell.value(op, q)).collect();
            emit(labels, row)?;
        }
        Ok(())
    }

    /// Warns of a quantile that is none.
    pub(crate) fn note_quantile(&self, q: f64, arg: &Expr) {
        if !(0.0..=1.0).contains(&q) {
            let text = format!("quantile value should be between 0 and 1, got {}", short(q));
            self.shared.notes.borrow_mut().warn(&text, bare(arg).span);
        }
    }

    fn count_values(&self, aggregate: &Aggregate, label: &Expr, emit: Emit<'_>) -> Eval<()> {
        let label = match std::str::from_utf8(string(label)) {
            Ok(name) if !name.is_empty() => name,
            _ => return failed(format!("invalid label name {}", quote(string(label)))),
        };
        let mut grouped = aggregate.labels.clone();
        if !aggregate.without {
            grouped.push(label.to_owned());
        }
        let group = |labels: &Labels, value: f64| {
            let mut labels = labels.clone();
            labels.set(label, &promql_syntax::show_number(value));
            labels.matching(&grouped, !aggregate.without)
        };
        let mut counts = Rows::new(self.grid.count, self.shared.budget);
        self.each(&aggregate.expr, &mut |labels, row| {
            let present = row.into_iter().enumerate().filter(|(_, value)| !is_absent(*value));
            for (step, value) in present {
                counts.count(&group(&labels, value), step)?;
            }
            Ok(())
        })?;
        Self::emit_all(counts, emit)
    }

    /// Evaluates `topk`, `bottomk` and `limitk`: at each step, some series of each group.
    fn some_of(&self, aggregate: &Aggregate, param: &Expr, emit: Emit<'_>) -> Eval<()> {
        let ks = self.scalar(param)?;
        let mut rows = self.rows(&aggregate.expr)?.list;
        if ks.iter().all(|k| *k < 1.0) {
            return Ok(());
        }
        check_numbers(&ks)?;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut known: HashMap<Labels, usize> = HashMap::new();
        for (at, (labels, _)) in rows.iter().enumerate() {
            let group = labels.matching(&aggregate.labels, !aggregate.without);
            let next = known.len();
            let group = *known.entry(group).or_insert(next);
            groups.resize_with(groups.len().max(group + 1), Vec::new);
            if let Some(members) = groups.get_mut(group) {
                members.push(at);
            }
        }
        // The ranks of an instant query are the order of the answer.
        let mut order: Vec<usize> = Vec::with_capacity(rows.len());
        for members in groups {
            let mut ranked = members.clone();
            for (step, k) in ks.iter().enumerate() {
                self.shared.budget.check().map_err(over)?;
                ranked = keep_some(aggregate.op, &members, &mut rows, step, *k);
            }
            order.extend(if self.grid.count == 1 { ranked } else { members });
        }
        for at in order {
            if let Some((labels, row)) = rows.get_mut(at) {
                emit_present(std::mem::take(labels), std::mem::take(row), emit)?;
            }
        }
        Ok(())
    }

    /// Evaluates `limit_ratio`: a share of all series, always the same ones.
    fn share_of(&self, aggregate: &Aggregate, param: &Expr, emit: Emit<'_>) -> Eval<()> {
        let ratios = self.scalar(param)?;
        if has_nan(&ratios) {
            return failed("Ratio value is NaN");
        }
        let (low, high) = bounds(&ratios);
        for (ratio, is_wrong) in [(high, high > 1.0), (low, low < -1.0)] {
            let (shown, kept) = (short(ratio), ratio.signum());
            let text =
                format!("ratio value should be between -1 and 1, got {shown}, capping to {kept}");
            if is_wrong {
                self.shared.notes.borrow_mut().warn(&text, bare(param).span);
            }
        }
        self.each(&aggregate.expr, &mut |labels, mut row| {
            let place = place(&labels);
            let lost = |ratio: f64| !is_within(place, ratio.clamp(-1.0, 1.0));
            let lost = row.iter_mut().zip(ratios.iter()).filter(|(_, ratio)| lost(**ratio));
            lost.for_each(|(value, _)| *value = ABSENT);
            emit_present(labels, row, emit)
        })
    }
}

/// Refuses numbers of series that are none.
fn check_numbers(ks: &[f64]) -> Eval<()> {
    let (low, high) = bounds(ks);
    if has_nan(ks) {
        failed("Parameter value is NaN")
    } else if low <= i64::MIN as f64 {
        failed(format!("Scalar value {} underflows int64", short(low)))
    } else if high >= i64::MAX as f64 {
        failed(format!("Scalar value {} overflows int64", short(high)))
    } else {
        Ok(())
    }
}

/// Returns the smallest and the largest of some numbers.
fn bounds(values: &[f64]) -> (f64, f64) {
    let values = values.iter().copied();
    (values.clone().fold(f64::MAX, math::min), values.fold(f64::MIN, math::max))
}

fn has_nan(values: &[f64]) -> bool {
    values.iter().any(|value| value.is_nan())
}

/// Removes the values of a step but for some of a group. Returns the rows that keep theirs, in order.
fn keep_some(
    op: Aggregation,
    members: &[usize],
    rows: &mut [(Labels, Row)],
    step: usize,
    k: f64,
) -> Vec<usize> {
    let value =
        |at: usize| rows.get(at).and_then(|(_, row)| row.get(step)).copied().unwrap_or(ABSENT);
    let mut ranked: Vec<usize> =
        members.iter().copied().filter(|at| !is_absent(value(*at))).collect();
    match op {
        Aggregation::Topk => ranked.sort_by(|a, b| nan_first(value(*b), value(*a))),
        Aggregation::Bottomk => ranked.sort_by(|a, b| nan_last(value(*a), value(*b))),
        _ => {}
    }
    let kept = if k < 1.0 { 0 } else { (k as usize).min(ranked.len()) };
    for at in ranked.split_off(kept) {
        let cell = rows.get_mut(at).and_then(|(_, row)| row.get_mut(step));
        if let Some(cell) = cell {
            *cell = ABSENT;
        }
    }
    ranked
}

/// Returns true if a place between 0 and 1 is within a share; a negative one counts from the end.
fn is_within(place: f64, ratio: f64) -> bool {
    if ratio < 0.0 { place >= 1.0 + ratio } else { place < ratio }
}

/// Hands on a row if it has a value.
fn emit_present(labels: Labels, row: Row, emit: Emit<'_>) -> Eval<()> {
    if row.iter().all(|value| is_absent(*value)) { Ok(()) } else { emit(labels, row) }
}

/// Returns a number from 0 to 1 that the labels alone decide. Source: Prometheus 3.16, `Labels.Hash` in
/// `model/labels/labels_stringlabels.go` and `HashRatioSampler` in `promql/engine.go`.
fn place(labels: &Labels) -> f64 {
    let mut bytes = Vec::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        // A length of 255 and more takes three bytes after the byte 255.
        bytes.push(text.len().min(255) as u8);
        if text.len() >= 255 {
            bytes.extend(text.len().to_le_bytes().into_iter().take(3));
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    XxHash64::oneshot(0, &bytes) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers are those of Prometheus 3.16.
    #[test]
    fn place_of_labels_is_that_of_prometheus() {
        let long = |length: usize| vec![("a".to_owned(), "x".repeat(length))];
        let pairs = [("group", "canary"), ("instance", "1"), ("job", "api-server")];
        let named = [("__name__", "http_requests")].into_iter().chain(pairs);
        for (pairs, expected) in [
            (Vec::new(), 0.934_674_931_531_705_9),
            (named.map(|(a, b)| (a.to_owned(), b.to_owned())).collect(), 0.204_746_758_816_667_9),
            (long(254), 0.834_316_553_579_954_3),
            (long(255), 0.425_217_009_539_431_7),
            (
                vec![("a".into(), "é".repeat(40_000)), ("b".into(), "y".into())],
                0.355_139_135_776_792_6,
            ),
        ] {
            assert_eq!(place(&Labels::new(pairs)).to_bits(), f64::to_bits(expected));
        }
    }
}
