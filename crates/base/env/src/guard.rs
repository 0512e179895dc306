//! A clock that does not follow jumps of the wall clock at once.
//!
//! Everything that expires by age (events, samples, revocations, certificates, commands, tokens)
//! expires by the *guarded time*. It follows the wall clock as long as the two are within
//! [`STEP_MAX`] of each other. When the wall clock moves further, in either direction, the guarded
//! time is *held*: it advances with the monotonic clock alone until one of three things happens:
//!
//! - the wall clock comes back within [`STEP_MAX`] of the guarded time;
//! - the wall clock has kept its new offset for [`HOLD_MAX`] of uptime, restarts included;
//! - an operator calls [`GuardedClock::accept`].
//!
//! One step is followed at once although it is larger: forward, by at most
//! [`SYNCHRONISED_STEP_MAX`], while the kernel says that its clock is synchronised
//! ([`kernel_is_synchronised`]). That is a machine that was off for some days.
//!
//! A process that starts resumes from the [`StoredTime`] that the last one left behind, so that a
//! start at a wrong time is held as well. The owner of the clock persists [`GuardedClock::stored`]
//! regularly and when it stops.
//!
//! Locking: one mutex over the state, held for a comparison. No other lock is taken inside.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// The largest difference between wall clock and guarded time that is followed at once: a day.
pub const STEP_MAX: Duration = Duration::from_hours(24);
/// Uptime after which a wall clock that kept its new offset is followed: a day.
pub const HOLD_MAX: Duration = Duration::from_hours(24);
/// The largest step forward that is followed at once if the kernel's clock is synchronised: 31 days.
pub const SYNCHRONISED_STEP_MAX: Duration = Duration::from_hours(31 * 24);
/// Changes kept for [`GuardedClock::take_changes`].
const CHANGES_MAX: usize = 64;

/// The guarded time as it is persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredTime {
    /// Guarded time, microseconds since the epoch.
    pub time_us: u64,
    /// The hold that was in force.
    pub hold: Option<StoredHold>,
}

/// A hold as it is persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredHold {
    /// Guarded time at which it began, microseconds since the epoch.
    pub since_us: u64,
    /// Uptime that it has lasted, microseconds.
    pub lasted_us: u64,
    /// Wall clock minus guarded time, microseconds.
    pub offset_us: i64,
}

/// A hold in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Guarded time at which it began, microseconds since the epoch.
    pub since_us: u64,
    /// Wall clock minus guarded time, microseconds.
    pub offset_us: i64,
    /// Uptime until the wall clock is followed.
    pub remaining: Duration,
}

/// The outcome of [`GuardedClock::accept`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// A hold was ended.
    Released,
    NotHeld,
}

/// Why a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The wall clock came back.
    Returned,
    /// The wall clock kept its new offset for [`HOLD_MAX`] of uptime.
    Waited,
    /// An operator accepted the wall clock.
    Accepted,
    /// The kernel says that its clock is synchronised.
    Synchronised,
}

/// Returns true if the kernel's clock is synchronised, as `adjtimex` says: `STA_UNSYNC` is clear. A
/// program that sets the clock, other than one that keeps it synchronised, sets that flag.
pub fn kernel_is_synchronised() -> bool {
    // SAFETY: all fields of the structure may be zero, and without modes the call only fills it.
    #[expect(unsafe_code, reason = "no safe wrapper has adjtimex")]
    let (code, status) = unsafe {
        let mut time: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut time), time.status)
    };
    code >= 0 && status & libc::STA_UNSYNC == 0
}

/// A hold that began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The wall clock is not followed any more.
    Held(Hold),
    /// The wall clock is followed again.
    Released {
        why: Release,
        /// Guarded time before, microseconds since the epoch.
        from_us: u64,
        /// Guarded time from now on, microseconds since the epoch.
        to_us: u64,
    },
}

/// A clock whose [`Clock::guarded_us`] does not follow a wall clock that jumps.
pub struct GuardedClock {
    clock: Arc<dyn Clock>,
    resumed_us: u64,
    state: Mutex<State>,
}

struct State {
    /// Guarded time at `at`.
    time_us: u64,
    /// Monotonic time of the last reading.
    at: Duration,
    hold: Option<Active>,
    changes: Vec<ClockChange>,
    /// See [`GuardedClock::trusting_from`].
    floor_us: u64,
    /// See [`GuardedClock::following_synchronised`].
    synchronised_step_us: u64,
    is_synchronised: fn() -> bool,
}

/// The hold in force.
struct Active {
    since_us: u64,
    offset_us: i64,
    /// Uptime of the hold in earlier processes.
    before: Duration,
    /// Monotonic time since which this process holds.
    began: Duration,
}

impl Active {
    fn lasted(&self, now: Duration) -> Duration {
        self.before.saturating_add(now.saturating_sub(self.began))
    }

    fn hold_at(&self, now: Duration) -> Hold {
        let remaining = HOLD_MAX.saturating_sub(self.lasted(now));
        Hold { since_us: self.since_us, offset_us: self.offset_us, remaining }
    }
}

impl GuardedClock {
    /// Returns a guard over `clock` that resumes from `stored`, or begins at the wall clock.
    pub fn new(clock: Arc<dyn Clock>, stored: Option<StoredTime>) -> Self {
        let (wall_us, at) = (clock.now_us(), clock.monotonic());
        let hold = stored.and_then(|stored| stored.hold).map(|hold| Active {
            since_us: hold.since_us,
            offset_us: hold.offset_us,
            before: Duration::from_micros(hold.lasted_us),
            began: at,
        });
        let time_us = stored.map_or(wall_us, |stored| stored.time_us);
        let state = State {
            time_us,
            at,
            hold,
            changes: Vec::new(),
            floor_us: 0,
            synchronised_step_us: 0,
            is_synchronised: kernel_is_synchronised,
        };
        Self { clock, resumed_us: time_us, state: Mutex::new(state) }
    }

    /// Sets the time, microseconds since the epoch, before which the guarded time is never held: an
    /// earlier time is wrong, because the machine had not set its clock yet. Call it before the
    /// first reading.
    #[must_use]
    pub fn trusting_from(mut self, floor_us: u64) -> Self {
        self.state.get_mut().floor_us = floor_us;
        self
    }

    /// Follows a step forward at once that is at most `step` and [`SYNCHRONISED_STEP_MAX`], if
    /// `is_synchronised` returns true. Call it before the first reading.
    #[must_use]
    pub fn following_synchronised(mut self, step: Duration, is_synchronised: fn() -> bool) -> Self {
        let state = self.state.get_mut();
        state.synchronised_step_us = micros(step.min(SYNCHRONISED_STEP_MAX));
        state.is_synchronised = is_synchronised;
        self
    }

    /// Returns the guarded time at which this process resumed, microseconds since the epoch.
    /// Earlier processes acted no later than this.
    pub fn resumed_us(&self) -> u64 {
        self.resumed_us
    }

    /// Returns the hold in force, if any.
    pub fn hold(&self) -> Option<Hold> {
        self.read(|state, now| state.hold.as_ref().map(|hold| hold.hold_at(now)))
    }

    /// Follows the wall clock from now on.
    pub fn accept(&self) -> Acceptance {
        self.read(|state, _| {
            if state.hold.is_none() {
                return Acceptance::NotHeld;
            }
            state.release(Release::Accepted, self.clock.now_us());
            Acceptance::Released
        })
    }

    /// Returns what has to be persisted.
    pub fn stored(&self) -> StoredTime {
        self.read(|state, now| StoredTime {
            time_us: state.time_us,
            hold: state.hold.as_ref().map(|hold| StoredHold {
                since_us: hold.since_us,
                lasted_us: micros(hold.lasted(now)),
                offset_us: hold.offset_us,
            }),
        })
    }

    /// Returns the holds that began and ended since the last call, oldest first.
    pub fn take_changes(&self) -> Vec<ClockChange> {
        self.read(|state, _| std::mem::take(&mut state.changes))
    }

    /// Updates the state from both clocks and calls `get` with it and the monotonic time of the
    /// update.
    fn read<T>(&self, get: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock();
        // Both clocks are read under the lock: a reading taken before waiting for it would move the
        // time back.
        let (wall_us, now) = (self.clock.now_us(), self.clock.monotonic());
        state.observe(wall_us, now);
        get(&mut state, now)
    }
}

impl State {
    /// Advances the guarded time to a reading of both clocks, and begins, continues or ends a hold.
    fn observe(&mut self, wall_us: u64, now: Duration) {
        self.time_us = self.time_us.saturating_add(micros(now.saturating_sub(self.at)));
        self.at = now;
        let offset_us = wall_us.cast_signed().saturating_sub(self.time_us.cast_signed());
        let unset = self.time_us < self.floor_us && wall_us >= self.floor_us;
        if unset || offset_us.unsigned_abs() <= micros(STEP_MAX) {
            match self.hold {
                Some(_) => self.release(Release::Returned, wall_us),
                None => self.time_us = wall_us,
            }
            return;
        }
        let forward = u64::try_from(offset_us).is_ok_and(|us| us <= self.synchronised_step_us);
        if forward && (self.is_synchronised)() {
            return self.release(Release::Synchronised, wall_us);
        }
        let same = |hold: &&mut Active| hold.offset_us.abs_diff(offset_us) <= micros(STEP_MAX);
        if let Some(hold) = self.hold.as_mut().filter(same) {
            hold.offset_us = offset_us;
            if hold.lasted(now) >= HOLD_MAX {
                self.release(Release::Waited, wall_us);
            }
            return;
        }
        // A first jump, or a further one, begins the wait again.
        let since_us = self.time_us;
        let hold = Active { since_us, offset_us, before: Duration::ZERO, began: now };
        self.note(ClockChange::Held(hold.hold_at(now)));
        self.hold = Some(hold);
    }

    fn release(&mut self, why: Release, wall_us: u64) {
        self.hold = None;
        self.note(ClockChange::Released { why, from_us: self.time_us, to_us: wall_us });
        self.time_us = wall_us;
    }

    /// Records a change for [`GuardedClock::take_changes`]; drops it if too many were not taken.
    fn note(&mut self, change: ClockChange) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(change);
        }
    }
}

impl Clock for GuardedClock {
    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn guarded_us(&self) -> u64 {
        self.read(|state, _| state.time_us)
    }
}

impl fmt::Debug for GuardedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClock").field("hold", &self.hold()).finish_non_exhaustive()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
