//! Cross-origin requests: pages of the configured origins may call the API. If none is configured, no
//! header is sent and browsers block the pages of all other origins. Tokens are sent in a header, never
//! in a cookie, so credentialed requests are not enabled.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;

/// Headers that a page may send.
const SENT: &str = "authorization, content-type";
/// Headers that a page may read.
const READ: &str = "retry-after, server-timing";
/// Time for which a browser caches the preflight answer, seconds.
const MAX_AGE_SECONDS: &str = "600";

/// Returns the request's origin if it is one of those configured.
pub(super) fn allowed(origins: &[String], fields: &HeaderMap) -> Option<HeaderValue> {
    let origin = fields.get(ORIGIN)?;
    let text = origin.to_str().ok()?;
    origins.iter().any(|known| known == "*" || known == text).then(|| origin.clone())
}

/// Returns the answer to a preflight request.
pub(super) fn preflight<'a>(verbs: impl Iterator<Item = &'a str>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let verbs: Vec<&str> = verbs.collect();
    let fields = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&verbs.join(", ")) {
        fields.insert(ACCESS_CONTROL_ALLOW_METHODS, value);
    }
    fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT));
    fields.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_SECONDS));
    response
}

/// Adds the headers of an answer to an allowed origin.
pub(super) fn finish(response: &mut Response, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    let fields = response.headers_mut();
    fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(READ));
    fields.append(VARY, HeaderValue::from_static("Origin"));
}
