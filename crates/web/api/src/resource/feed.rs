//! Changes and gaps as they arrive, as server-sent events.
//!
//! Each event carries its number of arrival as `id`; a client that comes back with
//! `Last-Event-ID` goes on behind it and misses nothing, however late an agent told it. Events of
//! one question come oldest first. Streams are bounded in number and in time; a reader that is
//! slow holds its own stream up and nobody else's.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use state::{ChangeQuery, EventKind, StoredEvent};

use super::changes::{agents, change_item, coverage_item};
use crate::call::Call;
use crate::envelope::{Answer, Stream, to_value};
use crate::error::Failure;
use crate::operation::{
    AGENTS_LIST, Answering, Handler, Kind, Operation, Shape, Verb, action, query,
};
use crate::stream::{self, PieceSender};

/// Streams at once; above it: 503.
const STREAMS_MAX: usize = 64;
/// How long one stream lives; a client comes back with its last id.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);
/// How often it looks for what arrived.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A sign of life after so many looks without anything to tell.
const QUIET_LOOKS: u32 = 30;
/// Events read at once.
const EVENTS_MAX: usize = 500;

const SSE: &str = "text/event-stream";

static STREAMS: AtomicUsize = AtomicUsize::new(0);

/// The operation that takes `Last-Event-ID` as its `since`.
pub(crate) const ID: &str = "events.stream";

pub(super) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/events/stream",
    id: ID,
    about: "Changes and gaps as they arrive, as server-sent events.",
    access: action("syscheck:read", "agent:id"),
    parameters: &[&[
        AGENTS_LIST,
        query(
            "since",
            Kind::Whole { min: 0, max: i64::MAX as u64, default: 0 },
            "Begin behind this number of arrival; Last-Event-ID goes before; else with what comes.",
        ),
    ]],
    body: None,
    shape: Shape::Raw(SSE),
    handler: Handler::Waiting(open),
}];

/// A place among the streams, given back when dropped.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = STREAMS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |streams| {
            (streams < STREAMS_MAX).then_some(streams + 1)
        });
        taken.ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn open(call: Arc<Call>) -> Answering {
    Box::pin(async move {
        let full = || Failure::busy("too many event streams are open", 5);
        let place = Place::take().ok_or_else(full)?;
        let since = Some(call.parameters.whole("since")).filter(|since| *since > 0);
        let (sender, body) = stream::body();
        tokio::spawn(async move {
            let fed = feed(&call, since, &sender);
            let _ = tokio::time::timeout(STREAM_TIME_MAX, fed).await;
            drop(place);
        });
        Ok(Answer::Stream(Stream { content_type: SSE, body }))
    })
}

/// Until the reader goes or the store fails.
async fn feed(call: &Arc<Call>, since: Option<u64>, sender: &PieceSender) {
    let mut behind = since;
    let mut quiet = QUIET_LOOKS;
    loop {
        let (call, from) = (Arc::clone(call), behind);
        let looked = tokio::task::spawn_blocking(move || look(&call, from)).await;
        let (piece, newest) = match looked {
            Ok(Ok(found)) => found,
            Ok(Err(failure)) => return tracing::warn!("event stream: {}", failure.detail),
            Err(cause) => return tracing::warn!("event stream: {cause}"),
        };
        behind = Some(newest);
        quiet += 1;
        let piece = match piece {
            Some(piece) => piece,
            None if quiet > QUIET_LOOKS => format!(": at {newest}\n\n"),
            None => {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
        };
        quiet = 0;
        if sender.send(Ok(Bytes::from(piece))).await.is_err() {
            return;
        }
    }
}

/// What arrived behind a number, oldest first, and the number to go on behind. Without one: only
/// where the stream stands now.
fn look(call: &Call, behind: Option<u64>) -> Result<(Option<String>, u64), Failure> {
    let mut query = ChangeQuery { agents: agents(call)?, limit: EVENTS_MAX, ..kinds() };
    let Some(behind) = behind else {
        query.limit = 1;
        return Ok((None, call.state().changes(&query)?.newest));
    };
    query.since = Some(behind);
    let mut events: Vec<StoredEvent> = Vec::new();
    let mut newest = None;
    loop {
        let page = call.state().changes(&query)?;
        newest = newest.or(Some(page.newest));
        events.extend(page.items);
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    let newest = newest.unwrap_or(behind).max(behind);
    events.retain(|event| event.number <= newest);
    events.sort_unstable_by_key(|event| event.number);
    let mut text = String::new();
    for event in &events {
        let (name, data) = shown(call, event)?;
        let _ = write!(text, "id: {}\nevent: {name}\ndata: {data}\n\n", event.number);
    }
    Ok(((!text.is_empty()).then_some(text), newest))
}

fn kinds() -> ChangeQuery {
    let kinds =
        vec![EventKind::Created, EventKind::Modified, EventKind::Deleted, EventKind::Coverage];
    ChangeQuery { kinds, ..ChangeQuery::default() }
}

fn shown(call: &Call, event: &StoredEvent) -> Result<(&'static str, Value), Failure> {
    Ok(match event.kind {
        EventKind::Coverage => ("coverage", to_value(&coverage_item(call, event)?)?),
        EventKind::Created | EventKind::Modified | EventKind::Deleted => {
            ("change", to_value(&change_item(call, event)?)?)
        }
        EventKind::Other => ("other", json!({"id": event.id})),
    })
}
