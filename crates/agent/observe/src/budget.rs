//! Limits of the readers: bytes per second and thread priority.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cancel::Cancel;

/// Longest sleep between two checks of the cancel flag.
const NAP: Duration = Duration::from_millis(50);
/// Largest burst after a pause, in seconds of the rate.
const BURST_SECONDS: f64 = 0.25;
/// Lowest CPU priority.
const NICE_LOWEST: i32 = 19;

/// A token bucket over bytes, shared by all readers.
#[derive(Debug)]
pub struct TokenBucket {
    bytes_per_second: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes available. May be negative: a debt that delays the next readers.
    available: f64,
    at: Instant,
}

impl TokenBucket {
    /// Returns a full bucket, or `None` if there is no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Option<Self> {
        let rate = bytes_per_second?.max(1) as f64;
        let state = State { available: rate * BURST_SECONDS, at: Instant::now() };
        Some(Self { bytes_per_second: rate, state: Mutex::new(state) })
    }

    /// Takes the bytes from the budget and waits until the debt is paid. Returns early if
    /// cancelled.
    pub fn spend(&self, bytes: u64, cancel: &Cancel) {
        let mut wait = self.debt_after(bytes, Instant::now());
        while !wait.is_zero() && !cancel.is_cancelled() {
            let nap = wait.min(NAP);
            std::thread::sleep(nap);
            wait = wait.saturating_sub(nap);
        }
    }

    fn debt_after(&self, bytes: u64, now: Instant) -> Duration {
        let mut state = self.state.lock();
        let earned = now.saturating_duration_since(state.at).as_secs_f64() * self.bytes_per_second;
        state.at = now;
        let most = self.bytes_per_second * BURST_SECONDS;
        state.available = (state.available + earned).min(most) - bytes as f64;
        if state.available >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-state.available / self.bytes_per_second).unwrap_or_default()
    }
}

/// Gives the calling thread the lowest priority for CPU and disk. A refusal is only logged, because
/// the limit in bytes per second still applies.
pub(crate) fn step_back() {
    // On Linux a process id of zero means the calling thread here.
    if let Err(error) = rustix::process::setpriority_process(None, NICE_LOWEST) {
        tracing::debug!("lowest cpu priority refused: {error}");
    }
    idle_disk();
}

#[expect(unsafe_code, reason = "ioprio_set has no safe wrapper")]
fn idle_disk() {
    const WHO_THREAD: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    // SAFETY: the call takes three integers and touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, CLASS_IDLE) };
    if result != 0 {
        tracing::debug!("idle disk priority refused: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bucket_delays_by_bytes_over_rate() {
        let bucket = TokenBucket::new(Some(1_000_000)).unwrap();
        let start = bucket.state.lock().at;
        assert_eq!(bucket.debt_after(250_000, start), Duration::ZERO, "the burst is free");
        assert_eq!(bucket.debt_after(500_000, start), Duration::from_millis(500));
        let later = start + Duration::from_millis(400);
        assert_eq!(bucket.debt_after(0, later).as_millis(), 100);
        let much_later = start + Duration::from_secs(100);
        assert_eq!(bucket.debt_after(1_250_000, much_later).as_secs(), 1, "savings are bounded");
    }
}
