//! Limits the checks per second.

/// A token bucket over names. It holds the tokens of one second at most.
#[derive(Debug)]
pub(crate) struct NameRate {
    per_second: f64,
    available: f64,
    at_ns: u64,
}

impl NameRate {
    pub(crate) fn new(per_second: u32, now_ns: u64) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self { per_second, available: per_second, at_ns: now_ns }
    }

    /// Returns the number of names that may be checked now.
    pub(crate) fn allowance(&mut self, now_ns: u64) -> usize {
        let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.at_ns = now_ns;
        self.available = (self.available + passed_s * self.per_second).min(self.per_second);
        self.available.max(0.0) as usize
    }

    /// Takes the tokens of names that are checked. The count may exceed the allowance; then the
    /// next names wait longer.
    pub(crate) fn spend(&mut self, names: usize) {
        self.available -= names as f64;
    }

    /// Returns the time at which a name may be checked.
    pub(crate) fn ready_ns(&self) -> u64 {
        let missing = (1.0 - self.available).max(0.0);
        self.at_ns.saturating_add((missing / self.per_second * 1e9).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_above_the_rate_wait() {
        let mut pace = NameRate::new(100, 0);
        assert_eq!(pace.allowance(0), 100, "one second's names at once");
        pace.spend(150);
        assert_eq!(pace.allowance(0), 0);
        assert_eq!(pace.ready_ns(), 510_000_000);
        assert_eq!(pace.allowance(pace.ready_ns()), 1);
        assert_eq!(pace.allowance(60_000_000_000), 100, "savings are bounded");
    }
}
