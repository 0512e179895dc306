//! Time: microseconds since the Unix epoch, and a monotonic time for durations.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time. Shared between threads; cheap to call.
pub trait Clock: Send + Sync {
    /// Returns the microseconds since 1970-01-01T00:00:00Z. They may jump in either direction.
    fn now_us(&self) -> u64;
    /// Returns the time since an arbitrary fixed instant of this process. It never goes back.
    fn monotonic(&self) -> Duration;
    /// Returns the time by which old data expires, microseconds since the epoch. Equal to
    /// [`Clock::now_us`] unless the clock is a [`GuardedClock`](crate::guard::GuardedClock), which
    /// does not follow a wall clock that jumps.
    fn guarded_us(&self) -> u64 {
        self.now_us()
    }
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now_us", &self.now_us()).finish()
    }
}

/// The clock of the operating system.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Returns a clock whose monotonic time starts at zero now.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that advances only when a test moves it.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now_us: Arc<AtomicU64>,
    monotonic_us: Arc<AtomicU64>,
}

impl ManualClock {
    /// Returns a clock frozen at `now_us` microseconds since the epoch.
    pub fn at(now_us: u64) -> Self {
        Self { now_us: Arc::new(AtomicU64::new(now_us)), monotonic_us: Arc::default() }
    }

    /// Moves the wall clock and the monotonic time forward.
    pub fn advance(&self, by: Duration) {
        let us = by.as_micros() as u64;
        self.now_us.fetch_add(us, Ordering::SeqCst);
        self.monotonic_us.fetch_add(us, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an administrator or a wrong time server does.
    pub fn jump_to(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_us.load(Ordering::SeqCst))
    }
}
