//! Pages of other origins: those that the configuration names may call the API. Without one named,
//! no header is sent and browsers keep every page of another origin out. Tokens stand in a header,
//! never in a cookie, so that credentials are never asked for.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;

/// What a page may send.
const SENT: &str = "authorization, content-type";
/// What a page may read.
const READ: &str = "retry-after, server-timing";
/// How long a browser remembers, seconds.
const MAX_AGE_SECONDS: &str = "600";

/// The request's origin, if it is one of those configured.
pub(super) fn allowed(origins: &[String], fields: &HeaderMap) -> Option<HeaderValue> {
    let origin = fields.get(ORIGIN)?;
    let text = origin.to_str().ok()?;
    origins.iter().any(|known| known == "*" || known == text).then(|| origin.clone())
}

/// The answer to a browser that asks before it sends.
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

/// The headers of every answer to such an origin.
pub(super) fn finish(response: &mut Response, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    let fields = response.headers_mut();
    fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(READ));
    fields.append(VARY, HeaderValue::from_static("Origin"));
}
