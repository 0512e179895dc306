//! Jumps of the wall clock, and when they are followed.

use proptest::prelude::*;

use super::*;
use crate::clock::ManualClock;

const NOW_US: u64 = 1_790_000_000_000_000;
const HOUR: Duration = Duration::from_hours(1);
const HOUR_US: u64 = 3_600_000_000;
const YEAR_US: u64 = 365 * 24 * HOUR_US;

fn guarded() -> (ManualClock, GuardedClock) {
    let clock = ManualClock::at(NOW_US);
    let guard = GuardedClock::new(Arc::new(clock.clone()), None);
    (clock, guard)
}

fn resumed(clock: &ManualClock, stored: StoredTime) -> GuardedClock {
    GuardedClock::new(Arc::new(clock.clone()), Some(stored))
}

#[test]
fn small_clock_steps_are_followed_both_ways() {
    let (clock, guard) = guarded();
    for wall_us in [NOW_US + HOUR_US, NOW_US - HOUR_US, NOW_US + 20 * HOUR_US] {
        clock.jump_to(wall_us);
        assert_eq!(guard.guarded_us(), wall_us);
    }
    assert_eq!(guard.take_changes(), []);
}

#[test]
fn guarded_time_advances_during_a_clock_jump() {
    for wall_us in [NOW_US + 10 * YEAR_US, NOW_US - 48 * HOUR_US, 0] {
        let (clock, guard) = guarded();
        clock.jump_to(wall_us);
        assert_eq!(guard.guarded_us(), NOW_US);
        clock.advance(HOUR);
        assert_eq!(guard.guarded_us(), NOW_US + HOUR_US);
        assert_eq!(guard.now_us(), wall_us + HOUR_US);
        let hold = guard.hold().unwrap();
        assert_eq!(hold.since_us, NOW_US);
        assert_eq!(hold.offset_us, wall_us.cast_signed() - NOW_US.cast_signed());
        assert_eq!(hold.remaining, Duration::from_hours(23));
    }
}

#[test]
fn hold_ends_when_wall_clock_returns() {
    let (clock, guard) = guarded();
    clock.jump_to(NOW_US + YEAR_US);
    guard.hold().unwrap();
    clock.advance(HOUR);
    clock.jump_to(NOW_US + HOUR_US + 5);
    assert_eq!(guard.guarded_us(), NOW_US + HOUR_US + 5);
    assert_eq!(guard.hold(), None);
    let changes = guard.take_changes();
    assert!(matches!(
        changes[..],
        [ClockChange::Held(_), ClockChange::Released { why: Release::Returned, .. }]
    ));
}

#[test]
fn hold_ends_after_a_day_at_the_new_offset() {
    let (clock, guard) = guarded();
    clock.jump_to(NOW_US + YEAR_US);
    guard.hold().unwrap();
    clock.advance(Duration::from_hours(23));
    assert_eq!(guard.guarded_us(), NOW_US + 23 * HOUR_US);
    clock.advance(HOUR);
    assert_eq!(guard.guarded_us(), clock.now_us());
    let changes = guard.take_changes();
    assert!(matches!(
        changes[..],
        [ClockChange::Held(_), ClockChange::Released { why: Release::Waited, .. }]
    ));
}

#[test]
fn accept_ends_the_hold_at_once() {
    let (clock, guard) = guarded();
    assert_eq!(guard.accept(), Acceptance::NotHeld);
    clock.jump_to(NOW_US + YEAR_US);
    assert_eq!(guard.accept(), Acceptance::Released);
    assert_eq!(guard.guarded_us(), NOW_US + YEAR_US);
    assert_eq!(guard.hold(), None);
}

#[test]
fn start_with_a_wrong_clock_is_held() {
    let stored = StoredTime { time_us: NOW_US, hold: None };
    for wall_us in [NOW_US + 10 * YEAR_US, NOW_US - 48 * HOUR_US, 0] {
        let guard = resumed(&ManualClock::at(wall_us), stored);
        assert_eq!(guard.guarded_us(), NOW_US);
        assert!(guard.hold().is_some());
    }
    let guard = resumed(&ManualClock::at(NOW_US + 23 * HOUR_US), stored);
    assert_eq!((guard.guarded_us(), guard.hold()), (NOW_US + 23 * HOUR_US, None));
}

#[test]
fn synchronised_step_forward_is_followed_up_to_its_limit() {
    let day_us = 24 * HOUR_US;
    let days = |days: u32| days * Duration::from_hours(24);
    let stored = StoredTime { time_us: NOW_US, hold: None };
    let started = |offset_us: i64, step: Duration, synchronised: fn() -> bool| {
        let clock = ManualClock::at(NOW_US.saturating_add_signed(offset_us));
        let guard = resumed(&clock, stored).following_synchronised(step, synchronised);
        (guard.hold().is_none(), guard.take_changes())
    };
    let (followed, changes) = started(3 * day_us as i64, days(31), || true);
    assert!(followed);
    assert!(matches!(changes[..], [ClockChange::Released { why: Release::Synchronised, .. }]));
    assert!(started(31 * day_us as i64, days(400), || true).0);
    assert!(!started(32 * day_us as i64, days(400), || true).0, "above 31 days");
    assert!(!started(5 * day_us as i64, days(4), || true).0, "above the caller's limit");
    assert!(!started(3 * day_us as i64, days(31), || false).0, "not synchronised");
    assert!(!started(-3 * day_us as i64, days(31), || true).0, "backward");
}

#[test]
fn clock_set_for_the_first_time_is_not_held() {
    let clock = ManualClock::at(5);
    let guard = GuardedClock::new(Arc::new(clock.clone()), None).trusting_from(NOW_US);
    clock.jump_to(NOW_US + 7);
    assert_eq!((guard.guarded_us(), guard.hold()), (NOW_US + 7, None));
    clock.jump_to(5);
    assert!(guard.hold().is_some());
}

#[test]
fn restart_does_not_restart_the_hold_period() {
    let (clock, guard) = guarded();
    clock.jump_to(NOW_US + YEAR_US);
    guard.hold().unwrap();
    clock.advance(20 * HOUR);
    let again = resumed(&clock, guard.stored());
    assert_eq!(again.hold().unwrap().since_us, NOW_US);
    assert_eq!(again.take_changes(), [], "it was reported by the process before");
    clock.advance(4 * HOUR);
    assert_eq!(again.guarded_us(), clock.now_us());
}

#[test]
fn second_jump_restarts_the_hold_period() {
    let (clock, guard) = guarded();
    clock.jump_to(NOW_US + 3 * 24 * HOUR_US);
    guard.hold().unwrap();
    clock.advance(20 * HOUR);
    let stored = guard.stored();
    for again in [guard, resumed(&clock, stored)] {
        clock.jump_to(NOW_US + 10 * YEAR_US);
        assert_eq!(again.hold().unwrap().remaining, HOLD_MAX);
    }
}

proptest! {
    /// In each step the guarded time moves by at most a day more than the uptime, however the
    /// wall clock changes, unless it was held for a day.
    #[test]
    fn random_jumps_move_guarded_time_by_at_most_a_day(
        steps in prop::collection::vec((0_u64..4 * YEAR_US, 0_u64..3_600), 1..40)
    ) {
        let (clock, guard) = guarded();
        let mut waited = Duration::ZERO;
        for (wall_us, seconds) in steps {
            let before = guard.guarded_us();
            clock.jump_to(NOW_US - 2 * YEAR_US + wall_us);
            clock.advance(Duration::from_secs(seconds));
            waited += Duration::from_secs(seconds);
            prop_assume!(waited < HOLD_MAX);
            let moved = guard.guarded_us().abs_diff(before);
            prop_assert!(moved <= micros(STEP_MAX) + seconds * 1_000_000);
        }
    }
}
