//! The query port: `/api/...` of the store's own query language, `/write` for the Influx line
//! protocol, `/api/v1/write` for Prometheus remote write.
//!
//! Writes are answered after they are persisted. [`HttpOptions`] says which token callers show and
//! from which pages a browser may ask; a request from another page is refused, so that no page that
//! somebody opens on this machine writes or reads here.
//!
//! Limits: [`WRITE_BYTES_MAX`], [`WRITES_BYTES_MAX`], [`QUERY_BYTES_MAX`], [`QUERIES_MAX`],
//! [`NAMES_MAX`], [`UNREAD_TIME_MAX`]; a query ends after ten minutes, or when it holds too much
//! memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::body::Frame;
use series::{Store, WriteError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::guard::Token;
use crate::query;

mod write;
pub use write::{WRITE_BYTES_MAX, WRITES_BYTES_MAX};

/// Largest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// Most queries of one port that are answered at a time.
pub const QUERIES_MAX: usize = 16;
/// Most requests of one port that walk the catalogue at a time: searches, suggestions, deletes.
/// More wait a while.
pub const NAMES_MAX: usize = 4;
/// Longest time that a request waits for others.
const TURN_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time that a query waits for a client that reads nothing of its answer.
pub const UNREAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Pieces of an answer that wait for the client; the query waits then.
const PIECES_MAX: usize = 4;

/// For whom the query port is.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// What callers must show; `None` lets everybody in: for loopback addresses and where somebody
    /// else has looked.
    pub token: Option<Token>,
    /// Origins whose pages may ask from a browser, such as `http://grafana.example:3000`; `*` is
    /// any.
    pub cors_origins: Vec<String>,
}

/// What the queries of one port share.
#[derive(Clone)]
struct Rooms {
    queries: Arc<Semaphore>,
    names: Arc<Semaphore>,
    /// How long a request waits for `names`.
    turn_time: Duration,
    memory: query::Memory,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            queries: Arc::new(Semaphore::new(QUERIES_MAX)),
            names: Arc::new(Semaphore::new(NAMES_MAX)),
            turn_time: TURN_TIME_MAX,
            memory: query::Memory::default(),
        }
    }
}

/// The routes of the query port, over one store.
pub fn router(store: Store, options: HttpOptions) -> Router {
    let rooms = Extension(Rooms::default());
    Router::new()
        .route("/api/query", post(run_query))
        .route("/api/search", post(search))
        .route("/api/suggest", post(suggest))
        .route("/api/delete", post(delete))
        .route("/api/stats", get(stats))
        .route("/api/version", get(version))
        .route("/api/function-names", get(functions))
        .route("/ping", get(ping))
        .layer(rooms)
        .layer(DefaultBodyLimit::max(QUERY_BYTES_MAX))
        .merge(write::routes())
        .fallback(nothing)
        .layer(from_fn_with_state(Arc::new(options), admit))
        .with_state(store)
}

/// Whose page asks, and whether the token is shown.
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
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = if preflight {
        StatusCode::NO_CONTENT.into_response()
    } else if options.token.as_ref().is_none_or(|token| token.shown_by(&shown)) {
        next.run(request).await
    } else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer, Basic realm=\"series\"")];
        (StatusCode::UNAUTHORIZED, challenge, "-show the token: Authorization: Bearer TOKEN\r\n")
            .into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
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
    let s = store.stats();
    json(&serde_json::json!({
        "rows": s.rows, "series": s.series, "rows_active": s.rows_active, "samples": s.samples,
        "batches": s.batches, "batches_failed": s.batches_failed, "head_bytes": s.head_bytes,
        "head_samples": s.head_samples, "position": s.position,
        "sealed_position": s.sealed_position, "parts": s.parts, "part_bytes": s.part_bytes,
        "part_samples": s.part_samples, "index_bytes": s.index_bytes,
        "partitions": s.partitions, "tombstones": s.tombstones,
        "log_payload_bytes": s.log_payload_bytes, "trouble": s.trouble,
    }))
}

/// An error of a query: in the body, with the status of a success, as clients of this language
/// expect it.
fn query_error(message: &str) -> Response {
    format!("-{}\r\n", message.replace(['\r', '\n'], " ")).into_response()
}

/// Too many ask at a time.
fn busy(text: String) -> Response {
    let later = [(header::RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response()
}

/// Wait for a turn among the requests that walk the catalogue.
async fn turn(rooms: &Rooms) -> Result<OwnedSemaphorePermit, Response> {
    let permit = timeout(rooms.turn_time, Arc::clone(&rooms.names).acquire_owned()).await;
    permit
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| busy(format!("-{NAMES_MAX} requests look for names; ask again later\r\n")))
}

async fn search(
    State(store): State<Store>,
    Extension(rooms): Extension<Rooms>,
    body: Bytes,
) -> Response {
    match (query::Query::parse_search(&body), turn(&rooms).await) {
        (Err(e), _) => query_error(&e),
        (_, Err(busy)) => busy,
        (Ok(query), Ok(permit)) => answer(store, query, &rooms, permit),
    }
}

/// Look for names away from the tasks: there may be many.
async fn suggest(
    State(store): State<Store>,
    Extension(rooms): Extension<Rooms>,
    body: Bytes,
) -> Response {
    let permit = match turn(&rooms).await {
        Ok(permit) => permit,
        Err(busy) => return busy,
    };
    let look = tokio::task::spawn_blocking(move || {
        let names = query::suggest(&store, &body);
        drop(permit);
        names
    });
    match look.await {
        Ok(Ok(names)) => names.into_response(),
        Ok(Err(e)) => query_error(&e),
        Err(e) => query_error(&format!("looking for names failed: {e}")),
    }
}

/// `{"metric", "where", "range"}`: delete samples and events; answered when that is persisted.
async fn delete(
    State(store): State<Store>,
    Extension(rooms): Extension<Rooms>,
    body: Bytes,
) -> Response {
    let permit = match turn(&rooms).await {
        Ok(permit) => permit,
        Err(busy) => return busy,
    };
    let deleting = tokio::task::spawn_blocking(move || {
        let deleted = query::delete(&store, &body);
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
    Extension(rooms): Extension<Rooms>,
    body: Bytes,
) -> Response {
    let Ok(permit) = Arc::clone(&rooms.queries).try_acquire_owned() else {
        return busy(format!("-{QUERIES_MAX} queries are being answered; ask again later\r\n"));
    };
    match query::Query::parse(&body) {
        Ok(query) => answer(store, query, &rooms, permit),
        Err(e) => query_error(&e),
    }
}

/// Answer a query piece by piece, as its client takes them.
fn answer(
    store: Store,
    query: query::Query,
    rooms: &Rooms,
    permit: OwnedSemaphorePermit,
) -> Response {
    let (send, receive) = mpsc::channel(PIECES_MAX);
    let cut = Arc::new(AtomicBool::new(false));
    let pieces = Pieces { pieces: receive, cut: Arc::clone(&cut) };
    let client = send.clone();
    let gone = move || client.is_closed();
    let budget = query::Budget::new(query::QUERY_TIME_MAX, rooms.memory.clone(), gone);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        // The client going away, or reading nothing, ends the query.
        query::run(&store, &query, &budget, |piece| {
            let patience = budget.left().min(UNREAD_TIME_MAX);
            runtime.block_on(hand_over(&send, piece, patience, &cut))
        });
        cut.fetch_or(budget.over().is_some(), Ordering::AcqRel);
        drop((budget, permit));
    });
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::new(pieces)).into_response()
}

/// Give the client a piece of its answer; whether to go on. `cut` tells of a client that read
/// nothing for so long that the answer ends here.
async fn hand_over(
    send: &mpsc::Sender<Bytes>,
    piece: Bytes,
    patience: Duration,
    cut: &AtomicBool,
) -> bool {
    let sent = timeout(patience, send.send(piece)).await;
    cut.fetch_or(sent.is_err(), Ordering::AcqRel);
    matches!(sent, Ok(Ok(())))
}

/// An answer on its way.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    /// The answer is not whole: its end must not look like one.
    cut: Arc<AtomicBool>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = ready!(self.pieces.poll_recv(cx));
        let broken = piece.is_none() && self.cut.swap(false, Ordering::AcqRel);
        Poll::Ready(if broken {
            Some(Err(std::io::Error::other("the answer was cut")))
        } else {
            piece.map(|bytes| Ok(Frame::data(bytes)))
        })
    }
}

fn refused(text: &str) -> Response {
    let body = serde_json::json!({ "error": text }).to_string();
    (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn failed(error: &WriteError) -> Response {
    let status = match error {
        WriteError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        // Deletes wait for merges.
        WriteError::Failed(_)
        | WriteError::Closed
        | WriteError::TooLarge { what: "tombstones", .. } => StatusCode::SERVICE_UNAVAILABLE,
        // The same request fails the same way again: senders must not repeat it.
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
    use std::future::poll_fn;

    use hyper::body::Body as _;
    use series::{Ack, Batch, StoreOptions, Wal};

    use super::*;

    /// A query whose answer is larger than what waits for a client that does not read.
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
    async fn queries_that_nobody_reads_do_not_become_more_and_more() {
        let (_folder, store) = store();
        let rooms = Rooms::default();
        let ask = async || {
            run_query(State(store.clone()), Extension(rooms.clone()), Bytes::from_static(LARGE))
                .await
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
        // The clients are gone: every query ends.
        drop(rooms.queries.acquire_many(QUERIES_MAX as u32).await.unwrap());
        assert_eq!(ask().await.status(), StatusCode::OK);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn searches_that_nobody_reads_let_others_wait_and_then_refuse_them() {
        let (_folder, store) = store();
        for host in 0..30_000 {
            store.row(format!("many host=host_{host}").as_bytes()).unwrap();
        }
        let rooms = Rooms { turn_time: Duration::from_millis(1), ..Rooms::default() };
        let of = || (State(store.clone()), Extension(rooms.clone()));
        let ask = async || {
            let (store, rooms) = of();
            search(store, rooms, Bytes::from_static(br#"{"select": "many"}"#)).await
        };
        let mut unread = Vec::new();
        for _ in 0..NAMES_MAX {
            unread.push(ask().await);
            assert_eq!(unread.last().map(Response::status), Some(StatusCode::OK));
        }
        let (store, shared) = of();
        let suggested = suggest(store, shared, Bytes::from_static(b"{}")).await;
        let (store, shared) = of();
        let deleted = delete(store, shared, Bytes::from_static(b"{}")).await;
        for refused in [ask().await, suggested, deleted] {
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(refused.headers().contains_key(header::RETRY_AFTER));
        }
        drop(unread);
        // The clients are gone: every search ends, and what waits has its turn.
        drop(rooms.names.acquire_many(NAMES_MAX as u32).await.unwrap());
        assert_eq!(ask().await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_cut_and_its_end_is_an_error() {
        let (send, pieces) = mpsc::channel(1);
        let cut = Arc::new(AtomicBool::new(false));
        let mut answer = Pieces { pieces, cut: Arc::clone(&cut) };
        let piece = || Bytes::from_static(b"+cpu host=a\r\n");
        let short = Duration::from_millis(1);
        assert!(hand_over(&send, piece(), short, &cut).await);
        assert!(!hand_over(&send, piece(), short, &cut).await, "there is no room for another");
        drop(send);
        let mut next = async || poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx)).await;
        assert!(next().await.unwrap().is_ok());
        assert!(next().await.unwrap().is_err());
        assert!(next().await.is_none());
    }
}
