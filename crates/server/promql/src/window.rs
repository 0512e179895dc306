//! Functions over the samples of a window.

use series::Summary;

use crate::math::{Mean, Sum, nan_first, quantile, same};

/// The samples of one series in a window, which is open at `from_ms` and closed at `to_ms`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'s> {
    pub(crate) times: &'s [i64],
    pub(crate) values: &'s [f64],
    /// The buckets of roll-ups that the first samples stand for.
    pub(crate) buckets: &'s [Summary],
    /// False if no value is below the one before it.
    pub(crate) falls: bool,
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    /// The step for which the window is evaluated.
    pub(crate) step_ms: i64,
}

impl Window<'_> {
    pub(crate) fn range_seconds(&self) -> f64 {
        crate::duration::seconds(self.to_ms - self.from_ms)
    }

    pub(crate) fn points(&self) -> Vec<(i64, f64)> {
        self.times.iter().copied().zip(self.values.iter().copied()).collect()
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.values.iter().copied().zip(self.values.iter().skip(1).copied())
    }

    /// Returns the change over the window, extrapolated to its bounds, per `divisor` seconds if there is
    /// one. A decrease of a counter is a restart from zero.
    pub(crate) fn change(&self, is_counter: bool, divisor: Option<f64>) -> Option<f64> {
        let ([first_ms, .., last_ms], [first, .., last]) = (self.times, self.values) else {
            return None;
        };
        let mut change = last - first;
        if is_counter && self.falls {
            change = self.pairs().filter(|(a, b)| b < a).fold(change, |sum, (a, _)| sum + a);
        }
        let mut to_start = (first_ms - self.from_ms) as f64 / 1000.0;
        let mut to_end = (self.to_ms - last_ms) as f64 / 1000.0;
        let sampled = (last_ms - first_ms) as f64 / 1000.0;
        let between = sampled / (self.times.len() - 1) as f64;
        let threshold = between * 1.1;
        if to_start >= threshold {
            to_start = between / 2.0;
        }
        if is_counter && change > 0.0 && *first >= 0.0 {
            // A counter was not below zero.
            to_start = to_start.min(sampled * (first / change));
        }
        if to_end >= threshold {
            to_end = between / 2.0;
        }
        let factor = if sampled == 0.0 { 1.0 } else { (sampled + to_start + to_end) / sampled };
        Some(change * divisor.map_or(factor, |seconds| factor / seconds))
    }

    /// Returns the change between the last two samples, per second with `is_rate`.
    pub(crate) fn last_change(&self, is_rate: bool) -> Option<f64> {
        let ([.., before_ms, last_ms], [.., before, last]) = (self.times, self.values) else {
            return None;
        };
        if last_ms == before_ms {
            return None;
        }
        let change = if is_rate && last < before { *last } else { last - before };
        Some(if is_rate { change / ((last_ms - before_ms) as f64 / 1000.0) } else { change })
    }

    pub(crate) fn sum(&self) -> f64 {
        self.each(|some| some.sum).fold(Sum::default(), Sum::plus).total()
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        if !self.buckets.is_empty() {
            return Some(self.sum() / self.count());
        }
        let (first, rest) = self.values.split_first()?;
        let mut mean = Mean::of(*first);
        for value in rest {
            mean.add(*value);
        }
        Some(mean.value())
    }

    /// Returns time and value of the extreme of a comparison. NaN gives way to any number.
    pub(crate) fn extreme(
        &self,
        of: fn(&Summary) -> f64,
        is_better: impl Fn(f64, f64) -> bool,
    ) -> Option<(i64, f64)> {
        let mut best = (*self.times.first()?, self.each(of).next()?);
        for (time, value) in self.times.iter().zip(self.each(of)) {
            if is_better(value, best.1) || best.1.is_nan() {
                best = (*time, value);
            }
        }
        Some(best)
    }

    pub(crate) fn variance(&self) -> Option<f64> {
        let (mut mean, mut aux) = (Sum::default(), Sum::default());
        for (index, value) in self.values.iter().enumerate() {
            let delta = value - (mean.sum + mean.lost);
            mean = mean.plus(delta / (index + 1) as f64);
            aux = aux.plus(delta * (value - (mean.sum + mean.lost)));
        }
        (!self.values.is_empty()).then(|| (aux.sum + aux.lost) / self.values.len() as f64)
    }

    pub(crate) fn quantile(&self, q: f64) -> f64 {
        quantile(q, &mut self.values.to_vec())
    }

    /// Returns the median of the distances from the median.
    pub(crate) fn median_deviation(&self) -> f64 {
        if self.values.iter().any(|value| value.is_nan()) {
            return f64::NAN;
        }
        let median = self.quantile(0.5);
        let mut distances: Vec<f64> = self.values.iter().map(|v| (v - median).abs()).collect();
        distances.sort_by(|a, b| nan_first(*a, *b));
        quantile(0.5, &mut distances)
    }

    pub(crate) fn resets(&self) -> f64 {
        self.pairs().filter(|(a, b)| b < a).count() as f64
    }

    pub(crate) fn changes(&self) -> f64 {
        self.pairs().filter(|(a, b)| !(same(*a, *b) || a.is_nan() && b.is_nan())).count() as f64
    }

    /// Returns slope per second and value at a time of the line that fits the samples best.
    pub(crate) fn line(&self, at_ms: i64) -> Option<(f64, f64)> {
        let first = *self.values.first()?;
        if self.values.len() < 2 {
            return None;
        }
        if self.values.iter().all(|value| same(*value, first)) {
            let flat = if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
            return Some(flat);
        }
        let [mut x, mut y, mut xy, mut xx] = [Sum::default(); 4];
        for (time, value) in self.times.iter().zip(self.values) {
            let at = time.saturating_sub(at_ms) as f64 / 1000.0;
            x = x.plus(at);
            y = y.plus(*value);
            xy = xy.plus(at * value);
            xx = xx.plus(at * at);
        }
        let n = self.values.len() as f64;
        let [x, y, xy, xx] = [x, y, xy, xx].map(|sum| sum.sum + sum.lost);
        let slope = (xy - x * y / n) / (xx - x * x / n);
        Some((slope, y / n - slope * x / n))
    }

    /// Returns the last smoothed value. Source: C. Holt, "Forecasting seasonals and trends by
    /// exponentially weighted moving averages" (1957).
    pub(crate) fn smoothed(&self, smoothing: f64, trend: f64) -> Option<f64> {
        let [first, second, ..] = self.values else { return None };
        let (mut before, mut level, mut slope) = (0.0, *first, second - first);
        for (index, value) in self.values.iter().enumerate().skip(1) {
            if index > 1 {
                slope = trend * (level - before) + (1.0 - trend) * slope;
            }
            let next = smoothing * value + (1.0 - smoothing) * (level + slope);
            (before, level) = (level, next);
        }
        Some(level)
    }
}
