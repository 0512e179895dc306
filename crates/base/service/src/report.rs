//! Prints a report as one JSON object, or as one line of text per field.

use serde_json::Value;

use crate::Console;

/// Prints a report.
pub fn report(as_json: bool, report: &Value) {
    let console = Console::new();
    match report.as_object() {
        Some(fields) if !as_json => {
            for (name, value) in fields {
                console.line(&format!("{}: {}", name.replace('_', " "), words(value)));
            }
        }
        _ => console.line(&report.to_string()),
    }
}

/// Formats a value as text: `none`, `yes`, `no`, lists with commas, fields with their names.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "none".into(),
        Value::Array(values) if values.iter().any(Value::is_object) => {
            let lines: Vec<String> = values.iter().map(words).collect();
            format!("\n  {}", lines.join("\n  "))
        }
        Value::Array(values) => {
            let nested = values.iter().any(Value::is_array);
            let all: Vec<String> = values.iter().map(words).collect();
            all.join(if nested { ", " } else { " " })
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{} {}", name.replace('_', " "), words(value))
            };
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_is_printed_without_json() {
        assert_eq!(words(&json!(null)), "none");
        assert_eq!(words(&json!(true)), "yes");
        assert_eq!(words(&json!([])), "none");
        assert_eq!(words(&json!([["commit", 5], ["follow-x", 7]])), "commit 5, follow-x 7");
        assert_eq!(words(&json!(["lost-a", "lost-b"])), "lost-a lost-b");
        let segments = json!([{"file": "segment-1", "first_position": 4}]);
        assert_eq!(words(&segments), "\n  file segment-1, first position 4");
    }
}
