//! Several writers, a sender and a scanner run concurrently, in both durability modes. Every event
//! arrives exactly once, the events of each writer in their order, and the server equals the disk
//! in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, changed, delete_op, files, open_new_with};
use model::document::NoNames;
use model::{Baseline as _, EventBody, Sink as _};
use queue::{Queue, QueueDurability, QueueOptions, Transaction};

const WRITERS: u64 = 4;
const BATCHES: u64 = 58;
const ITEMS: u64 = 8;

/// Writes to the writer's own directory, with increasing content numbers.
fn write(queue: &Queue, writer: u64) {
    let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
    for batch in 0..BATCHES {
        let mut ops: Vec<_> = (0..ITEMS)
            .map(|item| changed(&format!("/{writer}/{item}"), 1 + batch * ITEMS + item))
            .collect();
        sink.apply(&mut ops).unwrap();
        if batch % 7 == 3 {
            // Deleted here, and created again by the next batch.
            let op = delete_op(&format!("/{writer}/{}", batch % ITEMS));
            sink.apply(&mut vec![op]).unwrap();
        }
    }
    sink.apply(&mut vec![delete_op(&format!("/{writer}/0"))]).unwrap();
}

#[derive(Default)]
struct Server {
    documents: BTreeMap<String, (u64, Option<u64>)>,
    events: Vec<(String, EventBody)>,
}

/// Runs sessions until everything was written and sent. The answer to every third one is lost.
fn send(queue: &Queue, written: &AtomicBool) -> Server {
    let mut server = Server::default();
    let mut ids = BTreeSet::new();
    let mut session = 0;
    loop {
        let last_round = written.load(Ordering::SeqCst);
        queue.begin_cycle(&files()).unwrap();
        while let Some(lease) = queue.lease(&files(), 12_000).unwrap() {
            session += 1;
            for (item, (path, size)) in lease.items().zip(common::paths(&lease)) {
                let held = server.documents.entry(path).or_default();
                assert!(item.seen >= held.0, "a version went back");
                *held = (item.seen, size);
            }
            if session % 3 == 1 {
                queue.return_(lease);
            } else {
                queue.ack(lease, &[]).unwrap();
            }
        }
        queue.end_cycle(&files()).unwrap();
        loop {
            let lease = queue.lease_events(50, usize::MAX).unwrap();
            if lease.items.is_empty() {
                break;
            }
            for event in &lease.items {
                assert!(ids.insert(event.id.clone()), "{} twice", event.id);
                let body = serde_json::from_slice(&event.body).unwrap();
                server.events.push((event.id.clone(), body));
            }
            let count = lease.items.len() as u64;
            assert_eq!(queue.ack_events(lease).unwrap(), count);
        }
        if last_round {
            return server;
        }
    }
}

/// Reads concurrently, as a scan, a check and a status command do.
fn read_concurrently(queue: &Queue) {
    let mut baseline = queue.baseline(&files()).unwrap();
    let mut items = Vec::new();
    for directory in baseline.directories_below(b"/").unwrap() {
        baseline.directory(&directory, &mut items).unwrap();
        assert!(items.len() as u64 <= ITEMS);
    }
    queue.snapshot(&files()).unwrap().for_each(&mut |_| Ok(())).unwrap();
    queue.status().unwrap();
}

/// Runs the race once, or repeatedly for a minute in a soak test.
fn race(options: &QueueOptions) {
    let least = match std::env::var("HOLDFAST_SOAK") {
        Ok(_) => Duration::from_mins(1),
        Err(_) => Duration::ZERO,
    };
    let start = Instant::now();
    loop {
        race_once(options);
        if start.elapsed() >= least {
            return;
        }
    }
}

fn race_once(options: &QueueOptions) {
    let (_folder, _, _, queue) = open_new_with(options);
    let written = AtomicBool::new(false);
    let server = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&queue, &written));
        let scanner = scope.spawn(|| {
            while !written.load(Ordering::SeqCst) {
                read_concurrently(&queue);
            }
        });
        let queue = &queue;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(queue, writer))).collect();
        for writer in writers {
            writer.join().unwrap();
        }
        written.store(true, Ordering::SeqCst);
        scanner.join().unwrap();
        sender.join().unwrap()
    });
    let deletes = (0..BATCHES).filter(|batch| batch % 7 == 3).count() as u64 + 1;
    assert_eq!(server.events.len() as u64, WRITERS * (BATCHES * ITEMS + deletes));
    for writer in 0..WRITERS {
        let directory = format!("/{writer}");
        let sizes: Vec<u64> = server
            .events
            .iter()
            .filter_map(|(_, event)| event.file.as_ref().map(|file| (event, file)))
            .filter(|(event, file)| file.directory == directory && event.event.action == "modified")
            .filter_map(|(_, file)| file.size)
            .collect();
        assert_eq!(sizes, (1..=BATCHES * ITEMS).collect::<Vec<_>>(), "order of {directory}");
        let held: Vec<_> = (0..ITEMS)
            .map(|item| server.documents.get(&format!("{directory}/{item}")).and_then(|d| d.1))
            .collect();
        let expected: Vec<_> =
            (0..ITEMS).map(|item| (item > 0).then(|| 1 + (BATCHES - 1) * ITEMS + item)).collect();
        assert_eq!(held, expected);
    }
    let status = queue.status().unwrap();
    assert_eq!((status.events, status.datasets[0].pending), (0, 0));
    assert_eq!(status.datasets[0].items, WRITERS * (ITEMS - 1));
}

#[test]
fn concurrent_writers_lose_and_duplicate_nothing() {
    race(&QueueOptions::default());
}

#[test]
fn shared_flush_loses_and_duplicates_nothing() {
    race(&QueueOptions { durability: QueueDurability::Power, ..QueueOptions::default() });
}

#[test]
fn group_window_loses_and_duplicates_nothing() {
    let window = Duration::from_millis(1);
    race(&QueueOptions { durability: QueueDurability::Power, window, ..QueueOptions::default() });
}

#[test]
fn per_event_transactions_lose_and_duplicate_nothing() {
    race(&QueueOptions { transaction: Transaction::PerEvent, ..QueueOptions::default() });
}
