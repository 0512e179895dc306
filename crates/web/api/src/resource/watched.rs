//! The state in which agents watch their roots.

use model::{CoverageState, WatchReport, WatchedRoot};
use registry::WatchQuery;
use serde::Serialize;
use utoipa::ToSchema;

use super::common::{AgentRef, named_agents};
use super::scans::seconds;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{
    AGENTS_LIST, COMMON, Handler, Kind, Operation, PAGING, Shape, Verb, action, query,
};

const STATES: &[&str] = &["realtime", "scan", "gap"];

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/coverage/state",
    id: "coverage.state",
    about: "How each agent watches its roots now: realtime, scan or gap, with reason and remedy.",
    access: action("coverage:read", "agent:id"),
    parameters: &[
        COMMON,
        PAGING,
        &[
            AGENTS_LIST,
            query("state", Kind::Word(STATES), "Only agents with a root in this state."),
        ],
    ],
    body: None,
    shape: Shape::List("WatchItem"),
    handler: Handler::Blocking(list),
}];

/// The roots of one agent.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatchItem {
    agent: AgentRef,
    /// Time of the agent's last report.
    reported: String,
    scan_interval_s: u64,
    /// Start of the next scan by the agent's clock.
    next_scan: String,
    /// True if changes are attributed to processes.
    attribution: bool,
    /// Why they are not, or what makes it less certain.
    attribution_reason: String,
    /// `root`, `path`, `file_system`, `state` (`realtime`, `scan`, `gap`), `method`, `reason`,
    /// `remedy`.
    #[schema(value_type = Vec<Object>)]
    roots: Vec<WatchedRoot>,
    /// Number of further roots.
    more: u32,
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let (permitted, failed) = named_agents(call);
    let state = call.parameters.text("state");
    let state = state.and_then(|name| serde_json::from_value::<CoverageState>(name.into()).ok());
    let (offset, limit) = (call.parameters.database_offset()?, call.parameters.whole("limit"));
    let query = WatchQuery { permitted, state, offset, limit };
    let page = call.registry().watch_reports(call.reader(), &query)?;
    let mut items = Vec::with_capacity(page.items.len());
    for (id, row) in page.items {
        let name = call.api.registry.agent(id).map(|agent| agent.name).unwrap_or_default();
        let WatchReport { attribution, attribution_reason, roots, more, .. } = row.report;
        items.push(to_value(&WatchItem {
            agent: AgentRef { id: id.to_string(), name },
            reported: seconds(row.reported_s),
            scan_interval_s: row.report.scan_interval_s,
            next_scan: seconds(row.report.next_scan_s),
            attribution,
            attribution_reason,
            roots,
            more,
        })?);
    }
    let messages = ["All selected states were returned", "Some were not", "None was returned"];
    Ok(Answer::List(List::new(items, page.total, messages).with_failed(failed)))
}
