//! Who is compared.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use env::clock::SystemClock;
use env::random::SystemRandom;
use model::{Dataset, Sink};
use model::document::NoNames;
use queue::{Durability, Queue, QueueOptions, Transaction};

use crate::peer::{Mode, Peer};

/// What a subject is made of.
#[derive(Debug, Clone, Copy)]
pub enum Design {
    /// Ours: durability, transaction, and how many operations a batch holds.
    Holdfast(Durability, Transaction, usize),
    /// The published one.
    PerEvent(Mode),
}

/// One who is compared, by its name in results.
pub type Subject = (&'static str, Design);

const BATCH: usize = detect::limits::BATCH_OPS;

const fn holdfast(durability: Durability, batch: usize) -> Design {
    Design::Holdfast(durability, Transaction::Group, batch)
}

const fn per_event(journal: &'static str, synchronous: &'static str, events: usize) -> Design {
    Design::PerEvent(Mode { journal, synchronous, events })
}

/// The subject that ratios refer to.
pub const YARDSTICK: &str = "per event, WAL NORMAL";
/// Its later release.
pub const LATER: &str = "per event, WAL OFF batch 100";

/// All that keep events; `holdfast` is the product as a scan uses it.
pub const SUBJECTS: &[Subject] = &[
    ("holdfast", holdfast(Durability::Process, BATCH)),
    (YARDSTICK, per_event("WAL", "NORMAL", 1)),
    ("holdfast power", holdfast(Durability::Power, BATCH)),
    (LATER, per_event("WAL", "OFF", 100)),
    ("holdfast, groups of 8192", holdfast(Durability::Process, 8192)),
    ("holdfast, groups of 65536", holdfast(Durability::Process, 65_536)),
    ("holdfast power, groups of 100", holdfast(Durability::Power, 100)),
    ("holdfast per event", Design::Holdfast(Durability::Process, Transaction::PerEvent, BATCH)),
    ("per event, WAL FULL", per_event("WAL", "FULL", 1)),
    ("per event, DELETE FULL", per_event("DELETE", "FULL", 1)),
];

/// The subject of that name.
pub fn by_name(name: &str) -> anyhow::Result<Design> {
    let found = SUBJECTS.iter().find(|subject| subject.0 == name);
    found.map(|subject| subject.1).with_context(|| format!("no subject {name}"))
}

/// An open one.
pub enum Store {
    Holdfast(Queue),
    PerEvent(Peer),
}

impl Design {
    pub fn open(self, db: &Path) -> anyhow::Result<Store> {
        Ok(match self {
            Self::PerEvent(mode) => Store::PerEvent(Peer::open(db, mode)?),
            Self::Holdfast(durability, transaction, _) => {
                let options = QueueOptions { durability, transaction, ..QueueOptions::default() };
                let clock = Arc::new(SystemClock::new());
                Store::Holdfast(Queue::open(db, options, clock, Arc::new(SystemRandom))?.0)
            }
        })
    }
}

impl Store {
    pub fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Holdfast(queue) => Ok(queue.close()?),
            Self::PerEvent(peer) => peer.close(),
        }
    }
}

/// Where changes of files go: batches of a scan are gathered, others commit as they are.
pub fn sink(queue: &Queue, batch: usize) -> anyhow::Result<Box<dyn Sink>> {
    let (files, names) = (Dataset::fim_files(), Arc::new(NoNames));
    Ok(match batch {
        BATCH => Box::new(queue.scan_sink(&files, names)?),
        _ => Box::new(queue.sink(&files, names)?),
    })
}
