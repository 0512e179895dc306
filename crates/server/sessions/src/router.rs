//! The routes, and what is checked for every request: the caller, the size of the header and the
//! time until the answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use link::json::STATUS_OK;
use model::path::show_terminal;
use serde_json::json;
use tracing::{debug, warn};

use crate::answer::Refusal;
use crate::app::App;
use crate::identity::{Origin, Peer};
use crate::local::hand_over;
use crate::meter::add;
use crate::options::{HEADER_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX};
use crate::{control, digest, enroll, remove, rows, stateful, stats};

pub(crate) fn router(app: Arc<App>) -> Router {
    let routes = if app.options.contract_only {
        Router::new()
    } else {
        Router::new()
            .route("/digest", post(digest::digest))
            .route("/series", post(rows::rows))
            .route("/configuration", get(control::configuration))
    };
    routes
        .route("/", get(banner))
        .route("/metrics", get(metrics))
        .route("/enroll", post(enroll::enroll))
        .route("/renew", post(enroll::renew))
        .route("/stateful", post(stateful::stateful))
        .route("/control", post(control::control))
        .route("/stats", post(stats::stats))
        .route("/config", post(stats::config))
        .route("/agents", delete(remove::remove))
        .route("/agents/delete", post(remove::remove))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

async fn not_found(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "not_found", "there is no such route");
    hand_over(&app, &peer, request, refusal).await
}

async fn not_allowed(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let detail = "the route exists for other methods: see the header allow";
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
    // This is the only path that both routers have.
    if request.uri().path() == "/agents" {
        return hand_over(&app, &peer, request, refusal).await;
    }
    refusal.closing().into_response()
}

async fn banner() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    let (name, side) = ("holdfast", "agents");
    Json(json!({"status": STATUS_OK, "name": name, "version": version, "side": side}))
        .into_response()
}

async fn metrics(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    peer.local_only()?;
    // Scrapers ask for the text format; other callers get the contract's JSON.
    let accepted = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let text = ["text/plain", "openmetrics"].iter().any(|kind| accepted.contains(kind));
    Ok(match &app.options.metrics {
        Some(render) if text => {
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (kind, render()).into_response()
        }
        _ => Json(app.counters()).into_response(),
    })
}

/// Checks, limits, counts and logs every request.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>();
    let certificate = peer.and_then(Peer::certificate).cloned();
    let (source, peer) = (peer.and_then(Peer::ip), peer.map(Peer::name).unwrap_or_default());
    let method = request.method().clone();
    let target = request.uri().path().to_owned();
    let response = match admitted(&app, &request) {
        Ok(()) => answer_in_time(&app, request, next).await,
        Err(refusal) => refusal.into_response(),
    };
    let status = response.status();
    app.meter.count_answer(status);
    if let Some(refusal) = response.extensions().get::<Refusal>() {
        let target: String = target.chars().take(80).collect();
        let target = show_terminal(target.as_bytes());
        let detail = show_terminal(refusal.detail.as_bytes());
        let error = refusal.error;
        let status = status.as_u16();
        let line = || match &certificate {
            Some(certificate) if refusal.is_of_sender() => {
                app.refused_agent_line(certificate, refusal)
            }
            _ => app.refusal_line(source),
        };
        if matches!(status, 404 | 405) {
            debug!(peer, %method, target, status, error, "refused: {detail}");
        } else if let Some(suppressed) = line() {
            warn!(peer, %method, target, status, error, not_logged_before = suppressed,
                "refused: {detail}");
        }
        if status == 503 {
            add(&app.meter.shed, 1);
        }
    }
    response
}

fn admitted(app: &App, request: &Request) -> Result<(), Refusal> {
    let Some(peer) = request.extensions().get::<Peer>() else {
        return Err(Refusal::internal("connection without a peer"));
    };
    if let Origin::Unix { uid, allowed: false } = peer.origin {
        let detail = format!("user {uid} may not connect here: add it to allowed_uids");
        return Err(Refusal::forbidden("user_not_allowed", detail).closing());
    }
    if peer.turned_away {
        return Err(app.busy("too many connections").closing());
    }
    let target = request.uri().path_and_query().map_or(0, |p| p.as_str().len());
    if target > TARGET_BYTES_MAX {
        let detail = format!("request target of {target} bytes is above {TARGET_BYTES_MAX}");
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail).closing());
    }
    let header: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let fields = request.headers().len();
    if header > HEADER_BYTES_MAX || fields > HEADERS_MAX {
        let detail = format!(
            "header of {header} bytes in {fields} fields is above {HEADER_BYTES_MAX} bytes or \
             {HEADERS_MAX} fields"
        );
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal::new(status, "header_too_large", detail).closing());
    }
    Ok(())
}

async fn answer_in_time(app: &App, request: Request, next: Next) -> Response {
    let within = app.options.timeouts.response;
    tokio::time::timeout(within, next.run(request)).await.unwrap_or_else(|_| {
        let detail = format!(
            "no answer within {} s: what was begun is finished, send the session again",
            within.as_secs()
        );
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail).closing().into_response()
    })
}
