//! Creation of commands to agents, shared by several resources.

use model::{AgentId, AgentStatus};
use registry::{AgentQuery, CommandKind, Permitted};
use serde_json::json;

use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, ItemWriter, List};

/// Returns a query for the active agents that the caller may command.
pub(super) fn active(call: &Call) -> AgentQuery {
    let (status, permitted) = (vec![AgentStatus::Active], call.scope());
    AgentQuery { status, permitted, ..AgentQuery::default() }
}

/// Creates a command for the named agents, or for all active ones. Named agents that cannot receive it
/// are reported individually.
pub(super) fn issue_command(
    call: &Call,
    kind: CommandKind,
    wanted: Option<Vec<AgentId>>,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    let Some(mut wanted) = wanted else {
        let agents = call.registry().agent_ids(call.reader(), &active(call))?;
        return issue_to(call, kind, agents, Vec::new(), messages);
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
    issue_to(call, kind, wanted, failed, messages)
}

/// Creates one durable command for all agents except agent 000.
pub(super) fn issue_to(
    call: &Call,
    kind: CommandKind,
    mut agents: Vec<AgentId>,
    failed: Vec<(Code, AgentId)>,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    agents.retain(|id| *id != AgentId::SERVER);
    let issued = if agents.is_empty() {
        None
    } else {
        Some(call.registry().issue_command(&call.context, kind, &agents, &call.caller.name())?)
    };
    if issued.is_none_or(|issued| issued.joined) {
        call.effect.set_unchanged();
    }
    let mut items = ItemWriter::default();
    for id in &agents {
        items.push(&id.to_string())?;
    }
    let list = List::written(items, agents.len() as u64, messages).with_failed(failed);
    Ok(Answer::List(match issued {
        Some(issued) => list.with("command", json!(issued.command)),
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
