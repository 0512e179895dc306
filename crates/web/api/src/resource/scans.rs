//! Scans: starting one, the times of the last one, and clearing an agent's files, which is never
//! possible.

use model::AgentId;
use registry::CommandKind;
use serde::Serialize;
use utoipa::ToSchema;

use super::common::only_failed;
use super::common::seconds_z;
use super::issuing::issue_command;
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{
    AGENT_ID, AGENTS_LIST, COMMON, Handler, Operation, Shape, Verb, action,
};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Put,
        path: "/syscheck",
        id: "syscheck.run",
        about: "Scan now, on all active agents or the named ones; outcomes under /commands.",
        access: action("syscheck:run", "agent:id"),
        parameters: &[COMMON, &[AGENTS_LIST]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(scan),
    },
    Operation {
        verb: Verb::Get,
        path: "/syscheck/{agent_id}/last_scan",
        id: "syscheck.last_scan",
        about: "When the agent's last scan began and ended.",
        access: action("syscheck:read", "agent:id"),
        parameters: &[COMMON, &[AGENT_ID]],
        body: None,
        shape: Shape::List("ScanTimes"),
        handler: Handler::Blocking(last_scan),
    },
    Operation {
        verb: Verb::Delete,
        path: "/syscheck/{agent_id}",
        id: "syscheck.clear",
        about: "Always refused: the documents of an agent follow its files.",
        access: action("syscheck:clear", "agent:id"),
        parameters: &[COMMON, &[AGENT_ID]],
        body: None,
        shape: Shape::List("AgentNumber"),
        handler: Handler::Blocking(clear),
    },
];

/// An agent's last scan.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScanTimes {
    /// Null before the first one.
    start: Option<String>,
    /// Null while it runs.
    end: Option<String>,
    /// End of the scan before, while one runs; absent during the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_end: Option<String>,
}

fn last_scan(call: &Call) -> Result<Answer, Failure> {
    let agent = call.parameters.agent()?;
    let messages = ["Last syscheck scan of the agent was returned", "", "No last scan"];
    if call.api.registry.agent(agent).is_none() {
        return Ok(only_failed(Code::AgentMissing, agent, messages));
    }
    let scan = call.registry().last_scan(call.reader(), agent)?;
    let ended = scan.ended_at_s.filter(|end| scan.started_at_s.is_none_or(|start| *end >= start));
    let previous_end = scan.ended_at_s.filter(|_| ended.is_none()).map(seconds);
    let (start, end) = (scan.started_at_s.map(seconds), ended.map(seconds));
    let item = ScanTimes { start, end, previous_end };
    Ok(Answer::List(List::new(vec![to_value(&item)?], 1, messages)))
}

pub(super) fn seconds(at_s: i64) -> String {
    seconds_z(&model::timestamp::micros(u64::try_from(at_s).unwrap_or(0).saturating_mul(1_000_000)))
}

/// Always reports a failure: in the 4.x API only agents of versions before 3.12 can be cleared, and
/// this server has none.
fn clear(call: &Call) -> Result<Answer, Failure> {
    let agent = call.parameters.agent()?;
    let code = if call.api.registry.agent(agent).is_some() {
        Code::ScanTooNew
    } else {
        Code::AgentMissing
    };
    let messages = [
        "Syscheck database was cleared on returned agents",
        "Syscheck database was not cleared on some agents",
        "No syscheck database was cleared",
    ];
    Ok(only_failed(code, agent, messages))
}

fn scan(call: &Call) -> Result<Answer, Failure> {
    let wanted = call.parameters.agents("agents_list").map(<[AgentId]>::to_vec);
    let messages = [
        "Syscheck scan was restarted on returned agents",
        "Syscheck scan was not restarted on some agents",
        "No syscheck scan was restarted",
    ];
    issue_command(call, CommandKind::Rescan, wanted, messages)
}
