//! The list of agents.

use super::agent_list::{READ, agent_query, page_and_missing};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{
    AGENTS_LIST, COMMON, Handler, Kind, Operation, PAGING, Parameter, Q, SEARCH, Shape, Verb, query,
};

const STATUSES: &[&str] = &["active", "pending", "never_connected", "disconnected"];

/// The filters of `GET /agents`.
const FILTERS: &[Parameter] = &[
    AGENTS_LIST,
    query("select", Kind::Names, "Fields to return, comma-separated; id is always returned."),
    query(
        "sort",
        Kind::Sort,
        "Fields to sort by, comma-separated, each with an optional + or - before it.",
    ),
    SEARCH,
    query("status", Kind::Words(STATUSES), "Statuses, comma-separated."),
    Q,
    query(
        "silent",
        Kind::Flag,
        "True: agents that are not heard although they did not say goodbye. False: all others.",
    ),
    query("older_than", Kind::Timeframe(None), "Not heard from for this long, for example 7d."),
    query("os.platform", Kind::Alphanumeric, "Platform, for example debian."),
    query("os.version", Kind::Alphanumeric, "Version of the operating system."),
    query("os.name", Kind::Alphanumeric, "Name of the operating system."),
    query("manager", Kind::Alphanumeric, "Host name of the server."),
    query("version", Kind::Alphanumeric, "Version of the agent's program."),
    query("group", Kind::GroupName, "Name of a group."),
    query("node_name", Kind::Name, "Name of the server's node."),
    query("name", Kind::Alphanumeric, "Name of the agent."),
    query("ip", Kind::Alphanumeric, "Address the agent was last heard from."),
    query("registerIP", Kind::Alphanumeric, "Address the agent registered with."),
    query("group_config_status", Kind::Word(&["synced", "not synced"]), "Group configuration."),
    query("distinct", Kind::Flag, "Each different item once."),
];

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/agents",
    id: "agents.list",
    about: "Agents, filtered, sorted, a page at a time; 000 is the server itself.",
    access: READ,
    parameters: &[COMMON, PAGING, FILTERS],
    body: None,
    shape: Shape::List("AgentItem"),
    handler: Handler::Blocking(list),
}];

fn list(call: &Call) -> Result<Answer, Failure> {
    let (mut list, missing) = page_and_missing(call, agent_query(call)?)?;
    // Report the named agents that do not exist or that the caller may not see.
    let (named, scope) = (call.parameters.agents("agents_list").unwrap_or_default(), call.scope());
    for id in named {
        if !scope.holds(*id) {
            list.fail(Code::Denied, id.to_string());
        } else if missing.binary_search(id).is_ok() {
            list.fail(Code::AgentMissing, id.to_string());
        }
    }
    Ok(Answer::List(list))
}
