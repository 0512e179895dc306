//! Functions shared by the operations of several resources.

use std::sync::Arc;

use model::AgentId;
use registry::{AgentQuery, Permitted};
use serde::Serialize;
use utoipa::ToSchema;

use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::operation::{Kind, Parameter, query};

/// The action that permits adding agents to a group and removing them.
pub(crate) const ASSIGN: &str = "group:modify_assignments";

/// Returns the named agents that exist and are permitted, and the others with their codes; without
/// names, all permitted agents.
pub(crate) fn named_agents(call: &Call) -> (Permitted, Vec<(Code, AgentId)>) {
    let scope = call.scope();
    let Some(named) = call.parameters.agents("agents_list") else { return (scope, Vec::new()) };
    let mut named = named.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut failed = Vec::new();
    named.retain(|id| {
        let code = if !scope.holds(*id) {
            Code::Denied
        } else if call.api.registry.agent(*id).is_none() {
            Code::AgentMissing
        } else {
            return true;
        };
        failed.push((code, *id));
        false
    });
    (Permitted::Only(Arc::new(named)), failed)
}

/// The filters by what an agent is now.
pub(crate) const MEMBERS: &[Parameter] = &[
    query("group", Kind::GroupName, "Only agents of this group now."),
    query("os", Kind::Alphanumeric, "Only agents of this platform now, for example debian."),
];

/// Returns the agents of a scope that are in the group and of the platform which the request names;
/// `None` if it names neither.
pub(crate) fn members(call: &Call, permitted: &Permitted) -> Result<Option<Vec<AgentId>>, Failure> {
    let one = |name| call.parameters.text(name).map(str::to_owned).into_iter().collect();
    let (group, os_platform): (Vec<String>, Vec<String>) = (one("group"), one("os"));
    if group.is_empty() && os_platform.is_empty() {
        return Ok(None);
    }
    let permitted = permitted.clone();
    let query = AgentQuery { permitted, group, os_platform, ..AgentQuery::default() };
    Ok(Some(call.registry().agent_ids(call.reader(), &query)?))
}

/// Returns an empty list in which the one requested agent failed.
pub(crate) fn only_failed(code: Code, agent: AgentId, messages: [&'static str; 3]) -> Answer {
    Answer::List(List::new(Vec::new(), 0, messages).with_failed([(code, agent)]))
}

/// An agent by number and name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentRef {
    /// At least three digits.
    pub(crate) id: String,
    /// Empty if the agent was removed and its name is no longer stored.
    pub(crate) name: String,
}

/// Truncates an RFC 3339 time to whole seconds.
pub(super) fn seconds_z(text: &str) -> String {
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text.to_owned(),
    }
}
