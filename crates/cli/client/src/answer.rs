//! Answers of the API.

use std::io::Write as _;

use anyhow::bail;
use serde_json::Value;

/// Returns the value at a JSON pointer (RFC 6901), or null.
pub fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns the items of a list.
pub(crate) fn items(answer: &Value) -> Vec<Value> {
    at(answer, "/data/affected_items").as_array().cloned().unwrap_or_default()
}

/// Formats a value for a table or a line: escaped for terminals, lists with commas, `-` for nothing.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => model::path::show_terminal(text.as_bytes()),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(values) if values.is_empty() => "-".into(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => model::path::show_terminal(other.to_string().as_bytes()),
    }
}

/// Formats the message of an error with its remedy.
pub(crate) fn with_remedy(message: &Value, remedy: &Value) -> Option<String> {
    let message = message.as_str().filter(|text| !text.is_empty())?;
    let remedy = remedy.as_str().filter(|text| !text.is_empty());
    let both = remedy.map_or(message.to_owned(), |remedy| format!("{message}: {remedy}"));
    Some(model::path::show_terminal(both.as_bytes()))
}

/// Prints on stderr what failed, one line for each error.
///
/// # Errors
/// If something failed.
pub(crate) fn expect_all(answer: &Value) -> anyhow::Result<()> {
    let failed = at(answer, "/data/total_failed_items").as_u64().unwrap_or_default();
    if failed == 0 {
        return Ok(());
    }
    let done = items(answer).len() as u64;
    for item in at(answer, "/data/failed_items").as_array().into_iter().flatten() {
        let error = with_remedy(at(item, "/error/message"), at(item, "/error/remediation"));
        let line = format!("{}: {}", text(at(item, "/id")), error.unwrap_or_default());
        if failed + done == 1 {
            bail!(line);
        }
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    bail!("{failed} of {} failed", failed + done);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_formatted_for_a_terminal() {
        for (value, expected) in [
            (json!(null), "-"),
            (json!(""), "-"),
            (json!([]), "-"),
            (json!(["default", "web"]), "default, web"),
            (json!("a\u{1b}[2J"), "a\\u{1b}[2J"),
            (json!(7), "7"),
            (json!(true), "yes"),
        ] {
            assert_eq!(text(&value), expected);
        }
    }

    #[test]
    fn failed_items_make_the_command_fail() {
        let failed =
            json!([{"error": {"code": 1701, "message": "agent does not exist"}, "id": ["007"]}]);
        let answer = json!({"data": {"affected_items": ["001"], "total_failed_items": 1,
            "failed_items": failed}});
        assert_eq!(expect_all(&answer).unwrap_err().to_string(), "1 of 2 failed");
        assert!(expect_all(&json!({"data": {"affected_items": ["001"]}})).is_ok());
    }
}
