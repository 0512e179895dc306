//! Changes and gaps as they arrive, as server-sent events.
//!
//! Each event carries its arrival number as `id`; a client that reconnects with `Last-Event-ID`
//! continues after it and misses nothing, even events that an agent reported late. Events are sent in
//! the order of arrival, in pieces that are read as they are sent: a stream holds a few pieces in
//! memory, however many events are waiting. Streams are limited in number, in total and per user, and
//! in time; a slow reader delays only its own stream. Before each poll the token is verified again: a
//! caller whose token was revoked or expired, or whose roles changed, receives nothing more.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use model::AgentId;
use registry::Permitted;
use serde_json::{Value, json};
use state::{ArrivalQuery, ChangeQuery, EventKind, StoredEvent};

use super::event_item::{change_item, coverage_item};
use rest::access::caller::Caller;
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, Stream, to_value};
use rest::http::operation::{
    AGENTS_LIST, Handler, Kind, Operation, OperationFuture, Shape, Verb, action, query,
};
use rest::http::pipeline::SSE;
use rest::http::stream::{self, PieceSender};

/// Lifetime of a stream; the client then reconnects with its last id.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);
/// Interval at which the store is polled for new events.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Number of polls without an event after which a comment is sent to keep the connection alive.
const QUIET_LOOKS: u32 = 30;
/// Approximate size of the pieces in which events are sent, bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// The action that permits reading gaps.
const GAPS: &str = "coverage:read";

/// The operation that takes `Last-Event-ID` as its `since`.
pub(crate) const ID: &str = "events.stream";

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/events/stream",
    id: ID,
    about: "Changes and gaps as they arrive, as server-sent events.",
    access: action("change:read", "agent:id"),
    parameters: &[&[
        AGENTS_LIST,
        query(
            "since",
            Kind::Whole { min: 0, max: i64::MAX as u64, default: 0 },
            "Start after this arrival number; Last-Event-ID takes precedence; without either, with the next arrival.",
        ),
    ]],
    body: None,
    shape: Shape::Raw(SSE),
    handler: Handler::Waiting(open),
}];

fn open(call: Arc<Call>) -> OperationFuture {
    Box::pin(async move {
        let full = || Failure::busy("too many event streams are open", 5);
        let share = call.api.streams.reserve(call.caller.owner(), 1).ok_or_else(full)?;
        let since = Some(call.parameters.whole("since")).filter(|since| *since > 0);
        let behind = since.unwrap_or_default();
        let begin = move |call: &Call| {
            let first = read_events(call, behind, since.is_some())?;
            expect_existing(call).map(|()| first)
        };
        let first = call.blocking(begin).await??;
        let (sender, body) = stream::body();
        tokio::spawn(async move {
            let fed = feed(&call, first, &sender);
            let _ = tokio::time::timeout(STREAM_TIME_MAX, fed).await;
            sender.finish();
            drop(share);
        });
        Ok(Answer::Stream(Stream { content_type: SSE, body }))
    })
}

/// Fails unless at least one of the named agents that the caller may see exists or existed; otherwise
/// the stream would stay empty forever.
fn expect_existing(call: &Call) -> Result<(), Failure> {
    let Some(named) = call.parameters.agents("agents_list") else { return Ok(()) };
    let scope = call.scope();
    let own = |id: &&AgentId| scope.holds(**id) || call.may_gone(&call.caller, **id);
    for id in named.iter().filter(own) {
        let known = call.api.registry.agent(*id).is_some();
        if known || call.state().agent_counts(call.reader(), *id)?.events > 0 {
            return Ok(());
        }
    }
    Err(Failure::code(Code::AgentMissing))
}

/// The result of one poll.
struct PollResult {
    /// Text to send.
    text: String,
    /// Arrival number after which the next poll continues.
    through: u64,
    /// True if more events are waiting.
    more: bool,
}

/// Sends events until the reader disconnects, loses its permission, or the store fails.
async fn feed(call: &Arc<Call>, first: PollResult, sender: &PieceSender) {
    let mut look_now = first;
    let mut quiet = QUIET_LOOKS;
    loop {
        let PollResult { text, through, more } = look_now;
        quiet += 1;
        let piece = match text {
            text if !text.is_empty() => Some(text),
            _ if quiet > QUIET_LOOKS => Some(format!(": at {through}\n\n")),
            _ => None,
        };
        if let Some(piece) = piece {
            quiet = 0;
            if !sender.send(piece).await {
                return;
            }
        }
        if !more {
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        let looked = call.blocking(move |call| read_events(call, through, true)).await;
        look_now = match looked {
            Ok(Ok(found)) => found,
            Ok(Err(failure)) => return tracing::info!("event stream ends: {}", failure.detail),
            Err(failure) => return tracing::warn!("event stream: {}", failure.detail),
        };
    }
}

/// Returns the events after an arrival number, oldest first. Verifies the token, the user and its roles
/// each time. Unless `telling`, returns only the current position of the stream.
fn read_events(call: &Call, behind: u64, telling: bool) -> Result<PollResult, Failure> {
    let caller = call.caller_now()?;
    let agents = agents(call, &caller)?;
    let gaps = caller.scope(call.registry(), GAPS);
    if !telling {
        let newest = call
            .state()
            .changes(call.reader(), &ChangeQuery { limit: 1, ..ChangeQuery::default() })?
            .newest;
        return Ok(PollResult { text: String::new(), through: newest, more: false });
    }
    let kinds = EventKind::ALL.into_iter().filter(|kind| *kind != EventKind::Other).collect();
    let matches = |event: &StoredEvent| {
        let known = !event.former && call.api.registry.agent(event.agent).is_some();
        (known || call.may_gone(&caller, event.agent))
            && (!event.kind.is_gap() || gaps.holds(event.agent))
    };
    let query = ArrivalQuery { agents, kinds, since: behind };
    let (mut text, mut failure) = (String::new(), None);
    let arrived = call.state().arrivals(call.reader(), &query, &mut |event| {
        if !matches(&event) {
            return true;
        }
        match event_json(call, &event) {
            Ok((name, data)) => {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "id: {}\nevent: {name}\ndata: {data}\n\n", event.number);
                text.len() < PIECE_BYTES
            }
            Err(cause) => {
                failure = Some(cause);
                false
            }
        }
    })?;
    match failure {
        Some(cause) => Err(cause),
        None => Ok(PollResult {
            text,
            through: arrived.through,
            more: arrived.through < arrived.newest,
        }),
    }
}

/// Returns the named agents, or all, restricted to those that the caller may see now.
fn agents(call: &Call, caller: &Caller) -> Result<Permitted, Failure> {
    let scope = caller.scope(call.registry(), call.action);
    let named = call.parameters.agents("agents_list");
    let agents = match named {
        None => scope,
        Some(named) => {
            let mut own: Vec<AgentId> =
                named.iter().copied().filter(|id| scope.holds(*id)).collect();
            own.sort_unstable();
            own.dedup();
            Permitted::Only(Arc::new(own))
        }
    };
    if agents.is_none() && named.is_some() {
        return Err(Failure::denied("agent:id"));
    }
    Ok(agents)
}

fn event_json(call: &Call, event: &StoredEvent) -> Result<(&'static str, Value), Failure> {
    Ok(match event.kind {
        EventKind::Other => ("other", json!({"id": event.id})),
        kind if kind.is_gap() => ("coverage", to_value(&coverage_item(call, event)?)?),
        _ => ("change", to_value(&change_item(call, event)?)?),
    })
}
