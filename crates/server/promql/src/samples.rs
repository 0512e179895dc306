//! The samples of one series.

use series::Summary;

use crate::rows::is_absent;

/// The samples of one series: milliseconds and values, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
    /// The buckets of roll-ups that the first samples stand for.
    pub(crate) buckets: Vec<Summary>,
    /// Width of the widest bucket.
    pub(crate) width_ms: i64,
}

impl FromIterator<(i64, f64)> for Samples {
    fn from_iter<T: IntoIterator<Item = (i64, f64)>>(points: T) -> Self {
        let (times, values) = points.into_iter().unzip();
        Self { times, values, ..Self::default() }
    }
}

impl Samples {
    /// Returns the memory taken, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<(i64, f64)>() * self.times.capacity()
            + size_of::<Summary>() * self.buckets.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.buckets.clear();
    }

    /// Returns the positions of values that are below the value before.
    pub(crate) fn falls(&self) -> impl Iterator<Item = usize> {
        let pairs = self.values.iter().zip(self.values.iter().skip(1)).enumerate();
        pairs.filter(|(_, (before, value))| value < before).map(|(at, _)| at + 1)
    }

    /// Removes the markers of the end of the series.
    pub(crate) fn drop_markers(&mut self) {
        // A bucket stands for no marker.
        if self.values.iter().any(|value| is_absent(*value)) {
            let mut keeps = self.values.iter().map(|value| !is_absent(*value));
            self.times.retain(|_| keeps.next().unwrap_or(false));
            self.values.retain(|value| !is_absent(*value));
        }
    }
}
