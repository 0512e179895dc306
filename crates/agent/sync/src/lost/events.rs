//! An index of the queued events of a dataset. It has the first event of each item, whose *before*
//! is the state that the first scan found.

use std::collections::HashMap;

use link::digest::key;
use model::{Dataset, EventBody, Names};
use queue::{Queue, QueueError};

use super::item::Item;
use crate::documents::DocumentWriter;

/// The first queued event of each item, by the key of its document's id. It takes about 40 bytes
/// per item.
#[derive(Debug, Default)]
pub(super) struct EventIndex {
    first: HashMap<u64, FirstEvent>,
    /// Events up to this number are in the index.
    seq: u64,
}

#[derive(Debug, Clone, Copy)]
struct FirstEvent {
    time_us: u64,
    seq: u64,
}

impl EventIndex {
    /// Adds the events that were queued since the last update.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read.
    pub(super) fn update(
        &mut self,
        queue: &Queue,
        dataset: &Dataset,
        names: &dyn Names,
    ) -> Result<(), QueueError> {
        let mut maker = DocumentWriter::new(dataset, names);
        queue.events_after(dataset, self.seq, &mut |seq, body| {
            self.seq = seq;
            let Ok(event) = serde_json::from_slice::<EventBody>(body) else { return };
            let time_us = event.time_us();
            let Some(item) = Item::before(event) else { return };
            let id = key(maker.id(item.key.borrowed()));
            let first = self.first.entry(id).or_insert(FirstEvent { time_us, seq });
            // An event of an earlier comparison is queued after those of later scans, but has the
            // time of the first scan.
            if time_us <= first.time_us {
                *first = FirstEvent { time_us, seq };
            }
        })
    }

    /// Returns the keys of all items with a queued event.
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.first.keys().copied()
    }

    /// Returns the state of the item at the first scan, according to its first event.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read.
    pub(super) fn first_scan(&self, queue: &Queue, key: u64) -> Result<FirstScan, QueueError> {
        let Some(first) = self.first.get(&key) else { return Ok(FirstScan::NoEvent) };
        let body = queue.event(first.seq)?;
        let event = body.and_then(|body| serde_json::from_slice::<EventBody>(&body).ok());
        Ok(match event.and_then(Item::before) {
            None => FirstScan::NoEvent,
            Some(item) => item.before.map_or(FirstScan::Absent, FirstScan::Present),
        })
    }
}

/// An item as the first scan found it: the state before its first queued event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FirstScan {
    /// No event of the item is queued.
    NoEvent,
    /// The item did not exist.
    Absent,
    Present(Item),
}
