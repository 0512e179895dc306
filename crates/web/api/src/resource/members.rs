//! Adding agents to groups and removing them.

use control::limits::GROUPS_PER_AGENT_MAX;
use model::AgentId;
use registry::{AgentQuery, GroupChange};
use serde_json::{Value, json};

use super::common::{ASSIGN, only_failed};
use super::group_item::{GROUP_ID, permitted};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::operation::{
    AGENT_ID, AGENTS_LIST, COMMON, Handler, Kind, Operation, Shape, Verb, action, query, required,
};

const FORCE: rest::http::operation::Parameter =
    query("force_single_group", Kind::Flag, "Remove the agent from its other groups.");

const MODIFY: rest::http::operation::Access = action("agent:modify_group", "agent:id");

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/agents/{agent_id}/group/is_sync",
        id: "agents.group_is_sync",
        about: "Whether the agent runs the configuration of its groups, and what it refused.",
        access: action("agent:read", "agent:id"),
        parameters: &[COMMON, &[AGENT_ID]],
        body: None,
        shape: Shape::List("SyncItem"),
        handler: Handler::Blocking(is_sync),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/{agent_id}/group/{group_id}",
        id: "agents.group_add",
        about: "Add an agent to a group.",
        access: MODIFY,
        parameters: &[COMMON, &[AGENT_ID, GROUP_ID, FORCE]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(add_one),
    },
    Operation {
        verb: Verb::Delete,
        path: "/agents/{agent_id}/group/{group_id}",
        id: "agents.group_remove",
        about: "Remove an agent from a group.",
        access: MODIFY,
        parameters: &[COMMON, &[AGENT_ID, GROUP_ID]],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(remove_one),
    },
    Operation {
        verb: Verb::Delete,
        path: "/agents/{agent_id}/group",
        id: "agents.groups_remove",
        about: "Remove an agent from all its groups, or from some.",
        access: MODIFY,
        parameters: &[
            COMMON,
            &[
                AGENT_ID,
                query("groups_list", Kind::GroupNames, "Names, comma-separated; default all."),
            ],
        ],
        body: None,
        shape: Shape::List("GroupName"),
        handler: Handler::Blocking(remove_from_groups),
    },
    Operation {
        verb: Verb::Put,
        path: "/agents/group",
        id: "agents.group_add_many",
        about: "Add agents to a group.",
        access: MODIFY,
        parameters: &[
            COMMON,
            &[AGENTS_LIST, required("group_id", Kind::GroupName, "Name of the group."), FORCE],
        ],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(add_many),
    },
    Operation {
        verb: Verb::Delete,
        path: "/agents/group",
        id: "agents.group_remove_many",
        about: "Remove agents from a group.",
        access: MODIFY,
        parameters: &[
            COMMON,
            &[
                required(
                    "agents_list",
                    Kind::NumbersOrAll,
                    "Agent numbers, comma-separated, or all.",
                ),
                required("group_id", Kind::GroupName, "Name of the group."),
            ],
        ],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(remove_many),
    },
];

/// Returns the agent in the path with its groups; fails if it does not exist or is the server.
pub(super) fn member(call: &Call) -> Result<(AgentId, Vec<String>), Failure> {
    let id = call.parameters.agent()?;
    if id == AgentId::SERVER {
        return Err(Failure::code(Code::ServerItself));
    }
    let agent = call.api.registry.agent(id).ok_or_else(|| Failure::code(Code::AgentMissing))?;
    Ok((id, agent.groups))
}

fn is_sync(call: &Call) -> Result<Answer, Failure> {
    let id = call.parameters.agent()?;
    let messages =
        ["Sync info was returned for all selected agents", "", "No sync info was returned"];
    if id == AgentId::SERVER {
        return Ok(only_failed(Code::ServerItself, id, messages));
    }
    let Some((state, problem)) = call.api.registry.agent_config(id) else {
        return Ok(only_failed(Code::AgentMissing, id, messages));
    };
    let mut item = json!({"id": id.to_string(), "synced": state.synced});
    if let (Value::Object(fields), Some(problem)) = (&mut item, problem) {
        let refused = json!({"mergedSum": problem.sum, "detail": problem.detail});
        fields.insert("refused".into(), refused);
    }
    Ok(Answer::List(List::new(vec![item], 1, messages)))
}

fn add_one(call: &Call) -> Result<Answer, Failure> {
    let group = permitted(call, ASSIGN)?;
    let chosen = choose(call, &[call.parameters.agent()?]);
    add(call, &group, chosen, true)
}

fn limited(error: registry::RegistryError) -> Failure {
    use registry::{ControlError, RegistryError};
    match error {
        RegistryError::Store(ControlError::Limit { .. }) => Failure::code(Code::TooManyGroups),
        other => other.into(),
    }
}

/// Returns the reason why an agent cannot leave a group, if there is one.
fn stays(groups: &[String], group: &str) -> Option<Code> {
    if !groups.iter().any(|name| name == group) {
        return Some(Code::AgentNotInGroup);
    }
    (group == "default" && groups.len() == 1).then_some(Code::OnlyDefaultGroup)
}

fn remove_one(call: &Call) -> Result<Answer, Failure> {
    let group = permitted(call, ASSIGN)?;
    let (id, groups) = member(call)?;
    if let Some(code) = stays(&groups, &group) {
        return Err(Failure::code(code));
    }
    let changed =
        call.registry().change_group(&call.context, &[id], &group, GroupChange::Remove)?;
    let left = changed.first().is_some_and(|(_, left)| left == &["default"]);
    let reassigned = left && !groups.iter().any(|name| name == "default");
    let tail = if reassigned { " Agent reassigned to group default." } else { "" };
    Ok(Answer::Message(format!("Agent '{id}' removed from '{group}'.{tail}")))
}

fn remove_from_groups(call: &Call) -> Result<Answer, Failure> {
    let named = call.parameters.list("groups_list");
    let may = |group: &String| call.may(ASSIGN, "group:id", group);
    if !named.is_empty() && !named.iter().any(may) {
        return Err(Failure::denied_on("group:id", named));
    }
    let (id, groups) = member(call)?;
    let messages = [
        "Specified agent was removed from returned groups",
        "Specified agent could not be removed from some groups",
        "Specified agent was not removed from any group",
    ];
    let mut wanted = if named.is_empty() { groups.clone() } else { named.to_vec() };
    if named.is_empty() {
        wanted.retain(may);
    }
    // The agent can leave the group default only while it is in another one.
    wanted.sort_by_key(|group| group == "default");
    let known = call.registry().groups(call.reader())?;
    let (mut left, mut failed) = (groups, Vec::new());
    let mut removed: Vec<String> = Vec::new();
    for group in wanted {
        if !may(&group) {
            failed.push((Code::Denied, group));
        } else if !known.iter().any(|known| known.name == group) {
            failed.push((Code::GroupMissing, group));
        } else if let Some(code) = stays(&left, &group) {
            if !named.is_empty() {
                failed.push((code, group));
            }
        } else {
            left.retain(|name| *name != group);
            removed.push(group);
        }
    }
    if !removed.is_empty() {
        call.registry().leave_groups(&call.context, id, &removed)?;
    }
    removed.sort_unstable();
    let total = removed.len() as u64;
    let removed = removed.into_iter().map(Value::String).collect();
    Ok(Answer::List(List::new(removed, total, messages).with_failed(failed)))
}

/// The agents to change, and the others with the codes of the reasons.
type ChosenAgents = (Vec<AgentId>, Vec<(Code, AgentId)>);

/// Returns the named agents, or all; those that cannot be changed are returned with their codes.
fn chosen(call: &Call) -> Result<ChosenAgents, Failure> {
    if let Some(named) = call.parameters.agents("agents_list") {
        return Ok(choose(call, named));
    }
    let query = AgentQuery { permitted: call.scope(), ..AgentQuery::default() };
    let mut all = call.registry().agent_ids(call.reader(), &query)?;
    all.retain(|id| *id != AgentId::SERVER);
    Ok((all, Vec::new()))
}

/// Splits named agents into those that can be changed, and the others with their codes.
fn choose(call: &Call, named: &[AgentId]) -> ChosenAgents {
    let scope = call.scope();
    let mut named = named.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut failed = Vec::new();
    named.retain(|id| {
        let code = if !scope.holds(*id) {
            Code::Denied
        } else if *id == AgentId::SERVER {
            Code::ServerItself
        } else if call.api.registry.agent(*id).is_none() {
            Code::AgentMissing
        } else {
            return true;
        };
        failed.push((code, *id));
        false
    });
    (named, failed)
}

fn member_answer(done: &[AgentId], failed: Vec<(Code, AgentId)>, messages: [String; 3]) -> Answer {
    let items = done.iter().map(|id| json!(id.to_string())).collect();
    let list = List::new(items, done.len() as u64, [""; 3]).with_messages(messages);
    Answer::List(list.with_failed(failed))
}

/// Returns the reason why an agent cannot be added to a group, if there is one. With `single`, it
/// leaves its other groups.
fn refusal(call: &Call, id: AgentId, group: &str, single: bool) -> Option<Code> {
    let groups = call.api.registry.agent(id).map(|agent| agent.groups).unwrap_or_default();
    if single {
        let mut others = groups.iter().filter(|name| *name != group);
        let denied = others.any(|name| !call.may(ASSIGN, "group:id", name));
        return denied.then_some(Code::OtherGroupsDenied);
    }
    if groups.iter().any(|name| name == group) {
        return Some(Code::AgentInGroup);
    }
    (groups.len() >= GROUPS_PER_AGENT_MAX).then_some(Code::TooManyGroups)
}

/// Adds agents to a group. Members of the group failed if the request named its agents.
fn add(
    call: &Call,
    group: &str,
    (mut agents, mut failed): ChosenAgents,
    named: bool,
) -> Result<Answer, Failure> {
    let single = call.parameters.flag("force_single_group");
    agents.retain(|id| match refusal(call, *id, group, single) {
        Some(Code::AgentInGroup) if !named => false,
        Some(code) => {
            failed.push((code, *id));
            false
        }
        None => true,
    });
    let change = if single { GroupChange::Replace } else { GroupChange::Add };
    call.registry().change_group(&call.context, &agents, group, change).map_err(limited)?;
    let others = if single { " and removed from the other groups" } else { "" };
    let messages = [
        format!("All selected agents were assigned to {group}{others}"),
        format!("Some agents were not assigned to {group}{others}"),
        format!("No agents were assigned to {group}{others}"),
    ];
    Ok(member_answer(&agents, failed, messages))
}

fn add_many(call: &Call) -> Result<Answer, Failure> {
    let group = permitted(call, ASSIGN)?;
    let chosen = chosen(call)?;
    add(call, &group, chosen, call.parameters.agents("agents_list").is_some())
}

fn remove_many(call: &Call) -> Result<Answer, Failure> {
    let group = permitted(call, ASSIGN)?;
    let implicit = call.parameters.agents("agents_list").is_none();
    let (mut agents, mut failed) = chosen(call)?;
    agents.retain(|id| {
        let groups = call.api.registry.agent(*id).map(|agent| agent.groups).unwrap_or_default();
        match stays(&groups, &group) {
            Some(code) if !implicit => failed.push((code, *id)),
            Some(_) => {}
            None => return true,
        }
        false
    });
    call.registry().change_group(&call.context, &agents, &group, GroupChange::Remove)?;
    let messages = [
        format!("All selected agents were removed from group {group}"),
        format!("Some agents were not removed from group {group}"),
        format!("No agents were removed from group {group}"),
    ];
    Ok(member_answer(&agents, failed, messages))
}
