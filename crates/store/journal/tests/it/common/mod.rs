//! A journal on a simulated disk, with a list of its expected content.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use env::files::SimDisk;
use journal::{AppendError, Durability, Journal, Layout, Options, Recovery};

pub(crate) const DIR: &str = "/journal";

/// A `SplitMix64` generator.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.draw() as u8).collect()
    }
}

/// Returns options for a small journal without background threads.
pub(crate) fn options(disk: &SimDisk, layout: Layout) -> Options {
    Options {
        layout,
        segment_bytes: 48 << 10,
        ring_bytes: 24 << 10,
        fill_ahead_bytes: 8 << 10,
        background: false,
        spares: 1,
        files: Arc::new(disk.clone()),
        ..Options::default()
    }
}

pub(crate) fn layout(noise: &mut Noise) -> Layout {
    [Layout::Packed, Layout::Sparse, Layout::Ring][noise.below(3) as usize]
}

/// The expected content of the journal.
#[derive(Default, Clone)]
pub(crate) struct Model {
    /// All appended records, from position 1 on.
    pub(crate) records: Vec<Vec<u8>>,
    /// Positions at which an append ended. Recovery must not end at any other position.
    pub(crate) ends: BTreeSet<u64>,
    /// Records up to this position must survive a power cut.
    pub(crate) persisted: u64,
    /// Records up to this position must survive a kill.
    pub(crate) flushed: u64,
    /// Records at or above this position were not trimmed.
    pub(crate) trimmed: u64,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self { ends: BTreeSet::from([0]), ..Self::default() }
    }

    fn push(&mut self, batch: Vec<Vec<u8>>) {
        self.records.extend(batch);
        self.ends.insert(self.records.len() as u64);
    }
}

fn size(noise: &mut Noise) -> usize {
    match noise.below(12) {
        0 => 0,
        1 => 4096 + noise.below(8) as usize,
        2 => 4070 + noise.below(20) as usize,
        3 => noise.below(12_000) as usize,
        4 => noise.below(3) as usize * 4094 + noise.below(4) as usize,
        _ => noise.below(60) as usize,
    }
}

/// Makes one random append. Returns false if the journal accepts no more.
pub(crate) fn append(journal: &Journal, model: &mut Model, noise: &mut Noise, flush: bool) -> bool {
    let count = if noise.below(4) == 0 { 2 + noise.below(3) } else { 1 };
    let mut batch: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let n = size(noise);
        batch.push(noise.bytes(n));
    }
    let durability =
        if flush && noise.below(3) == 0 { Durability::Flush } else { Durability::Persist };
    let records: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    match journal.append_all(&records, durability) {
        Ok(outcome) => {
            assert_eq!(outcome.first, model.records.len() as u64 + 1);
            model.push(batch);
            assert_eq!(outcome.position, model.records.len() as u64);
            model.flushed = outcome.position;
            if durability == Durability::Persist {
                model.persisted = outcome.position;
            }
            true
        }
        Err(AppendError::Full(_) | AppendError::Io { .. }) => true,
        Err(AppendError::Poisoned(_)) => {
            // Whether the batch survives is unknown.
            model.push(batch);
            false
        }
        Err(e) => panic!("{e}"),
    }
}

/// Makes random appends, trims and flushes, until `steps` are done or the journal accepts no more.
pub(crate) fn work(journal: &Journal, model: &mut Model, noise: &mut Noise, steps: u64) {
    let flush = noise.below(2) == 0;
    for _ in 0..steps {
        match noise.below(24) {
            0 => {
                if journal.persist().is_ok() {
                    model.persisted = model.flushed;
                }
            }
            1 | 2 => {
                let below = 1 + noise.below(model.persisted + 1);
                model.trimmed = model.trimmed.max(below);
                let _ = journal.trim(below);
            }
            _ => {
                if !append(journal, model, noise, flush) {
                    return;
                }
            }
        }
    }
}

pub(crate) fn open(disk: &SimDisk, layout: Layout, what: &str) -> (Journal, Recovery) {
    match Journal::open(Path::new(DIR), options(disk, layout)) {
        Ok(opened) => opened,
        Err(e) => panic!("{what}: does not open: {e}"),
    }
}

/// Compares a recovered journal with the model, and updates the model to it.
pub(crate) fn check(
    journal: &Journal,
    recovery: &Recovery,
    model: &mut Model,
    least: u64,
    what: &str,
) {
    let last = recovery.last_position;
    assert!(last >= least, "{what}: {last} of {least} acknowledged records");
    assert!(model.ends.contains(&last), "{what}: ends within an append at {last}");
    if recovery.first_position > 0 {
        assert!(
            recovery.first_position <= model.trimmed.max(1),
            "{what}: begins at {} though only records below {} were given up",
            recovery.first_position,
            model.trimmed
        );
    } else {
        assert!(last == 0 || last < model.trimmed, "{what}: nothing is kept");
    }
    let mut next = recovery.first_position.max(1);
    for record in journal.read_from(recovery.first_position).unwrap() {
        let (position, record) = record.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(position, next, "{what}");
        assert!(record == model.records[position as usize - 1], "{what}: record {position}");
        next += 1;
    }
    if recovery.first_position > 0 {
        assert_eq!(next, last + 1, "{what}: not all is read");
    }
    model.records.truncate(last as usize);
    model.ends.retain(|end| *end <= last);
    (model.persisted, model.flushed) = (last, last);
}
