//! Responses and the headers common to all of them.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    SERVER, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS, X_XSS_PROTECTION,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use listener::Owner;
use state::Cost;

use crate::error::Failure;
use crate::http::api::Api;
use crate::http::envelope::{Answer, PROBLEM, to_bytes};
use crate::http::stream;
use crate::limits::LARGE_ANSWER_BYTES;

/// Headers of every response.
const ALWAYS: [(HeaderName, &str); 6] = [
    (SERVER, "Holdfast"),
    (STRICT_TRANSPORT_SECURITY, "max-age=63072000; includeSubdomains"),
    (X_FRAME_OPTIONS, "deny"),
    (X_XSS_PROTECTION, "0"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer, strict-origin-when-cross-origin"),
];

/// Headers of every response that does not set its own (the page's files do).
const UNLESS_SET: [(HeaderName, &str); 2] = [
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (CACHE_CONTROL, "no-store"),
];

/// `Server-Timing`: the cost of the answer.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Renders an answer in its envelope. A large answer takes a share of the quota for answers until its
/// reader has taken it or it is given up. The answer of a write is sent even if the quota is exhausted,
/// because the change is already made.
pub(super) fn rendered(
    api: &Api,
    owner: Owner,
    answer: Answer,
    pretty: bool,
    writes: bool,
) -> Result<Response, Failure> {
    if let Answer::Stream(stream) = answer {
        return Ok(response(StatusCode::OK, stream.content_type, stream.body));
    }
    let (status, content_type, bytes) = answer.render(pretty);
    if bytes.len() < LARGE_ANSWER_BYTES || writes {
        return Ok(response(status, content_type, Body::from(bytes)));
    }
    let full = || Failure::busy("too many large answers wait for their readers", 1);
    let share = api.answers.reserve(owner, bytes.len()).ok_or_else(full)?;
    Ok(response(status, content_type, stream::in_memory(bytes, share)))
}

pub(super) fn problem(failure: &Failure, node: &str) -> Response {
    failed(failure, PROBLEM, to_bytes(&failure.body(node), false))
}

/// Returns the answer to a failed request with this body.
pub(super) fn failed(failure: &Failure, content_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = response(failure.status, content_type, Body::from(body));
    let fields = response.headers_mut();
    if let Some(seconds) = failure.retry_after_s {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(Ok(allow)) = failure.allow.as_deref().map(HeaderValue::from_str) {
        fields.insert(ALLOW, allow);
    }
    response
}

/// Returns a failure as plain text.
pub(super) fn plain(failure: &Failure) -> Response {
    let body = Body::from(failure.detail.clone());
    response(failure.status, "text/plain; charset=utf-8", body)
}

fn response(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Adds the headers common to all responses.
pub(super) fn finish(response: &mut Response, took: Duration, cost: Cost) {
    let fields = response.headers_mut();
    for (name, value) in ALWAYS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in UNLESS_SET {
        fields.entry(name).or_insert(HeaderValue::from_static(value));
    }
    let timing = format!(
        "total;dur={:.3}, queries;desc=\"{}\", rows;desc=\"{}\"",
        took.as_secs_f64() * 1_000.0,
        cost.queries,
        cost.rows
    );
    if let Ok(value) = HeaderValue::from_str(&timing) {
        fields.insert(SERVER_TIMING, value);
    }
}
