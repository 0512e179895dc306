//! The access log: one line per request, secrets masked.

use std::time::Duration;

use axum::http::StatusCode;
use listener::Source;
use serde_json::Value;
use state::Cost;

/// Target of the access log's lines.
pub const TARGET: &str = "access";
/// Names of fields whose values are never logged.
const SECRETS: [&str; 5] = ["password", "current_password", "token", "key", "secret"];
/// Replacement for a masked value.
const MASK: &str = "****";
/// Longest body or parameter list in a line, bytes.
const TEXT_BYTES_MAX: usize = 2_048;

pub struct Line {
    pub user: String,
    pub source: Option<Source>,
    pub method: String,
    pub path: String,
    pub parameters: String,
    pub body: String,
    pub took: Duration,
    pub status: StatusCode,
    pub cost: Cost,
}

impl Line {
    pub fn write(&self) {
        tracing::info!(
            target: TARGET,
            user = self.user,
            source = source(self.source),
            method = self.method,
            path = model::path::show_terminal(self.path.as_bytes()),
            parameters = self.parameters,
            body = self.body,
            seconds = format!("{:.6}", self.took.as_secs_f64()),
            status = self.status.as_u16(),
            queries = self.cost.queries,
            rows = self.cost.rows,
        );
    }
}

fn source(source: Option<Source>) -> String {
    match source {
        Some(Source::Unix { .. }) => "unix".into(),
        other => other.and_then(Source::ip).map_or_else(|| "-".into(), |ip| ip.to_string()),
    }
}

/// Formats query parameters for the log, with secrets masked.
pub fn parameters(query: &[(String, String)]) -> String {
    let shown: Vec<String> = query
        .iter()
        .map(|(name, value)| {
            let secret = SECRETS.contains(&name.as_str());
            format!("{name}={}", if secret { MASK } else { value })
        })
        .collect();
    cut(&model::path::show_terminal(shown.join("&").as_bytes()))
}

/// Formats a body for the log: JSON with its secrets masked, anything else as its length.
pub fn body(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let small = (bytes.len() <= TEXT_BYTES_MAX).then(|| serde_json::from_slice::<Value>(bytes));
    match small {
        Some(Ok(mut value)) => {
            mask(&mut value);
            cut(&value.to_string())
        }
        _ => format!("({} bytes)", bytes.len()),
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if SECRETS.contains(&name.to_ascii_lowercase().as_str()) {
                    *value = MASK.into();
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_in_the_access_log() {
        let text = body(br#"{"password":"hunter2","a":[{"Token":"t0p"}],"name":"x"}"#);
        assert_eq!(text, r#"{"password":"****","a":[{"Token":"****"}],"name":"x"}"#);
        assert_eq!(body(b"password=hunter2"), "(16 bytes)");
        let query = [("password".to_owned(), "hunter2".to_owned()), ("a".into(), "b\n".into())];
        assert_eq!(parameters(&query), "password=****&a=b\\n");
    }

    #[test]
    fn long_text_is_truncated_at_a_character_boundary() {
        let text = cut(&"ä".repeat(TEXT_BYTES_MAX));
        assert!(text.len() <= TEXT_BYTES_MAX + 3 && text.ends_with("ä..."));
    }
}
