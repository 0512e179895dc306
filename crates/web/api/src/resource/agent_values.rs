//! The distinct values of agents in some columns.

use model::timestamp;
use registry::{AgentColumn, AgentCondition, AgentQuery};
use serde_json::{Map, Value, json};

use super::agent_list::{Column, LIST_MESSAGES};
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::List;

/// Formats a value of a column as lists show it.
pub(super) fn format_value(column: AgentColumn, value: Option<String>) -> Option<String> {
    use AgentColumn::{DateAdd, DisconnectionTime, LastKeepAlive};
    let value = value?;
    match column {
        DateAdd | LastKeepAlive | DisconnectionTime => {
            value.parse().ok().map(timestamp::seconds_offset)
        }
        _ => Some(value),
    }
}

/// Returns the distinct combinations of the values of these fields. Agents that have none of the
/// fields are left out.
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
        let some = columns.iter().map(|(_, column)| AgentCondition::NotNull(kept(column)));
        let some = AgentCondition::Or(some.collect());
        query.condition = Some(match query.condition.take() {
            Some(asked) => AgentCondition::And(vec![asked, some]),
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
                Column::Of(column) => format_value(*column, value).map(|text| typed(*column, text)),
                Column::Manager => Some(json!(call.api.options.hostname)),
                Column::Node => Some(json!(call.api.node())),
            };
            if let Some(value) = value {
                insert_nested(&mut item, name, value);
            }
        }
        items.push(Value::Object(item));
    }
    Ok(List::new(items, page.total, LIST_MESSAGES))
}

/// Converts a column's text to JSON: numbers become numbers, groups a list.
fn typed(column: AgentColumn, text: String) -> Value {
    match column {
        AgentColumn::Group => json!(text.split(',').collect::<Vec<_>>()),
        AgentColumn::StatusCode => json!(text.parse::<u64>().unwrap_or_default()),
        _ => Value::String(text),
    }
}

/// Inserts a value under a name; a `.` in the name creates a nested object.
pub(super) fn insert_nested(item: &mut Map<String, Value>, name: &str, value: Value) {
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
