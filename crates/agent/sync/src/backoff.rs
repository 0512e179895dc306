//! Delays before retries: full jitter, and never before the server's `Retry-After`.
//!
//! Source of the formula: "full jitter", uniform in `[0, min(cap, base * 2^n)]`, with a base of 1 s
//! and a cap of 60 s (`docs/reference/wire.md`, "Sessions: retries").

use std::time::Duration;

/// First bound of the delay.
const BASE: Duration = Duration::from_secs(1);
/// Upper limit of the bound.
const CAP: Duration = Duration::from_mins(1);
/// Longest `Retry-After` that is honoured. A longer one is shortened to this.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(10);

/// Returns the delay before attempt `n + 1` (the first failure is `n = 0`). `random` is a uniformly
/// drawn number; `retry_after` is the delay that the server asked for.
pub fn delay(n: u32, random: u64, retry_after: Option<Duration>) -> Duration {
    let bound = BASE.saturating_mul(1u32.checked_shl(n).unwrap_or(u32::MAX)).min(CAP);
    let jitter = bound.mul_f64(random as f64 / u64::MAX as f64);
    jitter.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

/// First bound of the delay between two attempts to renew a certificate. Renewal starts when a
/// third of the validity is left.
const RENEWAL_BASE: Duration = Duration::from_mins(1);
/// Upper limit of the bound between two attempts to renew.
const RENEWAL_CAP: Duration = Duration::from_hours(6);

/// Returns the delay before the next renewal after `n + 1` failures. It is between half of the
/// bound and the bound, which doubles each time, so that no attempt follows immediately.
pub(crate) fn renewal(n: u32, random: u64, retry_after: Option<Duration>) -> Duration {
    let bound =
        RENEWAL_BASE.saturating_mul(1u32.checked_shl(n).unwrap_or(u32::MAX)).min(RENEWAL_CAP);
    let jitter = bound.mul_f64(0.5 + 0.5 * (random as f64 / u64::MAX as f64));
    jitter.max(retry_after.unwrap_or_default().min(RENEWAL_CAP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_one_minute() {
        assert_eq!(delay(0, u64::MAX, None), Duration::from_secs(1));
        assert_eq!(delay(3, u64::MAX, None), Duration::from_secs(8));
        assert_eq!(delay(40, u64::MAX, None), Duration::from_mins(1));
        assert_eq!(delay(7, 0, None), Duration::ZERO);
    }

    #[test]
    fn retry_after_is_a_bounded_minimum_delay() {
        assert_eq!(delay(0, 0, Some(Duration::from_secs(5))), Duration::from_secs(5));
        assert_eq!(delay(0, 0, Some(Duration::from_hours(24))), RETRY_AFTER_MAX);
    }
}
