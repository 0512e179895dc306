//! The series store behind the API: queries and writes for permitted callers. The format of bodies is
//! described in `docs/reference/series.md`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use tower::ServiceExt as _;

use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, JSON, Stream};
use rest::http::operation::{
    Access, Handler, Kind, Operation, OperationFuture, Shape, Verb, action, query,
};

const TEXT: &str = "text/plain; charset=utf-8";
const LINES: &str = "text/plain";
/// Most bytes of an error text of the store that are forwarded.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

const READ: Access = action("series:read", "*:*");
const WRITE: Access = action("series:write", "*:*");

const fn post(
    path: &'static str,
    id: &'static str,
    about: &'static str,
    access: Access,
    body: &'static str,
    shape: Shape,
    code: fn(Arc<Call>) -> OperationFuture,
) -> Operation {
    Operation {
        verb: Verb::Post,
        path,
        id,
        about,
        access,
        parameters: &[],
        body: Some(body),
        shape,
        handler: Handler::Waiting(code),
    }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    post(
        "/series/query",
        "series.query",
        "Rows of series: select, aggregate, group-aggregate, join, events.",
        READ,
        "SeriesQuery",
        Shape::Raw(TEXT),
        |call| Box::pin(forward_request(call, Method::POST, "/api/query", TEXT)),
    ),
    post(
        "/series/search",
        "series.search",
        "Names of series by metric and tags.",
        READ,
        "SeriesQuery",
        Shape::Raw(TEXT),
        |call| Box::pin(forward_request(call, Method::POST, "/api/search", TEXT)),
    ),
    post(
        "/series/suggest",
        "series.suggest",
        "Names of metrics and tags, and values of tags, that begin with a text.",
        READ,
        "SeriesQuery",
        Shape::Raw(TEXT),
        |call| Box::pin(forward_request(call, Method::POST, "/api/suggest", TEXT)),
    ),
    Operation {
        verb: Verb::Get,
        path: "/series/stats",
        id: "series.stats",
        about: "Size of the series store and position of its log.",
        access: READ,
        parameters: &[],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Waiting(|call| {
            Box::pin(forward_request(call, Method::GET, "/api/stats", JSON))
        }),
    },
    Operation {
        verb: Verb::Post,
        path: "/series/write",
        id: "series.write",
        about: "Store Influx lines; answered when they are persisted.",
        access: WRITE,
        parameters: &[&[query(
            "precision",
            Kind::Word(&["ns", "us", "ms", "s", "m", "h"]),
            "Unit of the lines' times; default ns.",
        )]],
        body: Some(LINES),
        shape: Shape::Message,
        handler: Handler::Waiting(|call| Box::pin(lines(call))),
    },
    post(
        "/series/delete",
        "series.delete",
        "Delete samples of series in a range; answered when the deletion is persisted.",
        action("series:delete", "*:*"),
        "SeriesQuery",
        Shape::Raw(JSON),
        |call| Box::pin(forward_request(call, Method::POST, "/api/delete", JSON)),
    ),
];

async fn lines(call: Arc<Call>) -> Result<Answer, Failure> {
    let precision = call.parameters.text("precision").unwrap_or("ns");
    let path = format!("/write?precision={precision}");
    forward_request(call, Method::POST, &path, TEXT).await
}

/// Forwards a request to the store's own routes.
async fn forward_request(
    call: Arc<Call>,
    method: Method,
    path: &str,
    content_type: &'static str,
) -> Result<Answer, Failure> {
    let Some(series) = &call.api.series else {
        return Err(Failure::busy("this server runs without a series store", 60));
    };
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
    let request = call
        .encodings
        .iter()
        .fold(request, |request, coding| request.header(header::CONTENT_ENCODING, coding))
        .body(Body::from(call.body.bytes.clone()))
        .map_err(|e| Failure::internal(&e))?;
    let response = match series.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let turned_away = response.headers().contains_key(header::RETRY_AFTER);
    match response.status() {
        StatusCode::OK => Ok(Answer::Stream(Stream { content_type, body: response.into_body() })),
        StatusCode::NO_CONTENT => Ok(Answer::Message("Everything was stored".into())),
        status => {
            let text = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
            let text = text.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let text = refusal(&text);
            if status.is_server_error() {
                // An answer with `Retry-After` means that nothing was done; after any other error, part
                // may be done.
                if !turned_away {
                    call.effect.set_begun();
                }
                tracing::warn!("series: {status}: {text}");
                return Err(Failure::busy("the series store takes nothing now: see the log", 5));
            }
            match status {
                StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                    Err(Failure::plain(status, text))
                }
                _ => Err(Failure::bad(text)),
            }
        }
    }
}

/// Returns the error text: TEXT of `{"error": TEXT}`, else the whole body.
fn refusal(body: &[u8]) -> String {
    let answer: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = answer.as_ref().and_then(|answer| answer.get("error")?.as_str());
    text.map_or_else(|| String::from_utf8_lossy(body).trim_end().to_owned(), str::to_owned)
}
