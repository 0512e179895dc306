//! The sink of a scan gathers changes, and commits at its limits and when it is flushed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, base, changed, delete_op, files, open_new, open_new_with};
use model::document::NoNames;
use model::{Op, Sink};
use proptest::prelude::*;
use queue::{Queue, QueueOptions, Transaction};

fn items(queue: &Queue) -> u64 {
    queue.status().unwrap().datasets.first().map_or(0, |d| d.items)
}

fn scan_sink(queue: &Queue) -> queue::ScanSink {
    queue.scan_sink(&files(), Arc::new(NoNames)).unwrap()
}

#[test]
fn gathered_changes_are_committed_by_the_flush() {
    let (_folder, _, _, queue) = open_new();
    let mut sink = scan_sink(&queue);
    let kept = sink.apply(&mut vec![base("/a/1", 1), changed("/a/2", 2)]).unwrap();
    assert_eq!((kept.items, items(&queue)), (0, 0));
    let done = sink.flush().unwrap();
    assert_eq!((done.items, done.events, items(&queue)), (2, 1, 2));
    assert_eq!(sink.flush().unwrap().items, 0);
}

#[test]
fn ordered_group_commits_early_and_scattered_group_grows() {
    let (_folder, _, _, queue) = open_new();
    let path = |n: u64| format!("/d{:02}/{n:05}", n % 32);
    let ordered: Vec<Op> =
        (0..32u64).flat_map(|d| (0..300u64).map(move |n| base(&path(n * 32 + d), 1))).collect();
    let count = ordered.len() as u64;
    let mut sink = scan_sink(&queue);
    let mut committed = 0;
    for batch in ordered.chunks(1000) {
        committed += sink.apply(&mut batch.to_vec()).unwrap().items;
    }
    assert!((8192..count).contains(&committed), "{committed}");
    sink.flush().unwrap();
    assert_eq!(items(&queue), count);
    let mut scattered: Vec<Op> = (0..count).map(|n| base(&path(n), 2)).collect();
    assert_eq!(sink.apply(&mut scattered).unwrap().items, 0);
    assert_eq!(sink.flush().unwrap().items, count);
}

#[test]
fn scan_group_is_committed_after_one_second() {
    let (_folder, _, clock, queue) = open_new();
    let mut sink = scan_sink(&queue);
    sink.apply(&mut vec![base("/a/1", 1)]).unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(sink.apply(&mut vec![base("/a/2", 1)]).unwrap().items, 2);
}

#[test]
fn per_event_scan_sink_commits_without_gathering() {
    let options = QueueOptions { transaction: Transaction::PerEvent, ..QueueOptions::default() };
    let (_folder, _, _, queue) = open_new_with(&options);
    let mut sink = scan_sink(&queue);
    assert_eq!(sink.apply(&mut vec![base("/a/1", 1), base("/a/2", 1)]).unwrap().items, 2);
}

#[test]
fn failed_scan_group_is_dropped_with_an_error() {
    let (_folder, _, _, queue) = open_new();
    let mut sink = scan_sink(&queue);
    sink.apply(&mut vec![base("/a/1", 1)]).unwrap();
    queue.close().unwrap();
    assert!(sink.flush().is_err());
    assert_eq!(sink.flush().unwrap().items, 0);
}

fn any_op() -> impl Strategy<Value = Op> {
    (0u64..6, 0u64..5, 0u64..40).prop_map(|(what, directory, n)| {
        let path = format!("/d{directory}/{:02}", n % 8);
        match what {
            0 => delete_op(&path),
            1 => Op::Touch {
                key: model::ItemKey::of_path(path.as_bytes()),
                observation: common::file(n),
            },
            2 | 3 => changed(&path, n),
            _ => base(&path, n),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// A group of many steps, some of them on the same item, has the same result as the single
    /// steps.
    #[test]
    fn grouped_steps_equal_single_steps(
        ops in prop::collection::vec(any_op(), 1..80),
        before in prop::collection::vec(any_op(), 0..40),
    ) {
        let (_folder, _, _, one) = open_new();
        let (_folder2, _, _, many) = open_new();
        for queue in [&one, &many] {
            let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
            sink.apply(&mut before.clone()).unwrap();
            common::cycle(queue);
        }
        let mut sink = one.sink(&files(), Arc::new(NoNames)).unwrap();
        for op in &ops {
            sink.apply(&mut vec![op.clone()]).unwrap();
        }
        let mut sink = scan_sink(&many);
        sink.apply(&mut ops.clone()).unwrap();
        sink.flush().unwrap();
        prop_assert_eq!(pending_items(&one), pending_items(&many));
        prop_assert_eq!(one.status().unwrap().events, many.status().unwrap().events);
        prop_assert_eq!(items(&one), items(&many));
    }
}

/// Returns every pending item as (path, size), where the size of a deleted item is `None`.
fn pending_items(queue: &Queue) -> Vec<(String, Option<u64>)> {
    queue.begin_cycle(&files()).unwrap();
    let mut found = Vec::new();
    while let Some(lease) = queue.lease(&files(), usize::MAX).unwrap() {
        found.extend(common::paths(&lease));
        queue.ack(lease, &[]).unwrap();
    }
    found.sort();
    found
}
