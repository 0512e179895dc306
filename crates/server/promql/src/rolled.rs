//! Times of which only roll-ups remain. A bucket counts as one sample: its last value at its last time.
//! `min_`, `max_`, `count_`, `sum_`, `avg_` and `first_over_time` use all of it.

use budget::HeldMemory;
use promql_syntax::TextSpan;
use series::{Series, Summary, TimeRange};

use crate::eval::Evaluator;
use crate::rows::over;
use crate::samples::Samples;
use crate::window::Window;
use crate::{Eval, QueryError};

/// The times of which only roll-ups remain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rolled {
    /// First time after them, nanoseconds.
    pub(crate) until_ns: i64,
    /// Width of the widest bucket, nanoseconds.
    pub(crate) width_ns: i64,
}

impl Evaluator<'_> {
    /// Reads the buckets of a series in a range as samples, and says in the answer that it has some.
    pub(crate) fn buckets(
        &self,
        series: &Series,
        range: TimeRange,
        rolled: Rolled,
        samples: &mut Samples,
        held: &mut HeldMemory,
    ) -> Eval<()> {
        let from_ns = range.from_ns.saturating_sub(rolled.width_ns);
        let old = TimeRange { from_ns, to_ns: range.to_ns.min(rolled.until_ns) };
        samples.width_ms = rolled.width_ns / 1_000_000;
        let mut outcome = Ok(());
        let read = self.shared.snapshot.each_step(series, old, 1, |_, some| {
            samples.buckets.push(some);
            outcome = held.set(samples.bytes());
            outcome.is_ok()
        });
        outcome.map_err(over)?;
        read.map_err(|error| QueryError::Store(error.to_string()))?;
        // Late samples, and buckets of rows that share a series, lie within others.
        samples.buckets.sort_by_key(|some| some.last_ns);
        let last_ms = |some: &Summary| some.last_ns.div_euclid(1_000_000);
        samples.times.extend(samples.buckets.iter().map(last_ms));
        samples.values.extend(samples.buckets.iter().map(|some| some.last));
        held.set(samples.bytes()).map_err(over)?;
        if !samples.buckets.is_empty() {
            let text = format!(
                "of samples before {} only summaries of up to {} s remain",
                rolled.until_ns / 1_000_000_000,
                rolled.width_ns / 1_000_000_000
            );
            self.shared.notes.borrow_mut().info(&text, TextSpan::default());
        }
        Ok(())
    }
}

impl Window<'_> {
    /// Returns a number of each bucket, then the values.
    pub(crate) fn each(&self, of: fn(&Summary) -> f64) -> impl Iterator<Item = f64> {
        let values = self.values.get(self.buckets.len()..).unwrap_or_default();
        self.buckets.iter().map(of).chain(values.iter().copied())
    }

    pub(crate) fn count(&self) -> f64 {
        let of_buckets: u64 = self.buckets.iter().map(|some| some.count).sum();
        of_buckets as f64 + (self.values.len() - self.buckets.len()) as f64
    }

    pub(crate) fn first(&self) -> Option<f64> {
        self.each(|some| some.first).next()
    }
}
