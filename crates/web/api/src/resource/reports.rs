//! The last reports of agents about themselves: counters, and the configuration that they run with.

use model::{Incarnation, ReportKind, timestamp};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::common::{AgentRef, only_failed};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{
    AGENT_ID, COMMON, Handler, Kind, Operation, Shape, Verb, action, path,
};

const KINDS: &[&str] = &["stats", "config"];

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/agents/{agent_id}/reports/{kind}",
    id: "agents.report",
    about: "Last report of the agent's counters (stats) or of the configuration that it runs with.",
    access: action("agent:read", "agent:id"),
    parameters: &[COMMON, &[AGENT_ID, path("kind", Kind::Word(KINDS), "Kind of the report.")]],
    body: None,
    shape: Shape::List("ReportItem"),
    handler: Handler::Blocking(last_report),
}];

/// The last report of one kind.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReportItem {
    agent: AgentRef,
    /// When the server received it, RFC 3339.
    received: String,
    /// The object as the agent sent it.
    #[schema(value_type = Object)]
    report: Value,
}

/// Returns the report, or an empty list if the agent has sent none. A number that is not registered
/// may have reports, sent by local programs.
fn last_report(call: &Call) -> Result<Answer, Failure> {
    let id = call.parameters.agent()?;
    let kind = match call.parameters.text("kind") {
        Some("config") => ReportKind::Config,
        _ => ReportKind::Stats,
    };
    let messages = ["The last report of the agent was returned", "", "No report was returned"];
    let known = call.api.registry.agent(id);
    let incarnation = known.as_ref().map_or(Incarnation(0), |agent| agent.incarnation);
    let found = call.state().report(call.reader(), id, incarnation, kind)?;
    if known.is_none() && (found.is_none() || !call.may_gone(&call.caller, id)) {
        return Ok(only_failed(Code::AgentMissing, id, messages));
    }
    let mut items = Vec::new();
    if let Some(found) = found {
        let report = serde_json::from_slice(&found.body)
            .map_err(|e| Failure::internal(&format!("report of agent {id}: {e}")))?;
        let agent =
            AgentRef { id: id.to_string(), name: known.map_or_else(String::new, |a| a.name) };
        let received = timestamp::micros(found.at_us);
        items.push(to_value(&ReportItem { agent, received, report })?);
    }
    let total = items.len() as u64;
    Ok(Answer::List(List::new(items, total, messages)))
}
