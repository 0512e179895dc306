//! Adding and removing agents, and reading their keys.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{AgentId, Record};
use registry::{
    AgentEnrolment, AgentQuery, ControlError, DisplacedAgents, EnrollError, ForceRules,
    InsertAgent, Inserted, Life, RegistryError,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::Handle;
use utoipa::ToSchema;

use super::agent_list;
use super::common::only_failed;
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, ItemWriter, List, to_value};
use rest::http::operation::{
    AGENT_ID, COMMON, Handler, Kind, Operation, Parameter, Q, Shape, Verb, action, query, required,
};
use rest::http::parameters::timeframe;

/// The action for removing agents, including those that a new agent replaces.
const DELETE: &str = "agent:delete";
/// Length of an agent's key.
const KEY_CHARS: usize = 64;
/// Number of removal records that are submitted to the journal at once.
const RECORDS_AT_ONCE: usize = 256;

const STATUSES: &[&str] = &["all", "active", "pending", "never_connected", "disconnected"];

const DELETED: &[Parameter] = &[
    required("agents_list", Kind::NumbersOrAll, "Agent numbers, comma-separated, or all."),
    required("status", Kind::Words(STATUSES), "Statuses, comma-separated, or all."),
    query(
        "purge",
        Kind::Flag,
        "Free the number as well: it may be given to another agent. Its metrics are deleted.",
    ),
    query("older_than", Kind::Timeframe(Some("7d")), "Not heard from for this long."),
    Q,
    query("os.platform", Kind::Alphanumeric, "Platform, for example debian."),
    query("os.version", Kind::Alphanumeric, "Version of the operating system."),
    query("os.name", Kind::Alphanumeric, "Name of the operating system."),
    query("manager", Kind::Alphanumeric, "Host name of the server."),
    query("version", Kind::Alphanumeric, "Version of the agent's program."),
    query("group", Kind::GroupName, "Name of a group."),
    query("node_name", Kind::Name, "Name of the server's node."),
    query("name", Kind::Alphanumeric, "Name of the agent."),
    query("ip", Kind::Alphanumeric, "Address the agent was last heard from."),
    query("registerIP", Kind::Alphanumeric, "Address the agent registered with."),
];

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Post,
        path: "/agents",
        id: "agents.add",
        about: "Add an agent.",
        access: action("agent:create", "*:*"),
        parameters: &[COMMON],
        body: Some("NewAgent"),
        shape: Shape::Plain("AgentKey"),
        handler: Handler::Blocking(add),
    },
    Operation {
        verb: Verb::Post,
        path: "/agents/insert",
        id: "agents.insert",
        about: "Add an agent with a number and a key of its own.",
        access: action("agent:create", "*:*"),
        parameters: &[COMMON],
        body: Some("InsertedAgent"),
        shape: Shape::Plain("AgentKey"),
        handler: Handler::Blocking(insert),
    },
    Operation {
        verb: Verb::Post,
        path: "/agents/insert/quick",
        id: "agents.insert_quick",
        about: "Add an agent by its name alone.",
        access: action("agent:create", "*:*"),
        parameters: &[COMMON, &[required("agent_name", Kind::AgentName, "Name of the agent.")]],
        body: None,
        shape: Shape::Plain("AgentKey"),
        handler: Handler::Blocking(quick),
    },
    Operation {
        verb: Verb::Delete,
        path: "/agents",
        id: "agents.delete",
        about: "Remove agents that match all filters, with what is known of them.",
        access: action(DELETE, "agent:id"),
        parameters: &[COMMON, DELETED],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(delete),
    },
    Operation {
        verb: Verb::Get,
        path: "/agents/{agent_id}/key",
        id: "agents.key",
        about: "The key of an agent for clients of the 4.x API.",
        access: action("agent:read", "agent:id"),
        parameters: &[COMMON, &[AGENT_ID]],
        body: None,
        shape: Shape::List("AgentKey"),
        handler: Handler::Blocking(key),
    },
];

/// An agent to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAgent {
    name: String,
    /// Its address, or any; the caller's when absent.
    ip: Option<String>,
    force: Option<Force>,
}

/// An agent to add with a number and a key of its own.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InsertedAgent {
    name: String,
    ip: Option<String>,
    /// Its number.
    id: Option<String>,
    /// 64 letters and digits.
    key: Option<String>,
    force: Option<Force>,
}

/// Conditions under which a new agent replaces an old one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Force {
    enabled: Option<bool>,
    disconnected_time: Option<DisconnectedTime>,
    /// `1h`, `2d`, ...
    after_registration_time: Option<String>,
}

/// Time for which the old agent must have been silent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DisconnectedTime {
    enabled: Option<bool>,
    /// `1h`, `2d`, ...
    value: Option<String>,
}

/// An agent's number and key.
#[derive(Serialize, ToSchema)]
pub(crate) struct AgentKey {
    id: String,
    /// Number, name, address and key, as base64 of the line of a `client.keys`.
    key: String,
}

fn line(id: AgentId, name: &str, ip: &str, key: &str) -> String {
    STANDARD.encode(format!("{id} {name} {ip} {key}"))
}

/// Returns the address given, else the caller's own, or `any` for a caller on this machine.
fn address(call: &Call, given: Option<String>) -> String {
    given.unwrap_or_else(|| match call.source.and_then(listener::Source::ip) {
        Some(ip) if !ip.is_loopback() => ip.to_string(),
        _ => "any".into(),
    })
}

fn add(call: &Call) -> Result<Answer, Failure> {
    let new: NewAgent = call.json()?;
    let ip = address(call, new.ip);
    let request = AgentEnrolment { name: new.name, ip, ..AgentEnrolment::default() };
    let force = new.force.as_ref().map(rules).transpose()?;
    insert_agent(call, &InsertAgent { request, force, ..InsertAgent::default() })
}

fn insert(call: &Call) -> Result<Answer, Failure> {
    let new: InsertedAgent = call.json()?;
    let id = match new.id.as_deref().map(str::parse::<AgentId>) {
        None => None,
        Some(Ok(AgentId::SERVER) | Err(_)) => {
            return Err(Failure::bad("id: not the number of an agent"));
        }
        Some(Ok(id)) => Some(id),
    };
    if new.key.as_ref().is_some_and(|key| key.len() < KEY_CHARS) {
        return Err(Failure::code(Code::KeyTooShort));
    }
    if new.key.as_ref().is_some_and(|key| key.len() > KEY_CHARS) {
        return Err(Failure::bad(format!("key: longer than {KEY_CHARS} characters")));
    }
    if new.key.as_ref().is_some_and(|key| !key.bytes().all(|b| b.is_ascii_alphanumeric())) {
        return Err(Failure::bad("key: letters and digits only"));
    }
    let ip = address(call, new.ip);
    let request = AgentEnrolment { name: new.name, ip, ..AgentEnrolment::default() };
    let force = new.force.as_ref().map(rules).transpose()?;
    insert_agent(call, &InsertAgent { id, request, key: new.key, force })
}

fn rules(force: &Force) -> Result<ForceRules, Failure> {
    let seconds = |text: &Option<String>, default: u64| match text {
        None => Ok(default),
        Some(text) => timeframe(text).ok_or_else(|| Failure::code(Code::TimeframeInvalid)),
    };
    let defaults = ForceRules::default();
    let silent = defaults.disconnected_s.unwrap_or_default();
    let disconnected_s = match &force.disconnected_time {
        Some(time) if time.enabled == Some(false) => None,
        Some(time) => Some(seconds(&time.value, silent)?),
        None => Some(silent),
    };
    Ok(ForceRules {
        enabled: force.enabled.unwrap_or(true),
        disconnected_s,
        registered_s: seconds(&force.after_registration_time, defaults.registered_s)?,
    })
}

fn quick(call: &Call) -> Result<Answer, Failure> {
    let name = call.parameters.text("agent_name").unwrap_or_default().to_owned();
    let request = AgentEnrolment { name, ..AgentEnrolment::default() };
    insert_agent(call, &InsertAgent { request, ..InsertAgent::default() })
}

/// Adds an agent. Conflicting agents are replaced only if the caller may remove them; the audit log
/// lists them.
fn insert_agent(call: &Call, new: &InsertAgent) -> Result<Answer, Failure> {
    let at_us = call.api.options.clock.guarded_us();
    let (mut denied, mut busy) = (Vec::new(), None);
    let mut record = |displaced: DisplacedAgents<'_>| {
        let DisplacedAgents { gone, rekeyed } = displaced;
        let scope = call.scope_of(DELETE);
        let going = || gone.iter().map(|life| life.agent);
        let kept = going().chain(rekeyed).filter(|agent| !scope.holds(*agent));
        denied.extend(kept.map(|agent| agent.to_string()));
        if !denied.is_empty() {
            return Err("the caller may not remove who is in the way".to_owned());
        }
        if gone.is_empty() {
            return Ok(());
        }
        if let Err(failure) = can_delete_metrics(call) {
            let text = failure.detail.clone();
            busy = Some(failure);
            return Err(text);
        }
        let ids: Vec<AgentId> = going().collect();
        let names: Vec<String> = ids.iter().map(AgentId::to_string).collect();
        call.context.amend(&format!(" (removes {})", names.join(", ")));
        call.effect.set_begun();
        gone.iter().copied().try_for_each(|Life { agent, incarnation }| {
            let record = Record::AgentRemoved { agent, incarnation, at_us };
            call.commit().submit_blocking(record).map(drop).map_err(|e| e.to_string())
        })?;
        // Revoke the removed agents first, so that data they still send is not attributed to the new
        // agent.
        call.registry().revoke_agents(&call.context, &ids).map_err(|e| e.to_string())?;
        delete_metrics(call, &ids).map_err(|e| e.to_string())
    };
    let inserted = call.registry().insert_agent(&call.context, new, &mut record);
    if !denied.is_empty() {
        return Err(Failure::denied_on("agent:id", &denied));
    }
    if let Some(busy) = busy {
        return Err(busy);
    }
    let Inserted { id, key, .. } = inserted.map_err(refused)?;
    let ip = if new.request.ip.is_empty() { "any" } else { &new.request.ip };
    let key = line(id, &new.request.name, ip, &key);
    Answer::data(&AgentKey { id: id.to_string(), key })
}

fn refused(error: EnrollError) -> Failure {
    let detail = error.to_string();
    match error {
        EnrollError::DuplicateName { .. } => Failure::detailed(Code::AgentNameTaken, detail),
        EnrollError::DuplicateIp { .. } | EnrollError::Ip(_) => {
            Failure::detailed(Code::AgentAddressTaken, detail)
        }
        EnrollError::DuplicateId(_) => Failure::detailed(Code::AgentNumberTaken, detail),
        EnrollError::Name(_) => Failure::detailed(Code::AgentNameInvalid, detail),
        EnrollError::Registry(RegistryError::Store(ControlError::NumberUsed { .. })) => {
            Failure::detailed(Code::AgentNumberTaken, detail)
        }
        EnrollError::Registry(error) => error.into(),
        _ => Failure::bad(detail),
    }
}

/// Writes the removal records to the journal concurrently; returns those that were written.
fn record(call: &Call, lives: &[Life]) -> Vec<Life> {
    let at_us = call.api.options.clock.guarded_us();
    let submit = |Life { agent, incarnation }: Life| {
        let (api, record) =
            (Arc::clone(&call.api), Record::AgentRemoved { agent, incarnation, at_us });
        tokio::spawn(async move { api.commit.submit(record).await.map_err(|e| e.to_string()) })
    };
    let under_way: Vec<_> = lives.iter().map(|life| (*life, submit(*life))).collect();
    let mut recorded = Vec::with_capacity(lives.len());
    for (life, task) in under_way {
        match Handle::current().block_on(task) {
            Ok(Ok(_)) => recorded.push(life),
            Ok(Err(cause)) => tracing::error!("agent {} is not removed: {cause}", life.agent),
            Err(cause) => tracing::error!("agent {} is not removed: {cause}", life.agent),
        }
    }
    recorded
}

/// Fails if the series store cannot delete. Called before any change that ends with such a delete.
fn can_delete_metrics(call: &Call) -> Result<(), Failure> {
    let Some(store) = &call.api.options.series else { return Ok(()) };
    store.can_delete().map_err(|cause| {
        tracing::error!("agents are not removed, their metrics cannot be deleted: {cause}");
        let text =
            "nothing was removed: the series store takes no deletes now, see the server's log";
        Failure::busy(text, 60)
    })
}

/// Deletes the metrics of agents whose numbers may be reused, so that the next agent with such a number
/// does not inherit them. Metrics of other removed agents are kept until retention deletes them. The
/// agents must already be revoked: this waits for the metrics being stored, and none can arrive after
/// that.
fn delete_metrics(call: &Call, agents: &[AgentId]) -> Result<(), series::WriteError> {
    let Some(store) = call.api.options.series.as_ref().filter(|_| !agents.is_empty()) else {
        return Ok(());
    };
    Handle::current().block_on(call.registry().metrics_stored());
    let numbers = agents.iter().map(AgentId::to_string).collect();
    let tags = vec![(AgentId::TAG.to_owned(), series::Test::Is(numbers))];
    let of_them = series::Selector { metric: series::Test::Any, tags };
    store.delete(&of_them, series::TimeRange::ALL).map(drop)
}

/// The removed agents, and those among them whose numbers were not freed because deleting their metrics
/// failed.
#[derive(Default)]
struct Removed {
    gone: Vec<AgentId>,
    kept: Vec<AgentId>,
}

/// Removes agents: revokes them, writes the removal records, then deletes the rows in the registry.
/// After a crash, repeating the request completes the removal. Works in chunks and stops after the
/// first one that could not be fully recorded, so that no further agent is disconnected for nothing; an
/// agent that has reconnected in the meantime is skipped. Numbers are freed last, so that the next
/// agent with the number finds no old metrics and loses none of its own. After a crash before that, the
/// numbers stay taken and retention deletes the metrics.
fn remove(call: &Call, wanted: &[AgentId], query: &AgentQuery) -> Result<Removed, Failure> {
    let purge = call.parameters.flag("purge");
    let mut removed = Removed::default();
    for some in wanted.chunks(RECORDS_AT_ONCE) {
        if purge && let Err(refused) = can_delete_metrics(call) {
            if removed.gone.is_empty() {
                return Err(refused);
            }
            break;
        }
        if let Err(cause) = call.commit().available() {
            tracing::error!("agents are not removed: {cause}");
            break;
        }
        let still = AgentQuery { ids: Some(some.to_vec()), ..query.clone() };
        let lives = call.registry().agent_ids(call.reader(), &still)?;
        let lives = call.registry().revoke_agents(&call.context, &lives)?;
        let recorded = record(call, &lives);
        let gone = call.registry().remove_agents(&call.context, &recorded)?;
        removed.gone.extend(&gone);
        if purge && let Err(cause) = delete_metrics(call, &gone) {
            tracing::error!(
                "agent numbers were not freed, metrics cannot be deleted: {cause}: {gone:?}"
            );
            removed.kept = gone;
            break;
        }
        if purge && let Err(cause) = call.registry().free_numbers(&call.context, &gone) {
            tracing::error!("agent numbers were not freed: {cause}: {gone:?}");
            removed.kept = gone;
            break;
        }
        if recorded.len() < lives.len() {
            break;
        }
    }
    Ok(removed)
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let parameters = &call.parameters;
    let mut query = agent_list::agent_query(call)?;
    if query.older_than_s == Some(0) {
        // An age of zero selects all agents, including one that sent something within this second.
        query.older_than_s = None;
    }
    if parameters.list("status").iter().any(|status| status == "all") {
        // `all` prevails over any other status in the list.
        query.status.clear();
    }
    let matching: Vec<AgentId> = {
        let all = call.registry().agent_ids(call.reader(), &query)?;
        all.into_iter().filter(|id| *id != AgentId::SERVER).collect()
    };
    let mut failed = Vec::new();
    let wanted = match &query.ids {
        None => matching,
        Some(named) => {
            let (scope, mut named) = (call.scope(), named.clone());
            named.sort_unstable();
            named.dedup();
            named.retain(|id| {
                let code = if !scope.holds(*id) {
                    Code::Denied
                } else if *id == AgentId::SERVER {
                    Code::ServerItself
                } else if matching.binary_search(id).is_ok() {
                    return true;
                } else if call.api.registry.agent(*id).is_none() {
                    Code::AgentMissing
                } else {
                    Code::AgentFilteredOut
                };
                failed.push((code, *id));
                false
            });
            named
        }
    };
    let Removed { gone: removed, kept } = remove(call, &wanted, &query)?;
    let mut items = ItemWriter::default();
    for id in removed.iter().filter(|id| !kept.contains(id)) {
        items.push(&id.to_string())?;
    }
    failed.extend(kept.iter().map(|id| (Code::Internal, *id)));
    let stayed = wanted.iter().filter(|id| removed.binary_search(id).is_err());
    let still = AgentQuery { ids: Some(stayed.copied().collect()), ..query };
    let still = call.registry().agent_ids(call.reader(), &still)?;
    let stayed = wanted.iter().filter(|id| removed.binary_search(id).is_err());
    failed.extend(stayed.map(|id| {
        let code =
            if still.binary_search(id).is_ok() { Code::Internal } else { Code::AgentFilteredOut };
        (code, *id)
    }));
    let total = (removed.len() - kept.len()) as u64;
    let messages = [
        "All selected agents were deleted",
        "Some agents were not deleted",
        "No agents were deleted",
    ];
    let list = List::written(items, total, messages).with_failed(failed);
    Ok(Answer::List(list.with("older_than", json!(parameters.timeframe("older_than")))))
}

fn key(call: &Call) -> Result<Answer, Failure> {
    let id = call.parameters.agent()?;
    let messages = ["Obtained agent key was returned", "", "No key was returned"];
    if id == AgentId::SERVER {
        return Ok(only_failed(Code::ServerItself, id, messages));
    }
    let Some(agent) = call.api.registry.agent(id) else {
        return Ok(only_failed(Code::AgentMissing, id, messages));
    };
    let key = call.registry().client_key(call.reader(), id)?;
    let key = line(id, &agent.name, &agent.register_ip, &key);
    let item = to_value(&AgentKey { id: id.to_string(), key })?;
    Ok(Answer::List(List::new(vec![item], 1, messages)))
}
