//! Cycles: which items are sent, and the effects of answers and failures.

use std::time::Duration;

use crate::common::{
    self, apply, base, baseline, changed, crash_image, cycle, cycle_skipping, delete_op, files,
    open, open_new, own, paths,
};
use model::{ItemKey, SkipReason};
use queue::{Body, QueueError, Skip};

#[test]
fn cycle_sends_each_item_once_in_table_order() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/b/2", 2), base("/b/1", 1), base("/a/1", 3), base("/", 4)]);
    let sent = cycle(&queue);
    let expected = [("/b/1", Some(1)), ("/b/2", Some(2)), ("/a/1", Some(3)), ("/", Some(4))];
    assert_eq!(sent, own(&expected));
    assert_eq!(cycle(&queue), []);
    apply(&queue, vec![changed("/b/2", 9)]);
    assert_eq!(cycle(&queue), own(&[("/b/2", Some(9))]));
}

#[test]
fn lease_respects_byte_budget_but_returns_at_least_one_item() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, (0..20).map(|n| base(&format!("/a/{n:02}"), n)).collect());
    queue.begin_cycle(&files()).unwrap();
    let one = queue.lease(&files(), 1).unwrap().unwrap();
    assert_eq!(one.items().len(), 1);
    let mut many = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(many.items().len(), 20);
    many.truncate(5);
    queue.ack(many, &[]).unwrap();
    let rest = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(paths(&rest).first(), Some(&("/a/05".to_owned(), Some(5))));
    assert_eq!(rest.items().len(), 15);
}

#[test]
fn returned_lease_and_restart_lose_nothing() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2), base("/a/3", 3)]);
    cycle(&queue);
    apply(&queue, vec![changed("/a/1", 10), delete_op("/a/2"), changed("/a/3", 30)]);
    queue.begin_cycle(&files()).unwrap();
    let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    let sent = paths(&lease);
    assert_eq!(sent, own(&[("/a/1", Some(10)), ("/a/2", None), ("/a/3", Some(30))]));
    queue.return_(lease);
    let mut again = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(paths(&again), sent);
    again.truncate(1);
    queue.ack(again, &[]).unwrap();

    let (_image, copy) = crash_image(&path);
    let (queue, report) = open(&copy, &clock);
    assert!(report.unclean && report.needs_check());
    assert!(queue.begin_cycle(&files()).unwrap().resumed);
    let rest = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(paths(&rest), own(&[("/a/2", None), ("/a/3", Some(30))]));
    assert_eq!(queue.ack(rest, &[]).unwrap().removed, 1);
    queue.end_cycle(&files()).unwrap();
    assert_eq!(queue.status().unwrap().datasets[0].items, 2);
}

#[test]
fn lease_acked_twice_or_after_its_cycle_is_stale() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    assert!(matches!(queue.lease(&files(), 1), Err(QueueError::NoCycle { .. })));
    queue.begin_cycle(&files()).unwrap();
    let lease = queue.lease(&files(), 1).unwrap().unwrap();
    queue.ack(lease.clone(), &[]).unwrap();
    assert!(matches!(queue.ack(lease, &[]), Err(QueueError::StaleLease { .. })));
    let late = queue.lease(&files(), 1).unwrap().unwrap();
    assert!(matches!(queue.end_cycle(&files()), Err(QueueError::CycleUnfinished { .. })));
    queue.ack(late.clone(), &[]).unwrap();
    queue.end_cycle(&files()).unwrap();
    queue.begin_cycle(&files()).unwrap();
    assert!(matches!(queue.ack(late, &[]), Err(QueueError::StaleLease { .. })));
}

#[test]
fn item_changed_during_a_cycle_is_sent_now_and_again() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    queue.begin_cycle(&files()).unwrap();
    let first = queue.lease(&files(), 1).unwrap().unwrap();
    // One change before the cursor, one after it.
    apply(&queue, vec![changed("/a/1", 10), changed("/a/2", 20)]);
    queue.ack(first, &[]).unwrap();
    let second = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(paths(&second), own(&[("/a/2", Some(20))]));
    queue.ack(second, &[]).unwrap();
    queue.end_cycle(&files()).unwrap();
    assert_eq!(cycle(&queue), own(&[("/a/1", Some(10)), ("/a/2", Some(20))]));
    assert_eq!(cycle(&queue), []);
}

#[test]
fn directory_created_during_cycle_is_sent_by_next_one() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    queue.begin_cycle(&files()).unwrap();
    apply(&queue, vec![base("/new/1", 2)]);
    let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(paths(&lease), own(&[("/a/1", Some(1))]));
    queue.ack(lease, &[]).unwrap();
    assert!(queue.lease(&files(), usize::MAX).unwrap().is_none());
    queue.end_cycle(&files()).unwrap();
    assert_eq!(cycle(&queue), own(&[("/new/1", Some(2))]));
}

/// Greater names are inserted after the cursor, twice as fast as items are sent.
#[test]
fn cycle_ends_when_items_are_created_faster_than_it_sends() {
    let (_folder, _, _, queue) = open_new();
    let name = |n: u64| format!("/a/{n:06}");
    apply(&queue, (1..=30).map(|n| base(&name(n), n)).collect());
    queue.begin_cycle(&files()).unwrap();
    let (mut told, mut newest) = (Vec::new(), 30);
    while let Some(lease) = queue.lease(&files(), 6000).unwrap() {
        let born = newest + 1..=newest + 2 * lease.items().len() as u64;
        newest = *born.end();
        apply(&queue, born.map(|n| base(&name(n), n)).collect());
        // A change before the cursor waits for the next cycle.
        apply(&queue, vec![changed(&name(1), newest)]);
        told.extend(paths(&lease));
        assert!(told.len() <= 30, "it does not end");
        queue.ack(lease, &[]).unwrap();
    }
    queue.end_cycle(&files()).unwrap();
    assert_eq!(told, (1..=30).map(|n| (name(n), Some(n))).collect::<Vec<_>>());
    let rest = cycle(&queue);
    assert_eq!(rest.first(), Some(&(name(1), Some(newest))));
    assert_eq!(rest[1..], (31..=newest).map(|n| (name(n), Some(n))).collect::<Vec<_>>());
    assert_eq!(cycle(&queue), []);
}

/// Items that exist for less than a cycle, such as spool files, do not delay it either.
#[test]
fn cycle_ends_when_new_items_change_or_are_deleted_again() {
    let (_folder, _, _, queue) = open_new();
    let name = |n: u64| format!("/a/{n:06}");
    apply(&queue, (1..=30).map(|n| base(&name(n), n)).collect());
    queue.begin_cycle(&files()).unwrap();
    let (mut told, mut newest) = (Vec::new(), 30);
    while let Some(lease) = queue.lease(&files(), 6000).unwrap() {
        let born = newest + 1..=newest + 2 * lease.items().len() as u64;
        newest = *born.end();
        apply(&queue, born.clone().map(|n| base(&name(n), n)).collect());
        let touch = |n: u64| {
            if n.is_multiple_of(2) { changed(&name(n), n + 1) } else { delete_op(&name(n)) }
        };
        apply(&queue, born.map(touch).collect());
        told.extend(paths(&lease));
        assert!(told.len() <= 30, "it does not end");
        queue.ack(lease, &[]).unwrap();
    }
    queue.end_cycle(&files()).unwrap();
    assert_eq!(told, (1..=30).map(|n| (name(n), Some(n))).collect::<Vec<_>>());
    // The same between two cycles.
    apply(&queue, vec![delete_op(&name(newest))]);
    let left = (31..newest).filter(|n| n.is_multiple_of(2)).map(|n| (name(n), Some(n + 1)));
    assert_eq!(cycle(&queue), left.collect::<Vec<_>>(), "nobody was told of the others");
    assert_eq!(cycle(&queue), []);
}

/// The item is sent in its present state in every cycle.
#[test]
fn item_changing_faster_than_a_cycle_is_sent_by_every_cycle() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    let mut content = 10;
    for _ in 0..3 {
        content += 1;
        apply(&queue, vec![base("/a/1", content), base("/a/born", content)]);
        queue.begin_cycle(&files()).unwrap();
        apply(&queue, vec![base("/a/born", content + 1)]);
        let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
        assert!(paths(&lease).contains(&("/a/born".to_owned(), Some(content + 1))));
        queue.ack(lease, &[]).unwrap();
        queue.end_cycle(&files()).unwrap();
    }
}

#[test]
fn delete_after_the_cycle_is_sent_for_item_changed_within_it() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    queue.begin_cycle(&files()).unwrap();
    // It changed after the cycle began, but is sent by it, because it existed before.
    apply(&queue, vec![base("/a/2", 3)]);
    let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(lease.items().len(), 2);
    queue.ack(lease, &[]).unwrap();
    queue.end_cycle(&files()).unwrap();
    apply(&queue, vec![delete_op("/a/2")]);
    assert_eq!(cycle(&queue), own(&[("/a/2", None)]));
}

#[test]
fn unsent_item_is_deleted_without_a_tombstone() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/b/1", 1)]);
    apply(&queue, vec![delete_op("/a/1"), delete_op("/a/1"), delete_op("/nowhere/1")]);
    assert_eq!(baseline(&queue, "/a"), []);
    assert_eq!(cycle(&queue), own(&[("/b/1", Some(1))]));
    assert_eq!(queue.status().unwrap().datasets[0].items, 1);
}

#[test]
fn deleted_item_that_is_recreated_survives_the_tombstone_ack() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    cycle(&queue);
    apply(&queue, vec![delete_op("/a/1")]);
    assert_eq!(baseline(&queue, "/a"), []);
    queue.begin_cycle(&files()).unwrap();
    let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(lease.items().next().unwrap().body().unwrap(), Body::Gone);
    apply(&queue, vec![base("/a/1", 5)]);
    assert_eq!(queue.ack(lease, &[]).unwrap().removed, 0);
    queue.end_cycle(&files()).unwrap();
    assert_eq!(baseline(&queue, "/a"), [("1".to_owned(), 5)]);
    assert_eq!(cycle(&queue), own(&[("/a/1", Some(5))]));
}

#[test]
fn stale_item_is_resent_above_server_version() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    // The clock was an hour ahead when the server's version was assigned.
    let ahead = common::START_US + 3_600_000_000;
    let stale = Skip { index: 0, reason: SkipReason::Stale, version: ahead };
    cycle_skipping(&queue, &|_| vec![stale]);
    queue.begin_cycle(&files()).unwrap();
    let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert!(lease.items().next().unwrap().seen > ahead);
    queue.ack(lease, &[]).unwrap();
    queue.end_cycle(&files()).unwrap();
    queue.close().unwrap();
    // The clock stays above that version after a restart.
    clock.jump_to(common::START_US - 3_600_000_000);
    let (queue, _) = open(&path, &clock);
    apply(&queue, vec![base("/a/1", 2)]);
    queue.begin_cycle(&files()).unwrap();
    assert!(queue.lease(&files(), 1).unwrap().unwrap().items().next().unwrap().seen > ahead);
}

#[test]
fn version_above_limit_does_not_move_clock() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    let skip = Skip { index: 0, reason: SkipReason::Stale, version: u64::MAX };
    cycle_skipping(&queue, &|_| vec![skip]);
    apply(&queue, vec![base("/a/2", 1)]);
    queue.begin_cycle(&files()).unwrap();
    let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
    assert_eq!(paths(&lease), own(&[("/a/2", Some(1))]));
    assert!(lease.items().next().unwrap().seen < common::START_US + 1_000_000);
}

#[test]
fn refused_item_is_exception_until_it_changes() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    let refuse = Skip { index: 1, reason: SkipReason::TooLarge, version: 0 };
    cycle_skipping(&queue, &|_| vec![refuse]);
    let snapshot = queue.snapshot(&files()).unwrap();
    assert_eq!(snapshot.exceptions().len(), 1);
    assert_eq!(snapshot.exceptions()[0].key, ItemKey::of_path(b"/a/2"));
    assert_eq!(snapshot.exceptions()[0].reason, SkipReason::TooLarge);
    let mut told = Vec::new();
    snapshot
        .for_each(&mut |item| {
            told.push(item.key.path());
            Ok(())
        })
        .unwrap();
    assert_eq!(told, [b"/a/1"]);
    assert_eq!(cycle(&queue), []);
    assert_eq!(queue.status().unwrap().datasets[0].exceptions, 1);
    apply(&queue, vec![base("/a/2", 3)]);
    assert_eq!(queue.status().unwrap().datasets[0].exceptions, 0);
    assert_eq!(cycle(&queue), own(&[("/a/2", Some(3))]));
}

#[test]
fn snapshot_is_immutable_and_lists_pending_keys() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    cycle(&queue);
    apply(&queue, vec![delete_op("/a/2"), base("/b/3", 3)]);
    let snapshot = queue.snapshot(&files()).unwrap();
    apply(&queue, vec![delete_op("/a/1")]);
    cycle(&queue);
    let mut told = Vec::new();
    let mut visit = |item: queue::ReportedItem| {
        told.push((item.key.path(), item.body.observation().unwrap().size));
        Ok(())
    };
    snapshot.for_each(&mut visit).unwrap();
    assert_eq!(told, [(b"/a/1".to_vec(), 1)]);
    let pending: Vec<_> = snapshot.pending().iter().map(ItemKey::path).collect();
    assert_eq!(pending, [b"/a/2", b"/b/3"]);
}

#[test]
fn resend_sends_items_again_and_returns_missing_keys() {
    let (_folder, _, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    cycle(&queue);
    clock.advance(Duration::from_secs(1));
    let keys = [ItemKey::of_path(b"/a/2"), ItemKey::of_path(b"/a/none")];
    assert_eq!(queue.resend(&files(), &keys).unwrap(), keys[1..]);
    assert_eq!(cycle(&queue), own(&[("/a/2", Some(2))]));
    queue.resend_all(&files()).unwrap();
    assert_eq!(cycle(&queue), own(&[("/a/1", Some(1)), ("/a/2", Some(2))]));
    assert_eq!(cycle(&queue), []);
}

#[test]
fn resend_all_restarts_an_interrupted_cycle() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    queue.begin_cycle(&files()).unwrap();
    let lease = queue.lease(&files(), 1).unwrap().unwrap();
    queue.ack(lease, &[]).unwrap();
    let old = queue.lease(&files(), 1).unwrap().unwrap();
    queue.resend_all(&files()).unwrap();
    assert!(matches!(queue.ack(old, &[]), Err(QueueError::StaleLease { .. })));
    assert_eq!(cycle(&queue), own(&[("/a/1", Some(1)), ("/a/2", Some(2))]));
}

#[test]
fn versions_increase_when_clock_is_set_back() {
    let (_folder, path, clock, queue) = open_new();
    let mut last = 0;
    let mut queue = queue;
    for (round, jump) in [0i64, -3_600, 7_200, -86_400, 10].into_iter().enumerate() {
        clock.jump_to((common::START_US as i64 + jump * 1_000_000) as u64);
        apply(&queue, vec![base("/a/1", round as u64), base("/a/2", round as u64)]);
        queue.begin_cycle(&files()).unwrap();
        let lease = queue.lease(&files(), usize::MAX).unwrap().unwrap();
        let seen: Vec<_> = lease.items().map(|item| item.seen).collect();
        assert!(seen[0] > last && seen[1] > seen[0], "{seen:?} after {last}");
        last = seen[1];
        queue.ack(lease, &[]).unwrap();
        queue.end_cycle(&files()).unwrap();
        queue.close().unwrap();
        queue = open(&path, &clock).0;
    }
}
