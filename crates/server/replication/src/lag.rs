//! The lag of a follower in bytes and seconds, computed from a trail of earlier journal positions.

use std::collections::VecDeque;
use std::time::Instant;

/// Maximum number of marks; above it, every second mark of the older half is dropped.
const MARKS_MAX: usize = 4_096;

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    position: u64,
    payload_bytes: u64,
}

/// Positions of the journal over time, since the process started.
#[derive(Debug, Default)]
pub(crate) struct PositionHistory {
    marks: VecDeque<Mark>,
}

/// The lag of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lag {
    pub(crate) bytes: u64,
    pub(crate) seconds: u64,
    /// The trail does not reach back far enough: the real lag is at least this.
    pub(crate) at_least: bool,
}

impl PositionHistory {
    /// Records that the journal is at `position` now and has stored `payload_bytes` of records.
    pub(crate) fn mark(&mut self, at: Instant, position: u64, payload_bytes: u64) {
        if self.marks.back().is_some_and(|last| last.position == position) {
            return;
        }
        self.marks.push_back(Mark { at, position, payload_bytes });
        if self.marks.len() > MARKS_MAX {
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place == 1 || place > MARKS_MAX / 2 || place % 2 == 0
            });
        }
    }

    /// Returns the lag of a follower that holds everything up to `acknowledged`.
    pub(crate) fn lag(&self, now: Instant, acknowledged: u64) -> Lag {
        let Some(last) = self.marks.back().filter(|last| last.position > acknowledged) else {
            return Lag::default();
        };
        let has = self.marks.iter().rev().find(|m| m.position <= acknowledged);
        let lacks = self.marks.iter().find(|m| m.position > acknowledged);
        let first = self.marks.front().map_or(0, |m| m.payload_bytes);
        Lag {
            bytes: last.payload_bytes - has.map_or(first, |m| m.payload_bytes),
            seconds: lacks.map_or(0, |m| now.saturating_duration_since(m.at).as_secs()),
            at_least: has.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lag_is_measured_from_the_first_missing_record() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut trail = PositionHistory::default();
        for (second, position) in [(0, 10), (1, 20), (2, 20), (5, 30)] {
            trail.mark(at(second), position, position * 100);
        }
        assert_eq!(trail.lag(at(9), 30), Lag::default());
        assert_eq!(trail.lag(at(9), 20), Lag { bytes: 1_000, seconds: 4, at_least: false });
        assert_eq!(trail.lag(at(9), 15), Lag { bytes: 2_000, seconds: 8, at_least: false });
        assert_eq!(trail.lag(at(9), 3), Lag { bytes: 2_000, seconds: 9, at_least: true });
    }

    #[test]
    fn lag_trail_is_bounded_and_keeps_first_and_last_mark() {
        let start = Instant::now();
        let mut trail = PositionHistory::default();
        for n in 0..50_000 {
            trail.mark(start + Duration::from_secs(n), n, n);
        }
        assert!(trail.marks.len() <= MARKS_MAX);
        let ends = (trail.marks[0].position, trail.marks[trail.marks.len() - 1].position);
        assert_eq!(ends, (0, 49_999));
    }
}
