//! The list parameters, `q`, `search`, `sort`, `select`, `distinct` and paging, applied to items in
//! memory. Lists that a database filters and sorts do the same in SQL; both use the grammar of
//! [`crate::http::q`] and the functions of [`crate::http::shape`].
//!
//! Texts are compared without regard to case; two numbers are compared as numbers. A list matches
//! if one of its items does. A missing field equals `null` and satisfies no other comparison, not
//! even `!=`.

use std::cmp::Ordering;

use serde_json::Value;

use crate::error::Failure;
use crate::http::call::Call;
use crate::http::envelope::List;
use crate::http::q::{self, Op, Query};
use crate::http::shape::{self, SortField};

/// Description of a list whose items are all in memory.
pub struct Listing {
    /// Fields that `select`, `sort` and `q` may name.
    pub fields: &'static [&'static str],
    /// Fields that `select` always keeps.
    pub always: &'static [&'static str],
    /// Messages for the cases that all, some or none of the items were returned.
    pub messages: [&'static str; 3],
}

impl Listing {
    /// Applies the parameters of a call to the items and returns the requested page.
    pub fn page(&self, call: &Call, mut items: Vec<Value>) -> Result<List, Failure> {
        let parameters = &call.parameters;
        let columns: Vec<(&'static str, &'static str)> =
            self.fields.iter().map(|name| (*name, *name)).collect();
        let selected = parameters.list("select");
        shape::check_select(selected, self.fields)?;
        let sort = shape::sort_fields(parameters.text("sort"), &columns)?;
        if let Some(text) = parameters.text("q") {
            let query = q::parse(text, &columns)?;
            items.retain(|item| holds(item, &query));
        }
        if let Some(text) = parameters.text("search") {
            let (text, wanted) = match text.strip_prefix('-') {
                Some(text) => (text, false),
                None => (text, true),
            };
            let text = text.to_lowercase();
            items.retain(|item| contains(item, &text) == wanted);
        }
        items.sort_by(|a, b| order(a, b, &sort));
        let distinct = parameters.flag("distinct");
        let always = if distinct { &[][..] } else { self.always };
        if !selected.is_empty() {
            items = items.into_iter().map(|item| shape::select(item, selected, always)).collect();
        }
        if distinct {
            items = shape::distinct(items);
        }
        let total = items.len() as u64;
        let items = shape::page(items, parameters.whole("offset"), parameters.whole("limit"));
        Ok(List::new(items, total, self.messages))
    }
}

/// Returns the value of a field; a `.` in the name selects a nested field.
fn field<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    match item.get(name) {
        Some(value) => Some(value),
        None => name.split('.').try_fold(item, |inside, part| inside.get(part)),
    }
}

fn holds(item: &Value, query: &Query<&'static str>) -> bool {
    match query {
        Query::All(all) => all.iter().all(|query| holds(item, query)),
        Query::Any(any) => any.iter().any(|query| holds(item, query)),
        Query::Compare { column, op, value } => compare(field(item, column), *op, value),
    }
}

fn compare(found: Option<&Value>, op: Op, wanted: &str) -> bool {
    let found = match found {
        None | Some(Value::Null) => {
            // As in SQL: a missing value satisfies no other comparison.
            return op == Op::Equal && wanted == "null";
        }
        Some(Value::Array(items)) => {
            let any = |op| items.iter().any(|item| compare(Some(item), op, wanted));
            return if op == Op::NotEqual { !any(Op::Equal) } else { any(op) };
        }
        Some(found) => text(found),
    };
    match op {
        Op::NotEqual if wanted == "null" => true,
        Op::Contains => found.to_lowercase().contains(&wanted.to_lowercase()),
        Op::Equal => texts(&found, wanted) == Ordering::Equal,
        Op::NotEqual => texts(&found, wanted) != Ordering::Equal,
        Op::Less => texts(&found, wanted) == Ordering::Less,
        Op::Greater => texts(&found, wanted) == Ordering::Greater,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn texts(a: &str, b: &str) -> Ordering {
    match (a.parse::<i128>(), b.parse::<i128>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        _ => a.to_lowercase().cmp(&b.to_lowercase()),
    }
}

fn contains(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(|value| contains(value, wanted)),
        Value::Array(items) => items.iter().any(|value| contains(value, wanted)),
        Value::Null => false,
        scalar => text(scalar).to_lowercase().contains(wanted),
    }
}

/// Compares two items by the sort fields.
pub fn order(a: &Value, b: &Value, sort: &[SortField<&'static str>]) -> Ordering {
    for step in sort {
        let of = |item| field(item, step.column).map(text).unwrap_or_default();
        let order = texts(&of(a), &of(b));
        if order != Ordering::Equal {
            return if step.descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn in_memory_conditions_match_as_in_sql() {
        let item = json!({"name": "Web", "count": 12, "os": {"name": "x"}, "group": ["a", "b"]});
        let columns: Vec<(&'static str, &'static str)> =
            ["name", "count", "os.name", "group", "gone"].map(|name| (name, name)).to_vec();
        for (text, wanted) in [
            ("name=web", true),
            ("name!=web", false),
            ("name~E", true),
            ("count>9", true),
            ("count<9", false),
            ("count=12;name=web", true),
            ("count=13,name=web", true),
            ("(count=13;name=web),name=web", true),
            ("os.name=x", true),
            ("group=b", true),
            ("group!=b", false),
            ("group!=c", true),
            ("gone=null", true),
            ("gone!=null", false),
            ("gone!=x", false),
            ("name!=null", true),
            ("gone>1", false),
        ] {
            assert_eq!(holds(&item, &q::parse(text, &columns).unwrap()), wanted, "{text}");
        }
    }

    #[test]
    fn numbers_sort_numerically_and_texts_ignore_case() {
        let mut items = [json!({"n": 10, "t": "b"}), json!({"n": 9, "t": "A"})];
        let by = |column, descending| [SortField { column, descending }];
        items.sort_by(|a, b| order(a, b, &by("n", false)));
        assert_eq!(items[0]["n"], 9);
        items.sort_by(|a, b| order(a, b, &by("t", true)));
        assert_eq!(items[0]["t"], "b");
    }
}
