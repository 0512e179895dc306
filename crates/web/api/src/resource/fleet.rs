//! Further lists of agents: those without a group, those with an older version than the server, and
//! the distinct values of their fields.

use registry::{AgentColumn, AgentCondition, AgentQuery, CompareOp};
use serde_json::{Map, Value, json};

use super::agent_list::{self, Column, LIST_MESSAGES, READ};
use super::agent_values::{format_value, insert_nested};
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::operation::{
    COMMON, Handler, Kind, Operation, PAGING, Parameter, Q, SEARCH, Shape, Verb, query,
};

const LISTED: &[Parameter] = &[
    query("select", Kind::Names, "Fields to return, comma-separated; id is always returned."),
    query(
        "sort",
        Kind::Sort,
        "Fields to sort by, comma-separated, each with an optional + or - before it.",
    ),
    SEARCH,
    Q,
];

const COUNTED: &[Parameter] = &[
    query("fields", Kind::Names, "Fields whose values are returned; os.platform and version only."),
    query(
        "sort",
        Kind::Sort,
        "Fields to sort by, comma-separated, each with an optional + or - before it.",
    ),
    SEARCH,
    Q,
];

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/agents/no_group",
        id: "agents.no_group",
        about: "Agents that are in no group.",
        access: READ,
        parameters: &[COMMON, PAGING, LISTED],
        body: None,
        shape: Shape::List("AgentItem"),
        handler: Handler::Blocking(no_group),
    },
    Operation {
        verb: Verb::Get,
        path: "/agents/outdated",
        id: "agents.outdated",
        about: "Agents whose program is older than the server.",
        access: READ,
        parameters: &[COMMON, PAGING, LISTED],
        body: None,
        shape: Shape::List("AgentItem"),
        handler: Handler::Blocking(outdated),
    },
    Operation {
        verb: Verb::Get,
        path: "/agents/stats/distinct",
        id: "agents.stats_distinct",
        about: "The distinct values of fields over all agents, each with the number of agents.",
        access: READ,
        parameters: &[COMMON, PAGING, COUNTED],
        body: None,
        shape: Shape::List("DistinctItem"),
        handler: Handler::Blocking(stats),
    },
];

/// Returns the query of the parameters, restricted by a further condition.
fn narrowed(call: &Call, condition: AgentCondition) -> Result<AgentQuery, Failure> {
    let mut query = agent_list::agent_query(call)?;
    query.condition = Some(match query.condition.take() {
        Some(asked) => AgentCondition::And(vec![condition, asked]),
        None => condition,
    });
    Ok(query)
}

fn no_group(call: &Call) -> Result<Answer, Failure> {
    let server = AgentCondition::Compare {
        column: AgentColumn::Id,
        op: CompareOp::Greater,
        value: "0".into(),
    };
    let lone = AgentCondition::And(vec![server, AgentCondition::IsNull(AgentColumn::Group)]);
    Ok(Answer::List(agent_list::page(call, narrowed(call, lone)?)?))
}

fn outdated(call: &Call) -> Result<Answer, Failure> {
    let older = AgentCondition::Compare {
        column: AgentColumn::Version,
        op: CompareOp::Less,
        value: format!("v{}", call.api.options.version),
    };
    Ok(Answer::List(agent_list::page(call, narrowed(call, older)?)?))
}

/// Default fields of `stats/distinct`.
const FIELDS_DEFAULT: [&str; 2] = ["os.platform", "version"];

/// Returns the distinct values of fields. Fields with the same value for all agents are queried as
/// [`AgentColumn::Nothing`] and filled in afterwards.
fn stats(call: &Call) -> Result<Answer, Failure> {
    let named = call.parameters.list("fields");
    let names: Vec<&str> = match named {
        [] => FIELDS_DEFAULT.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let columns =
        names.iter().map(|name| agent_list::column(name)).collect::<Result<Vec<_>, _>>()?;
    let kept: Vec<AgentColumn> = columns
        .iter()
        .map(|column| match column {
            Column::Of(column) => *column,
            Column::Manager | Column::Node => AgentColumn::Nothing,
        })
        .collect();
    let page = call.registry().distinct(call.reader(), &agent_list::agent_query(call)?, &kept)?;
    let mut items = Vec::with_capacity(page.items.len());
    for (values, count) in page.items {
        let mut item = Map::new();
        for ((name, column), value) in names.iter().zip(&columns).zip(values) {
            let value = match column {
                Column::Of(column) => format_value(*column, value).unwrap_or_else(|| "N/A".into()),
                Column::Manager => call.api.options.hostname.clone(),
                Column::Node => call.api.node().to_owned(),
            };
            insert_nested(&mut item, name, json!(value));
        }
        item.insert("count".into(), json!(count));
        items.push(Value::Object(item));
    }
    Ok(Answer::List(List::new(items, page.total, LIST_MESSAGES)))
}
