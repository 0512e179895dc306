//! Changes and gaps in the format of lists and of the event stream.

use model::{Cause, ContainerBody, EventBody, ProcessBody, SeenBody, UserBody, timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use state::{EventKind, StoredEvent};
use utoipa::ToSchema;

use super::common::AgentRef;
use super::overlay;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::to_value;

/// The kinds of causes, in the order of the state store's counters.
pub(super) const CAUSES: &[&str] = &["unexplained", "package", "deployment"];

/// One change.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeItem {
    /// For `GET /changes/{id}`.
    id: String,
    /// The agent's own id of the event, as its log and its queue name it.
    event_id: String,
    agent: AgentRef,
    /// When the agent found it, RFC 3339 with microseconds; with `agent_time`, when the server
    /// received it.
    time: String,
    /// Time of the agent's clock, if it differed from the server's by more than a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_time: Option<String>,
    /// When the server received it.
    received: String,
    /// `created`, `modified`, `deleted`, `moved` or `transient`.
    kind: &'static str,
    path: String,
    /// The former path; only of moved files.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// Fields that differ; empty unless modified or moved.
    changed_fields: Vec<String>,
    /// Explanation: `kind` (`unexplained`, `package`, `deployment`), `detail`, `id` (shared by the
    /// changes of one transaction or run), `tool`, `package` (`name`, `version`,
    /// `previous_version`), `content_matches` (the content is what the package installed),
    /// `writer_matches` (a process of the tool was seen making the change), `attention` (it opens a
    /// door: it is listed and counted as `unexplained`). What is empty or false is absent.
    #[schema(value_type = Object)]
    cause: Cause,
    /// In a list with `collapse=cause`: how many `changes` this one represents, and the number of their
    /// `packages` if they name any. Absent for a single change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    collapsed: Option<Value>,
    /// Files created and removed in this directory between two checks: `count`, and some `names`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    transient: Option<Value>,
    /// The process that made the change, with its parents, as ECS `process.*`. Absent if it is not
    /// known, or if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    process: Option<ProcessBody>,
    /// The user that logged in, or else the user of the process, as ECS `user.*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    user: Option<UserBody>,
    /// Container of the process, as ECS `container.*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    container: Option<ContainerBody>,
    /// Notifications of the change: `found_by`, `first`, `last`, `notifications`, `attribution`
    /// (`exact`, `ambiguous`, `uncertain`, `unknown`), `session`, `tty`, `actors`, `more`. Absent if a
    /// scan found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    seen: Option<SeenBody>,
    /// The file or package before; null when created.
    #[schema(value_type = Option<Object>)]
    before: Value,
    /// The file or package after; null when deleted.
    #[schema(value_type = Option<Object>)]
    after: Value,
    /// Data of the agent on the server: `agent` and `cluster`.
    #[schema(value_type = Object)]
    wazuh: Value,
}

/// One gap.
#[derive(Serialize, ToSchema)]
pub(crate) struct CoverageItem {
    id: String,
    /// The agent's own id of the event, as its log and its queue name it.
    event_id: String,
    agent: AgentRef,
    /// Reason, for example `agent_down`.
    kind: String,
    /// Path that it concerns; empty for all paths.
    path: String,
    /// Start, RFC 3339.
    from: String,
    /// End, RFC 3339; null while the gap is open.
    to: Option<String>,
    /// Changes that were found or arrived afterwards, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<u64>,
    detail: String,
    /// When the server received it.
    received: String,
    /// Time of the agent's clock, if it differed by more than a day from the server's; `from` and
    /// `to` are of that clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_time: Option<String>,
}

/// Returns an event's id: agent, time of detection and arrival number, so that the event can be found
/// without an additional index.
pub(super) fn id_of(event: &StoredEvent) -> String {
    format!("{}-{:x}-{:x}", event.agent, event.found_at_us, event.number)
}

pub(super) fn change_item(call: &Call, event: &StoredEvent) -> Result<ChangeItem, Failure> {
    let (body, transient) = change_body(event)?;
    let agent_time = agent_time(event, &body.timestamp);
    let moved = event.kind == EventKind::Moved;
    let from = body.holdfast.previous.as_ref().filter(|_| moved).map(|file| file.path.clone());
    let (now, previous) = match body.package {
        Some(package) => (to_value(&package)?, to_value(&body.holdfast.previous_package)?),
        None => (to_value(&body.file)?, to_value(&body.holdfast.previous)?),
    };
    let (before, after) = match event.kind {
        EventKind::Deleted => (now, Value::Null),
        _ => (previous, now),
    };
    let collapsed = event.collapsed.map(|of| match of.packages {
        0 => json!({"changes": of.changes}),
        packages => json!({"changes": of.changes, "packages": packages}),
    });
    Ok(ChangeItem {
        id: id_of(event),
        event_id: event.id.clone(),
        time: timestamp::micros(event.found_at_us),
        agent_time,
        received: timestamp::micros(event.received_at_us),
        kind: event.kind.name(),
        agent: agent_ref(call, event),
        path: event.path.clone(),
        from,
        changed_fields: body.holdfast.changed_fields,
        cause: body.holdfast.cause.unwrap_or_default(),
        collapsed,
        transient,
        process: body.process,
        user: body.user,
        container: body.container,
        seen: body.holdfast.seen,
        before,
        after,
        wazuh: overlay::of_event(call, event),
    })
}

/// Returns the body of a change, and what a directory's transient files were. Their directory has no
/// state before or after.
fn change_body(event: &StoredEvent) -> Result<(EventBody, Option<Value>), Failure> {
    if event.kind != EventKind::Transient {
        return Ok((parse(event)?, None));
    }
    let mut body: Value = parse(event)?;
    let transient = body.pointer_mut("/holdfast/transient").map(Value::take);
    let _directory = body.pointer_mut("/file").map(Value::take);
    let body = serde_json::from_value(body);
    let body = body.map_err(|e| Failure::internal(&format!("event {}: {e}", event.number)))?;
    Ok((body, transient))
}

/// Returns the event's own time if the state store orders the event by its time of receipt instead.
fn agent_time(event: &StoredEvent, own: &str) -> Option<String> {
    let own_us = timestamp::parse_micros(own)?;
    let by_receipt = event.found_at_us == event.received_at_us && own_us != event.found_at_us;
    by_receipt.then(|| own.to_owned())
}

/// An event's gap. Its kind is a text, so that one of a newer agent is shown as it is.
#[derive(Deserialize)]
struct GapBody {
    #[serde(rename = "@timestamp")]
    timestamp: String,
    holdfast: GapFields,
}

#[derive(Deserialize)]
struct GapFields {
    #[serde(alias = "open_gap")]
    coverage: Gap,
}

#[derive(Deserialize)]
struct Gap {
    kind: String,
    #[serde(default)]
    path: String,
    from_us: u64,
    to_us: Option<u64>,
    found: Option<u64>,
    #[serde(default)]
    detail: String,
}

pub(super) fn coverage_item(call: &Call, event: &StoredEvent) -> Result<CoverageItem, Failure> {
    let body: GapBody = parse(event)?;
    let agent_time = agent_time(event, &body.timestamp);
    let gap = body.holdfast.coverage;
    Ok(CoverageItem {
        id: id_of(event),
        event_id: event.id.clone(),
        agent: agent_ref(call, event),
        kind: gap.kind,
        path: gap.path,
        from: timestamp::micros(gap.from_us),
        to: gap.to_us.filter(|_| event.kind == EventKind::Coverage).map(timestamp::micros),
        found: gap.found,
        detail: gap.detail,
        received: timestamp::micros(event.received_at_us),
        agent_time,
    })
}

fn parse<'e, T: Deserialize<'e>>(event: &'e StoredEvent) -> Result<T, Failure> {
    serde_json::from_slice(&event.body)
        .map_err(|cause| Failure::internal(&format!("event {}: {cause}", event.number)))
}

/// Returns the agent with its current name. A removed agent has its last name, even if its number is in
/// use again.
fn agent_ref(call: &Call, event: &StoredEvent) -> AgentRef {
    let now = call.api.registry.agent(event.agent).filter(|_| !event.former);
    let name = now.map_or_else(|| event.agent_name.clone(), |agent| agent.name);
    AgentRef { id: event.agent.to_string(), name }
}
