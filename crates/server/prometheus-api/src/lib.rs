//! The HTTP API of Prometheus over the series store, as version 3.16 answers it: queries, their texts
//! read and formatted, the labels of series, and remote read.
//!
//! Parameters come in the query or, with POST, in a form. An answer is a JSON object with `status`; it
//! is complete or an error, and in gzip if the client accepts that. Queries wait for their turn, at most
//! [`WAITING_MAX`] of them, and no longer than their timeout. A query whose client has left ends.

mod form;
mod names;
mod query;
mod query_queue;
mod read;
mod refusal;
mod stream;
mod write;

use std::fmt::Write as _;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use budget::{HeldMemory, Memory};
use bytes::Bytes;
use promql::Annotations;
use promql_syntax::{parse, pretty, to_json};
use serde_json::{Value, json};
use series::Store;

use form::Form;
use query_queue::QueryQueue;

pub(crate) use refusal::Refusal;

pub use query_queue::{RUNNING_MAX, WAITING_MAX};

/// Most selectors of one request.
pub(crate) const SELECTORS_MAX: usize = 64;

/// The store, and the queries that run on it.
#[derive(Clone)]
pub(crate) struct QueryState {
    store: Store,
    turns: QueryQueue,
}

/// Returns the operations over a store, by their paths below `/api/v1`. Their queries take their memory
/// from a pool.
pub fn routes<S: Clone + Send + Sync + 'static>(store: Store, memory: Memory) -> Router<S> {
    Router::new()
        .route("/query", get(query::instant).post(query::instant))
        .route("/query_range", get(query::range).post(query::range))
        .route("/parse_query", get(parse_query).post(parse_query))
        .route("/format_query", get(format_query).post(format_query))
        .route("/series", get(names::series).post(names::series))
        .route("/labels", get(names::labels).post(names::labels))
        .route("/label/{name}/values", get(names::values))
        .route("/status/buildinfo", get(names::buildinfo))
        .route("/metadata", get(async || plain("{}")))
        .route("/query_exemplars", get(async || plain("[]")).post(async || plain("[]")))
        .route("/rules", get(async || plain("{\"groups\":[]}")))
        .route("/alerts", get(async || plain("{\"alerts\":[]}")))
        .layer(from_fn(gzip::compress))
        .route("/read", post(read::read))
        .with_state(QueryState { store, turns: QueryQueue::new(memory) })
}

/// Data of an answer in JSON, with its warnings and infos.
pub(crate) struct AnswerData {
    data: String,
    notes: Annotations,
    /// The text of the query, in which the notes name places.
    query: String,
    /// The memory of `data`, held until the client has taken the answer.
    held: Option<HeldMemory>,
}

/// The bytes of an answer, with the memory that they hold.
struct Body {
    text: String,
    _held: Option<HeldMemory>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Returns the tree of an expression.
async fn parse_query(State(served): State<QueryState>, form: Form) -> Result<AnswerData, Refusal> {
    written(&served, &form, to_json).await
}

/// Returns an expression in the usual layout.
async fn format_query(State(served): State<QueryState>, form: Form) -> Result<AnswerData, Refusal> {
    written(&served, &form, |expr| Value::String(pretty(expr))).await
}

/// Answers with what is made of the expression in the parameter `query`.
async fn written(
    served: &QueryState,
    form: &Form,
    make: fn(&promql_syntax::Expr) -> Value,
) -> Result<AnswerData, Refusal> {
    let text = form.text("query")?;
    let run = move |_| {
        let expr = parse(&text).map_err(|error| Refusal::parameter("query", error))?;
        Ok(plain(make(&expr).to_string()))
    };
    served.turns.run(query_queue::TIMEOUT, run).await
}

/// Returns an answer without notes.
fn plain(data: impl Into<String>) -> AnswerData {
    AnswerData {
        data: data.into(),
        notes: Annotations::default(),
        query: String::new(),
        held: None,
    }
}

impl IntoResponse for AnswerData {
    fn into_response(self) -> Response {
        let Self { data, notes, query, held } = self;
        // In place: an answer may be large.
        let mut text = data;
        text.insert_str(0, "{\"status\":\"success\",\"data\":");
        for (name, list) in [("warnings", notes.warnings(&query)), ("infos", notes.infos(&query))] {
            if !list.is_empty() {
                let _ = write!(text, ",\"{name}\":{}", json!(list));
            }
        }
        text.push('}');
        let body = Bytes::from_owner(Body { text, _held: held });
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, kind, text } = self;
        let body = json!({"status": "error", "errorType": kind, "error": text}).to_string();
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
