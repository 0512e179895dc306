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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns status and body of the answer to a query and a form.
    async fn ask(query: &str, form: &'static str) -> (u16, String) {
        let query = Some(query.to_owned()).filter(|query| !query.is_empty());
        let answer = answer(RawQuery(query), form.into()).await;
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1024).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn statements_before_a_write_are_answered() {
        let created = (200, r#"{"results":[{"statement_id":0}]}"#.to_owned());
        assert_eq!(ask("", "q=CREATE+DATABASE+%22telegraf%22").await, created);
        assert_eq!(ask("db=a&q=create%20database%20telegraf", "").await, created);
        let (status, shown) = ask("q=SHOW%20DATABASES", "").await;
        assert!(status == 200 && shown.contains(r#""values":[["holdfast"]]"#), "{shown}");
        for (query, form) in [("q=SELECT%20*%20FROM%20cpu", ""), ("", ""), ("", "q")] {
            let (status, refused) = ask(query, form).await;
            assert!(status == 400 && refused.contains("/api/query"), "{refused}");
        }
    }
}
