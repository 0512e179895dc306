//! Operations for programs on the server's machine, over the unix socket: answers without envelopes and
//! without a size limit. A GET changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use model::{AgentId, AgentOs, AgentStatus};
use registry::{AgentInfo, AgentQuery, Permitted};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::agent_list::READ;
use super::group_item::{GROUP_ID, existing};
use super::summary::summary_of;
use rest::access::caller::Caller;
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, JSON, to_bytes, to_value};
use rest::http::operation::{
    COMMON, Handler, Kind, Operation, Parameter, Shape, Verb, action, path,
};

const AGENT: Parameter =
    path("agent", Kind::Whole { min: 0, max: u32::MAX as u64, default: 0 }, "Agent number.");

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/v1/agents/ids",
        id: "local.ids",
        about: "The numbers of all agents, as a bare list.",
        access: READ,
        parameters: &[COMMON],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(ids),
    },
    Operation {
        verb: Verb::Get,
        path: "/v1/agents/ids/groups",
        id: "local.ids_groups",
        about: "The groups of all agents by number.",
        access: READ,
        parameters: &[COMMON],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(ids_groups),
    },
    Operation {
        verb: Verb::Get,
        path: "/v1/agents/ids/groups/{group_id}",
        id: "local.group_ids",
        about: "The numbers of a group's agents, as a bare list.",
        access: READ,
        parameters: &[COMMON, &[GROUP_ID]],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(group_ids),
    },
    Operation {
        verb: Verb::Get,
        path: "/v1/agents/{agent}/groups",
        id: "local.agent_groups",
        about: "The groups of an agent in their order, as a bare list.",
        access: READ,
        parameters: &[COMMON, &[AGENT]],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(agent_groups),
    },
    Operation {
        verb: Verb::Post,
        path: "/v1/agents/summary",
        id: "local.summary",
        about: "Counters of the named agents, or of all for an empty list.",
        access: READ,
        parameters: &[COMMON],
        body: Some("AgentNumbers"),
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(summary),
    },
    Operation {
        verb: Verb::Post,
        path: "/v1/agents/restartinfo",
        id: "local.restartinfo",
        about: "Number and version of active agents.",
        access: READ,
        parameters: &[COMMON],
        body: Some("RestartInfo"),
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(restart_info),
    },
    Operation {
        verb: Verb::Post,
        path: "/v1/agents/sync",
        id: "local.sync_apply",
        about: "Report the states of agents that another program on this machine knows: versions, heartbeats, shutdowns. Unix socket only.",
        access: action("agent:create", "*:*"),
        parameters: &[COMMON],
        body: Some("SyncBody"),
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(sync_apply),
    },
    Operation {
        verb: Verb::Get,
        path: "/v1/agents/sync",
        id: "local.sync",
        about: "Changes to send to other nodes: none, because there is one store.",
        access: READ,
        parameters: &[COMMON],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(|_| {
            Ok(bare(&json!({"syncreq": [], "syncreq_keepalive": [], "syncreq_status": []})))
        }),
    },
];

/// The agents to restart.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestartInfo {
    ids: Vec<u32>,
    /// All but these.
    #[serde(default)]
    negate: bool,
}

/// States of agents that another program reports; unknown agents are ignored.
#[derive(Deserialize, ToSchema)]
pub(crate) struct SyncBody {
    /// Versions and systems of agents.
    #[serde(default)]
    syncreq: Vec<SyncAgent>,
    /// Agents that sent a heartbeat.
    #[serde(default)]
    syncreq_keepalive: Vec<u32>,
    /// Agents by status.
    #[serde(default)]
    syncreq_status: Vec<SyncStatus>,
}

/// Version and system of an agent; other fields are ignored.
#[derive(Deserialize, ToSchema)]
pub(crate) struct SyncAgent {
    id: u32,
    ip: Option<String>,
    version: Option<String>,
    os_name: Option<String>,
    os_platform: Option<String>,
    os_version: Option<String>,
    os_arch: Option<String>,
    os_uname: Option<String>,
    /// `active`, `pending`, `disconnected` or `never_connected`.
    connection_status: Option<String>,
}

/// An agent's status.
#[derive(Deserialize, ToSchema)]
pub(crate) struct SyncStatus {
    id: u32,
    /// `active`, `pending`, `disconnected` or `never_connected`.
    connection_status: String,
}

impl SyncAgent {
    fn info(&self) -> AgentInfo {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let os = self.os_platform.is_some().then(|| AgentOs {
            name: text(&self.os_name),
            platform: text(&self.os_platform),
            family: String::new(),
            version: text(&self.os_version),
            arch: text(&self.os_arch),
            uname: text(&self.os_uname),
            codename: String::new(),
        });
        AgentInfo { version: self.version.clone(), hostname: None, os, ip: self.ip.clone() }
    }
}

/// Applies reported states of agents. Users may not report them. The whole body is validated before any
/// change.
fn sync_apply(call: &Call) -> Result<Answer, Failure> {
    if !matches!(call.caller, Caller::Local { .. }) {
        return Err(Failure::detailed(
            Code::Denied,
            "for programs on the server's unix socket only",
        ));
    }
    let request: SyncBody = call.json()?;
    let status = |name: &Option<String>| match name.as_deref() {
        None => Ok(AgentStatus::Active),
        Some(name) => AgentStatus::from_name(name)
            .ok_or_else(|| Failure::bad(format!("connection_status: '{name:.40}' is none"))),
    };
    let mut steps = Vec::new();
    for agent in &request.syncreq {
        steps.push((agent.id, status(&agent.connection_status)?, agent.info()));
    }
    for id in &request.syncreq_keepalive {
        steps.push((*id, AgentStatus::Active, AgentInfo::default()));
    }
    for agent in &request.syncreq_status {
        let status = status(&Some(agent.connection_status.clone()))?;
        steps.push((agent.id, status, AgentInfo::default()));
    }
    let registry = call.registry();
    for (id, status, info) in steps {
        let id = AgentId(id);
        match status {
            AgentStatus::Active => _ = registry.keepalive(id, &info),
            AgentStatus::Pending => _ = registry.startup(id, &info),
            AgentStatus::Disconnected => _ = registry.goodbye(id),
            AgentStatus::NeverConnected => {}
        }
    }
    Ok(bare(&json!({})))
}

fn bare(value: &Value) -> Answer {
    Answer::Raw { status: StatusCode::OK, content_type: JSON, body: to_bytes(value, false) }
}

fn numbers(ids: &[AgentId]) -> Result<Answer, Failure> {
    let numbers: Vec<u32> =
        ids.iter().filter(|id| **id != AgentId::SERVER).map(|id| id.0).collect();
    let body = serde_json::to_vec(&numbers).map_err(|e| Failure::internal(&e))?;
    Ok(Answer::Raw { status: StatusCode::OK, content_type: JSON, body })
}

fn ids(call: &Call) -> Result<Answer, Failure> {
    let query = AgentQuery { permitted: call.scope(), ..AgentQuery::default() };
    numbers(&call.registry().agent_ids(call.reader(), &query)?)
}

fn group_ids(call: &Call) -> Result<Answer, Failure> {
    let group = vec![existing(call)?];
    let query = AgentQuery { permitted: call.scope(), group, ..AgentQuery::default() };
    numbers(&call.registry().agent_ids(call.reader(), &query)?)
}

fn ids_groups(call: &Call) -> Result<Answer, Failure> {
    let mut groups: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    call.registry().for_each_agent(&call.scope(), |agent| {
        groups.insert(agent.id.0, agent.groups.clone());
    });
    Ok(bare(&json!({"data": to_value(&groups)?})))
}

fn agent_groups(call: &Call) -> Result<Answer, Failure> {
    let id = AgentId(call.parameters.whole("agent") as u32);
    let found = call.registry().agent(id).filter(|_| id != AgentId::SERVER);
    let agent = found.filter(|_| call.scope().holds(id));
    Ok(bare(&to_value(&agent.ok_or_else(|| Failure::code(Code::AgentMissing))?.groups)?))
}

/// Returns the caller's scope, restricted to some agents.
fn narrowed(scope: &Permitted, ids: Vec<u32>) -> Permitted {
    let mut ids: Vec<AgentId> =
        ids.into_iter().map(AgentId).filter(|id| scope.holds(*id)).collect();
    ids.sort_unstable();
    ids.dedup();
    Permitted::Only(Arc::new(ids))
}

fn summary(call: &Call) -> Result<Answer, Failure> {
    let named: Vec<u32> = call.json()?;
    let scope = call.scope();
    let scope = if named.is_empty() { scope } else { narrowed(&scope, named) };
    let data = to_value(&summary_of(call, &scope))?;
    Ok(bare(&json!({
        "agents_by_status": data.get("status"),
        "agents_by_groups": data.get("groups"),
        "agents_by_os": data.get("os"),
    })))
}

fn restart_info(call: &Call) -> Result<Answer, Failure> {
    let wanted: RestartInfo = call.json()?;
    let scope = call.scope();
    let named = narrowed(&scope, wanted.ids);
    let mut items = Vec::new();
    let mut look = |agent: &model::AgentRecord| {
        if agent.status == AgentStatus::Active {
            items.push((agent.id.0, agent.version.clone().unwrap_or_default()));
        }
    };
    if wanted.negate {
        call.registry().for_each_agent(&scope, |agent| {
            if !named.holds(agent.id) {
                look(agent);
            }
        });
    } else {
        call.registry().for_each_agent(&named, look);
    }
    items.sort_unstable();
    let items: Vec<Value> =
        items.into_iter().map(|(id, version)| json!({"id": id, "version": version})).collect();
    Ok(bare(&json!({"items": items})))
}
