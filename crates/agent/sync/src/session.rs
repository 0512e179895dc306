//! One session: leased items and events in, bytes out; the answer in, what to acknowledge out.

use link::{Operation, SessionBuilder, Start};
use model::{Dataset, Names, SkipReason};
use queue::{EventLease, Lease, Queue, QueueError, Skip};
use tracing::warn;

use crate::documents;

/// Most events in one session; the rest of the room belongs to documents.
const SESSION_EVENTS_MAX: usize = 5_000;

/// A session ready to be sent.
pub(crate) struct Draft {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lease: Option<Lease>,
    pub(crate) events: EventLease,
}

/// What bounds a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes aimed for; at least one value is sent whatever its size.
    pub(crate) bytes: usize,
    /// Most values.
    pub(crate) values: usize,
    /// Whether the server takes events.
    pub(crate) events: bool,
}

impl Draft {
    /// How many documents (deletes included) it carries.
    pub(crate) fn documents(&self) -> usize {
        self.lease.as_ref().map_or(0, |l| l.items().len())
    }

    /// How many values it carries.
    pub(crate) fn values(&self) -> usize {
        self.documents() + self.events.items.len()
    }
}

/// Lease what fits and build the session; `None` when nothing is pending. Blocks on the disk.
pub(crate) fn draft(
    queue: &Queue,
    dataset: &Dataset,
    room: Room,
    start: &Start,
    names: &dyn Names,
) -> Result<Option<Draft>, QueueError> {
    let mut builder = SessionBuilder::new();
    let wire = dataset.wire();
    let mut lease = queue.lease(dataset, room.bytes)?;
    if let Some(lease) = &mut lease {
        let mut taken = 0;
        for item in lease.items() {
            let document = documents::build(dataset, &item.key, item.seen, &item.body, names);
            let cost = SessionBuilder::cost(&document.id, &wire, &document.json);
            if taken > 0 && (builder.bytes() + cost > room.bytes || taken == room.values) {
                break;
            }
            let operation = if item.body.is_gone() { Operation::Delete } else { Operation::Upsert };
            builder.push(operation, &document.id, &wire, item.seen, &document.json);
            taken += 1;
        }
        lease.truncate(taken);
    }
    let events =
        if room.events { events(queue, &mut builder, room)? } else { EventLease::default() };
    if builder.values() == 0 {
        return Ok(None);
    }
    let mut index = Vec::new();
    if !events.items.is_empty() {
        index.push(Dataset::EVENTS.to_owned());
    }
    if lease.is_some() {
        index.push(wire);
    }
    let start = Start { index, ..start.clone() };
    Ok(Some(Draft { bytes: builder.finish(&start), lease, events }))
}

/// Fill what room is left with events, oldest first; at least one when there is nothing else.
fn events(
    queue: &Queue,
    builder: &mut SessionBuilder,
    room: Room,
) -> Result<EventLease, QueueError> {
    let left = room.bytes.saturating_sub(builder.bytes());
    let count = room.values.saturating_sub(builder.values()).min(SESSION_EVENTS_MAX);
    if builder.values() > 0 && (left < room.bytes / 8 || count == 0) {
        return Ok(EventLease::default());
    }
    let mut lease = queue.lease_events(count.max(1), left)?;
    let mut taken = 0;
    for event in &lease.items {
        let cost = SessionBuilder::cost(&event.id, Dataset::EVENTS, &event.body);
        if builder.values() > 0 && builder.bytes() + cost > room.bytes {
            break;
        }
        builder.push(Operation::Upsert, &event.id, Dataset::EVENTS, 0, &event.body);
        taken += 1;
    }
    lease.truncate(taken);
    Ok(lease)
}

/// Split the answer's list into what concerns documents; what concerns events is only logged: an
/// event that the server can never take must not block the ones behind it.
pub(crate) fn skips(draft: &Draft, skipped: &[model::Skipped]) -> Vec<Skip> {
    let documents = draft.documents();
    let mut skips = Vec::new();
    for one in skipped {
        let index = one.index as usize;
        if index < documents {
            skips.push(Skip { index, reason: one.reason, version: one.version });
        } else if one.reason != SkipReason::Stale {
            warn!(event = one.id, reason = ?one.reason, "the server left an event out");
        }
    }
    skips
}
