//! One Sigma rule: conversion from YAML to JSON, and the checks before it is accepted.
//!
//! Source: the Sigma specification 2.0 (rules, modifiers). This parser is stricter: `id` is
//! required, because alerts refer to their rule by it, and a file holds one rule. Correlations are
//! not supported.

use serde_json::{Map, Value};

use crate::condition;
use crate::error::RuleError;
use crate::limits::{RULE_BYTES_MAX, SELECTIONS_MAX, TITLE_CHARS_MAX};

/// Allowed values of `status`.
pub const STATUSES: [&str; 5] = ["stable", "test", "experimental", "deprecated", "unsupported"];
/// Allowed values of `level`, lowest first.
pub const LEVELS: [&str; 5] = ["informational", "low", "medium", "high", "critical"];

/// Modifiers allowed after a field's name and a `|`.
const MODIFIERS: [&str; 28] = [
    "all",
    "base64",
    "base64offset",
    "cased",
    "cidr",
    "contains",
    "day",
    "endswith",
    "exists",
    "expand",
    "fieldref",
    "gt",
    "gte",
    "hour",
    "i",
    "lt",
    "lte",
    "m",
    "minute",
    "month",
    "neq",
    "re",
    "s",
    "startswith",
    "utf16",
    "utf16be",
    "utf16le",
    "wide",
];

/// A rule that may be evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its UUID, lower-case.
    pub id: String,
    /// Title, one line.
    pub title: String,
    /// One of [`STATUSES`]; `experimental` when absent.
    pub status: &'static str,
    /// One of [`LEVELS`]; `medium` when absent.
    pub level: &'static str,
    /// The whole rule as JSON, in the order of the file.
    pub whole: Value,
}

impl Rule {
    /// Reads a rule from the bytes of its file.
    ///
    /// # Errors
    /// Returns the first error found, with its field.
    pub fn read(bytes: &[u8]) -> Result<Self, RuleError> {
        if bytes.len() > RULE_BYTES_MAX {
            return Err(RuleError::TooLarge(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| RuleError::NotText)?;
        if text.trim().is_empty() {
            return Err(RuleError::Empty);
        }
        let whole: Value = serde_saphyr::from_str(text).map_err(|e| yaml(&e))?;
        let Value::Object(fields) = &whole else { return Err(RuleError::NotARule) };
        let rule = Self {
            title: title(fields)?,
            id: id(fields)?,
            status: word(fields, "status", &STATUSES)?.unwrap_or("experimental"),
            level: word(fields, "level", &LEVELS)?.unwrap_or("medium"),
            whole: Value::Null,
        };
        texts(fields)?;
        source(fields)?;
        detection(fields)?;
        Ok(Self { whole, ..rule })
    }

    /// Returns true if the rule is to be evaluated: neither `deprecated` nor `unsupported`.
    pub fn is_enabled(&self) -> bool {
        !matches!(self.status, "deprecated" | "unsupported")
    }
}

/// Returns the first line of the error; the others only show the location.
fn yaml(error: &serde_saphyr::Error) -> RuleError {
    let text = error.without_snippet().to_string();
    RuleError::Yaml(text.lines().next().unwrap_or_default().chars().take(300).collect())
}

fn title(fields: &Map<String, Value>) -> Result<String, RuleError> {
    let title = text(fields, "title")?.ok_or(RuleError::Missing("title"))?;
    if title.trim().is_empty() || title.chars().count() > TITLE_CHARS_MAX {
        let why = format!("1 to {TITLE_CHARS_MAX} characters");
        return Err(RuleError::field("title", why));
    }
    Ok(title.to_owned())
}

fn id(fields: &Map<String, Value>) -> Result<String, RuleError> {
    let id = text(fields, "id")?.ok_or(RuleError::Missing("id"))?;
    let groups: Vec<&str> = id.split('-').collect();
    let fits = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()));
    if fits {
        Ok(id.to_ascii_lowercase())
    } else {
        Err(RuleError::field("id", "a UUID such as 2b2c8ac0-7a5e-4d3b-9d5e-0f5c5e3f9a11"))
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, RuleError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(RuleError::field(name, "a text")),
    }
}

fn word(
    fields: &Map<String, Value>,
    name: &'static str,
    words: &[&'static str],
) -> Result<Option<&'static str>, RuleError> {
    let Some(own) = text(fields, name)? else { return Ok(None) };
    match words.iter().find(|word| **word == own) {
        Some(word) => Ok(Some(word)),
        None => Err(RuleError::field(name, format!("one of {}", words.join(", ")))),
    }
}

/// Checks the form of the optional descriptive fields.
fn texts(fields: &Map<String, Value>) -> Result<(), RuleError> {
    for name in ["name", "description", "author", "license"] {
        text(fields, name)?;
    }
    for name in ["references", "fields", "falsepositives", "tags", "scope"] {
        let fine = match fields.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::Array(items)) => items.iter().all(Value::is_string),
            Some(_) => false,
        };
        if !fine {
            return Err(RuleError::field(name, "a list of texts"));
        }
    }
    Ok(())
}

fn source(fields: &Map<String, Value>) -> Result<(), RuleError> {
    let source = match fields.get("logsource") {
        None | Some(Value::Null) => return Err(RuleError::Missing("logsource")),
        Some(Value::Object(source)) => source,
        Some(_) => return Err(RuleError::field("logsource", "category, product or service")),
    };
    let mut named = false;
    for name in ["category", "product", "service"] {
        let own = text(source, name).map_err(|_| RuleError::field(inner(name), "a text"))?;
        named |= own.is_some_and(|own| !own.is_empty());
    }
    if named {
        return Ok(());
    }
    Err(RuleError::field("logsource", "at least one of category, product and service"))
}

fn inner(name: &str) -> String {
    format!("logsource.{name}")
}

/// Checks the `detection` of a rule: its selections, and a condition that names only them.
fn detection(fields: &Map<String, Value>) -> Result<(), RuleError> {
    let detection = match fields.get("detection") {
        None | Some(Value::Null) => return Err(RuleError::Missing("detection")),
        Some(Value::Object(detection)) => detection,
        Some(_) => return Err(RuleError::field("detection", "selections and a condition")),
    };
    if detection.contains_key("timeframe") {
        let why = "not supported: one event is looked at at a time";
        return Err(RuleError::field("detection.timeframe", why));
    }
    let selections: Vec<(&String, &Value)> =
        detection.iter().filter(|(name, _)| *name != "condition").collect();
    if selections.is_empty() {
        return Err(RuleError::field("detection", "no selection: name at least one"));
    }
    if selections.len() > SELECTIONS_MAX {
        let why = format!("{} selections, at most {SELECTIONS_MAX}", selections.len());
        return Err(RuleError::field("detection", why));
    }
    for (name, selection) in &selections {
        check_selection(name, selection)?;
    }
    let condition = match detection.get("condition") {
        None | Some(Value::Null) => return Err(RuleError::Missing("detection.condition")),
        Some(Value::String(condition)) => condition,
        Some(_) => return Err(RuleError::Condition("it must be one text".into())),
    };
    let names: Vec<&str> = selections.iter().map(|(name, _)| name.as_str()).collect();
    condition::check(condition, &names)
}

/// Checks a selection: fields with values, a list of those, or a list of texts to find in any
/// field.
fn check_selection(name: &str, selection: &Value) -> Result<(), RuleError> {
    let place = format!("detection.{name}");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let reserved = ["and", "or", "not", "of", "them", "all"];
    if name.is_empty() || !name.chars().all(plain) || reserved.contains(&name) {
        let why = "a selection is named with letters, digits, _, - and ., and not as a word of \
                   conditions";
        return Err(RuleError::field(place, why));
    }
    match selection {
        Value::Object(fields) => check_fields(&place, fields),
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                match item {
                    Value::Object(fields) => check_fields(&place, fields)?,
                    Value::String(_) | Value::Number(_) => {}
                    _ => return Err(RuleError::field(place, "fields or texts in a list")),
                }
            }
            Ok(())
        }
        _ => Err(RuleError::field(place, "fields with values, or a list")),
    }
}

fn check_fields(place: &str, fields: &Map<String, Value>) -> Result<(), RuleError> {
    if fields.is_empty() {
        return Err(RuleError::field(place, "no field: it would hold of every event"));
    }
    for (key, value) in fields {
        let mut parts = key.split('|');
        let field = parts.next().unwrap_or_default();
        let place = format!("{place}.{field}");
        if let Some(unknown) = parts.find(|modifier| !MODIFIERS.contains(modifier)) {
            return Err(RuleError::field(place, format!("there is no modifier {unknown:?}")));
        }
        let plain = |value: &Value| !value.is_object() && !value.is_array();
        let fine = match value {
            Value::Array(items) => !items.is_empty() && items.iter().all(plain),
            value => plain(value),
        };
        if !fine {
            return Err(RuleError::field(place, "a value, or a list of values"));
        }
    }
    Ok(())
}
