//! Steps of equal width for summaries.

/// Number of times tested linearly for the end of a step before a binary search.
const NEAR: usize = 16;

/// Steps of equal width from a start time on, or one step for everything. No time is before the
/// start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    from_ns: i64,
    /// 0 if one step covers everything.
    step_ns: i64,
}

impl Grid {
    pub(super) const WHOLE: Self = Self { from_ns: 0, step_ns: 0 };

    pub(super) fn new(from_ns: i64, step_ns: i64) -> Self {
        Self { from_ns, step_ns: step_ns.max(1) }
    }

    /// Returns the index of the step of a time.
    pub(super) fn index(self, time_ns: i64) -> i64 {
        time_ns.saturating_sub(self.from_ns).checked_div_euclid(self.step_ns).unwrap_or(0)
    }

    /// Returns the first time after the step of a time.
    pub(super) fn end(self, time_ns: i64) -> i64 {
        let since = time_ns.saturating_sub(self.from_ns);
        let begin = since.checked_rem_euclid(self.step_ns).map(|into| since.saturating_sub(into));
        // If the end overflows, all later times are in the last step.
        let end = begin.and_then(|begin| begin.checked_add(self.step_ns));
        end.map_or(i64::MAX, |end| self.from_ns.saturating_add(end))
    }

    /// Returns true if two times, the first not after the second, are in one step.
    pub(super) fn together(self, first_ns: i64, last_ns: i64) -> bool {
        last_ns < self.end(first_ns)
    }

    /// Returns how many of the ascending `times` are in the step of the first.
    pub(super) fn count(self, times: &[i64]) -> usize {
        let end = times.first().map_or(i64::MAX, |first| self.end(*first));
        let (near, far) = times.split_at(times.len().min(NEAR));
        let next = near.iter().position(|time| *time >= end);
        next.unwrap_or_else(|| near.len() + far.partition_point(|time| *time < end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of leading times with one index.
    fn together(grid: Grid, times: &[i64]) -> usize {
        times.iter().filter(|time| grid.index(**time) == grid.index(times[0])).count()
    }

    #[test]
    fn times_with_the_same_step_index_are_in_one_step() {
        let far = [i64::MIN, -7, 0, 5, 100, i64::MAX - 1];
        for (from, step) in
            [i64::MIN, -10, 0, 3].map(|f| [1, 3, 10, i64::MAX].map(|s| (f, s))).concat()
        {
            let grid = Grid::new(from, step);
            let mut times: Vec<i64> = far.into_iter().chain(-20..60).collect();
            times.retain(|time| *time >= from);
            times.sort_unstable();
            times.dedup();
            for at in 0..times.len() {
                let rest = &times[at..];
                assert_eq!(grid.count(rest), together(grid, rest), "{from} {step} {rest:?}");
            }
        }
        assert_eq!(Grid::WHOLE.count(&far), far.len());
        assert_eq!((Grid::WHOLE.index(-5), Grid::WHOLE.index(5)), (0, 0));
    }
}
