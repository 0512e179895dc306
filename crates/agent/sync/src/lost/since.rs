//! What is queued as events since agent.db was lost: of each item the first one, whose `before` is
//! the item as the first scan found it.

use std::collections::HashMap;

use link::digest::key;
use model::{Dataset, EventBody, Names};
use queue::{Queue, QueueError};

use super::item::Item;
use crate::documents::Maker;

/// Of each item that events are queued of, by the key of its document's id, its first one: about
/// 40 bytes an item.
#[derive(Debug, Default)]
pub(super) struct Since {
    first: HashMap<u64, First>,
    /// Events up to here were looked at.
    seq: u64,
}

#[derive(Debug, Clone, Copy)]
struct First {
    time_us: u64,
    seq: u64,
}

impl Since {
    /// Look at the events that came since the last look.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub(super) fn look(
        &mut self,
        queue: &Queue,
        dataset: &Dataset,
        names: &dyn Names,
    ) -> Result<(), QueueError> {
        let mut maker = Maker::new(dataset, names);
        queue.events_after(dataset, self.seq, &mut |seq, body| {
            self.seq = seq;
            let Ok(event) = serde_json::from_slice::<EventBody>(body) else { return };
            let time_us = event.time_us();
            let Some((item, _)) = Item::before(event) else { return };
            let known = self.first.entry(key(maker.id(item.borrowed())));
            let first = known.or_insert(First { time_us, seq });
            // An event of an earlier comparison stands behind what the scans told meanwhile.
            if time_us <= first.time_us {
                *first = First { time_us, seq };
            }
        })
    }

    /// The keys of all items that events are queued of.
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.first.keys().copied()
    }

    /// How the item was when the first scan found it, as far as events say.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub(super) fn before(&self, queue: &Queue, key: u64) -> Result<Before, QueueError> {
        let Some(first) = self.first.get(&key) else { return Ok(Before::Untold) };
        let body = queue.event(first.seq)?;
        let event = body.and_then(|body| serde_json::from_slice::<EventBody>(&body).ok());
        Ok(match event.and_then(Item::before) {
            None => Before::Untold,
            Some((_, None)) => Before::Absent,
            Some((_, Some(item))) => Before::Was(item),
        })
    }
}

/// How an item was before the first event that speaks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Before {
    /// No event speaks of it.
    Untold,
    Absent,
    Was(Item),
}
