//! Requests to Prometheus' API. They differ from all others in their callers, data sources of
//! dashboards, which ask often and for long:
//!
//! - A caller shows a token, or sends its name and password with each request (HTTP Basic).
//! - Requests of callers who are known count by user instead of by address.
//! - The query's own timeout applies, not that of the API's requests.
//! - A failed request is answered in Prometheus' form.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Query, Request};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt as _;
use listener::{Owner, Source};
use registry::{Reader, User};
use tower::ServiceExt as _;

use super::{LogFields, admit, body, cors, header, headers, recognised, too_many};
use crate::access::authentication::{basic, claims};
use crate::access::caller::Caller;
use crate::error::Failure;
use crate::http::api::Api;
use crate::http::envelope::JSON;
use crate::http::prometheus::error_body;
use crate::http::{request_log, stream};
use crate::limits::{LARGE_ANSWER_BYTES, PROMETHEUS_BODY_BYTES_MAX};

/// The paths below the address of the data source.
pub(super) const PATH: &str = "/series/prometheus/{*path}";
/// The name of the requests in the metrics.
const ID: &str = "series.prometheus";
/// The action that a caller needs, and its resource.
const NEEDED: (&str, &str, &str) = ("series:read", "*:*", "*");

/// A caller who is known.
struct Client {
    owner: Owner,
    may_read: bool,
}

/// Answers a request.
pub(super) async fn respond(api: &Arc<Api>, request: Request, seen: &mut LogFields) -> Response {
    seen.operation = Some(ID);
    answer(api, request, seen).await.unwrap_or_else(|failure| refused(&failure))
}

fn refused(failure: &Failure) -> Response {
    let mut response = headers::failed(failure, JSON, error_body(failure));
    if failure.status == StatusCode::UNAUTHORIZED {
        // Not Basic: a browser that keeps a password would send it for other sites.
        let challenge = HeaderValue::from_static("Bearer realm=\"holdfast\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

async fn answer(
    api: &Arc<Api>,
    request: Request,
    seen: &mut LogFields,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let source = parts.extensions.get::<Source>().copied();
    let origin = cors::allowed(&api.options.cors_origins, &parts.headers);
    if parts.method == Method::OPTIONS && origin.is_some() {
        admit(api, source)?;
        return Ok(cors::preflight(["GET", "POST"].into_iter()));
    }
    let client = authenticate(api, source, &parts, &seen.reader).await?;
    seen.user = Some(client.owner.name.clone());
    if let Ok(Query(query)) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
        seen.parameters = request_log::parameters(&query);
    }
    if !client.may_read {
        return Err(Failure::denied(NEEDED.1));
    }
    let none = || Failure::busy("this server runs without a series store", 60);
    let routes = api.prometheus.clone().ok_or_else(none)?;
    let owner = client.owner;
    let (bytes_max, quota) = (PROMETHEUS_BODY_BYTES_MAX, &api.bodies);
    let body = body::take(api, owner.clone(), bytes_max, quota, &parts, body).await?;
    seen.body = request_log::body(&body);
    // A new request: the parameters of this route's path must not mix with those of the inner one.
    let mut request = Request::new(Body::from(body.bytes.clone()));
    *request.method_mut() = parts.method;
    // Clients of HTTP/1.0 get no streamed answers.
    *request.version_mut() = parts.version;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = parts.headers;
    let response = match routes.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    bounded(api, owner, response).await
}

/// Returns a caller who is known, and counts the request by user. It counts by address until the caller
/// is known, so that the limit of the address also limits guesses and the CPU time that strangers cost.
async fn authenticate(
    api: &Arc<Api>,
    source: Option<Source>,
    parts: &Parts,
    reader: &Reader,
) -> Result<Client, Failure> {
    if let Some(Source::Unix { uid }) = source {
        return Ok(Client { owner: Caller::Local { uid }.owner(), may_read: true });
    }
    admit(api, source)?;
    let client = verified(api, source, header(parts, &AUTHORIZATION), reader).await?;
    if !source.is_some_and(Source::is_local) {
        api.rate.give_back(source.and_then(Source::ip));
    }
    api.user_rate.admit(&client.owner.name, api.options.clock.monotonic()).map_err(too_many)?;
    Ok(client)
}

async fn verified(
    api: &Arc<Api>,
    source: Option<Source>,
    shown: Option<&str>,
    reader: &Reader,
) -> Result<Client, Failure> {
    let (action, kind, value) = NEEDED;
    let Ok((name, password)) = basic(shown) else {
        let claims = claims(&api.tokens, &api.registry, shown, api.now_s())?;
        let caller = recognised(api, reader, claims).await?;
        let may_read = caller.may(&api.registry, action, kind, value);
        return Ok(Client { owner: caller.owner(), may_read });
    };
    let ip = source.and_then(Source::ip);
    let login = api.registry.login_remembered(reader, &name, &password, ip);
    // Logins wait for the threads that hash.
    let time = Duration::from_millis(api.options.request_timeout_ms);
    let late = |_| Failure::busy("too many logins at once", 1);
    let user = tokio::time::timeout(time, login).await.map_err(late)??;
    let owner = Owner { name: user.name.clone(), is_local: false };
    let (api, reader) = (Arc::clone(api), reader.clone());
    let may_read = move || permits(&api, &reader, &user);
    let may_read = tokio::task::spawn_blocking(may_read).await;
    Ok(Client { owner, may_read: may_read.map_err(|cause| Failure::internal(&cause))?? })
}

/// Returns true if the roles of a user permit what a caller needs.
fn permits(api: &Api, reader: &Reader, user: &User) -> Result<bool, Failure> {
    let clearance = api.registry.clearance(reader, user.id, &user.role_ids())?;
    let (action, kind, value) = NEEDED;
    Ok(clearance.is_some_and(|clearance| clearance.grants.permit(action, &[(kind, value)])))
}

/// Returns the answer with the share that a large one takes of the quota for answers. Answers without a
/// known size are sent as they are made.
async fn bounded(api: &Api, owner: Owner, response: Response) -> Result<Response, Failure> {
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size >= LARGE_ANSWER_BYTES) else { return Ok(response) };
    let full = || Failure::busy("too many large answers wait for their readers", 1);
    let share = api.answers.reserve(owner, size).ok_or_else(full)?;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|cause| Failure::internal(&cause))?.to_bytes();
    Ok(Response::from_parts(parts, stream::in_memory(bytes, share)))
}
