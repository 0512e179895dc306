//! The time and the content of the answer to a submit.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use model::{AgentId, Incarnation, Position, Record, SkipReason};

use super::{DataFolder, document, event_ids, one, session};
use crate::CommitError;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_submits_share_flushes_and_transactions() {
    let place = DataFolder::new();
    let open = place.open();
    let tasks: Vec<_> = (0..400)
        .map(|n| {
            let commit = open.commit.clone();
            tokio::spawn(async move { commit.submit(one(&format!("s-{n}"))).await.unwrap() })
        })
        .collect();
    let mut positions = BTreeSet::new();
    for task in tasks {
        let committed = task.await.unwrap();
        assert_eq!(committed.applied.changed, 2);
        positions.insert(committed.position.0);
    }
    assert_eq!(positions, (1..=400).collect());
    assert_eq!(open.state.applied().unwrap(), Position(400));
    let stats = open.commit.stats();
    assert_eq!((stats.records, stats.applied, stats.in_flight_bytes), (400, Position(400), 0));
    assert!(stats.batches < 400, "batches={}", stats.batches);
    assert!(stats.journal_flushes < 400, "flushes={}", stats.journal_flushes);
    assert!(stats.journal_bytes > stats.record_bytes, "{stats:?}");
}

#[tokio::test]
async fn submit_returns_the_result_of_applying() {
    let place = DataFolder::new();
    let open = place.open();
    open.commit.submit(session(1, "a", vec![document("x", 5)])).await.unwrap();
    let committed = open.commit.submit(session(1, "b", vec![document("x", 4)])).await.unwrap();
    assert_eq!(committed.position, Position(2));
    let skipped = &committed.applied.skipped[0];
    assert_eq!((skipped.reason, skipped.version), (SkipReason::Stale, 5));
    let removed = Record::AgentRemoved { agent: AgentId(1), incarnation: Incarnation(1), at_us: 3 };
    let commit = open.commit.clone();
    let committed =
        tokio::task::spawn_blocking(move || commit.submit_blocking(removed)).await.unwrap();
    assert_eq!(committed.unwrap().applied.changed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_submit_futures_still_apply_their_records() {
    let place = DataFolder::new();
    let open = place.open();
    for n in 0..50 {
        let name = format!("left-{n}");
        let mut left = pin!(open.commit.submit(one(&name)));
        let mut context = Context::from_waker(Waker::noop());
        let first: Poll<Result<_, CommitError>> = left.as_mut().poll(&mut context);
        drop(first);
    }
    let stayed = open.commit.submit(one("stayed")).await.unwrap();
    let reached = open.commit.barrier().await.unwrap();
    assert!(reached >= stayed.position);
    open.commit.close().await.unwrap();
    let ids = event_ids(&open.state);
    assert_eq!(ids.len(), 51, "{ids:?}");
    assert!(ids.contains(&"stayed".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn barrier_waits_until_persisted_records_are_applied() {
    let place = DataFolder::new();
    let open = place.open();
    assert_eq!(open.commit.barrier().await.unwrap(), Position(0));
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let commit = open.commit.clone();
            tokio::spawn(async move { commit.submit(one(&format!("s-{n}"))).await })
        })
        .collect();
    for task in tasks {
        let position = task.await.unwrap().unwrap().position;
        assert!(open.commit.barrier().await.unwrap() >= position);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_answers_pending_submits_and_leaves_nothing_to_replay() {
    let place = DataFolder::new();
    let open = place.open();
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let commit = open.commit.clone();
            tokio::spawn(async move { commit.submit(one(&format!("s-{n}"))).await })
        })
        .collect();
    open.commit.close().await.unwrap();
    let mut answered = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => answered += 1,
            Err(error) => assert!(matches!(error, CommitError::Closed), "{error}"),
        }
    }
    assert!(matches!(open.commit.submit(one("late")).await, Err(CommitError::Closed)));
    assert_eq!(event_ids(&open.state).len(), answered);
    drop(open);
    let open = place.open();
    assert_eq!((open.report.records, open.report.to.0), (0, answered as u64));
}
