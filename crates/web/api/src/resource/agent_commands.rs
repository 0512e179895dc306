//! Restart commands, and the commands created by other resources.

use model::AgentId;
use registry::{AgentQuery, CommandKind};

use super::group_item::{GROUP_ID, permitted};
use super::issuing::{active, issue_command, issue_to};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{
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
            issue_command(call, CommandKind::Restart, wanted, RESTART_MESSAGES)
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
            issue_command(call, CommandKind::Restart, wanted, RESTART_MESSAGES)
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
            issue_command(call, CommandKind::Configure, wanted, RELOAD_MESSAGES)
        }),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/reconnect",
        id: "agents.reconnect",
        about: "Make agents reconnect; durable when it answers, each outcome under /commands.",
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
    issue_command(call, CommandKind::Reconnect, wanted, RECONNECT_MESSAGES)
}

fn restart_group(call: &Call) -> Result<Answer, Failure> {
    let group = permitted(call, "group:read")?;
    // An agent that the caller may not read is left out: its number would reveal that it exists.
    let permitted = call.scope_of("agent:read");
    let query = AgentQuery { group: vec![group], permitted, ..active(call) };
    let members = call.registry().agent_ids(call.reader(), &query)?;
    let scope = call.scope();
    let (agents, denied): (Vec<_>, Vec<_>) = members.into_iter().partition(|id| scope.holds(*id));
    let failed = denied.into_iter().map(|id| (Code::Denied, id)).collect();
    issue_to(call, CommandKind::Restart, agents, failed, RESTART_MESSAGES)
}

fn restart_node(call: &Call) -> Result<Answer, Failure> {
    let node = call.parameters.text("node_id").unwrap_or_default();
    call.require("cluster:read", "node:id", node)?;
    super::node::own_node(call)?;
    issue_command(call, CommandKind::Restart, None, RESTART_MESSAGES)
}
