//! The samples of one series.

use crate::rows::is_absent;

/// The samples of one series: milliseconds and values, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
}

impl FromIterator<(i64, f64)> for Samples {
    fn from_iter<T: IntoIterator<Item = (i64, f64)>>(points: T) -> Self {
        let (times, values) = points.into_iter().unzip();
        Self { times, values }
    }
}

impl Samples {
    /// Removes the markers of the end of the series.
    pub(crate) fn drop_markers(&mut self) {
        if self.values.iter().any(|value| is_absent(*value)) {
            let mut keeps = self.values.iter().map(|value| !is_absent(*value));
            self.times.retain(|_| keeps.next().unwrap_or(false));
            self.values.retain(|value| !is_absent(*value));
        }
    }
}
