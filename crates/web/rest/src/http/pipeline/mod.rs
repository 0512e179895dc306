//! The pipeline of every request, from the rate limit to the access log. See the crate's
//! documentation for the order.

mod audit;
mod body;
mod cors;
mod headers;
mod permission;
mod prometheus;
mod proxy;
mod run;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Query, RawPathParams, Request};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use listener::Source;
use registry::Reader;
use tower::ServiceExt as _;

use crate::access::authentication;
use crate::access::caller::Caller;
use crate::access::token::Claims;
use crate::code::Code;
use crate::error::Failure;
use crate::http::api::Api;
use crate::http::metrics::record_request;
use crate::http::operation::{Access, Operation, Shape, Verb};
use crate::http::request_log;

/// Content type of server-sent events.
pub const SSE: &str = "text/event-stream";
/// The last event that a reader of server-sent events received before it lost the connection.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The operations of one path.
type Operations = Arc<[&'static Operation]>;

/// The target of a request.
#[derive(Clone)]
enum Route {
    Operations(Operations),
    Prometheus,
}

/// Returns a router over all operations, with the page as fallback.
pub fn router(api: &Arc<Api>, operations: impl Iterator<Item = &'static Operation>) -> Router {
    let mut paths: Vec<(&'static str, Vec<&'static Operation>)> = Vec::new();
    for operation in operations {
        match paths.iter_mut().find(|(path, _)| *path == operation.path) {
            Some((_, operations)) => operations.push(operation),
            None => paths.push((operation.path, vec![operation])),
        }
    }
    let routed = |route: Route| {
        let api = Arc::clone(api);
        move |request: Request| handle_request(Arc::clone(&api), route.clone(), request)
    };
    let handler = |operations: Vec<_>| routed(Route::Operations(operations.into()));
    paths
        .into_iter()
        .fold(Router::new(), |router, (path, operations)| {
            router.route(path, any(handler(operations)))
        })
        .route(prometheus::PATH, any(routed(Route::Prometheus)))
        .fallback(handler(Vec::new()))
}

/// The name of the node in failures of callers who may not read it.
const UNKNOWN_NODE: &str = "unknown-node";

/// The fields of an access log line that become known while the request is processed.
#[derive(Default)]
struct LogFields {
    /// The operation's id.
    operation: Option<&'static str>,
    user: Option<String>,
    /// True if the caller may read the name of this node.
    may_read_node: bool,
    parameters: String,
    body: String,
    /// The reader that counts what the request costs.
    reader: Reader,
}

async fn handle_request(api: Arc<Api>, route: Route, mut request: Request) -> Response {
    let started = Instant::now();
    let peer = request.extensions().get::<Source>().copied();
    let named = proxy::source(&api.options.trusted_proxies, peer, request.headers());
    let source = *named.as_ref().unwrap_or(&peer);
    if let Some(source) = source {
        request.extensions_mut().insert(source);
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = cors::allowed(&api.options.cors_origins, request.headers());
    let mut seen = LogFields::default();
    let answered = match (named, &route) {
        (Ok(_), Route::Operations(route)) => respond(&api, route, request, &mut seen).await,
        (Ok(_), Route::Prometheus) => Ok(prometheus::respond(&api, request, &mut seen).await),
        (Err(failure), _) => Err(failure),
    };
    let mut response = match answered {
        Ok(response) => response,
        Err(failure) if bare(source, &path) => headers::plain(&failure),
        Err(failure) if seen.may_read_node => headers::problem(&failure, api.node()),
        Err(failure) => headers::problem(&failure, UNKNOWN_NODE),
    };
    let (took, cost) = (started.elapsed(), seen.reader.cost());
    headers::finish(&mut response, took, cost);
    let name = seen.operation.unwrap_or("other");
    record_request(name, response.status().as_u16(), took);
    request_log::Line {
        user: seen.user.unwrap_or_else(|| "-".into()),
        source,
        method: method.to_string(),
        path,
        parameters: seen.parameters,
        body: seen.body,
        took,
        status: response.status(),
        cost,
    }
    .write();
    cors::finish(&mut response, origin);
    if method == Method::HEAD { response.map(|_| Body::empty()) } else { response }
}

/// Returns true if failures are sent as plain text: to local callers of the routes without
/// envelopes.
fn bare(source: Option<Source>, path: &str) -> bool {
    matches!(source, Some(Source::Unix { .. })) && path.starts_with("/v1/")
}

async fn respond(
    api: &Arc<Api>,
    route: &Operations,
    request: Request,
    seen: &mut LogFields,
) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let source = parts.extensions.get::<Source>().copied();
    if !route.is_empty() {
        admit(api, source)?;
    }
    if parts.method == Method::OPTIONS
        && cors::allowed(&api.options.cors_origins, &parts.headers).is_some()
    {
        return Ok(cors::preflight(route.iter().map(|operation| operation.verb.name())));
    }
    let operation = match pick(route, &parts) {
        Picked::Operation(operation) if !is_navigation(api, operation, &parts) => operation,
        Picked::Refused(failure) => return Err(failure),
        Picked::Operation(_) | Picked::Nothing => return page(api, parts, body).await,
    };
    seen.operation = Some(operation.id);
    let caller = authenticate(api, operation.access, source, &parts, &seen.reader).await?;
    seen.user = Some(caller.name());
    seen.may_read_node = caller.may(&api.registry, "cluster:read", "node:id", api.node());
    let mut query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map_err(|e| Failure::bad(format!("query: {e}")))?
        .0;
    if matches!(operation.shape, Shape::Raw(SSE))
        && let Some(id) = header(&parts, &LAST_EVENT_ID)
    {
        // Appended, because the last of several values counts.
        query.push(("since".into(), id.into()));
    }
    seen.parameters = request_log::parameters(&query);
    let path = path_parameters(&mut parts).await?;
    let body = match operation.body {
        Some(_) => body::read(api, operation.access, &caller, &parts, body).await?,
        None => crate::http::call::Body::default(),
    };
    seen.body = request_log::body(&body);
    let request = run::Checked {
        operation,
        reader: seen.reader.with_user(&caller.owner_at(source).name),
        caller,
        source,
        authorization: header(&parts, &AUTHORIZATION).map(str::to_owned),
        content_type: header(&parts, &CONTENT_TYPE).map(str::to_owned),
        encodings: parts.headers.get_all(CONTENT_ENCODING).iter().cloned().collect(),
        path,
        query,
        body,
        seen: format!("{} {} {}", parts.uri.path(), seen.parameters, seen.body),
    };
    run::run(api, request).await
}

fn admit(api: &Api, source: Option<Source>) -> Result<(), Failure> {
    if source.is_some_and(Source::is_local) {
        return Ok(());
    }
    let now = api.options.clock.monotonic();
    api.rate.admit(source.and_then(Source::ip), now).map_err(too_many)
}

/// Returns the failure of a request beyond the limit per minute.
fn too_many(wait_s: u64) -> Failure {
    let mut failure = Failure::code(Code::TooManyRequests);
    failure.retry_after_s = Some(wait_s);
    failure
}

enum Picked {
    Operation(&'static Operation),
    Refused(Failure),
    Nothing,
}

fn pick(route: &Operations, parts: &Parts) -> Picked {
    if route.is_empty() {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        return if reads { Picked::Nothing } else { Picked::Refused(Failure::unknown_path()) };
    }
    let verb = Verb::of(&parts.method);
    if let Some(operation) = route.iter().copied().find(|o| Some(o.verb) == verb) {
        return Picked::Operation(operation);
    }
    let allowed: Vec<&str> = route.iter().map(|o| o.verb.name()).collect();
    let mut failure = Failure::plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    failure.allow = Some(allowed.join(", "));
    Picked::Refused(failure)
}

/// Returns true if a browser navigates to the path: the request has no token and prefers HTML. It
/// is answered with the page, so that every view can be reloaded.
fn is_navigation(api: &Api, operation: &Operation, parts: &Parts) -> bool {
    api.options.page.is_some()
        && operation.verb == Verb::Get
        && !matches!(operation.shape, Shape::Raw(_))
        && operation.access != Access::Login
        && !parts.headers.contains_key(AUTHORIZATION)
        && prefers_html(header(parts, &ACCEPT).unwrap_or_default())
}

/// Returns true if `Accept` ranks HTML above JSON.
fn prefers_html(accept: &str) -> bool {
    let weight = |wanted: &str| {
        accept
            .split(',')
            .filter_map(|item| {
                let mut fields = item.split(';');
                let mime = fields.next()?.trim();
                let weight = fields
                    .find_map(|f| f.trim().strip_prefix("q=")?.parse::<f32>().ok())
                    .unwrap_or(1.0);
                mime.eq_ignore_ascii_case(wanted).then_some(weight)
            })
            .fold(0.0, f32::max)
    };
    weight("text/html") > weight("application/json")
}

async fn page(api: &Api, parts: Parts, body: Body) -> Result<Response, Failure> {
    let Some(page) = api.options.page.clone() else { return Err(Failure::unknown_path()) };
    let response = match page.oneshot(Request::from_parts(parts, body)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if response.status() == StatusCode::NOT_FOUND {
        return Err(Failure::unknown_path());
    }
    Ok(response)
}

/// Returns the caller of a request.
async fn authenticate(
    api: &Arc<Api>,
    access: Access,
    source: Option<Source>,
    parts: &Parts,
    reader: &Reader,
) -> Result<Caller, Failure> {
    let claims = match who(api, access, source, parts)? {
        Identified::Known(caller) => return Ok(caller),
        Identified::Bearer(claims) => claims,
    };
    recognised(api, reader, claims).await
}

/// Returns the caller with these claims.
async fn recognised(
    api: &Arc<Api>,
    reader: &Reader,
    claims: Arc<Claims>,
) -> Result<Caller, Failure> {
    if api.registry.clearance_is_kept(claims.uid, &claims.rbac_roles) {
        return authentication::recognise(&api.registry, reader, claims);
    }
    let (registry, reader) = (api.registry.clone(), reader.clone());
    let work = move || authentication::recognise(&registry, &reader, claims);
    tokio::task::spawn_blocking(work).await.map_err(|cause| Failure::internal(&cause))?
}

enum Identified {
    Known(Caller),
    Bearer(Arc<Claims>),
}

/// Returns the caller if no token is needed, otherwise the claims of the token.
fn who(
    api: &Api,
    access: Access,
    source: Option<Source>,
    parts: &Parts,
) -> Result<Identified, Failure> {
    if let Some(Source::Unix { uid }) = source {
        return Ok(Identified::Known(Caller::Local { uid }));
    }
    match access {
        Access::Open | Access::Login => return Ok(Identified::Known(Caller::Anyone)),
        Access::Loopback if source.is_some_and(Source::is_local) => {
            return Ok(Identified::Known(Caller::Anyone));
        }
        Access::Loopback | Access::User | Access::Action { .. } => {}
    }
    let header = header(parts, &AUTHORIZATION);
    authentication::claims(&api.tokens, &api.registry, header, api.now_s()).map(Identified::Bearer)
}

async fn path_parameters(parts: &mut Parts) -> Result<Vec<(String, String)>, Failure> {
    let raw = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|e| Failure::bad(format!("path: {e}")))?;
    Ok(raw.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn header<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    parts.headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::prefers_html;

    #[test]
    fn browsers_prefer_html_and_programs_do_not() {
        assert!(prefers_html("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(prefers_html("application/json;q=0.5, text/html"));
        for json in ["", "*/*", "application/json", "text/html;q=0.4, application/json", "text/*"] {
            assert!(!prefers_html(json), "{json}");
        }
    }
}
