use super::*;

fn row(version: u64) -> ItemMarks {
    ItemMarks { version, server_may_have: false, deleted: false }
}

/// Acknowledged up to 10; a cycle up to 20 is running or was interrupted.
const CYCLE: Marks =
    Marks { leased_version: 20, acked_version: 10, opened_version: 10, unfinished: true };
/// Acknowledged up to 20; opened with 25 as the highest version.
const QUIET: Marks =
    Marks { leased_version: 20, acked_version: 20, opened_version: 25, unfinished: false };

#[test]
fn change_of_an_acknowledged_item_is_pending() {
    let new = put(Some(row(15)), QUIET, 30);
    assert_eq!(new, ItemMarks { version: 30, server_may_have: true, deleted: false });
    assert!(QUIET.is_pending(new) && !QUIET.is_pending(row(20)));
}

#[test]
fn row_up_to_mark_or_open_may_have_been_sent() {
    assert!(!QUIET.may_have_been_sent(row(26)));
    // Its version is above the mark, but a cycle of which this database has no record may have sent
    // it.
    assert!(QUIET.may_have_been_sent(row(25)));
    assert!(CYCLE.may_have_been_sent(row(20)) && !CYCLE.may_have_been_sent(row(21)));
    assert!(QUIET.may_have_been_sent(ItemMarks { server_may_have: true, ..row(99) }));
}

#[test]
fn cycle_leases_older_items_and_their_changes_but_no_new_item() {
    assert!(!CYCLE.is_due(row(10)) && CYCLE.is_due(row(11)) && CYCLE.is_due(row(20)));
    let born = put(None, CYCLE, 21);
    assert!(CYCLE.is_pending(born) && !CYCLE.is_due(born));
    assert!(CYCLE.end().begin_cycle(21).is_due(born), "it is the next one's");
    assert!(CYCLE.is_due(put(Some(row(15)), CYCLE, 22)));
    assert_eq!(delete(Some(row(15)), CYCLE, 22).map(|gone| CYCLE.is_due(gone)), Some(true));
    assert!(!CYCLE.is_due(put(Some(born), CYCLE, 23)), "nor once it has changed");
    assert_eq!(delete(Some(born), CYCLE, 24), None, "nor once it has gone");
}

#[test]
fn delete_is_reported_only_for_items_from_before_the_open() {
    let born = put(None, CYCLE, 21);
    let opened = CYCLE.open(30);
    assert!(!opened.is_due(born), "the cycle that goes on does not hand it out");
    assert_eq!(
        delete(Some(born), opened, 31),
        Some(ItemMarks { version: 31, server_may_have: true, deleted: true })
    );
    assert_eq!(delete(Some(put(None, opened, 31)), opened, 32), None);
    assert_eq!(opened.end().opened_version, 30);
    assert_eq!(opened.open(25).opened_version, 30, "never back");
}

#[test]
fn delete_removes_unsent_row_and_reports_sent_one() {
    assert_eq!(delete(None, QUIET, 30), None);
    assert_eq!(delete(Some(row(26)), QUIET, 30), None);
    let gone = ItemMarks { version: 30, server_may_have: true, deleted: true };
    assert_eq!(delete(Some(row(25)), QUIET, 30), Some(gone));
    // Deleted twice: the first version is kept.
    assert_eq!(delete(Some(gone), QUIET, 40), Some(gone));
}

#[test]
fn acknowledgement_removes_only_the_version_it_carried() {
    let gone = ItemMarks { version: 30, server_may_have: true, deleted: true };
    assert_eq!(acknowledge(gone, 30), None);
    assert_eq!(acknowledge(gone, 29), Some(gone));
    assert_eq!(acknowledge(row(30), 30), Some(row(30)));
}

#[test]
fn touch_reports_nothing_of_an_existing_item() {
    assert_eq!(touch(Some(row(5))), Some(row(5)));
    assert_eq!(touch(None), None);
    assert_eq!(touch(Some(ItemMarks { deleted: true, ..row(5) })), None);
}

#[test]
fn resumed_cycle_keeps_its_leased_version() {
    assert_eq!(CYCLE.begin_cycle(99), CYCLE);
    let begun = QUIET.begin_cycle(99);
    assert_eq!(
        begun,
        Marks { leased_version: 99, acked_version: 20, opened_version: 25, unfinished: true }
    );
    assert_eq!(
        begun.end(),
        Marks { leased_version: 99, acked_version: 99, opened_version: 25, unfinished: false }
    );
}

#[test]
fn hybrid_clock_values_are_unique_and_increasing() {
    let mut clock = HybridClock::after(100);
    assert_eq!(clock.tick(50), 101);
    assert_eq!(clock.tick(1_000), 1_000);
    assert_eq!(clock.tick(1_000), 1_001);
    assert_eq!(clock.lift(5_000), LiftOutcome::Done);
    assert_eq!(clock.tick(2_000), 5_001);
    assert_eq!(clock.lift(10), LiftOutcome::Done);
    assert_eq!(clock.tick(0), 5_002);
    assert_eq!(clock.lift(u64::MAX), LiftOutcome::Refused);
    assert_eq!(clock.tick(0), 5_003);
    assert!(i64::try_from(clock.tick(u64::MAX)).is_ok());
}
