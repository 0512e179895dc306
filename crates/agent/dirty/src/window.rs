//! Decides when a name is due for a check. Times are nanoseconds of `CLOCK_MONOTONIC`.

use std::time::Duration;

/// Pause after the last notification.
const SETTLE: u64 = ns(Duration::from_millis(100));
/// Pause after a close, a rename or a removal, which usually end a change.
const SETTLE_ENDED: u64 = ns(Duration::from_millis(20));
/// Longest time from the first notification to a check.
const DELAY_MAX: u64 = ns(Duration::from_secs(1));
/// A change this soon after a check doubles the interval between checks.
const BUSY: u64 = ns(Duration::from_secs(2));
/// Quiet time after which the interval is normal again.
const QUIET: u64 = ns(Duration::from_mins(1));

const fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// The times of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    settle: u64,
    settle_ended: u64,
    delay_max: u64,
    busy_max: u64,
}

impl Windows {
    /// Returns windows that end `settle` after the last notification. A name that changes all the
    /// time is checked at least every `busy_max`.
    pub fn new(settle: Duration, busy_max: Duration) -> Self {
        let settle = ns(settle);
        Self {
            settle,
            settle_ended: SETTLE_ENDED.min(settle),
            delay_max: DELAY_MAX.max(settle),
            busy_max: ns(busy_max),
        }
    }
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            settle: SETTLE,
            settle_ended: SETTLE_ENDED,
            delay_max: DELAY_MAX,
            busy_max: ns(Duration::from_secs(30)),
        }
    }
}

/// The checks of a name in the recent past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct History {
    checked: u64,
    interval: u64,
}

/// The window of a pending name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    first: u64,
    last: u64,
    /// True if the last notification ended a change.
    ended: bool,
    /// Time before which the name is not checked again, because it changes all the time.
    not_before: u64,
    interval: u64,
}

impl Window {
    /// Opens a window with its first notification.
    pub(crate) fn open(windows: &Windows, now: u64, ended: bool, history: Option<History>) -> Self {
        let mut window = Self { first: now, last: now, ended, not_before: 0, interval: 0 };
        let recent = history.filter(|history| now.saturating_sub(history.checked) < QUIET);
        if let Some(History { checked, interval }) = recent {
            let busy = now.saturating_sub(checked) < BUSY;
            let doubled = interval.max(windows.settle) * 2;
            window.interval = if busy { doubled.min(windows.busy_max) } else { interval };
            window.not_before = checked + window.interval;
        }
        window
    }

    /// Adds a notification.
    pub(crate) fn extend(&mut self, now: u64, ended: bool) {
        self.last = self.last.max(now);
        self.ended = ended;
    }

    /// Returns the window of two names that are checked as one.
    pub(crate) fn merged(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            ended: self.ended && other.ended,
            not_before: self.not_before.min(other.not_before),
            interval: self.interval.min(other.interval),
        }
    }

    /// Returns the time of the check.
    pub(crate) fn due(&self, windows: &Windows) -> u64 {
        let settle = if self.ended { windows.settle_ended } else { windows.settle };
        (self.last + settle).min(self.first + windows.delay_max).max(self.not_before)
    }

    /// Returns what is remembered after a check.
    pub(crate) fn checked(&self, now: u64) -> History {
        History { checked: now, interval: self.interval }
    }
}

impl History {
    /// Returns true if the name was quiet long enough that nothing needs to be remembered. A
    /// name of normal interval is forgotten sooner.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.checked) >= if self.interval == 0 { BUSY } else { QUIET }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 5_000 * MS;

    #[test]
    fn name_is_due_a_pause_after_its_last_notification() {
        let windows = Windows::default();
        let mut window = Window::open(&windows, START, false, None);
        assert_eq!(window.due(&windows), START + 100 * MS);
        window.extend(START + 60 * MS, false);
        assert_eq!(window.due(&windows), START + 160 * MS);
        window.extend(START + 90 * MS, true);
        assert_eq!(window.due(&windows), START + 110 * MS, "a close settles sooner");
        window.extend(START + 95 * MS, false);
        assert_eq!(window.due(&windows), START + 195 * MS, "and a write after it does not");
    }

    #[test]
    fn name_is_due_one_second_after_its_first_notification() {
        let windows = Windows::default();
        let mut window = Window::open(&windows, START, false, None);
        for step in 1..50 {
            window.extend(START + step * 50 * MS, false);
        }
        assert_eq!(window.due(&windows), START + 1_000 * MS);
    }

    #[test]
    fn busy_name_doubles_its_interval_up_to_the_limit() {
        let windows = Windows::default();
        let mut now = START;
        let mut window = Window::open(&windows, now, true, None);
        let mut intervals = Vec::new();
        for _ in 0..10 {
            now = window.due(&windows);
            let history = window.checked(now);
            window = Window::open(&windows, now + MS, true, Some(history));
            intervals.push((window.due(&windows) - now) / MS);
        }
        assert_eq!(intervals, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn interval_stays_until_a_minute_of_quiet() {
        let windows = Windows::default();
        let history = History { checked: START, interval: 8_000 * MS };
        let soon = Window::open(&windows, START + 3_000 * MS, true, Some(history));
        assert_eq!(soon.due(&windows), START + 8_000 * MS, "neither busy nor quiet");
        assert!(!history.is_over(START + 59_000 * MS));
        let later = Window::open(&windows, START + 60_000 * MS, true, Some(history));
        assert_eq!(later.due(&windows), START + 60_020 * MS);
        assert!(history.is_over(START + 60_000 * MS));
    }

    #[test]
    fn normal_name_is_forgotten_after_two_seconds() {
        let windows = Windows::default();
        let history = Window::open(&windows, START, true, None).checked(START);
        assert!(!history.is_over(START + 1_999 * MS) && history.is_over(START + 2_000 * MS));
    }
}
