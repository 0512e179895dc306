//! Model test with random operations, crashes, power cuts and clock jumps. At the end of a
//! successful cycle the server equals the disk, every committed event arrived exactly once and in
//! order, no version decreased, and no delete was sent for an item that no cycle could have sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, START_US, change, file, files, with_suffix};
use env::clock::ManualClock;
use model::document::NoNames;
use model::{Baseline as _, BaselineItem, ChangeKind, ItemKey, Op, Sink as _, SkipReason};
use proptest::prelude::*;
use queue::{Lease, Queue, QueueError, QueueOptions, Skip, Transaction};

const KEYS: [&str; 7] = ["/a/1", "/a/2", "/a/3", "/b/1", "/b/c/1", "/d/1", "/x"];

#[derive(Debug, Clone)]
enum Step {
    /// Write these files, or create them. With `true`, each with an event.
    Write(Vec<usize>, bool),
    Delete(Vec<usize>),
    Touch(usize),
    /// Begin a cycle or continue it.
    Begin,
    /// Lease about this many bytes, and send them to the server or lose them.
    Session {
        bytes: usize,
        arrives: bool,
        refuse: Option<usize>,
    },
    /// The answer arrives, or it does not.
    Answer(bool),
    End,
    Events {
        count: usize,
        arrives: bool,
        answered: bool,
    },
    Clock(i64),
    Close,
    /// The process dies.
    Crash,
    /// The power fails: this percentage of the unflushed log is lost as well.
    PowerCut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let keys = prop::collection::vec(0..KEYS.len(), 1..6);
    prop_oneof![
        6 => (keys.clone(), any::<bool>()).prop_map(|(keys, event)| Step::Write(keys, event)),
        4 => keys.prop_map(Step::Delete),
        1 => key.prop_map(Step::Touch),
        3 => Just(Step::Begin),
        6 => (1usize..6000, prop::bool::weighted(0.8), prop::option::weighted(0.1, 0usize..3))
            .prop_map(|(bytes, arrives, refuse)| Step::Session { bytes, arrives, refuse }),
        6 => prop::bool::weighted(0.8).prop_map(Step::Answer),
        3 => Just(Step::End),
        2 => (1usize..5, any::<bool>(), any::<bool>())
            .prop_map(|(count, arrives, answered)| Step::Events { count, arrives, answered }),
        1 => (-4000i64..4000).prop_map(Step::Clock),
        1 => Just(Step::Close),
        1 => Just(Step::Crash),
        1 => (1u64..101).prop_map(Step::PowerCut),
    ]
}

/// A document or its tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    version: u64,
    size: Option<u64>,
}

#[derive(Default)]
struct Server {
    /// True after a power cut: the agent may have no record of sent items.
    power_lost: bool,
    documents: BTreeMap<ItemKey, Stored>,
    /// Events in the order of their first arrival.
    events: Vec<(String, Vec<u8>)>,
    event_ids: BTreeMap<String, Vec<u8>>,
}

impl Server {
    fn take(&mut self, lease: &Lease, refuse: Option<usize>) -> Vec<Skip> {
        let mut skipped = Vec::new();
        for (index, item) in lease.items().enumerate() {
            let size = item.observation().unwrap().map(|observation| observation.size);
            let held = self.documents.get(&item.key.to_owned()).map_or(0, |stored| stored.version);
            if item.seen < held {
                assert!(self.power_lost, "{} went back", item.key.to_owned().document_id());
                skipped.push(Skip { index, reason: SkipReason::Stale, version: held });
            } else if refuse == Some(index) && size.is_some() {
                skipped.push(Skip { index, reason: SkipReason::Json, version: 0 });
            } else {
                self.documents.insert(item.key.to_owned(), Stored { version: item.seen, size });
            }
        }
        skipped
    }

    fn live(&self) -> BTreeMap<ItemKey, u64> {
        let held = self.documents.iter();
        held.filter_map(|(key, stored)| Some((key.clone(), stored.size?))).collect()
    }
}

struct World {
    folder: tempfile::TempDir,
    path: PathBuf,
    options: QueueOptions,
    clock: ManualClock,
    queue: Queue,
    disk: BTreeMap<ItemKey, u64>,
    server: Server,
    /// The session that was sent and not yet answered.
    flight: Option<(Lease, Vec<Skip>)>,
    contents: u64,
    /// Bodies of events in the order of their commits. Used only if no power cut lost some.
    committed: Vec<Vec<u8>>,
    /// Items whose refusal was acknowledged since they last changed.
    refused: BTreeSet<ItemKey>,
    /// Items whose delete may be sent: they existed when a cycle began, or when the database was
    /// opened.
    tellable: BTreeSet<ItemKey>,
    /// Length of the log that is certainly on the disk.
    persisted: u64,
}

impl World {
    fn new(transaction: Transaction) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let clock = ManualClock::at(START_US);
        let options = QueueOptions { transaction, ..QueueOptions::default() };
        let (queue, _) = common::try_open(&path, &options, &clock).unwrap();
        let mut world = Self {
            folder,
            path,
            options,
            clock,
            queue,
            disk: BTreeMap::new(),
            server: Server::default(),
            flight: None,
            contents: 1,
            committed: Vec::new(),
            refused: BTreeSet::new(),
            tellable: BTreeSet::new(),
            persisted: 0,
        };
        world.persisted = world.log_bytes();
        world
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(with_suffix(&self.path, "-wal")).map_or(0, |metadata| metadata.len())
    }

    fn apply(&mut self, ops: Vec<Op>) {
        for op in &ops {
            let (Op::Put { key, change, .. } | Op::Delete { key, change }) = op else { continue };
            self.refused.remove(key);
            if let Some(change) = change {
                let body = model::EventBody::of_change(change, &NoNames).to_json();
                self.committed.push(body);
            }
        }
        let mut batch = ops;
        self.queue.sink(&files(), Arc::new(NoNames)).unwrap().apply(&mut batch).unwrap();
        self.clock.advance(Duration::from_micros(3));
    }

    fn write(&mut self, keys: &[usize], event: bool) {
        let mut ops = Vec::new();
        for index in keys {
            let key = ItemKey::of_path(KEYS[*index].as_bytes());
            self.contents += 1;
            let known = self.disk.insert(key.clone(), self.contents).is_some();
            let kind = if known { ChangeKind::Modified } else { ChangeKind::Created };
            let change = event.then(|| Box::new(change(&key, kind, self.contents)));
            ops.push(Op::Put { key, observation: file(self.contents), change });
        }
        self.apply(ops);
    }

    fn delete(&mut self, keys: &[usize]) {
        let mut ops = Vec::new();
        for index in keys {
            let key = ItemKey::of_path(KEYS[*index].as_bytes());
            if let Some(size) = self.disk.remove(&key) {
                let change = Some(Box::new(change(&key, ChangeKind::Deleted, size)));
                ops.push(Op::Delete { key, change });
            }
        }
        self.apply(ops);
    }

    fn session(&mut self, bytes: usize, arrives: bool, refuse: Option<usize>) {
        self.flight = None;
        let Ok(Some(lease)) = self.queue.lease(&files(), bytes) else { return };
        self.look_at(&lease);
        if arrives {
            let skipped = self.server.take(&lease, refuse);
            self.flight = Some((lease, skipped));
        } else {
            self.queue.return_(lease);
        }
    }

    fn begin_cycle(&mut self) {
        if !self.queue.begin_cycle(&files()).unwrap().resumed {
            self.tellable.extend(self.disk.keys().cloned());
        }
    }

    fn look_at(&self, lease: &Lease) {
        for key in lease.items().filter(|item| item.gone).map(|item| item.key.to_owned()) {
            assert!(self.tellable.contains(&key), "nobody was told of {}", key.document_id());
        }
    }

    fn answer(&mut self, arrives: bool) {
        let Some((lease, skipped)) = self.flight.take() else { return };
        if !arrives {
            return self.queue.return_(lease);
        }
        // Stale if the cycle ended in between: versions after its mark do not delay it.
        let outcome = match self.queue.ack(lease.clone(), &skipped) {
            Err(QueueError::StaleLease { .. }) => return,
            outcome => outcome.unwrap(),
        };
        let gone = lease.items().filter(|item| item.gone).map(|item| item.key.to_owned());
        let gone: Vec<ItemKey> = gone.collect();
        if outcome.removed == gone.len() as u64 {
            self.tellable.retain(|key| !gone.contains(key));
        }
        for skip in skipped.iter().filter(|skip| skip.reason != SkipReason::Stale) {
            let item = lease.items().nth(skip.index).unwrap();
            let size = item.observation().unwrap().map(|observation| observation.size);
            // An item that changed in between is sent again and is no exception.
            if self.disk.get(&item.key.to_owned()).copied() == size {
                self.refused.insert(item.key.to_owned());
            }
        }
    }

    fn events(&mut self, count: usize, arrives: bool, answered: bool) {
        let lease = self.queue.lease_events(count, usize::MAX).unwrap();
        if arrives {
            for event in &lease.items {
                let held = self.server.event_ids.insert(event.id.clone(), event.body.clone());
                match held {
                    None => self.server.events.push((event.id.clone(), event.body.clone())),
                    Some(body) => assert_eq!(body, event.body, "id {} used twice", event.id),
                }
            }
            if answered {
                self.queue.ack_events(lease).unwrap();
            }
        }
    }

    fn reopen(&mut self, lose: Option<u64>) {
        self.flight = None;
        let (folder, path) = common::crash_image(&self.path);
        if let Some(percent) = lose {
            let log = with_suffix(&path, "-wal");
            let written = self.log_bytes();
            let kept = written - (written - self.persisted.min(written)) * percent / 100;
            OpenOptions::new().write(true).open(&log).unwrap().set_len(kept).unwrap();
            self.server.power_lost = true;
        }
        let (queue, report) = common::try_open(&path, &self.options, &self.clock).unwrap();
        assert!(report.unclean && report.rebuilt.is_none());
        self.queue = queue;
        self.folder = folder;
        self.path = path;
        self.persisted = self.log_bytes();
        self.tellable.extend(self.disk.keys().cloned());
        if lose.is_some() {
            // If the acknowledgement of a delete was lost, the delete is sent again.
            self.tellable.extend(KEYS.map(|key| ItemKey::of_path(key.as_bytes())));
            self.rescan();
        }
    }

    /// The restart scan after a power cut: the disk is compared with the baseline.
    fn rescan(&mut self) {
        let mut baseline = self.queue.baseline(&files()).unwrap();
        let mut held = BTreeMap::new();
        let mut directories = baseline.directories_below(b"/").unwrap();
        directories.push(b"/".to_vec());
        for directory in directories {
            let mut items: Vec<BaselineItem> = Vec::new();
            baseline.directory(&directory, &mut items).unwrap();
            for item in items {
                held.insert(ItemKey::new(directory.clone(), item.name), item.observation.size);
            }
        }
        let mut ops = Vec::new();
        for (key, size) in &self.disk {
            if held.remove(key) != Some(*size) {
                let (key, observation) = (key.clone(), file(*size));
                ops.push(Op::Put { key, observation, change: None });
            }
        }
        ops.extend(held.into_keys().map(|key| Op::Delete { key, change: None }));
        self.apply(ops);
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Write(keys, event) => self.write(keys, *event),
            Step::Delete(keys) => self.delete(keys),
            Step::Touch(index) => {
                let key = ItemKey::of_path(KEYS[*index].as_bytes());
                if let Some(size) = self.disk.get(&key) {
                    let observation = file(*size);
                    self.apply(vec![Op::Touch { key, observation }]);
                }
            }
            Step::Begin => self.begin_cycle(),
            Step::Session { bytes, arrives, refuse } => self.session(*bytes, *arrives, *refuse),
            Step::Answer(arrives) => self.answer(*arrives),
            // Fails while items of the cycle are left.
            Step::End => drop(self.queue.end_cycle(&files())),
            Step::Events { count, arrives, answered } => self.events(*count, *arrives, *answered),
            Step::Clock(seconds) => {
                let now = env::clock::Clock::now_us(&self.clock);
                self.clock.jump_to(now.saturating_add_signed(seconds * 1_000_000));
            }
            Step::Close => {
                self.flight = None;
                self.queue.close().unwrap();
                let (queue, report) =
                    common::try_open(&self.path, &self.options, &self.clock).unwrap();
                assert!(!report.unclean);
                self.queue = queue;
                self.tellable.extend(self.disk.keys().cloned());
                self.persisted = self.log_bytes();
            }
            Step::Crash => self.reopen(None),
            Step::PowerCut(percent) => self.reopen(Some(*percent)),
        }
    }

    fn full_cycle(&mut self) {
        self.begin_cycle();
        while let Some(lease) = self.queue.lease(&files(), 3000).unwrap() {
            self.look_at(&lease);
            let skipped = self.server.take(&lease, None);
            self.queue.ack(lease, &skipped).unwrap();
        }
        self.queue.end_cycle(&files()).unwrap();
    }

    /// The integrity check after a power cut. It compares the content of both sides, as the agent
    /// does.
    fn repair(&mut self) {
        let snapshot = self.queue.snapshot(&files()).unwrap();
        let mut told = BTreeMap::new();
        snapshot
            .for_each(&mut |item| {
                told.insert(item.key, item.body.observation().unwrap().size);
                Ok(())
            })
            .unwrap();
        let out: BTreeSet<_> = snapshot
            .pending()
            .iter()
            .cloned()
            .chain(snapshot.exceptions().iter().map(|one| one.key.clone()))
            .collect();
        let mut differing = Vec::new();
        for (key, size) in self.server.live() {
            match told.remove(&key) {
                Some(ours) if ours == size => {}
                _ if out.contains(&key) => {}
                Some(_) => differing.push(key),
                None => {
                    let version = self.server.documents[&key].version + 1;
                    self.server.documents.insert(key, Stored { version, size: None });
                }
            }
        }
        differing.extend(told.into_keys());
        drop(snapshot);
        self.queue.resend(&files(), &differing).unwrap();
    }

    fn settle(&mut self) {
        // The first continues an interrupted cycle, the second sends what changed in between, the
        // third what the server found stale.
        for _ in 0..3 {
            self.full_cycle();
        }
        if self.server.power_lost {
            self.repair();
            self.full_cycle();
            self.full_cycle();
        }
        while !self.queue.lease_events(1, 1).unwrap().items.is_empty() {
            self.events(3, true, true);
        }
    }

    fn check(&mut self) {
        self.settle();
        let mut expected = self.disk.clone();
        let mut held = self.server.live();
        for key in &self.refused {
            expected.remove(key);
            held.remove(key);
        }
        assert_eq!(held, expected, "server <> disk");
        let status = self.queue.status().unwrap();
        assert_eq!((status.datasets[0].pending, status.events), (0, 0));
        assert_eq!(status.datasets[0].items, self.disk.len() as u64, "gone rows are left");
        if !self.server.power_lost {
            let arrived: Vec<_> = self.server.events.iter().map(|(_, body)| body.clone()).collect();
            assert_eq!(arrived, self.committed, "events");
        }
    }
}

fn cases() -> u32 {
    std::env::var("QUEUE_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn server_equals_disk_after_random_operations_and_crashes(
        steps in prop::collection::vec(step(), 1..60),
        per_event in any::<bool>(),
    ) {
        let transaction = if per_event { Transaction::PerEvent } else { Transaction::Group };
        let mut world = World::new(transaction);
        // The dataset must exist before the first power cut.
        world.run(&Step::Begin);
        for step in &steps {
            world.run(step);
        }
        world.check();
    }
}

#[test]
fn short_lived_items_are_correct_after_any_crash_in_a_cycle() {
    let session = || Step::Session { bytes: 1, arrives: true, refuse: None };
    let steps = [
        Step::Write(vec![0, 2], false),
        Step::Begin,
        session(),
        // Created after the cursor and before it.
        Step::Write(vec![1, 3, 6], true),
        Step::Answer(true),
        Step::Write(vec![1, 3], false),
        session(),
        Step::Delete(vec![3, 6]),
        Step::Answer(true),
        session(),
        Step::Answer(false),
        Step::End,
        Step::Delete(vec![1]),
        Step::Write(vec![3], false),
        Step::Begin,
        session(),
        Step::Delete(vec![3]),
    ];
    let ends = [Step::Close, Step::Crash, Step::PowerCut(50), Step::PowerCut(100)];
    for (place, end) in (0..=steps.len()).flat_map(|at| ends.iter().map(move |end| (at, end))) {
        for transaction in [Transaction::Group, Transaction::PerEvent] {
            let mut world = World::new(transaction);
            world.run(&Step::Begin);
            world.run(&Step::End);
            steps[..place].iter().chain([end]).chain(&steps[place..]).for_each(|s| world.run(s));
            world.check();
        }
    }
}
