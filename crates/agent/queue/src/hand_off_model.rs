//! A loom model of producers and a sender that leases, acknowledges and returns, in every
//! interleaving (`make loom`).
//!
//! In addition to the [`WriterQueue`], threads share the writer, which is held from the first read
//! of a transaction until the catalog mirrors its commit; the database, of which a reader sees
//! whole commits only; and the catalog, which is read without the writer. The steps are those of
//! `submit.rs` (`commit_line`), `transact.rs` (`transact`) and `cycle.rs` (`begin_cycle`, `lease`,
//! `ack`, `end_cycle`) in their order. The writer queue, the catalog and the transitions are the
//! real ones. A commit of SQLite is modelled by replacing a map. If a cycle began without the
//! writer, or if the writer were released before the catalog is updated, this model would lose an
//! item.
//!
//! Checked: every event arrives once, and the events of one producer in their order. No version
//! decreases. The items that a cycle began with are sent by it, and not again. An item that was
//! created and deleted before a cycle could send it is not sent as deleted. In the end the server
//! holds what the database holds.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use loom::sync::{Arc, Mutex, RwLock};
use loom::thread;
use model::Dataset;

use crate::catalog::{Catalog, Delta};
use crate::place::BlockPlace;
use crate::transition::{HybridClock, ItemMarks, acknowledge, delete, put};
use writers::WriterQueue;

/// The only dataset and its only directory.
const DATASET: i64 = 1;
const DIRECTORY: i64 = 1;
const BLOCK: BlockPlace = BlockPlace { dataset: DATASET, directory: DIRECTORY, block: 0 };
/// Most preemptions in one interleaving; a soak test allows one more. Three are enough for a lost
/// wake-up or a late update of the catalog, and keep the run at seconds instead of hours.
const PREEMPTIONS_MAX: usize = 3;

type Name = &'static str;

/// A change to commit: the item is written or deleted, with an event of this number.
#[derive(Debug, Clone, Copy)]
struct Change {
    name: Name,
    gone: bool,
    event: u32,
}

/// The content of the database.
#[derive(Debug, Clone, Default)]
struct Database {
    items: BTreeMap<Name, ItemMarks>,
    events: Vec<u32>,
}

/// Leased items in the order of names, and the cursor that the lease began at.
struct Lease {
    cycle: u64,
    from: Vec<u8>,
    items: Vec<(Name, ItemMarks)>,
}

#[derive(Default)]
struct Queue {
    line: WriterQueue<Change, ()>,
    writer: Mutex<HybridClock>,
    database: Mutex<Database>,
    catalog: RwLock<Catalog>,
}

impl Queue {
    /// Returns a queue with these items, all acknowledged.
    fn holding(names: &[Name]) -> Self {
        let queue = Self::default();
        let mut delta = Delta::default();
        let mut database = Database::default();
        let mut clock = HybridClock::default();
        delta.created.insert((DATASET, b"/d".to_vec()), DIRECTORY);
        for name in names {
            let version = clock.tick(0);
            let row = ItemMarks { version, server_may_have: false, deleted: false };
            database.items.insert(*name, row);
            delta.touch(BLOCK, version, 1);
        }
        let mut catalog = Catalog::default();
        catalog.add_dataset(DATASET, Dataset::new("d"));
        catalog.apply(delta);
        let head = &mut catalog.datasets.get_mut(&DATASET).unwrap().head;
        head.marks = head.marks.begin_cycle(clock.last()).end();
        *queue.writer.lock().unwrap() = clock;
        *queue.database.lock().unwrap() = database;
        *queue.catalog.write().unwrap() = catalog;
        queue
    }

    fn submit(&self, change: Change) {
        let answer = self.line.submit(change, 1, None, |changes| self.commit(&changes));
        assert_eq!(answer, Some(()));
    }

    fn commit(&self, changes: &[Change]) -> Vec<()> {
        let mut clock = self.writer.lock().unwrap();
        let mut after = self.database.lock().unwrap().clone();
        let mut delta = Delta::default();
        {
            let catalog = self.catalog.read().unwrap();
            let marks = catalog.datasets[&DATASET].head.marks;
            for change in changes {
                let old = after.items.get(change.name).copied();
                let seen = clock.tick(0);
                let new = if change.gone {
                    delete(old, marks, seen)
                } else {
                    Some(put(old, marks, seen))
                };
                let rows = i64::from(new.is_some()) - i64::from(old.is_some());
                match new {
                    Some(row) => after.items.insert(change.name, row),
                    None => after.items.remove(change.name),
                };
                delta.touch(BLOCK, seen, rows);
                after.events.push(change.event);
            }
        }
        *self.database.lock().unwrap() = after;
        self.catalog.write().unwrap().apply(delta);
        drop(clock);
        vec![(); changes.len()]
    }

    /// Begins a cycle. Returns the names of the present items.
    fn begin_cycle(&self) -> Vec<Name> {
        let clock = self.writer.lock().unwrap();
        let mut catalog = self.catalog.write().unwrap();
        let head = &mut catalog.datasets.get_mut(&DATASET).unwrap().head;
        if !head.marks.unfinished {
            head.marks = head.marks.begin_cycle(clock.last());
            head.cycle += 1;
            head.cursor = Default::default();
        }
        self.database.lock().unwrap().items.keys().copied().collect()
    }

    /// Leases one item at most.
    fn lease(&self) -> Option<Lease> {
        let (marks, cycle, from) = {
            let catalog = self.catalog.read().unwrap();
            let head = &catalog.datasets[&DATASET].head;
            (head.marks, head.cycle, head.cursor.name.clone())
        };
        let directory = self.catalog.read().unwrap().directory(DATASET, DIRECTORY).cloned();
        let stretches =
            directory.map(|held| held.newer(marks.acked_version, &from)).unwrap_or_default();
        if stretches.is_empty() {
            return None;
        }
        let seen = self.database.lock().unwrap().clone();
        let due =
            |(name, row): &(Name, ItemMarks)| name.as_bytes() >= &from[..] && marks.is_due(*row);
        let items: Vec<_> = seen.items.into_iter().filter(due).take(1).collect();
        (!items.is_empty()).then_some(Lease { cycle, from, items })
    }

    fn ack(&self, lease: &Lease) {
        let _clock = self.writer.lock().unwrap();
        let mut head = self.catalog.read().unwrap().datasets[&DATASET].head.clone();
        assert_eq!((head.cycle, &head.cursor.name), (lease.cycle, &lease.from), "a stale lease");
        let mut after = self.database.lock().unwrap().clone();
        let mut delta = Delta::default();
        for (name, sent) in &lease.items {
            head.cursor.name = [name.as_bytes(), &[0]].concat();
            let gone = sent.deleted
                && after
                    .items
                    .get(name)
                    .is_some_and(|row| acknowledge(*row, sent.version).is_none());
            if gone {
                after.items.remove(name);
                delta.touch(BLOCK, 0, -1);
            }
        }
        *self.database.lock().unwrap() = after;
        let mut catalog = self.catalog.write().unwrap();
        catalog.apply(delta);
        catalog.datasets.get_mut(&DATASET).unwrap().head = head;
    }

    fn end(&self) {
        let (marks, from) = {
            let catalog = self.catalog.read().unwrap();
            let head = &catalog.datasets[&DATASET].head;
            (head.marks, head.cursor.name.clone())
        };
        let none_left = |database: &Database| {
            let ahead = database.items.iter().filter(|(name, _)| name.as_bytes() >= &from[..]);
            for (name, row) in ahead {
                assert!(
                    !marks.is_pending(*row) || row.version > marks.leased_version,
                    "{name} is left over"
                );
            }
        };
        none_left(&self.database.lock().unwrap().clone());
        let _clock = self.writer.lock().unwrap();
        // No item of the cycle was added in between.
        none_left(&self.database.lock().unwrap().clone());
        let mut catalog = self.catalog.write().unwrap();
        let head = &mut catalog.datasets.get_mut(&DATASET).unwrap().head;
        head.marks = head.marks.end();
        head.cursor = Default::default();
    }

    /// Sends all queued events in one session.
    fn report_events(&self, server: &mut Server) {
        let lease = self.database.lock().unwrap().events.clone();
        server.events.extend(&lease);
        let _clock = self.writer.lock().unwrap();
        let mut after = self.database.lock().unwrap().clone();
        after.events.drain(..lease.len());
        *self.database.lock().unwrap() = after;
    }
}

#[derive(Default)]
struct Server {
    documents: BTreeMap<Name, ItemMarks>,
    events: Vec<u32>,
    /// Items and versions that a cycle began with and sent.
    settled: BTreeSet<(Name, u64)>,
    /// Names that a cycle began with.
    began_with: BTreeSet<Name>,
}

impl Server {
    fn take(&mut self, lease: &Lease) {
        for (name, row) in &lease.items {
            assert!(!self.settled.contains(&(*name, row.version)), "{name} sent again");
            let before = self.documents.insert(*name, *row);
            assert!(before.is_none_or(|before| before.version <= row.version), "{name} went back");
            assert!(
                !row.deleted || self.began_with.contains(name),
                "{name} came and went in between"
            );
        }
    }
}

/// Runs a cycle. With `lose`, the answer to its first session is lost.
fn cycle(queue: &Queue, server: &mut Server, mut lose: bool) {
    server.began_with.extend(queue.begin_cycle());
    let leased = queue.catalog.read().unwrap().datasets[&DATASET].head.marks.leased_version;
    while let Some(lease) = queue.lease() {
        server.take(&lease);
        if mem::take(&mut lose) {
            continue;
        }
        queue.ack(&lease);
        let began_with = lease.items.iter().filter(|(_, row)| row.version <= leased);
        server.settled.extend(began_with.map(|(name, row)| (*name, row.version)));
    }
    queue.end();
    queue.report_events(server);
}

/// Runs two producers concurrently with a cycle, then sends the remaining changes and checks the
/// result.
fn race(names: &'static [Name], first: &[Change], second: &[Change], lose: bool) {
    let (first, second) = (first.to_vec(), second.to_vec());
    let mut builder = loom::model::Builder::new();
    let soak = std::env::var_os("HOLDFAST_SOAK").is_some();
    builder.preemption_bound = Some(PREEMPTIONS_MAX + usize::from(soak));
    builder.check(move || {
        let queue = Arc::new(Queue::holding(names));
        let producers: Vec<_> = [first.clone(), second.clone()]
            .into_iter()
            .map(|changes| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || changes.iter().for_each(|change| queue.submit(*change)))
            })
            .collect();
        let mut server = Server::default();
        cycle(&queue, &mut server, lose);
        for producer in producers {
            producer.join().unwrap();
        }
        cycle(&queue, &mut server, false);
        cycle(&queue, &mut server, false);
        let database = queue.database.lock().unwrap().clone();
        assert!(database.events.is_empty() && database.items.values().all(|row| !row.deleted));
        for change in first.iter().chain(&second) {
            let acked = server.documents.get(change.name).filter(|row| !row.deleted);
            let held = database.items.get(change.name);
            assert_eq!(
                acked.map(|row| row.version),
                held.map(|row| row.version),
                "{}",
                change.name
            );
        }
        for changes in [&first, &second] {
            let own: Vec<u32> = changes.iter().map(|change| change.event).collect();
            let received: Vec<u32> =
                server.events.iter().copied().filter(|event| own.contains(event)).collect();
            assert_eq!(received, own, "each event once, in its order");
        }
    });
}

const fn there(name: Name, event: u32) -> Change {
    Change { name, gone: false, event }
}

const fn delete_change(name: Name, event: u32) -> Change {
    Change { name, gone: true, event }
}

#[test]
fn change_and_create_during_a_cycle_are_each_reported_once() {
    race(&["a", "z"], &[there("a", 1)], &[there("b", 2)], false);
}

#[test]
fn delete_and_recreate_survive_a_cycle_with_a_lost_session() {
    race(&["a", "z"], &[delete_change("a", 1)], &[there("a", 2)], true);
}

#[test]
fn two_changes_by_one_producer_race_with_another_producer() {
    race(&["a", "z"], &[there("a", 1), delete_change("a", 2)], &[there("z", 3)], false);
}

#[test]
fn short_lived_item_is_reported_deleted_only_if_it_was_sent() {
    race(&["a", "z"], &[there("b", 1), delete_change("b", 2)], &[there("b", 3)], true);
}
