//! The query port: `/api/...` of the store's own query language, `/write` and `/api/v2/write` for the
//! Influx line protocol, `/api/v1/write` for Prometheus remote write, `/api/put` for `OpenTSDB`, and
//! the operations of Prometheus' API.
//!
//! Writes are answered after they are persisted. [`HttpOptions`] sets the token that callers
//! present and the origins from which a browser may call. Requests from other origins are refused,
//! so that a page opened in a browser on this machine can neither write nor read here.
//!
//! Limits: [`WRITE_BYTES_MAX`], [`WRITES_BYTES_MAX`], [`QUERY_BYTES_MAX`], [`QUERIES_MAX`],
//! [`NAMES_MAX`], [`UNREAD_TIME_MAX`]; a query ends after ten minutes, or when it holds too much
//! memory.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use series::{Store, StoreStats, WriteError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::guard::{SenderAddress, Token};

mod answer;
mod statements;
mod write;
pub use answer::UNREAD_TIME_MAX;
use answer::stream_answer;
pub use write::{WRITE_BYTES_MAX, WRITES_BYTES_MAX};

/// Most bytes of a deletion's request in the log.
const LOGGED_BYTES_MAX: usize = 1_000;
/// Path of deletions.
const DELETE: &str = "/api/delete";
/// Largest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// Most queries of one port that are answered at a time.
pub const QUERIES_MAX: usize = 16;
/// Most requests of one port that scan the catalogue at a time: searches, suggestions, deletes.
/// Further ones wait for a limited time.
pub const NAMES_MAX: usize = 4;
/// Longest time that a request waits for a permit to scan the catalogue.
const TURN_TIME_MAX: Duration = Duration::from_secs(10);

/// The access rules of the query port.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// The required token. `None` admits every caller; use it only for loopback addresses and for
    /// callers that were already authenticated.
    pub token: Option<Token>,
    /// The token that a deletion requires where `token` is `None`; without either, every caller may
    /// delete.
    pub delete_token: Option<Token>,
    /// Origins whose pages may send requests from a browser, such as `http://grafana.example:3000`;
    /// `*` allows any.
    pub cors_origins: Vec<String>,
    /// The memory of queries, which all ports of a server share.
    pub memory: query::Memory,
}

/// The quotas that the queries of one port share.
#[derive(Clone)]
struct QueryQuotas {
    queries: Arc<Semaphore>,
    names: Arc<Semaphore>,
    /// Longest time that a request waits for `names`.
    permit_time: Duration,
    /// Longest time that a query may take.
    query_time: Duration,
    memory: query::Memory,
}

impl Default for QueryQuotas {
    fn default() -> Self {
        Self {
            queries: Arc::new(Semaphore::new(QUERIES_MAX)),
            names: Arc::new(Semaphore::new(NAMES_MAX)),
            permit_time: TURN_TIME_MAX,
            query_time: query::QUERY_TIME_MAX,
            memory: query::Memory::default(),
        }
    }
}

/// Returns the routes of the query port for one store.
pub fn router(store: Store, options: HttpOptions) -> Router {
    let memory = options.memory.clone();
    routes(store, options, QueryQuotas { memory, ..QueryQuotas::default() })
}

fn routes(store: Store, options: HttpOptions, quotas: QueryQuotas) -> Router {
    Router::new()
        .route("/api/query", post(run_query))
        .route("/api/search", post(search))
        .route("/api/suggest", post(suggest))
        .route(DELETE, post(delete))
        .route("/api/stats", get(stats))
        .route("/api/version", get(version))
        .route("/api/function-names", get(functions))
        .route("/ping", get(ping))
        .route("/query", get(statements::answer).post(statements::answer))
        .nest("/api/v1", prometheus_api::routes(store.clone(), quotas.memory.clone()))
        .layer(Extension(quotas))
        .layer(DefaultBodyLimit::max(QUERY_BYTES_MAX))
        .merge(write::routes())
        .fallback(nothing)
        .layer(from_fn_with_state(Arc::new(options), admit))
        .with_state(store)
}

/// Returns the answer to a request without the token, or from an address that failed too often.
fn unauthorized(token: Option<&Token>, peer: Option<IpAddr>, shown: &str) -> Option<Response> {
    let token = token?;
    if let Some(left) = peer.and_then(|peer| token.blocked(peer)) {
        let retry_after = [(header::RETRY_AFTER, (left.as_secs() + 1).to_string())];
        let text = "-too many wrong tokens: try again later\r\n";
        return Some((StatusCode::TOO_MANY_REQUESTS, retry_after, text).into_response());
    }
    if token.shown_by(shown) {
        return None;
    }
    if let Some(peer) = peer {
        token.count_failure("http", peer);
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer, Basic realm=\"series\"")];
    let text = "-show the token: Authorization: Bearer TOKEN\r\n";
    Some((StatusCode::UNAUTHORIZED, challenge, text).into_response())
}

/// Admits a request if its origin is allowed and the token is valid.
async fn admit(State(options): State<Arc<HttpOptions>>, request: Request, next: Next) -> Response {
    let header = |headers: &HeaderMap, name| {
        headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok()).map(str::to_owned)
    };
    let origin = header(request.headers(), header::ORIGIN);
    let shown = header(request.headers(), header::AUTHORIZATION).unwrap_or_default();
    let known = |origin: &String| options.cors_origins.iter().any(|o| o == "*" || o == origin);
    if let Some(origin) = origin.as_ref().filter(|origin| !known(origin)) {
        let text = format!("-pages of {origin} may not ask here: name it in cors_origins\r\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let peer = request.extensions().get::<SenderAddress>().map(|sender| sender.0);
    let token = match &options.token {
        None if request.uri().path() == DELETE => options.delete_token.as_ref(),
        token => token.as_ref(),
    };
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = if preflight {
        StatusCode::NO_CONTENT.into_response()
    } else if let Some(refused) = unauthorized(token, peer, &shown) {
        refused
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(&origin).ok()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if preflight {
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, accept"),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

async fn nothing(uri: Uri) -> Response {
    (StatusCode::NOT_FOUND, format!("-Invalid url {}\r\n", uri.path())).into_response()
}

async fn ping() -> StatusCode {
    StatusCode::NO_CONTENT
}

async fn version() -> String {
    format!("holdfast series {}\n", env!("CARGO_PKG_VERSION"))
}

fn json(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn functions() -> Response {
    json(&serde_json::json!(query::FUNCTIONS))
}

async fn stats(State(store): State<Store>) -> Response {
    json(&stats_json(&store.stats()))
}

/// Returns the statistics of a store as `/api/stats` answers them.
pub fn stats_json(s: &StoreStats) -> serde_json::Value {
    serde_json::json!({
        "rows": s.rows, "series": s.series, "rows_active": s.rows_active, "samples": s.samples,
        "batches": s.batches, "batches_failed": s.batches_failed, "head_bytes": s.head_bytes,
        "head_samples": s.head_samples, "position": s.position,
        "sealed_position": s.sealed_position, "parts": s.parts, "part_bytes": s.part_bytes,
        "part_samples": s.part_samples, "index_bytes": s.index_bytes,
        "partitions": s.partitions, "tombstones": s.tombstones,
        "log_payload_bytes": s.log_payload_bytes, "trouble": s.trouble, "disk_full": s.disk_full,
    })
}

/// Returns the answer to a failed query. The status is 200 and the error is in the body, as clients
/// of this query language expect.
fn query_error(message: &str) -> Response {
    format!("-{}\r\n", message.replace(['\r', '\n'], " ")).into_response()
}

/// Returns the answer for a request above a limit, with status 503.
fn busy(text: String) -> Response {
    let later = [(header::RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response()
}

/// Waits for a permit to scan the catalogue.
async fn names_permit(quotas: &QueryQuotas) -> Result<OwnedSemaphorePermit, Response> {
    let permit = timeout(quotas.permit_time, Arc::clone(&quotas.names).acquire_owned()).await;
    permit
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| busy(format!("-{NAMES_MAX} requests look for names; ask again later\r\n")))
}

async fn search(
    State(store): State<Store>,
    Extension(quotas): Extension<QueryQuotas>,
    version: Version,
    body: Bytes,
) -> Response {
    names(store, &quotas, version, query::Query::parse_search(&body)).await
}

async fn suggest(
    State(store): State<Store>,
    Extension(quotas): Extension<QueryQuotas>,
    version: Version,
    body: Bytes,
) -> Response {
    names(store, &quotas, version, query::Query::parse_suggest(&body)).await
}

/// Answers a query for names.
async fn names(
    store: Store,
    quotas: &QueryQuotas,
    version: Version,
    query: Result<query::Query, String>,
) -> Response {
    match (query, names_permit(quotas).await) {
        (Err(e), _) => query_error(&e),
        (_, Err(busy)) => busy,
        (Ok(query), Ok(permit)) => stream_answer(store, query, quotas, permit, version).await,
    }
}

/// Handles `{"metric", "where", "range"}`: deletes samples and events, and answers when the
/// deletion is persisted.
async fn delete(
    State(store): State<Store>,
    Extension(quotas): Extension<QueryQuotas>,
    body: Bytes,
) -> Response {
    let permit = match names_permit(&quotas).await {
        Ok(permit) => permit,
        Err(busy) => return busy,
    };
    let deleting = tokio::task::spawn_blocking(move || {
        let deleted = query::delete(&store, &body);
        if let Ok(series) = &deleted {
            let asked = String::from_utf8_lossy(&body);
            tracing::warn!(
                series,
                asked = asked.get(..LOGGED_BYTES_MAX).unwrap_or(&asked),
                "samples were deleted"
            );
        }
        drop(permit);
        deleted
    });
    match deleting.await {
        Ok(Ok(series)) => json(&serde_json::json!({ "series": series })),
        Ok(Err(query::DeleteError::Query(text))) => refused(&text),
        Ok(Err(query::DeleteError::Write(e))) => failed(&e),
        Err(e) => refused(&format!("deleting failed: {e}")),
    }
}

async fn run_query(
    State(store): State<Store>,
    Extension(quotas): Extension<QueryQuotas>,
    version: Version,
    body: Bytes,
) -> Response {
    let Ok(permit) = Arc::clone(&quotas.queries).try_acquire_owned() else {
        return busy(format!("-{QUERIES_MAX} queries are being answered; ask again later\r\n"));
    };
    match query::Query::parse(&body) {
        Ok(query) => stream_answer(store, query, &quotas, permit, version).await,
        Err(e) => query_error(&e),
    }
}

fn refused(text: &str) -> Response {
    let body = serde_json::json!({ "error": text }).to_string();
    (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn failed(error: &WriteError) -> Response {
    let status = match error {
        WriteError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        // A later merge applies the pending tombstones, so the deletion may be retried.
        WriteError::Failed(_)
        | WriteError::Io { .. }
        | WriteError::Closed
        | WriteError::TooLarge { what: "tombstones", .. } => StatusCode::SERVICE_UNAVAILABLE,
        // The same request would fail again, so the status must tell senders not to retry.
        WriteError::TooLarge { .. }
        | WriteError::TooOld { .. }
        | WriteError::TooNew { .. }
        | WriteError::EndOfTime { .. } => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = serde_json::json!({ "error": error.to_string() }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use hyper::body::Body as _;
    use series::{Ack, Batch, StoreOptions, Wal};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A query whose answer is larger than the buffers for a client that does not read.
    const LARGE: &[u8] = br#"{"select": "cpu", "range": {"from": 0, "to": 100000}}"#;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
        let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
        let row = store.row(b"cpu host=a").unwrap();
        let mut batch = Batch::new();
        for i in 0..30_000 {
            batch.push(row, i, &[1.5]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
        (folder, store)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unread_queries_hold_permits_and_excess_queries_are_rejected() {
        let (_folder, store) = store();
        let quotas = QueryQuotas::default();
        let ask = async || {
            let (store, quotas) = (State(store.clone()), Extension(quotas.clone()));
            run_query(store, quotas, Version::HTTP_11, Bytes::from_static(LARGE)).await
        };
        let mut unread = Vec::new();
        for _ in 0..QUERIES_MAX {
            unread.push(ask().await);
            assert_eq!(unread.last().map(Response::status), Some(StatusCode::OK));
        }
        let refused = ask().await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(header::RETRY_AFTER));
        drop(unread);
        // The clients have disconnected, so every query ends.
        drop(quotas.queries.acquire_many(QUERIES_MAX as u32).await.unwrap());
        assert_eq!(ask().await.status(), StatusCode::OK);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn searches_wait_then_are_rejected_while_others_are_unread() {
        let (_folder, store) = store();
        for host in 0..30_000 {
            store.row(format!("many host=host_{host}").as_bytes()).unwrap();
        }
        let quotas =
            QueryQuotas { permit_time: Duration::from_millis(1), ..QueryQuotas::default() };
        let of = || (State(store.clone()), Extension(quotas.clone()));
        let ask = async || {
            let (store, quotas) = of();
            let body = Bytes::from_static(br#"{"select": "many"}"#);
            search(store, quotas, Version::HTTP_11, body).await
        };
        let mut unread = Vec::new();
        for _ in 0..NAMES_MAX {
            unread.push(ask().await);
            assert_eq!(unread.last().map(Response::status), Some(StatusCode::OK));
        }
        let (store, shared) = of();
        let metrics = Bytes::from_static(br#"{"select": "metric-names"}"#);
        let suggested = suggest(store, shared, Version::HTTP_11, metrics).await;
        let (store, shared) = of();
        let deleted = delete(store, shared, Bytes::from_static(b"{}")).await;
        for refused in [ask().await, suggested, deleted] {
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(refused.headers().contains_key(header::RETRY_AFTER));
        }
        drop(unread);
        // The clients have disconnected, so every search ends and the waiting ones get their
        // permits.
        drop(quotas.names.acquire_many(NAMES_MAX as u32).await.unwrap());
        assert_eq!(ask().await.status(), StatusCode::OK);
    }

    /// Returns the answer that an HTTP/1.0 client gets from a store with this query timeout.
    async fn asked_by_an_old_client(query_time: Duration, body: &[u8]) -> String {
        let (_folder, store) = store();
        let quotas = QueryQuotas { query_time, ..QueryQuotas::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = axum::serve(listener, routes(store, HttpOptions::default(), quotas));
        let serving = tokio::spawn(async move { serve.await });
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("POST /api/query HTTP/1.0\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        serving.abort();
        answer
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn query_that_fails_before_its_first_row_returns_only_the_error() {
        let (_folder, store) = store();
        let quotas = QueryQuotas { query_time: Duration::ZERO, ..QueryQuotas::default() };
        let (store, quotas) = (State(store), Extension(quotas));
        let answer = run_query(store, quotas, Version::HTTP_11, Bytes::from_static(LARGE)).await;
        assert!(answer.body().size_hint().exact().is_some(), "it is whole");
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        assert!(body.starts_with(b"-Query took longer") && body.ends_with(b"\r\n"), "{body:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn http_1_0_client_gets_an_error_line_for_a_cut_answer() {
        let whole = asked_by_an_old_client(query::QUERY_TIME_MAX, LARGE).await;
        assert_eq!(whole.matches("+cpu host=a").count(), 30_000);
        let cut = asked_by_an_old_client(Duration::ZERO, LARGE).await;
        assert!(cut.contains("\r\n\r\n-Query took longer"), "{cut:?}");
    }
}
