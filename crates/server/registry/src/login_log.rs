//! Limits the log lines about failed logins to N per minute, so that an attacker who guesses
//! passwords cannot fill the log. No I/O.

use std::time::Duration;

use crate::limits::LOGIN_LINES_PER_MINUTE_MAX;

const MINUTE: Duration = Duration::from_mins(1);

/// Counts the log lines of one kind.
#[derive(Default)]
pub(crate) struct LoginLog {
    /// Time of the first line of the current minute.
    since: Duration,
    said: u32,
    kept_back: u64,
}

impl LoginLog {
    /// Counts an occurrence at `now`. If a line may be logged, returns the number of earlier
    /// occurrences that were suppressed.
    pub(crate) fn line(&mut self, now: Duration) -> Option<u64> {
        if self.said == 0 || now >= self.since + MINUTE {
            (self.since, self.said) = (now, 0);
        }
        if self.said >= LOGIN_LINES_PER_MINUTE_MAX {
            self.kept_back += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_log_limits_lines_per_minute_and_counts_the_rest() {
        let mut log = LoginLog::default();
        let of_second = |second: u64| Duration::from_secs(second);
        let said = (0..1_000).filter_map(|_| log.line(of_second(100))).count();
        assert_eq!(said, LOGIN_LINES_PER_MINUTE_MAX as usize);
        assert_eq!(log.line(of_second(159)), None);
        let kept_back = 1_001 - u64::from(LOGIN_LINES_PER_MINUTE_MAX);
        assert_eq!(log.line(of_second(160)), Some(kept_back));
        assert_eq!(log.line(of_second(161)), Some(0));
    }
}
