//! The target size of a session. It is halved after a 413 or a timeout, and doubled after several
//! accepted sessions.

/// Smallest size reached by halving, bytes. After that a session has a single value.
const BYTES_MIN: usize = 4 * 1024;
/// Number of consecutive accepted sessions after which the size is doubled.
const GROW_AFTER: u32 = 4;
/// Upper bound of that number, on a connection that was repeatedly too slow.
const GROW_AFTER_MAX: u32 = 256;
/// Smallest size on a slow connection, bytes.
const SLOW_BYTES_MIN: usize = 16 * 1024;

/// The target size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionSize {
    bytes: usize,
    bytes_max: usize,
    single: bool,
    taken: u32,
    grow_after: u32,
}

impl SessionSize {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.max(BYTES_MIN);
        Self { bytes: bytes_max, bytes_max, single: false, taken: 0, grow_after: GROW_AFTER }
    }

    /// Returns the target size, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the most values of a session.
    pub(crate) fn values_max(&self) -> usize {
        if self.single { 1 } else { usize::MAX }
    }

    /// Records that a session of several values and `sent` bytes was too large.
    pub(crate) fn halve(&mut self, sent: usize) {
        let half = self.bytes.min(sent) / 2;
        self.single = half < BYTES_MIN;
        self.bytes = half.max(BYTES_MIN);
        self.taken = 0;
    }

    /// Records that a session of several values and `sent` bytes timed out. The connection may be
    /// too slow for it, and each attempt with a larger size is expensive, so the size also grows
    /// later.
    pub(crate) fn slow(&mut self, sent: usize) {
        if sent <= SLOW_BYTES_MIN {
            // A session this small fails for another reason than speed.
            return;
        }
        let half = self.bytes.min(sent) / 2;
        self.bytes = self.bytes.min(half.max(SLOW_BYTES_MIN));
        self.taken = 0;
        self.grow_after = self.grow_after.saturating_mul(2).min(GROW_AFTER_MAX);
    }

    /// Records that the connection broke during a session of several values and `sent` bytes. It
    /// may be too slow for the size, but a small session is weak evidence for that.
    pub(crate) fn broken(&mut self, sent: usize) {
        if sent > self.bytes / 2 {
            self.slow(sent);
        } else if sent > SLOW_BYTES_MIN {
            self.bytes = (self.bytes / 2).max(SLOW_BYTES_MIN);
            self.taken = 0;
        }
    }

    /// Records that a session was accepted.
    pub(crate) fn record_accepted(&mut self) {
        self.taken += 1;
        if self.taken >= self.grow_after {
            self.taken = 0;
            self.single = false;
            self.bytes = self.bytes.saturating_mul(2).min(self.bytes_max);
            if self.bytes == self.bytes_max {
                self.grow_after = GROW_AFTER;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_ends_at_single_values() {
        let mut pace = SessionSize::new(64 * 1024);
        let mut steps = 0;
        while pace.values_max() > 1 {
            pace.halve(pace.bytes());
            steps += 1;
        }
        assert_eq!((steps, pace.bytes()), (5, BYTES_MIN));
    }

    #[test]
    fn halving_starts_at_size_sent() {
        let mut pace = SessionSize::new(5_000_000);
        pace.halve(30_000);
        assert_eq!(pace.bytes(), 15_000);
    }

    #[test]
    fn slow_connection_shrinks_sessions_and_delays_their_growth() {
        let mut pace = SessionSize::new(5_000_000);
        for _ in 0..20 {
            pace.slow(pace.bytes());
        }
        assert_eq!((pace.bytes(), pace.values_max()), (SLOW_BYTES_MIN, usize::MAX));
        (1..GROW_AFTER_MAX).for_each(|_| pace.record_accepted());
        assert_eq!(pace.bytes(), SLOW_BYTES_MIN);
        pace.record_accepted();
        assert_eq!(pace.bytes(), 2 * SLOW_BYTES_MIN);
    }

    #[test]
    fn small_failed_session_does_not_change_session_size() {
        let mut pace = SessionSize::new(5_000_000);
        pace.slow(3_000);
        assert_eq!(pace, SessionSize::new(5_000_000));
        pace.slow(5_000_000);
        (0..2 * GROW_AFTER).for_each(|_| pace.record_accepted());
        assert_eq!(pace, SessionSize::new(5_000_000), "grown back, it is as it was");
    }

    #[test]
    fn broken_connection_halves_session_size_once() {
        let mut pace = SessionSize::new(5_000_000);
        pace.broken(20_000);
        assert_eq!(pace.bytes(), 2_500_000);
        (0..GROW_AFTER).for_each(|_| pace.record_accepted());
        assert_eq!(pace, SessionSize::new(5_000_000), "and is made up for at once");
        pace.broken(4_000_000);
        assert_eq!(pace.bytes(), 2_000_000);
        // A connection that always breaks gets smaller and smaller sessions.
        for _ in 0..20 {
            pace.broken(pace.bytes().min(100_000));
        }
        assert_eq!(pace.bytes(), SLOW_BYTES_MIN);
    }

    #[test]
    fn session_size_grows_back_to_its_maximum() {
        let mut pace = SessionSize::new(40_000);
        pace.halve(6_000);
        for _ in 0..100 {
            pace.record_accepted();
        }
        assert_eq!((pace.bytes(), pace.values_max()), (40_000, usize::MAX));
    }
}
