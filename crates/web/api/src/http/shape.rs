//! What every list does to its items: `select`, `distinct`, `sort` fields.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::code::Code;
use crate::error::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SortField<C> {
    pub(crate) column: C,
    pub(crate) descending: bool,
}

/// Read `sort`: names with commas, each with an optional sign; a sign holds for the names after it
/// too, until another comes. `column` is the list of what may be sorted by.
pub(crate) fn sort_fields<C: Copy>(
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
            // A plus that was not escaped in a query arrives as a space.
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

/// Check `select` against the fields of an item; a name with `.` means a field inside.
pub(crate) fn check_select(select: &[String], fields: &[&'static str]) -> Result<(), Failure> {
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

/// Keep the selected fields of an item, and `always`. An empty selection keeps all.
pub(crate) fn select(item: Value, select: &[String], always: &[&str]) -> Value {
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

/// Each item once, in the order of first sight, without those that have nothing to say.
pub(crate) fn distinct(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    items
        .into_iter()
        .filter(|item| item.as_object().is_none_or(|fields| !fields.is_empty()))
        .filter(|item| seen.insert(item.to_string()))
        .collect()
}

/// The page of a list that was made whole.
pub(crate) fn page(items: Vec<Value>, offset: u64, limit: u64) -> Vec<Value> {
    items.into_iter().skip(offset as usize).take(limit as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: [(&str, u8); 2] = [("name", 1), ("os.version", 2)];

    #[test]
    fn a_sign_holds_until_the_next() {
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
    fn select_reaches_into_objects() {
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
