//! The statements that senders of Influx lines run before they write. The store is one database, which
//! exists.

use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde_json::json;

/// The name of the only database.
const DATABASE: &str = "holdfast";

/// Answers `CREATE DATABASE` and `SHOW DATABASES`, given as `q` in the query or in a form.
pub(super) async fn answer(RawQuery(query): RawQuery, form: Bytes) -> Response {
    let pairs = query.unwrap_or_default().into_bytes();
    let statement = [&pairs[..], &form].into_iter().find_map(statement).unwrap_or_default();
    let mut words = statement.split_whitespace().map(str::to_ascii_uppercase);
    let result = match (words.next().as_deref(), words.next().as_deref()) {
        (Some("CREATE"), Some("DATABASE")) => json!({"statement_id": 0}),
        (Some("SHOW"), Some("DATABASES")) => json!({"statement_id": 0, "series": [
            {"name": "databases", "columns": ["name"], "values": [[DATABASE]]}]}),
        _ => {
            let error = "only CREATE DATABASE and SHOW DATABASES are answered here; query with POST \
                         /api/query";
            return (StatusCode::BAD_REQUEST, super::json(&json!({"error": error})))
                .into_response();
        }
    };
    super::json(&json!({"results": [result]}))
}

/// Returns `q` of a query or form (`application/x-www-form-urlencoded`).
fn statement(pairs: &[u8]) -> Option<String> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(pairs).ok()?;
    pairs.into_iter().find(|(name, _)| name == "q").map(|(_, statement)| statement)
}
