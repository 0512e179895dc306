//! Quantiles and fractions of classic histograms, whose buckets are series with the label `le`.

use crate::labels::Labels;
use hashbrown::HashMap;
use promql_syntax::{Expr, parse_float};

use crate::eval::{Emit, Evaluator, bare};
use crate::rows::{HeldRow, Row, is_absent, over};
use crate::{ABSENT, Eval};

/// Relative difference of two counts that is taken for a rounding error.
const TOLERANCE: f64 = 1e-12;

/// A bucket: its upper bound and the number of observations up to it.
type Bucket = (f64, f64);

impl Evaluator<'_> {
    /// Evaluates `histogram_quantile` and `histogram_fraction`: the numbers, then the buckets.
    pub(crate) fn histogram(&self, name: &str, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        let Some((vector, numbers)) = args.split_last() else { return Ok(()) };
        let vector = bare(vector);
        let numbers =
            numbers.iter().map(|number| self.scalar(number)).collect::<Eval<Vec<HeldRow>>>()?;
        if name == "histogram_quantile"
            && let (Some(q), Some(arg)) = (numbers.first(), args.first())
        {
            q.iter().for_each(|q| self.note_quantile(*q, arg));
        }
        let mut known: HashMap<Labels, usize> = HashMap::new();
        let mut groups: Vec<(Labels, Vec<(f64, Row)>)> = Vec::new();
        for (mut labels, row) in self.rows(vector)?.list {
            let le = labels.get("le").to_owned();
            let Some(bound) = parse_float(&le).filter(|bound| !bound.is_nan()) else {
                let text =
                    format!("bucket label \"le\" is missing or has a malformed value of {le:?}");
                self.shared.notes.borrow_mut().warn(&text, vector.span);
                continue;
            };
            labels.set("le", "");
            let at = *known.entry(labels).or_insert_with_key(|labels| {
                groups.push((labels.clone(), Vec::new()));
                groups.len() - 1
            });
            if let Some((_, buckets)) = groups.get_mut(at) {
                buckets.push((bound, row));
            }
        }
        let mut out = crate::rows::Rows::new(self.grid.count, self.shared.budget);
        for (labels, buckets) in groups {
            self.shared.budget.check().map_err(over)?;
            let number = |at: usize, step: usize| numbers.get(at).and_then(|row| row.get(step));
            let value = |step: usize| {
                let mut present = at_step(&buckets, step);
                match (number(0, step), number(1, step)) {
                    _ if present.is_empty() => ABSENT,
                    (Some(lower), Some(upper)) => fraction(*lower, *upper, &mut present),
                    (Some(q), None) => self.quantile_of(*q, &mut present, vector),
                    (None, _) => f64::NAN,
                }
            };
            let row: Row = (0..self.grid.count).map(value).collect();
            out.add(&labels.without_name(), &row)?;
        }
        Self::emit_all(out, emit)
    }

    fn quantile_of(&self, q: f64, buckets: &mut Vec<Bucket>, arg: &Expr) -> f64 {
        if q.is_nan() {
            return f64::NAN;
        }
        if q < 0.0 {
            return f64::NEG_INFINITY;
        }
        if q > 1.0 {
            return f64::INFINITY;
        }
        if !sort_and_join(buckets) {
            return f64::NAN;
        }
        if make_monotonic(buckets) {
            let text = "input to histogram_quantile needed to be fixed for monotonicity (see \
                        https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
            self.shared.notes.borrow_mut().info(text, arg.span);
        }
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        if buckets.len() < 2 || all == 0.0 {
            return f64::NAN;
        }
        let mut rank = q * all;
        let last = buckets.len() - 1;
        let at = buckets.iter().take(last).position(|(_, count)| *count >= rank).unwrap_or(last);
        let get = |at: usize| buckets.get(at).copied().unwrap_or_default();
        if at == last {
            return get(last - 1).0;
        }
        let (end, mut count) = get(at);
        if at == 0 && end <= 0.0 {
            return end;
        }
        let mut start = 0.0;
        if at > 0 {
            let before = get(at - 1);
            start = before.0;
            count -= before.1;
            rank -= before.1;
        }
        start + (end - start) * (rank / count)
    }
}

/// Returns the buckets that have a count at a step.
fn at_step(buckets: &[(f64, Row)], step: usize) -> Vec<Bucket> {
    let counts = buckets.iter().filter_map(|(bound, row)| Some((*bound, *row.get(step)?)));
    counts.filter(|(_, count)| !is_absent(*count)).collect()
}

/// Sorts buckets and joins those with the same bound. Returns false if the last one is not `+Inf`.
fn sort_and_join(buckets: &mut Vec<Bucket>) -> bool {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets.dedup_by(|later, earlier| {
        let same = later.0.total_cmp(&earlier.0).is_eq();
        if same {
            earlier.1 += later.1;
        }
        same
    });
    buckets.last().is_some_and(|(bound, _)| *bound == f64::INFINITY)
}

/// Makes counts that fall rise. Returns true if more than rounding errors were changed.
fn make_monotonic(buckets: &mut [Bucket]) -> bool {
    let mut changed = false;
    let mut before = buckets.first().map_or(0.0, |(_, count)| *count);
    for (_, count) in buckets.iter_mut().skip(1) {
        let close = (*count - before).abs() <= TOLERANCE * (count.abs() + before.abs());
        if close || *count < before {
            changed |= !close;
            *count = before;
        } else {
            before = *count;
        }
    }
    changed
}

/// Returns the share of observations between two bounds.
fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if !sort_and_join(buckets) {
        return f64::NAN;
    }
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    if all == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (rank(upper, buckets).min(all) - rank(lower, buckets).min(all)) / all
}

/// Returns the number of observations up to a value, which are spread evenly in its bucket.
fn rank(value: f64, buckets: &[Bucket]) -> f64 {
    let is_negative = buckets.first().is_some_and(|(bound, _)| *bound <= 0.0);
    let mut start = if is_negative { f64::NEG_INFINITY } else { 0.0 };
    let mut before = 0.0;
    for (end, count) in buckets.iter().copied() {
        if start >= value {
            return before;
        }
        if end > value && start == f64::NEG_INFINITY {
            return count;
        }
        if end > value {
            return before + (count - before) * (value - start) / (end - start);
        }
        (start, before) = (end, count);
    }
    before
}
