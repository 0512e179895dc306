//! The HTTP API of Prometheus, as version 3.16 answers it. So far it reads queries and does not run
//! them: `parse_query` and `format_query`.
//!
//! Parameters come in the query or, with POST, in a form. Answers are JSON objects with `status`.

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use promql_syntax::{Expr, parse, pretty, to_json};
use serde_json::{Value, json};

/// Returns the operations, by their paths below `/api/v1`.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/parse_query", get(parse_query).post(parse_query))
        .route("/format_query", get(format_query).post(format_query))
}

/// A request that is refused with 400.
struct Refusal {
    kind: &'static str,
    text: String,
}

/// Returns the tree of an expression.
async fn parse_query(RawQuery(query): RawQuery, form: Bytes) -> Response {
    answer(expression(query.as_deref(), &form).map(|expr| to_json(&expr)))
}

/// Returns an expression in the usual layout.
async fn format_query(RawQuery(query): RawQuery, form: Bytes) -> Response {
    answer(expression(query.as_deref(), &form).map(|expr| Value::String(pretty(&expr))))
}

/// Parses the parameter `query`.
fn expression(query: Option<&str>, form: &[u8]) -> Result<Expr, Refusal> {
    let text = parameter("query", query, form)?;
    parse(&text).map_err(|error| bad_data(format!("invalid parameter \"query\": {error}")))
}

/// Returns a parameter; empty if it is missing. That of the form comes first.
fn parameter(wanted: &str, query: Option<&str>, form: &[u8]) -> Result<String, Refusal> {
    for text in [form, query.unwrap_or_default().as_bytes()] {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(text)
            .map_err(|error| bad_data(format!("error parsing form values: {error}")))?;
        if let Some((_, value)) = pairs.into_iter().find(|(name, _)| name == wanted) {
            return if is_replaced(&value, text) {
                Err(bad_data(format!("invalid parameter {wanted:?}: invalid UTF-8 rune")))
            } else {
                Ok(value)
            };
        }
    }
    Ok(String::new())
}

/// Returns true if decoding has replaced bytes that are not UTF-8.
fn is_replaced(value: &str, encoded: &[u8]) -> bool {
    let written = b"%EF%BF%BD";
    let is_written = encoded.windows(written.len()).any(|part| part.eq_ignore_ascii_case(written));
    value.contains(char::REPLACEMENT_CHARACTER) && !is_written
}

fn bad_data(text: String) -> Refusal {
    Refusal { kind: "bad_data", text }
}

fn answer(result: Result<Value, Refusal>) -> Response {
    let (status, body) = match result {
        Ok(data) => (StatusCode::OK, json!({"status": "success", "data": data})),
        Err(Refusal { kind, text }) => {
            (StatusCode::BAD_REQUEST, json!({"status": "error", "errorType": kind, "error": text}))
        }
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
