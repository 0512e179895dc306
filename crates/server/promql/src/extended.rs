//! The modifiers `anchored` and `smoothed`: windows with a value at their bounds. Anchored, it is the
//! newest one from before the bound; smoothed, it lies on the line between its neighbours.

use std::ops::Range;

use promql_syntax::{Expr, ExprKind, VectorSelector};

use crate::eval::bare;
use crate::window::Window;
use crate::{Eval, failed};

const ANCHORED: [&str; 5] = ["changes", "delta", "increase", "rate", "resets"];
const SMOOTHED: [&str; 3] = ["delta", "increase", "rate"];

/// The rule by which a window is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    Anchored,
    Smoothed,
}

impl Extension {
    pub(crate) fn of(selector: &VectorSelector) -> Option<Self> {
        match (selector.anchored, selector.smoothed) {
            (true, _) => Some(Self::Anchored),
            (_, true) => Some(Self::Smoothed),
            _ => None,
        }
    }

    /// Refuses the functions that cannot take the windows of a range vector.
    pub(crate) fn check(matrix: &Expr, function: &str) -> Eval<()> {
        let ExprKind::Matrix { selector, .. } = &bare(matrix).kind else { return Ok(()) };
        let (word, allowed): (_, &[&str]) = match Self::of(selector) {
            Some(Self::Anchored) => ("anchored", &ANCHORED),
            Some(Self::Smoothed) => ("smoothed", &SMOOTHED),
            None => return Ok(()),
        };
        if allowed.contains(&function) {
            return Ok(());
        }
        let allowed = allowed.join(", ");
        failed(format!("{word} modifier can only be used with: {allowed} - not with {function}"))
    }
}

/// The values at the bounds of a window, and the samples between them.
struct Bounded {
    left: f64,
    right: f64,
    inner: Range<usize>,
}

impl Window<'_> {
    fn sample(&self, at: usize) -> (i64, f64) {
        let time = self.times.get(at).copied().unwrap_or_default();
        (time, self.values.get(at).copied().unwrap_or_default())
    }

    /// Returns the window with values at its bounds. Its samples reach beyond both.
    fn bounded(&self, smoothed: bool, is_counter: bool) -> Option<Bounded> {
        let end = self.times.len().checked_sub(1)?;
        let before_end = self.times.get(..end).unwrap_or_default();
        let first = before_end.partition_point(|time| *time <= self.from_ms).saturating_sub(1);
        let last =
            if smoothed { before_end.partition_point(|time| *time < self.to_ms) } else { end };
        let (first_ms, first_value) = self.sample(first);
        let (last_ms, last_value) = self.sample(last);
        if last_ms <= self.from_ms || (smoothed && first_ms > self.to_ms) {
            return None;
        }
        let left = if smoothed && first_ms < self.from_ms {
            between(self.sample(first), self.sample(first + 1), self.from_ms, is_counter)
        } else {
            first_value
        };
        let right = match last.checked_sub(1).map(|before| self.sample(before)) {
            Some(before) if last_ms > self.to_ms && smoothed => {
                between(before, self.sample(last), self.to_ms, is_counter)
            }
            Some((_, before)) if last_ms > self.to_ms => before,
            _ => last_value,
        };
        let begin = first + usize::from(first_ms <= self.from_ms);
        let end = last + usize::from(last_ms < self.to_ms);
        Some(Bounded { left, right, inner: begin..end.max(begin) })
    }

    /// Returns the change between the bounds, per `divisor` seconds if there is one.
    pub(crate) fn bounded_change(
        &self,
        extension: Extension,
        is_counter: bool,
        divisor: Option<f64>,
    ) -> Option<f64> {
        let bounded = self.bounded(extension == Extension::Smoothed, is_counter)?;
        let mut change = bounded.right - bounded.left;
        if is_counter {
            let inner = self.values.get(bounded.inner).unwrap_or_default();
            let mut before = bounded.left;
            let mut lost = 0.0;
            for value in inner.iter().copied().chain([bounded.right]) {
                lost += Some(before).filter(|before| value < *before).unwrap_or(0.0);
                before = value;
            }
            change += lost;
        }
        Some(divisor.map_or(change, |seconds| change / seconds))
    }

    /// Returns the samples of an anchored window: those within it, and the newest one from before. `None`
    /// if there is none within it.
    pub(crate) fn anchored(&self) -> Option<Window<'_>> {
        let begin = self.times.partition_point(|time| *time <= self.from_ms);
        if begin == self.times.len() {
            return None;
        }
        let begin = begin.saturating_sub(1);
        let (times, values) = (self.times.get(begin..)?, self.values.get(begin..)?);
        Some(Window { times, values, ..*self })
    }

    /// Returns the samples between the bounds, with those at them.
    pub(crate) fn extended(&self, extension: Extension) -> Vec<(i64, f64)> {
        let Some(bounded) = self.bounded(extension == Extension::Smoothed, false) else {
            return Vec::new();
        };
        let inner = bounded.inner.map(|at| self.sample(at));
        let (left, right) = ((self.from_ms, bounded.left), (self.to_ms, bounded.right));
        [left].into_iter().chain(inner).chain([right]).collect()
    }

    /// Returns the value at the middle of a window of the same age before and after it.
    pub(crate) fn smooth_value(&self, at_ms: i64) -> Option<f64> {
        let next = self.times.partition_point(|time| *time < at_ms);
        let before = next.checked_sub(1).map(|at| self.sample(at));
        match (before, self.times.get(next)) {
            (_, Some(time)) if *time == at_ms => Some(self.sample(next).1),
            (Some(before), Some(_)) => Some(between(before, self.sample(next), at_ms, false)),
            (Some((_, value)), None) => Some(value),
            (None, _) => None,
        }
    }
}

/// Returns the value at a time on the line between two samples. A counter that fell began at zero.
fn between(a: (i64, f64), b: (i64, f64), at_ms: i64, is_counter: bool) -> f64 {
    let start = if is_counter && b.1 < a.1 { 0.0 } else { a.1 };
    start + (b.1 - start) * (at_ms - a.0) as f64 / (b.0 - a.0) as f64
}
