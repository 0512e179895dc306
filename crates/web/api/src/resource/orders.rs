//! Commands to agents: restart, and what other resources order.

use model::{AgentId, AgentStatus};
use registry::{AgentQuery, CommandKind};
use serde_json::{Value, json};

use crate::call::Call;
use crate::envelope::{Answer, List};
use crate::error::Failure;
use crate::operation::{AGENT_ID, AGENTS_LIST, COMMON, Handler, Operation, Shape, Verb, action};

pub(super) const OPERATIONS: &[Operation] = &[
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
];

const RESTART_MESSAGES: [&str; 3] = [
    "Restart command was sent to all agents",
    "Restart command was sent to some agents",
    "Restart command was not sent to any agent",
];

/// Create a command for agents: named ones, of which those that cannot get it are told one by one,
/// or all that are active.
pub(super) fn order(
    call: &Call,
    kind: CommandKind,
    wanted: Option<Vec<AgentId>>,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    let mut failed = Vec::new();
    let agents: Vec<AgentId> = match wanted {
        None => {
            let status = vec![AgentStatus::Active];
            let ids = call.registry().agent_ids(&AgentQuery { status, ..AgentQuery::default() })?;
            ids.into_iter().filter(|id| *id != AgentId::SERVER).collect()
        }
        Some(mut wanted) => {
            wanted.sort_unstable();
            wanted.dedup();
            wanted.retain(|id| match obstacle(call, *id) {
                Some(code) => {
                    failed.push((code, id.to_string()));
                    false
                }
                None => true,
            });
            wanted
        }
    };
    let command = if agents.is_empty() {
        None
    } else {
        Some(call.registry().create_command(kind, &agents, &call.caller.name())?)
    };
    let items: Vec<Value> = agents.iter().map(|id| json!(id.to_string())).collect();
    let mut list = List::new(items, agents.len() as u64, messages);
    for (code, id) in failed {
        list.fail(code, id);
    }
    Ok(Answer::List(match command {
        Some(id) => list.with("command", json!(id)),
        None => list,
    }))
}

fn obstacle(call: &Call, id: AgentId) -> Option<u16> {
    if id == AgentId::SERVER {
        return Some(1703);
    }
    match call.api.registry.agent(id) {
        None => Some(1701),
        Some(agent) if agent.status != AgentStatus::Active => Some(1707),
        Some(_) => None,
    }
}
