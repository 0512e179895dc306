//! Events. They are append-only, first in, first out, never coalesced, and removed when
//! acknowledged.
//!
//! An event's id is `epoch-seq`: the epoch at the time of its append, and `seq` from AUTOINCREMENT.
//! A power cut may set `seq` back. The new epoch of the next open then keeps the ids unique. Events
//! that were queued before keep their ids, so that the server recognises one that is sent twice.
//!
//! A body is read as bytes regardless of its column type: one flipped bit can turn a blob into
//! text, but its content is still valid.

use model::{Coverage, Dataset};
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::QueueError;
use crate::inner::Inner;

/// Size of an event's id and framing on the wire, bytes, for the budget of a lease.
const EVENT_OVERHEAD_BYTES: usize = 128;

/// One queued event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedEvent {
    /// Its number in the queue.
    pub seq: u64,
    /// Its id on the wire, `epoch-seq`, which is never reused.
    pub id: String,
    /// The event as it was appended, usually a [`model::EventBody`] as JSON.
    pub body: Vec<u8>,
}

/// Events leased for one session. Acknowledge it with [`crate::Queue::ack_events`], or drop it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventLease {
    /// The events, oldest first.
    pub items: Vec<QueuedEvent>,
}

impl EventLease {
    /// Keeps the first `count` events. The next lease begins with the rest.
    pub fn truncate(&mut self, count: usize) {
        self.items.truncate(count);
    }
}

impl Inner {
    pub(crate) fn lease_events(
        &self,
        count: usize,
        byte_budget: usize,
    ) -> Result<EventLease, QueueError> {
        let found = self.read(|conn| oldest(conn, count, byte_budget))?;
        let catalog = self.catalog.read();
        let items = found
            .into_iter()
            .map(|StoredEvent { seq, body }| QueuedEvent { seq, id: catalog.event_id(seq), body })
            .collect();
        Ok(EventLease { items })
    }

    pub(crate) fn events_after(
        &self,
        dataset: &Dataset,
        after: u64,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), QueueError> {
        let id = self.dataset_id(dataset)?;
        self.read(|conn| {
            let mut select = conn.prepare_cached(
                "SELECT seq, body FROM event WHERE seq > ?1 AND dataset = ?2 ORDER BY seq",
            )?;
            let mut rows = select.query((after as i64, id))?;
            while let Some(row) = rows.next()? {
                visit(row.get::<_, i64>(0)? as u64, row.get_ref(1)?.as_bytes()?);
            }
            Ok(())
        })
    }

    pub(crate) fn event(&self, seq: u64) -> Result<Option<Vec<u8>>, QueueError> {
        self.read(|conn| {
            conn.prepare_cached("SELECT body FROM event WHERE seq = ?1")?
                .query_row([seq as i64], |row| Ok(row.get_ref(0)?.as_bytes()?.to_vec()))
                .optional()
        })
    }

    pub(crate) fn ack_events(&self, lease: &EventLease) -> Result<u64, QueueError> {
        let (Some(first), Some(last)) = (lease.items.first(), lease.items.last()) else {
            return Ok(0);
        };
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let removed = self.transact(writer, "acknowledge events", |txn| {
            txn.conn
                .prepare_cached("DELETE FROM event WHERE seq BETWEEN ?1 AND ?2")?
                .execute((first.seq as i64, last.seq as i64))
        })?;
        drop(guard);
        self.give_back();
        Ok(removed as u64)
    }
}

/// A row of the table `event`.
struct StoredEvent {
    seq: u64,
    body: Vec<u8>,
}

/// Returns the oldest events.
fn oldest(
    conn: &Connection,
    count: usize,
    byte_budget: usize,
) -> rusqlite::Result<Vec<StoredEvent>> {
    let mut select = conn.prepare_cached("SELECT seq, body FROM event ORDER BY seq LIMIT ?1")?;
    let mut rows = select.query([i64::try_from(count).unwrap_or(i64::MAX)])?;
    let mut found = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let body = row.get_ref(1)?.as_bytes()?;
        bytes += body.len() + EVENT_OVERHEAD_BYTES;
        if bytes > byte_budget && !found.is_empty() {
            break;
        }
        found.push(StoredEvent { seq: row.get::<_, i64>(0)? as u64, body: body.to_vec() });
    }
    Ok(found)
}

/// Returns the number of queued events. Their numbers have no gaps, because only the oldest are
/// removed.
pub(crate) fn event_count(conn: &Connection) -> rusqlite::Result<u64> {
    conn.query_row("SELECT min(seq), max(seq) FROM event", [], |row| {
        let (min, max): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(min.zip(max).map_or(0, |(min, max)| (max - min + 1) as u64))
    })
}

/// Returns the time of the oldest event.
pub(crate) fn oldest_event_us(conn: &Connection) -> rusqlite::Result<Option<u64>> {
    conn.query_row("SELECT body FROM event ORDER BY seq LIMIT 1", [], |row| {
        Ok(event_time_us(row.get_ref(0)?.as_bytes()?))
    })
    .optional()
}

/// Returns the gap that an event reports, if it is a coverage event.
pub(crate) fn event_gap(body: &[u8]) -> Option<Coverage> {
    #[derive(serde::Deserialize)]
    struct HoldfastFields {
        coverage: Option<Coverage>,
    }
    #[derive(serde::Deserialize)]
    struct EventDocument {
        holdfast: HoldfastFields,
    }
    serde_json::from_slice::<EventDocument>(body).ok()?.holdfast.coverage
}

/// Returns the time of the event; 0 if its body has none.
pub(crate) fn event_time_us(body: &[u8]) -> u64 {
    #[derive(serde::Deserialize)]
    struct Timed<'a> {
        #[serde(rename = "@timestamp")]
        timestamp: &'a str,
    }
    serde_json::from_slice::<Timed<'_>>(body)
        .ok()
        .and_then(|timed| model::timestamp::parse_micros(timed.timestamp))
        .unwrap_or(0)
}
