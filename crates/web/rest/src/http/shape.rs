//! Parsing and application of `sort`, `select` and `distinct`, shared by all lists.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::code::Code;
use crate::error::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortField<C> {
    pub column: C,
    pub descending: bool,
}

/// Parses `sort`: names separated by commas, each with an optional sign. A sign also applies to the
/// names after it until the next sign. `column` is the list of sortable fields.
pub fn sort_fields<C: Copy>(
    text: Option<&str>,
    columns: &[(&'static str, C)],
) -> Result<Vec<SortField<C>>, Failure> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let mut descending = false;
    let mut fields = Vec::new();
    for item in text.split(',') {
        let name = match item.as_bytes().first() {
            Some(b'-') => {
                descending = true;
                item.get(1..)
            }
            // An unescaped plus in a query is decoded as a space.
            Some(b'+' | b' ') => {
                descending = false;
                item.get(1..)
            }
            _ => Some(item),
        };
        let name = name.unwrap_or_default();
        let Some((_, column)) = columns.iter().find(|(known, _)| *known == name) else {
            return Err(Failure::detailed(
                Code::SortFieldInvalid,
                not_one_of("sort by", name, columns),
            ));
        };
        fields.push(SortField { column: *column, descending });
    }
    Ok(fields)
}

fn not_one_of<C>(what: &str, name: &str, columns: &[(&'static str, C)]) -> String {
    let known: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let name: String = name.chars().take(60).collect();
    format!("not a field to {what}: '{name}': allowed are {}", known.join(", "))
}

/// Validates `select` against the fields of an item; a name with `.` is a nested field.
pub fn check_select(select: &[String], fields: &[&'static str]) -> Result<(), Failure> {
    let known: Vec<(&'static str, ())> = fields.iter().map(|name| (*name, ())).collect();
    let inside = |name: &str| fields.iter().any(|f| f.strip_prefix(name).is_some_and(dotted));
    match select.iter().find(|name| !fields.contains(&name.as_str()) && !inside(name)) {
        Some(name) => {
            Err(Failure::detailed(Code::SelectFieldInvalid, not_one_of("select", name, &known)))
        }
        None => Ok(()),
    }
}

fn dotted(rest: &str) -> bool {
    rest.starts_with('.')
}

/// Keeps the selected fields of an item and those in `always`. An empty selection keeps all fields.
pub fn select(item: Value, select: &[String], always: &[&str]) -> Value {
    let Value::Object(fields) = item else { return item };
    if select.is_empty() {
        return Value::Object(fields);
    }
    let wanted = |name: &str| always.contains(&name) || select.iter().any(|s| s == name);
    let mut kept = Map::new();
    for (name, value) in fields {
        if wanted(&name) {
            kept.insert(name, value);
            continue;
        }
        let Value::Object(inner) = value else { continue };
        let inner: Map<String, Value> =
            inner.into_iter().filter(|(field, _)| wanted(&format!("{name}.{field}"))).collect();
        if !inner.is_empty() {
            kept.insert(name, Value::Object(inner));
        }
    }
    Value::Object(kept)
}

/// Removes duplicate and empty items; the first of equal items stays in its position.
pub fn distinct(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    items
        .into_iter()
        .filter(|item| item.as_object().is_none_or(|fields| !fields.is_empty()))
        .filter(|item| seen.insert(item.to_string()))
        .collect()
}

/// Returns one page of a list that is in memory.
pub fn page(items: Vec<Value>, offset: u64, limit: u64) -> Vec<Value> {
    items.into_iter().skip(offset as usize).take(limit as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: [(&str, u8); 2] = [("name", 1), ("os.version", 2)];

    #[test]
    fn sort_sign_applies_until_the_next_sign() {
        let fields = |text| sort_fields(Some(text), &COLUMNS).unwrap();
        let of = |list: Vec<SortField<u8>>| -> Vec<(u8, bool)> {
            list.iter().map(|f| (f.column, f.descending)).collect()
        };
        assert_eq!(of(fields("-name,os.version")), [(1, true), (2, true)]);
        assert_eq!(of(fields("+name,-os.version")), [(1, false), (2, true)]);
        assert_eq!(of(fields(" name")), [(1, false)]);
        for bad in ["", "-", "id", "name;drop table x", "name,"] {
            assert_eq!(
                sort_fields(Some(bad), &COLUMNS).unwrap_err().code,
                Some(Code::SortFieldInvalid),
                "{bad}"
            );
        }
    }

    #[test]
    fn select_accepts_nested_fields() {
        let item = json!({"id": "001", "name": "a", "os": {"name": "x", "version": "1"}});
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            select(item.clone(), &names(&["os.version"]), &["id"]),
            json!({"id": "001", "os": {"version": "1"}})
        );
        assert_eq!(select(item.clone(), &names(&["os"]), &[])["os"]["name"], "x");
        assert_eq!(select(item.clone(), &[], &["id"]), item);
        assert!(check_select(&names(&["os", "id"]), &["id", "os.name"]).is_ok());
        let wrong = check_select(&names(&["internal_key"]), &["id", "os.name"]).unwrap_err();
        assert_eq!(wrong.code, Some(Code::SelectFieldInvalid));
    }

    #[test]
    fn distinct_keeps_the_first_of_equal_items() {
        let items = vec![json!({"a": 1}), json!({}), json!({"a": 2}), json!({"a": 1})];
        assert_eq!(distinct(items), [json!({"a": 1}), json!({"a": 2})]);
    }
}
