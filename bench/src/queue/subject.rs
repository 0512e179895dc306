//! The compared queues.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use env::clock::SystemClock;
use env::random::SystemRandom;
use model::document::NoNames;
use model::{Dataset, Sink};
use queue::{Queue, QueueDurability, QueueOptions, Transaction};

use crate::peer::{Mode, Peer};

/// The implementation of a subject.
#[derive(Debug, Clone, Copy)]
pub enum Design {
    /// The product's queue.
    Holdfast(Ours),
    /// The published design.
    PerEvent(Mode),
}

/// Options of the product's queue, and number of operations per batch.
#[derive(Debug, Clone, Copy)]
pub struct Ours {
    pub durability: QueueDurability,
    pub transaction: Transaction,
    pub batch: usize,
    pub page_bytes: u32,
}

/// A compared queue, by its name in results.
pub type Subject = (&'static str, Design);

const BATCH: usize = detect::limits::BATCH_OPS;
const PAGE_BYTES: u32 = 4096;

const fn holdfast(durability: QueueDurability, batch: usize) -> Design {
    let transaction = Transaction::Group;
    Design::Holdfast(Ours { durability, transaction, batch, page_bytes: PAGE_BYTES })
}

const fn one_by_one(durability: QueueDurability) -> Design {
    let transaction = Transaction::PerEvent;
    Design::Holdfast(Ours { durability, transaction, batch: BATCH, page_bytes: PAGE_BYTES })
}

/// Returns our design with another page size, with a transaction per group or per event.
const fn paged(transaction: Transaction, page_bytes: u32) -> Design {
    let durability = QueueDurability::Process;
    Design::Holdfast(Ours { durability, transaction, batch: BATCH, page_bytes })
}

const fn per_event(journal: &'static str, synchronous: &'static str, events: usize) -> Design {
    Design::PerEvent(Mode { journal, synchronous, events })
}

/// The subject that ratios refer to.
pub const YARDSTICK: &str = "per event, WAL NORMAL";
/// The later release of the published design.
pub const LATER: &str = "per event, WAL OFF batch 100";
/// Ours with one transaction for each event.
pub const OURS_PER_EVENT: &str = "holdfast per event";

/// The subjects that store events. `holdfast` is the product as a scan uses it.
pub const SUBJECTS: &[Subject] = &[
    ("holdfast", holdfast(QueueDurability::Process, BATCH)),
    (YARDSTICK, per_event("WAL", "NORMAL", 1)),
    ("holdfast power", holdfast(QueueDurability::Power, BATCH)),
    (LATER, per_event("WAL", "OFF", 100)),
    ("holdfast power, groups of 100", holdfast(QueueDurability::Power, 100)),
    (OURS_PER_EVENT, one_by_one(QueueDurability::Process)),
    ("holdfast per event power", one_by_one(QueueDurability::Power)),
    ("per event, WAL OFF", per_event("WAL", "OFF", 1)),
    ("per event, WAL FULL", per_event("WAL", "FULL", 1)),
    ("per event, DELETE FULL", per_event("DELETE", "FULL", 1)),
    ("per event, DELETE NORMAL", per_event("DELETE", "NORMAL", 1)),
    ("per event, DELETE OFF", per_event("DELETE", "OFF", 1)),
    ("holdfast, page 512", paged(Transaction::Group, 512)),
    ("holdfast, page 1024", paged(Transaction::Group, 1024)),
    ("holdfast, page 2048", paged(Transaction::Group, 2048)),
    ("holdfast, page 8192", paged(Transaction::Group, 8192)),
    ("holdfast, page 16384", paged(Transaction::Group, 16_384)),
    ("holdfast per event, page 512", paged(Transaction::PerEvent, 512)),
    ("holdfast per event, page 1024", paged(Transaction::PerEvent, 1024)),
    ("holdfast per event, page 2048", paged(Transaction::PerEvent, 2048)),
    ("holdfast per event, page 8192", paged(Transaction::PerEvent, 8192)),
    ("holdfast per event, page 16384", paged(Transaction::PerEvent, 16_384)),
];

/// Returns the subject with that name.
pub fn by_name(name: &str) -> anyhow::Result<Design> {
    let found = SUBJECTS.iter().find(|subject| subject.0 == name);
    found.map(|subject| subject.1).with_context(|| format!("no subject {name}"))
}

/// An open queue.
pub enum Store {
    Holdfast(Queue),
    PerEvent(Peer),
}

impl Design {
    /// Returns true if every event waits for the disk.
    pub fn flushes_each(self) -> bool {
        match self {
            Self::Holdfast(ours) => {
                ours.durability == QueueDurability::Power
                    && ours.transaction == Transaction::PerEvent
            }
            Self::PerEvent(mode) => {
                mode.synchronous == "FULL"
                    || (mode.journal == "DELETE" && mode.synchronous != "OFF")
            }
        }
    }

    /// Returns true if it is so slow that it gets fewer events.
    pub fn is_slow(self) -> bool {
        let journal = matches!(self, Self::PerEvent(mode) if mode.journal == "DELETE");
        self.flushes_each() || journal
    }

    pub fn open(self, db: &Path) -> anyhow::Result<Store> {
        Ok(match self {
            Self::PerEvent(mode) => Store::PerEvent(Peer::open(db, mode)?),
            Self::Holdfast(ours) => {
                let options = QueueOptions {
                    durability: ours.durability,
                    transaction: ours.transaction,
                    page_bytes: ours.page_bytes,
                    ..QueueOptions::default()
                };
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

/// Returns the sink of file changes. Batches of a scan are gathered, others commit one by one.
pub fn sink(queue: &Queue, batch: usize) -> anyhow::Result<Box<dyn Sink>> {
    let (files, names) = (Dataset::fim_files(), Arc::new(NoNames));
    Ok(match batch {
        BATCH => Box::new(queue.scan_sink(&files, names)?),
        _ => Box::new(queue.sink(&files, names)?),
    })
}
