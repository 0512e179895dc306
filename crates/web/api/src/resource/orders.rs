//! Commands to agents: restart, and what other resources order.

use model::{AgentId, AgentStatus};
use registry::{AgentQuery, CommandKind, Permitted};
use serde_json::json;

use super::groups::GROUP_ID;
use crate::code::Code;
use crate::error::Failure;
use crate::http::call::Call;
use crate::http::envelope::{Answer, ItemWriter, List};
use crate::http::operation::{
    AGENT_ID, AGENTS_LIST, COMMON, Handler, Kind, Operation, Shape, Verb, action, path,
};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Put,
        path: "/agents/restart",
        id: "agents.restart",
        about: "Restart agents; durable when it answers, each outcome under /commands.",
        access: action("agent:restart", "agent:id"),
        parameters: &[COMMON, &[AGENTS_LIST]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(|call| {
            let wanted = call.parameters.agents("agents_list").map(<[AgentId]>::to_vec);
            order(call, CommandKind::Restart, wanted, RESTART_MESSAGES)
        }),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/{agent_id}/restart",
        id: "agents.restart_one",
        about: "Restart one agent.",
        access: action("agent:restart", "agent:id"),
        parameters: &[COMMON, &[AGENT_ID]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(|call| {
            let wanted = Some(vec![call.parameters.agent()?]);
            order(call, CommandKind::Restart, wanted, RESTART_MESSAGES)
        }),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/group/{group_id}/restart",
        id: "agents.restart_group",
        about: "Restart the active agents of a group.",
        access: action("agent:restart", "agent:id"),
        parameters: &[COMMON, &[GROUP_ID]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(restart_group),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/node/{node_id}/restart",
        id: "agents.restart_node",
        about: "Restart the active agents of a node.",
        access: action("agent:restart", "agent:id"),
        parameters: &[COMMON, &[path("node_id", Kind::Name, "Name of the node.")]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(restart_node),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/reload",
        id: "agents.reload",
        about: "Have agents fetch their groups' configuration at once; each outcome under /commands.",
        access: action("agent:restart", "agent:id"),
        parameters: &[COMMON, &[AGENTS_LIST]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(|call| {
            let wanted = call.parameters.agents("agents_list").map(<[AgentId]>::to_vec);
            order(call, CommandKind::Configure, wanted, RELOAD_MESSAGES)
        }),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/reconnect",
        id: "agents.reconnect",
        about: "Make agents connect anew; durable when it answers, each outcome under /commands.",
        access: action("agent:reconnect", "agent:id"),
        parameters: &[COMMON, &[AGENTS_LIST]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(reconnect),
    },
];

const RESTART_MESSAGES: [&str; 3] = [
    "Restart command was sent to all agents",
    "Restart command was sent to some agents",
    "Restart command was not sent to any agent",
];

const RELOAD_MESSAGES: [&str; 3] = [
    "Reload command was sent to all agents",
    "Reload command was sent to some agents",
    "Reload command was not sent to any agent",
];

const RECONNECT_MESSAGES: [&str; 3] = [
    "Force reconnect command was sent to all agents",
    "Force reconnect command was sent to some agents",
    "Force reconnect command was not sent to any agent",
];

fn reconnect(call: &Call) -> Result<Answer, Failure> {
    let wanted = call.parameters.agents("agents_list").map(<[AgentId]>::to_vec);
    order(call, CommandKind::Reconnect, wanted, RECONNECT_MESSAGES)
}

fn restart_group(call: &Call) -> Result<Answer, Failure> {
    let group = super::groups::existing(call)?;
    let query = AgentQuery { group: vec![group], ..active(call) };
    let agents = call.registry().agent_ids(call.reader(), &query)?;
    send(call, CommandKind::Restart, agents, Vec::new(), RESTART_MESSAGES)
}

fn restart_node(call: &Call) -> Result<Answer, Failure> {
    let node = call.parameters.text("node_id").unwrap_or_default();
    call.require("cluster:read", "node:id", node)?;
    super::cluster::own_node(call)?;
    order(call, CommandKind::Restart, None, RESTART_MESSAGES)
}

/// The active agents that the caller may command.
fn active(call: &Call) -> AgentQuery {
    let (status, permitted) = (vec![AgentStatus::Active], call.scope());
    AgentQuery { status, permitted, ..AgentQuery::default() }
}

/// Create a command for agents: named ones, of which those that cannot get it are told one by one,
/// or all that are active.
pub(super) fn order(
    call: &Call,
    kind: CommandKind,
    wanted: Option<Vec<AgentId>>,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    let Some(mut wanted) = wanted else {
        let agents = call.registry().agent_ids(call.reader(), &active(call))?;
        return send(call, kind, agents, Vec::new(), messages);
    };
    wanted.sort_unstable();
    wanted.dedup();
    let scope = call.scope();
    let mut failed = Vec::new();
    wanted.retain(|id| match obstacle(call, &scope, *id) {
        Some(code) => {
            failed.push((code, *id));
            false
        }
        None => true,
    });
    send(call, kind, wanted, failed, messages)
}

/// One durable command for all of them; agent 000 is passed over.
fn send(
    call: &Call,
    kind: CommandKind,
    mut agents: Vec<AgentId>,
    failed: Vec<(Code, AgentId)>,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    agents.retain(|id| *id != AgentId::SERVER);
    let ordered = if agents.is_empty() {
        None
    } else {
        Some(call.registry().order(&call.context, kind, &agents, &call.caller.name())?)
    };
    if ordered.is_none_or(|ordered| ordered.joined) {
        call.effect.set_unchanged();
    }
    let mut items = ItemWriter::default();
    for id in &agents {
        items.push(&id.to_string())?;
    }
    let mut list = List::written(items, agents.len() as u64, messages);
    for (code, id) in failed {
        list.fail(code, id.to_string());
    }
    Ok(Answer::List(match ordered {
        Some(ordered) => list.with("command", json!(ordered.command)),
        None => list,
    }))
}

fn obstacle(call: &Call, scope: &Permitted, id: AgentId) -> Option<Code> {
    if !scope.holds(id) {
        return Some(Code::Denied);
    }
    if id == AgentId::SERVER {
        return Some(Code::ServerItself);
    }
    match call.api.registry.agent(id) {
        None => Some(Code::AgentMissing),
        Some(agent) if agent.status != AgentStatus::Active => Some(Code::AgentNotActive),
        Some(_) => None,
    }
}
