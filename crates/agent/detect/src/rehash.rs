//! The rolling re-hash. Each file is read again exactly once per period, at an offset that is
//! derived from its path, so that the reads are spread evenly over the period.

/// Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo), continued from `state`. A directory's prefix
/// is hashed once for all its entries.
pub(crate) fn hash(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Initial state of [`hash`].
pub(crate) const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// The period of one rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    period_s: u64,
    now_s: u64,
}

impl Schedule {
    pub(crate) fn new(days: u32, now_us: u64) -> Self {
        Self { period_s: u64::from(days) * 24 * 3600, now_s: now_us / 1_000_000 }
    }

    /// Returns true if the file's offset in the period lies between its last verification and now.
    pub(crate) fn is_due(&self, path_hash: u64, verified_at_s: u32) -> bool {
        if self.period_s == 0 {
            return false;
        }
        // The high bits of FNV are mixed better than the low ones.
        let phase = (path_hash >> 20) % self.period_s;
        let turn = |at: u64| (at + self.period_s - phase) / self.period_s;
        turn(self.now_s) > turn(u64::from(verified_at_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_763_751_122;
    const HOUR: u64 = 3600;

    /// Returns the hours of a week in which hourly scans read a file.
    fn hours(path: u64) -> Vec<usize> {
        let mut verified = START as u32;
        let mut due = |hour: &usize| {
            let now = START + (*hour as u64 + 1) * HOUR;
            let due = Schedule::new(7, now * 1_000_000).is_due(path, verified);
            if due {
                verified = now as u32;
            }
            due
        };
        (0..7 * 24).filter(|h| due(h)).collect()
    }

    #[test]
    fn every_file_is_rehashed_once_a_week_spread_over_the_hours() {
        let mut per_hour = vec![0u32; 7 * 24];
        for file in 0..5_000u32 {
            let hours = hours(hash(hash(SEED, b"/usr/bin"), &file.to_le_bytes()));
            assert_eq!(hours.len(), 1);
            per_hour[hours[0]] += 1;
        }
        let most = per_hour.iter().max().copied().unwrap_or_default();
        assert!(most < 80, "5000 files over 168 hours, but {most} in one");
    }

    #[test]
    fn zero_rehash_days_disable_rehashing() {
        assert!(!Schedule::new(0, u64::MAX / 2).is_due(1, 1));
    }
}
