use super::*;

fn row(seen: u64) -> Row {
    Row { seen, known: false, gone: false }
}

/// Told up to 10, a cycle up to 20 was broken off or goes on.
const CYCLE: Marks = Marks { leased: 20, told: 10, reached: 10, unfinished: true };
/// Told up to 20, opened when it held what was seen up to 25.
const QUIET: Marks = Marks { leased: 20, told: 20, reached: 25, unfinished: false };

#[test]
fn a_change_of_what_was_told_is_pending_and_known() {
    let new = put(Some(row(15)), QUIET, 30);
    assert_eq!(new, Row { seen: 30, known: true, gone: false });
    assert!(QUIET.is_pending(new) && !QUIET.is_pending(row(20)));
}

#[test]
fn an_item_is_unknown_only_if_no_session_can_have_carried_it() {
    assert!(!QUIET.may_be_known(row(26)));
    // Seen after the mark, but a cycle that this database has forgotten may have sent it.
    assert!(QUIET.may_be_known(row(25)));
    assert!(CYCLE.may_be_known(row(20)) && !CYCLE.may_be_known(row(21)));
    assert!(QUIET.may_be_known(Row { known: true, ..row(99) }));
}

#[test]
fn a_cycle_hands_out_what_was_there_and_what_changed_and_no_newcomer() {
    assert!(!CYCLE.is_due(row(10)) && CYCLE.is_due(row(11)) && CYCLE.is_due(row(20)));
    let born = put(None, CYCLE, 21);
    assert!(CYCLE.is_pending(born) && !CYCLE.is_due(born));
    assert!(CYCLE.end().begin(21).is_due(born), "it is the next one's");
    assert!(CYCLE.is_due(put(Some(row(15)), CYCLE, 22)));
    assert_eq!(delete(Some(row(15)), CYCLE, 22).map(|gone| CYCLE.is_due(gone)), Some(true));
    assert!(!CYCLE.is_due(put(Some(born), CYCLE, 23)), "nor once it has changed");
    assert_eq!(delete(Some(born), CYCLE, 24), None, "nor once it has gone");
}

#[test]
fn what_was_there_at_the_opening_is_told_gone_and_what_is_born_since_is_not() {
    let born = put(None, CYCLE, 21);
    let opened = CYCLE.open(30);
    assert!(!opened.is_due(born), "the cycle that goes on does not hand it out");
    assert_eq!(delete(Some(born), opened, 31), Some(Row { seen: 31, known: true, gone: true }));
    assert_eq!(delete(Some(put(None, opened, 31)), opened, 32), None);
    assert_eq!(opened.end().reached, 30);
    assert_eq!(opened.open(25).reached, 30, "never back");
}

#[test]
fn a_delete_drops_the_unknown_and_tells_of_the_known() {
    assert_eq!(delete(None, QUIET, 30), None);
    assert_eq!(delete(Some(row(26)), QUIET, 30), None);
    let gone = Row { seen: 30, known: true, gone: true };
    assert_eq!(delete(Some(row(25)), QUIET, 30), Some(gone));
    // Deleted twice: the first version stands.
    assert_eq!(delete(Some(gone), QUIET, 40), Some(gone));
}

#[test]
fn only_the_answered_version_of_a_gone_item_goes() {
    let gone = Row { seen: 30, known: true, gone: true };
    assert_eq!(acknowledge(gone, 30), None);
    assert_eq!(acknowledge(gone, 29), Some(gone));
    assert_eq!(acknowledge(row(30), 30), Some(row(30)));
}

#[test]
fn a_touch_is_nothing_to_tell_unless_the_item_was_not_there() {
    assert_eq!(touch(Some(row(5))), Some(row(5)));
    assert_eq!(touch(None), None);
    assert_eq!(touch(Some(Row { gone: true, ..row(5) })), None);
}

#[test]
fn a_cycle_that_goes_on_keeps_its_mark() {
    assert_eq!(CYCLE.begin(99), CYCLE);
    let begun = QUIET.begin(99);
    assert_eq!(begun, Marks { leased: 99, told: 20, reached: 25, unfinished: true });
    assert_eq!(begun.end(), Marks { leased: 99, told: 99, reached: 25, unfinished: false });
}

#[test]
fn the_clock_never_stands_and_never_goes_back() {
    let mut clock = HybridClock::after(100);
    assert_eq!(clock.tick(50), 101);
    assert_eq!(clock.tick(1_000), 1_000);
    assert_eq!(clock.tick(1_000), 1_001);
    assert!(clock.lift(5_000));
    assert_eq!(clock.tick(2_000), 5_001);
    assert!(clock.lift(10));
    assert_eq!(clock.tick(0), 5_002);
    assert!(!clock.lift(u64::MAX));
    assert_eq!(clock.tick(0), 5_003);
    assert!(i64::try_from(clock.tick(u64::MAX)).is_ok());
}
