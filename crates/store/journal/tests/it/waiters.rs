//! Waiting threads and tasks: each is woken with the result of its own group, or with the error,
//! and none waits for ever.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{DIR, options};
use env::files::{Failure, Fault, SimDisk};
use journal::{AppendError, Durability, Journal, Layout, Options};

/// Timeout that is longer than any test, but detects a hang.
const PATIENCE: Duration = Duration::from_mins(10);

fn threaded(disk: &SimDisk, layout: Layout) -> Options {
    Options { background: true, ..options(disk, layout) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

#[test]
fn failed_write_wakes_all_threads_and_tasks() {
    for call in [12, 13, 20, 35] {
        for layout in [Layout::Packed, Layout::Sparse, Layout::Ring] {
            let disk = SimDisk::new(call);
            // The segment is large, so that the failure does not occur while a segment is prepared.
            let large = Options { segment_bytes: 8 << 20, ..threaded(&disk, layout) };
            let (journal, _) = Journal::open(Path::new(DIR), large).unwrap();
            journal.append(b"first", Durability::Persist).unwrap();
            disk.fail(&[Fault { call: disk.calls() + call, failure: Failure::PowerCut }]);
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let journal = journal.clone();
                    thread::spawn(move || {
                        let append = || journal.append(&[1; 300], Durability::Persist);
                        (0..1000).find_map(|_| append().err())
                    })
                })
                .collect();
            let tasks = async {
                let mut tasks = Vec::new();
                for _ in 0..16 {
                    let journal = journal.clone();
                    tasks.push(tokio::spawn(async move {
                        loop {
                            let records = vec![vec![2; 300]];
                            if let Err(e) = journal.append_async(records, Durability::Persist).await
                            {
                                return e;
                            }
                        }
                    }));
                }
                let mut errors = Vec::new();
                for task in tasks {
                    errors.push(task.await.unwrap());
                }
                errors
            };
            let errors = runtime().block_on(async { tokio::time::timeout(PATIENCE, tasks).await });
            let mut errors = errors.unwrap_or_else(|_| panic!("{layout:?} call={call}: a hang"));
            errors.extend(threads.into_iter().filter_map(|t| t.join().unwrap()));
            assert!(errors.iter().all(|e| matches!(e, AppendError::Poisoned(_))), "{errors:?}");
            assert!(matches!(journal.persist(), Err(AppendError::Poisoned(_))));
            assert!(journal.stats().poisoned.is_some());
            let mut reader = journal.read_from(journal.persisted_position() + 1).unwrap();
            assert!(reader.next_within(PATIENCE).is_none(), "a reader waits for a dead journal");
        }
    }
}

#[test]
fn appends_above_the_in_flight_limit_wait_and_complete() {
    let disk = SimDisk::new(1);
    let few = Options { in_flight_bytes_max: 1000, ..threaded(&disk, Layout::Packed) };
    let (journal, _) = Journal::open(Path::new(DIR), few).unwrap();
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for t in 0..32u8 {
            let journal = journal.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let records = vec![vec![t; 400]];
                    journal.append_async(records, Durability::Persist).await.unwrap();
                    assert!(journal.stats().in_flight_bytes <= 2 * 1000);
                }
            }));
        }
        for task in tasks {
            tokio::time::timeout(PATIENCE, task).await.expect("a hang").unwrap();
        }
    });
    assert_eq!(journal.persisted_position(), 320);
    let stats = journal.stats();
    assert!(stats.groups >= 160 && stats.payload_bytes == 320 * 400, "{stats:?}");
}

#[test]
fn append_above_the_in_flight_limit_is_accepted_alone() {
    let disk = SimDisk::new(1);
    let few = Options { in_flight_bytes_max: 1000, ..threaded(&disk, Layout::Sparse) };
    let (journal, _) = Journal::open(Path::new(DIR), few).unwrap();
    journal.append(b"first", Durability::Persist).unwrap();
    assert_eq!(journal.append(&[1; 5000], Durability::Persist).unwrap().blocks, 2);
}

#[test]
fn dropped_append_futures_still_append_and_block_no_others() {
    let disk = SimDisk::new(1);
    let (journal, _) = Journal::open(Path::new(DIR), threaded(&disk, Layout::Packed)).unwrap();
    for n in 0..100u8 {
        let mut append = pin!(journal.append_async(vec![vec![n]], Durability::Persist));
        let mut context = Context::from_waker(Waker::noop());
        let _ = append.as_mut().poll(&mut context);
    }
    let outcome = journal.append(b"last", Durability::Persist).unwrap();
    assert_eq!(outcome.position, 101);
    assert_eq!(journal.read_from(1).unwrap().count(), 101);
}

#[test]
fn append_async_completes_without_background_threads() {
    let disk = SimDisk::new(1);
    let (journal, _) = Journal::open(Path::new(DIR), options(&disk, Layout::Packed)).unwrap();
    let mut append = pin!(journal.append_async(vec![vec![1], vec![2]], Durability::Persist));
    let polled = append.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(outcome)) = polled else { panic!("{polled:?}") };
    assert_eq!((outcome.first, outcome.position, outcome.group_records), (1, 2, 2));
}

#[test]
fn close_completes_appends_and_wakes_followers() {
    for _ in 0..20 {
        let disk = SimDisk::new(1);
        let (journal, _) = Journal::open(Path::new(DIR), threaded(&disk, Layout::Packed)).unwrap();
        let follower = {
            let mut reader = journal.read_from(1).unwrap();
            thread::spawn(move || {
                let mut seen = 0;
                while reader.next_within(PATIENCE).is_some_and(|r| r.is_ok()) {
                    seen += 1;
                }
                seen
            })
        };
        let journal = Arc::new(journal);
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let journal = Arc::clone(&journal);
                thread::spawn(move || {
                    let append = |_: &u32| journal.append(b"x", Durability::Persist).is_ok();
                    (0..10_000).take_while(append).count()
                })
            })
            .collect();
        while journal.persisted_position() < 20 {
            thread::yield_now();
        }
        Journal::clone(&journal).close().unwrap();
        let written: usize = writers.into_iter().map(|w| w.join().unwrap()).sum();
        assert!(written >= 20);
        assert!(follower.join().unwrap() <= written);
        let (_, recovery) = Journal::open(Path::new(DIR), threaded(&disk, Layout::Packed)).unwrap();
        assert_eq!((recovery.last_position, recovery.clean), (written as u64, true));
    }
}

#[test]
fn group_uses_the_highest_durability_of_its_members() {
    let disk = SimDisk::new(1);
    let (journal, _) = Journal::open(Path::new(DIR), options(&disk, Layout::Packed)).unwrap();
    let flushed = journal.append(b"flushed", Durability::Flush).unwrap();
    assert_eq!((flushed.flushes > 1, journal.persisted_position()), (true, 0));
    let again = journal.append(b"flushed", Durability::Flush).unwrap();
    assert_eq!((again.flushes, journal.persisted_position()), (0, 0));
    let persisted = journal.append(b"persisted", Durability::Persist).unwrap();
    assert_eq!((persisted.flushes, journal.persisted_position()), (1, 3));
}
