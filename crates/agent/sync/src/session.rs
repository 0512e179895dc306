//! A session: builds it from leased items and events, and evaluates the answer.

use bytes::Bytes;
use link::{Operation, SessionBuilder, Start};
use model::{Coverage, CoverageKind, Dataset, EventBody, Names, SkipReason};
use queue::{EventLease, Lease, Queue, QueueError, Skip};

use crate::documents::{Content, DocumentWriter};

/// Most events in one session; the remaining space is for documents.
const SESSION_EVENTS_MAX: usize = 5_000;

/// A session ready to be sent.
pub(crate) struct Draft {
    pub(crate) bytes: Bytes,
    pub(crate) lease: Option<Lease>,
    pub(crate) events: EventLease,
}

/// The limits of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    /// Target size, bytes. At least one value is sent regardless of its size.
    pub(crate) bytes: usize,
    pub(crate) values: usize,
    /// Most events; 0 also if the server accepts none.
    pub(crate) events: usize,
}

impl Draft {
    /// Returns the number of documents, including deletes.
    pub(crate) fn documents(&self) -> usize {
        self.lease.as_ref().map_or(0, |l| l.items().len())
    }

    /// Returns the number of values.
    pub(crate) fn values(&self) -> usize {
        self.documents() + self.events.items.len()
    }
}

/// Leases as many items and events as fit, and builds the session. Returns `None` if nothing is
/// pending. Blocks on the disk.
pub(crate) fn draft(
    queue: &Queue,
    dataset: &Dataset,
    limits: SessionLimits,
    start: &Start,
    names: &dyn Names,
) -> Result<Option<Draft>, QueueError> {
    let mut builder = SessionBuilder::new();
    let wire = dataset.wire();
    let mut lease = queue.lease(dataset, limits.bytes)?;
    if let Some(lease) = &mut lease {
        let mut taken = 0;
        let mut maker = DocumentWriter::new(dataset, names);
        for item in lease.items() {
            let observation = item.observation()?;
            let content = match (&observation, item.document()) {
                (Some(observation), _) => Content::Observation(observation),
                (None, Some(json)) => Content::Document(json),
                (None, None) => Content::Gone,
            };
            let document = maker.make(item.key, item.seen, content);
            let cost = SessionBuilder::cost(document.id, &wire, document.json);
            if taken > 0 && (builder.bytes() + cost > limits.bytes || taken == limits.values) {
                break;
            }
            let operation = if item.gone { Operation::Delete } else { Operation::Upsert };
            builder.push(operation, document.id, &wire, item.seen, document.json);
            taken += 1;
        }
        lease.truncate(taken);
    }
    let events = events(queue, &mut builder, limits)?;
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
    Ok(Some(Draft { bytes: builder.finish(&start).into(), lease, events }))
}

/// Fills the remaining space with events, oldest first; adds at least one if there are no
/// documents.
fn events(
    queue: &Queue,
    builder: &mut SessionBuilder,
    limits: SessionLimits,
) -> Result<EventLease, QueueError> {
    let left = limits.bytes.saturating_sub(builder.bytes());
    let count = limits.values.saturating_sub(builder.values());
    let count = count.min(SESSION_EVENTS_MAX).min(limits.events);
    if count == 0 || (builder.values() > 0 && left < limits.bytes / 8) {
        return Ok(EventLease::default());
    }
    let mut lease = queue.lease_events(count, left)?;
    let mut taken = 0;
    for event in &lease.items {
        let cost = SessionBuilder::cost(&event.id, Dataset::EVENTS, &event.body);
        if builder.values() > 0 && builder.bytes() + cost > limits.bytes {
            break;
        }
        builder.push(Operation::Upsert, &event.id, Dataset::EVENTS, 0, &event.body);
        taken += 1;
    }
    lease.truncate(taken);
    Ok(lease)
}

/// Splits the skipped values into documents that the queue has to update and values that the server
/// will never accept. The latter must not block later items and are named in a coverage event.
pub(crate) fn skips(draft: &Draft, skipped: &[model::Skipped]) -> Skipped {
    let documents = draft.documents();
    let mut skips = Vec::new();
    let mut refused = Refused::default();
    for one in skipped {
        let index = one.index as usize;
        let Some(event) = index.checked_sub(documents) else {
            skips.push(Skip { index, reason: one.reason, version: one.version });
            if one.reason != SkipReason::Stale {
                refused.document(draft, index, one.reason);
            }
            continue;
        };
        if one.reason != SkipReason::Stale {
            refused.event(draft, event, one.reason);
        }
    }
    Skipped { skips, refused }
}

/// The values of a session that the server skipped.
pub(crate) struct Skipped {
    /// For the queue.
    pub(crate) skips: Vec<Skip>,
    pub(crate) refused: Refused,
}

/// The values of a session that the server will never accept: documents and events, each with the
/// name of the first one.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    documents: Option<Group>,
    events: Option<Group>,
}

#[derive(Debug)]
struct Group {
    first: String,
    reason: SkipReason,
    count: u64,
}

impl Group {
    fn add(group: &mut Option<Self>, first: impl FnOnce() -> String, reason: SkipReason) {
        match group {
            Some(group) => group.count += 1,
            None => *group = Some(Self { first: first(), reason, count: 1 }),
        }
    }

    fn into_gap(self, what: &str, kind: CoverageKind, now_us: u64) -> Coverage {
        let reason = match self.reason {
            SkipReason::TooLarge => "too large",
            SkipReason::Index => "no such dataset there",
            SkipReason::Id => "id not allowed",
            _ => "content not understood there",
        };
        let Self { first, count, .. } = self;
        let detail = if count == 1 {
            format!("the server does not take the {what} {first}: {reason}")
        } else {
            format!("the server does not take {count} {what}s, the first is {first}: {reason}")
        };
        let path = if kind == CoverageKind::LimitReached { first } else { String::new() };
        Coverage { kind, path, from_us: now_us, to_us: now_us, found: None, lasting: None, detail }
    }
}

impl Refused {
    /// Adds the document at this index of the lease.
    pub(crate) fn document(&mut self, draft: &Draft, index: usize, reason: SkipReason) {
        let item = draft.lease.as_ref().and_then(|l| l.items().nth(index));
        let Some(item) = item.filter(|i| !i.gone) else { return };
        let name = || model::path::show(&item.key.path()).into_owned();
        Group::add(&mut self.documents, name, reason);
    }

    /// Adds the event at this index. A coverage event is left out, because otherwise a server that
    /// accepts none would cause new ones endlessly.
    pub(crate) fn event(&mut self, draft: &Draft, index: usize, reason: SkipReason) {
        let Some(event) = draft.events.items.get(index) else { return };
        let body = serde_json::from_slice::<EventBody>(&event.body);
        if !body.is_ok_and(|b| b.holdfast.coverage.is_some()) {
            Group::add(&mut self.events, || event.id.clone(), reason);
        }
    }

    /// Returns the gaps as coverage events.
    pub(crate) fn into_gaps(self, now_us: u64) -> Vec<Coverage> {
        let documents =
            self.documents.map(|g| g.into_gap("document", CoverageKind::LimitReached, now_us));
        let events = self.events.map(|g| g.into_gap("event", CoverageKind::EventsDropped, now_us));
        documents.into_iter().chain(events).collect()
    }
}
