//! The clocks that relate times of the kernel.

use rustix::time::{ClockId, clock_gettime};

/// Difference between two readings above which the wall clock counts as set.
const STEP_NS: i64 = 1_000_000_000;

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    u64::try_from(read(ClockId::Monotonic)).unwrap_or(0)
}

/// Returns the time for which the system was suspended since boot, which only `CLOCK_BOOTTIME`
/// counts.
pub(crate) fn suspended_ns() -> i64 {
    // Below a millisecond it is the time between the two readings.
    let difference = read(ClockId::Boottime) - read(ClockId::Monotonic);
    if difference < 1_000_000 { 0 } else { difference }
}

/// The wall clock's time at the zero of `CLOCK_MONOTONIC`. It is kept until the wall clock is set,
/// so that a process's start reads the same in each of its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallOffset(i64);

impl WallOffset {
    pub(crate) fn now() -> Self {
        Self(read(ClockId::Realtime) - read(ClockId::Monotonic))
    }

    /// Returns the present offset if the wall clock was set since, else this one.
    pub(crate) fn refreshed(self) -> Self {
        let now = Self::now();
        if (now.0 - self.0).abs() > STEP_NS { now } else { self }
    }

    /// Returns a time of `CLOCK_MONOTONIC` as microseconds since the epoch.
    pub(crate) fn micros(self, at_ns: i64) -> u64 {
        u64::try_from(self.0.saturating_add(at_ns) / 1000).unwrap_or(0)
    }
}
