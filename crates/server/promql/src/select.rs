//! Reads the series of a selector.

use std::collections::BTreeMap;

use crate::labels::{Labels, NAME};
use budget::{Budget, HeldMemory};
use promql_syntax::{AtModifier, LabelMatcher, MatchOp, TextSpan, VectorSelector};
use series::{Direction, Scan, Series, Store, Test, TimeRange};

use crate::duration::milliseconds;
use crate::eval::{Emit, Evaluator, RangeWindows};
use crate::extended::Extension;
use crate::rolled::Rolled;
use crate::rows::{is_absent, over};
use crate::samples::Samples;
use crate::window::Window;
use crate::{Eval, QueryError};

impl Evaluator<'_> {
    /// Returns the time of modifier `@`.
    pub(crate) fn fixed(&self, at: AtModifier) -> Option<i64> {
        match at {
            AtModifier::Evaluation => None,
            AtModifier::Time(time_ms) => Some(time_ms),
            AtModifier::Start => Some(self.shared.query.start_ms),
            AtModifier::End => Some(self.shared.query.end_ms),
        }
    }

    /// Hands on the newest value of each series at each step, or the time of it in seconds.
    pub(crate) fn select(
        &self,
        selector: &VectorSelector,
        times: bool,
        emit: Emit<'_>,
    ) -> Eval<()> {
        let offset_ms = milliseconds(&selector.offset, &self.shared.query, true)?;
        let range_ms = self.shared.query.lookback_ms;
        let fixed_ms = self.fixed(selector.at);
        let extended = selector.smoothed.then_some((Extension::Smoothed, range_ms));
        let ranged = RangeWindows { range_ms, offset_ms, fixed_ms, extended };
        if extended.is_some() && !times {
            return self.select_smoothed(selector, RangeWindows { range_ms: 0, ..ranged }, emit);
        }
        let mut reader = Reader::new(self.shared.budget);
        let (list, _held) = self.series(selector)?;
        for (labels, series) in list {
            let samples = self.samples(&series, &ranged, &mut reader)?;
            let mut newest = NewestSample { samples, next: 0, range_ms };
            let value = |time_ms| newest.at(ranged.end(time_ms));
            let shown = |(time, value)| if times { time as f64 / 1000.0 } else { value };
            let row = self.grid.times().map(value).map(|newest| newest.map(shown));
            let row: Vec<f64> = row.map(or_absent).collect();
            if row.iter().any(|value| !is_absent(*value)) {
                emit(labels, row)?;
            }
        }
        Ok(())
    }

    /// Hands on the value of each series at each step, between the samples before and after it.
    fn select_smoothed(
        &self,
        selector: &VectorSelector,
        ranged: RangeWindows,
        emit: Emit<'_>,
    ) -> Eval<()> {
        self.select_windows(selector, &ranged, &mut |labels, samples, ranged| {
            let windows = ranged.windows(samples, self.grid.times());
            let value = |window: Window<'_>| window.smooth_value(window.to_ms);
            let row: Vec<f64> = windows.map(value).map(or_absent).collect();
            if row.iter().all(|value| is_absent(*value)) { Ok(()) } else { emit(labels, row) }
        })
    }

    /// Hands on the samples of each series for the windows of a range selector.
    pub(crate) fn select_windows(
        &self,
        selector: &VectorSelector,
        ranged: &RangeWindows,
        take: &mut dyn FnMut(Labels, &Samples, &RangeWindows) -> Eval<()>,
    ) -> Eval<()> {
        let mut reader = Reader::new(self.shared.budget);
        let (list, _held) = self.series(selector)?;
        for (labels, series) in list {
            let samples = self.samples(&series, ranged, &mut reader)?;
            samples.drop_markers();
            if !samples.times.is_empty() {
                take(labels, samples, ranged)?;
            }
        }
        Ok(())
    }

    /// Returns the series of a selector, sorted by their labels.
    pub(crate) fn series(&self, selector: &VectorSelector) -> Eval<Found> {
        let names = || selector.matchers.iter().filter(|matcher| matcher.label == "__name__");
        let is_meant =
            |metric: &str| names().next().is_some() && names().all(|name| name.matches(metric));
        if let Some(metric) = self.shared.store.refused_histogram(is_meant) {
            let text = format!(
                "native histograms of {metric:?} were refused: they are not stored; let the sender \
                 send classic ones (buckets)"
            );
            self.shared.notes.borrow_mut().warn(&text, TextSpan::default());
        }
        find(self.shared.store, &selector.matchers, None, self.shared.budget)
    }

    /// Reads the samples of a series that the windows of all steps need.
    fn samples<'r>(
        &self,
        series: &Series,
        ranged: &RangeWindows,
        reader: &'r mut Reader,
    ) -> Eval<&'r mut Samples> {
        self.shared.budget.check().map_err(over)?;
        let last = self.grid.time(self.grid.count.saturating_sub(1));
        let (first_ms, end_ms) = (ranged.end(self.grid.start_ms), ranged.end(last));
        let (before, after) = ranged.beyond();
        let from_ms = first_ms.saturating_sub(ranged.range_ms).saturating_sub(before);
        let (from_ms, end_ms) = (from_ms.saturating_add(1), end_ms.saturating_add(after));
        let nanoseconds = |ms: i64| ms.saturating_mul(1_000_000);
        let mut range = TimeRange {
            from_ns: nanoseconds(from_ms),
            to_ns: nanoseconds(end_ms.saturating_add(1)),
        };
        let Reader { scan, samples, held } = reader;
        samples.clear();
        let touches = |old: &Rolled| range.from_ns < old.until_ns.saturating_add(old.width_ns);
        if let Some(rolled) = self.shared.rolled.filter(touches) {
            self.buckets(series, range, rolled, samples, held)?;
            range.from_ns = range.from_ns.max(rolled.until_ns);
        }
        let snapshot = &self.shared.snapshot;
        let scan = match scan {
            Some(scan) => {
                scan.start_series(series);
                scan
            }
            None => scan.insert(snapshot.scan(series, range, Direction::Forward).with_markers()),
        };
        for run in scan {
            let run = run.map_err(|error| QueryError::Store(error.to_string()))?;
            samples.times.extend(run.times.iter().map(|ns| ns.div_euclid(1_000_000)));
            samples.values.extend_from_slice(&run.values.to_f64());
            held.set(samples.bytes()).map_err(over)?;
        }
        Ok(samples)
    }
}

/// Reads the samples of many series in one range, with the same buffers.
struct Reader {
    scan: Option<Scan>,
    samples: Samples,
    held: HeldMemory,
}

impl Reader {
    fn new(budget: &Budget) -> Self {
        Self { scan: None, samples: Samples::default(), held: budget.nothing() }
    }
}

/// Finds the newest sample at times that do not fall.
struct NewestSample<'s> {
    samples: &'s Samples,
    /// The first sample after the last time.
    next: usize,
    range_ms: i64,
}

impl NewestSample<'_> {
    fn at(&mut self, end_ms: i64) -> Option<(i64, f64)> {
        while self.samples.times.get(self.next).is_some_and(|time| *time <= end_ms) {
            self.next += 1;
        }
        let last = self.next.checked_sub(1)?;
        let (time, value) = (*self.samples.times.get(last)?, *self.samples.values.get(last)?);
        let is_bucket = self.samples.buckets.get(last).is_some_and(|some| some.count > 1);
        let age_ms =
            if is_bucket { self.range_ms.max(self.samples.width_ms) } else { self.range_ms };
        let is_new = time > end_ms.saturating_sub(age_ms);
        (is_new && !is_absent(value)).then_some((time, value))
    }
}

fn or_absent(value: Option<f64>) -> f64 {
    value.unwrap_or(crate::ABSENT)
}

/// Series with their labels, and the memory that the query holds for them.
pub type Found = (Vec<(Labels, Series)>, HeldMemory);

/// Returns the series that pass all matchers, sorted by their labels. With a range, only those that may
/// have samples in it: [`Store::find_in`] gives the precision.
///
/// # Errors
/// Returns an error if their labels need more memory than the query may hold.
pub fn find(
    store: &Store,
    matchers: &[LabelMatcher],
    range: Option<TimeRange>,
    budget: &Budget,
) -> Result<Found, QueryError> {
    let selector = tests(matchers, budget);
    let found = match range {
        Some(range) => store.find_in(&store.snapshot(), &selector, range),
        None => store.find(&selector),
    };
    budget.check().map_err(over)?;
    let mut list = Vec::with_capacity(found.len());
    let (mut held, mut bytes) = (budget.nothing(), 0);
    for (at, series) in found.into_iter().enumerate() {
        if at % 1024 == 0 {
            budget.check().map_err(over)?;
        }
        // A tag of that name is visible to no query.
        if series.is_events() || series.tags.iter().any(|(tag, _)| tag == NAME) {
            continue;
        }
        let labels = Labels::of(&series);
        bytes += labels.bytes() + 64;
        held.set(bytes).map_err(over)?;
        list.push((labels, series));
    }
    list.sort_by(|a, b| a.0.cmp(&b.0));
    Ok((list, held))
}

/// Returns the tests of the store for label matchers.
fn tests(matchers: &[LabelMatcher], budget: &Budget) -> series::Selector {
    let mut by_label: BTreeMap<&str, Vec<&LabelMatcher>> = BTreeMap::new();
    for matcher in matchers {
        by_label.entry(&matcher.label).or_default().push(matcher);
    }
    let mut selector = series::Selector::default();
    for (label, matchers) in by_label {
        let test = test(&matchers, budget);
        if label == NAME {
            selector.metric = test;
        } else {
            selector.tags.push((label.to_owned(), test));
        }
    }
    selector
}

/// Returns a test that all matchers pass.
fn test(matchers: &[&LabelMatcher], budget: &Budget) -> Test {
    if let [matcher] = matchers
        && let Ok(value) = std::str::from_utf8(&matcher.value)
    {
        match matcher.op {
            MatchOp::Equal => return Test::is(value),
            MatchOp::NotEqual => return Test::IsNot(vec![value.to_owned()]),
            MatchOp::Regexp | MatchOp::NotRegexp => {}
        }
    }
    let matchers: Vec<LabelMatcher> = matchers.iter().map(|matcher| (*matcher).clone()).collect();
    let budget = budget.clone();
    // The store is locked while this runs: a query that is over must end.
    let all = move |value: &str| {
        budget.check().is_ok() && matchers.iter().all(|matcher| matcher.matches(value))
    };
    Test::Where(std::sync::Arc::new(all))
}
