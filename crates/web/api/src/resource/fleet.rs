//! Further lists of agents: those without a group, those whose program is older than the server,
//! and the different values that they have.

use model::timestamp;
use registry::{AgentColumn, AgentQuery, CompareOp, Condition};
use serde_json::{Map, Value, json};

use super::agents::{self, Column, LIST_MESSAGES, READ};
use crate::error::Failure;
use crate::http::call::Call;
use crate::http::envelope::{Answer, List};
use crate::http::operation::{
    COMMON, Handler, Kind, Operation, PAGING, Parameter, Q, SEARCH, Shape, Verb, query,
};

const LISTED: &[Parameter] = &[
    query("select", Kind::Names, "Fields to return, with commas; id comes always."),
    query("sort", Kind::Sort, "Fields to sort by, with commas, a sign before each."),
    SEARCH,
    Q,
];

const COUNTED: &[Parameter] = &[
    query("fields", Kind::Names, "Fields whose values are told; os.platform and version alone."),
    query("sort", Kind::Sort, "Fields to sort by, with commas, a sign before each."),
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
        about: "The different values of fields over all agents, each with how many have them.",
        access: READ,
        parameters: &[COMMON, PAGING, COUNTED],
        body: None,
        shape: Shape::List("DistinctItem"),
        handler: Handler::Blocking(stats),
    },
];

fn narrowed(call: &Call, condition: Condition) -> Result<AgentQuery, Failure> {
    let mut query = agents::agent_query(call)?;
    query.condition = Some(match query.condition.take() {
        Some(asked) => Condition::And(vec![condition, asked]),
        None => condition,
    });
    Ok(query)
}

fn no_group(call: &Call) -> Result<Answer, Failure> {
    let server =
        Condition::Compare { column: AgentColumn::Id, op: CompareOp::Greater, value: "0".into() };
    let lone = Condition::And(vec![server, Condition::IsNull(AgentColumn::Group)]);
    Ok(Answer::List(agents::page(call, narrowed(call, lone)?)?))
}

fn outdated(call: &Call) -> Result<Answer, Failure> {
    let older = Condition::Compare {
        column: AgentColumn::Version,
        op: CompareOp::Less,
        value: format!("v{}", call.api.options.version),
    };
    Ok(Answer::List(agents::page(call, narrowed(call, older)?)?))
}

/// Fields of `stats/distinct` unless named.
const FIELDS_DEFAULT: [&str; 2] = ["os.platform", "version"];

fn stats(call: &Call) -> Result<Answer, Failure> {
    let named = call.parameters.list("fields");
    let names: Vec<&str> = match named {
        [] => FIELDS_DEFAULT.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let columns = names.iter().map(|name| agents::column(name)).collect::<Result<Vec<_>, _>>()?;
    let kept: Vec<AgentColumn> = columns
        .iter()
        .map(|column| match column {
            Column::Of(column) => *column,
            Column::Manager | Column::Node => AgentColumn::Nothing,
        })
        .collect();
    let page = call.registry().distinct(call.reader(), &agents::agent_query(call)?, &kept)?;
    let mut items = Vec::with_capacity(page.items.len());
    for (values, count) in page.items {
        let mut item = Map::new();
        for ((name, column), value) in names.iter().zip(&columns).zip(values) {
            let value = match column {
                Column::Of(column) => shown(*column, value).unwrap_or_else(|| "N/A".into()),
                Column::Manager => call.api.options.hostname.clone(),
                Column::Node => call.api.node().to_owned(),
            };
            put(&mut item, name, json!(value));
        }
        item.insert("count".into(), json!(count));
        items.push(Value::Object(item));
    }
    Ok(Answer::List(List::new(items, page.total, LIST_MESSAGES)))
}

/// A value of a column as lists tell it.
fn shown(column: AgentColumn, value: Option<String>) -> Option<String> {
    use AgentColumn::{DateAdd, DisconnectionTime, Ip, LastKeepAlive};
    let value = value?;
    match column {
        DateAdd | LastKeepAlive | DisconnectionTime => {
            value.parse().ok().map(timestamp::seconds_offset)
        }
        Ip if value == "any" => None,
        _ => Some(value),
    }
}

/// The different items that these fields make, of those that have one of them at all.
pub(super) fn different(
    call: &Call,
    mut query: AgentQuery,
    columns: &[(&'static str, Column)],
) -> Result<List, Failure> {
    let kept = |column: &Column| match column {
        Column::Of(column) => *column,
        Column::Manager | Column::Node => AgentColumn::Nothing,
    };
    let own = columns.iter().all(|(_, column)| matches!(column, Column::Of(_)));
    if own {
        let some = columns.iter().map(|(_, column)| match kept(column) {
            AgentColumn::Ip => Condition::Compare {
                column: AgentColumn::Ip,
                op: CompareOp::NotEqual,
                value: "any".into(),
            },
            column => Condition::NotNull(column),
        });
        let some = Condition::Or(some.collect());
        query.condition = Some(match query.condition.take() {
            Some(asked) => Condition::And(vec![asked, some]),
            None => some,
        });
    }
    let kept: Vec<AgentColumn> = columns.iter().map(|(_, column)| kept(column)).collect();
    let page = call.registry().distinct(call.reader(), &query, &kept)?;
    let mut items = Vec::with_capacity(page.items.len());
    for (values, _) in page.items {
        let mut item = Map::new();
        for ((name, column), value) in columns.iter().zip(values) {
            let value = match column {
                Column::Of(column) => shown(*column, value).map(|text| typed(*column, text)),
                Column::Manager => Some(json!(call.api.options.hostname)),
                Column::Node => Some(json!(call.api.node())),
            };
            if let Some(value) = value {
                put(&mut item, name, value);
            }
        }
        items.push(Value::Object(item));
    }
    Ok(List::new(items, page.total, LIST_MESSAGES))
}

/// A value in its place of an agent: numbers are numbers, groups a list.
fn typed(column: AgentColumn, text: String) -> Value {
    match column {
        AgentColumn::Group => json!(text.split(',').collect::<Vec<_>>()),
        AgentColumn::StatusCode => json!(text.parse::<u64>().unwrap_or_default()),
        _ => Value::String(text),
    }
}

/// Put a value under its name; a `.` makes an object.
fn put(item: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => _ = item.insert(name.into(), value),
        Some((outer, inner)) => {
            let inside = item.entry(outer).or_insert_with(|| json!({}));
            if let Value::Object(inside) = inside {
                inside.insert(inner.into(), value);
            }
        }
    }
}
