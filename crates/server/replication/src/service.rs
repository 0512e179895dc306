//! The routes (`docs/format/follow.md`) and their authentication.

use std::path::Path;

use axum::extract::{Path as Segment, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::followers::{FollowRequest, Shipping};
use crate::protocol::{HEADER_PERSISTED, HEADER_STORE, HEADER_VERSION, VERSION, is_follower_name};
use crate::refusal::FollowerRefusal;
use crate::seed_source::Part;
use crate::stream::{records, seed};

/// An extension of a request that came over the unix socket from an allowed user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFollower;

/// Returns the routes for followers.
pub fn router(shipping: Shipping) -> Router {
    Router::new()
        .route("/journal/follow", get(follow))
        .route("/journal/follow/acknowledge", post(acknowledge))
        .route("/journal/follow/seed", post(begin_seed))
        .route("/journal/followers", get(list))
        .route("/journal/followers/{name}", delete(remove))
        .layer(from_fn_with_state(shipping.clone(), guard))
        .with_state(shipping)
}

impl IntoResponse for FollowerRefusal {
    fn into_response(self) -> Response {
        let (status, error) = match &self {
            Self::Name(_) | Self::NotSent(_) => (StatusCode::BAD_REQUEST, "invalid"),
            Self::Version => (StatusCode::CONFLICT, "follower_version"),
            Self::StoreDiffers { .. } => (StatusCode::CONFLICT, "store_differs"),
            Self::Behind { .. } => (StatusCode::CONFLICT, "server_behind"),
            Self::Diverged(_) => (StatusCode::CONFLICT, "history_diverged"),
            Self::TooMany => (StatusCode::CONFLICT, "too_many_followers"),
            Self::Trimmed { .. } => (StatusCode::GONE, "trimmed"),
            Self::Unknown(_) => (StatusCode::GONE, "no_follower"),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        };
        (status, Json(json!({ "error": error, "detail": self.to_string() }))).into_response()
    }
}

/// Refuses requests without a valid token or an allowed local user, and every request while
/// stopping.
async fn guard(State(shipping): State<Shipping>, request: Request, next: Next) -> Response {
    if request.extensions().get::<LocalFollower>().is_none()
        && !shows_token(request.headers(), &shipping.0.options.token_file)
    {
        tracing::warn!(path = request.uri().path(), "follower refused: no valid token");
        let detail = "a follower's token is needed: keys/follower in the server's data folder";
        let body = Json(json!({ "error": "unauthorized", "detail": detail }));
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], body)
            .into_response();
    }
    if shipping.is_stopped() {
        return FollowerRefusal::Busy("the server is stopping".into()).into_response();
    }
    let path = request.uri().path();
    let follows = path == "/journal/follow" || path == "/journal/follow/seed";
    if follows && !shows_version(request.headers()) {
        return FollowerRefusal::Version.into_response();
    }
    next.run(request).await
}

/// Returns true if a follower knows this version of the protocol.
fn shows_version(headers: &HeaderMap) -> bool {
    let shown = headers.get(HEADER_VERSION).and_then(|value| value.to_str().ok());
    shown.and_then(|text| text.parse::<u32>().ok()).is_some_and(|shown| shown >= VERSION)
}

/// Compares digests, so that the time it takes reveals nothing. The file is read for each request:
/// a new token is valid at once, and without a file every request is refused.
fn shows_token(headers: &HeaderMap, file: &Path) -> bool {
    let shown = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("Bearer "));
    let (Some(shown), Ok(known)) = (shown, std::fs::read_to_string(file)) else { return false };
    let known = known.trim();
    known.len() >= 32 && Sha256::digest(shown.trim()) == Sha256::digest(known)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FollowerRefusal> + Send + 'static,
) -> Result<T, FollowerRefusal> {
    tokio::task::spawn_blocking(work).await.map_err(|e| FollowerRefusal::Busy(e.to_string()))?
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    follower: String,
    store: String,
    from: u64,
    /// CRC-32C of the record before `from`, hex.
    #[serde(default)]
    last: Option<String>,
}

async fn follow(
    State(shipping): State<Shipping>,
    Query(start): Query<Start>,
) -> Result<Response, FollowerRefusal> {
    let parse = |crc: String| u32::from_str_radix(&crc, 16);
    let last_crc =
        start.last.map(parse).transpose().map_err(|_| FollowerRefusal::NotSent(start.from))?;
    let request =
        FollowRequest { name: start.follower, store: start.store, from: start.from, last_crc };
    let own = shipping.clone();
    blocking(move || {
        let persisted = own.0.journal.persisted_position();
        let attached = own.attach(&request)?;
        tracing::info!(follower = request.name, from = request.from, "follower connected");
        let body = axum::body::Body::new(records(&own, &request.name, attached)?);
        let headers = [
            (header::CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
            (HEADER_PERSISTED, persisted.to_string()),
            (HEADER_STORE, own.0.store.clone()),
            (HEADER_VERSION, VERSION.to_string()),
        ];
        Ok((headers, body).into_response())
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {
    follower: String,
    position: u64,
}

async fn acknowledge(
    State(shipping): State<Shipping>,
    Query(done): Query<Done>,
) -> Result<Response, FollowerRefusal> {
    blocking(move || shipping.acknowledge(&done.follower, done.position)).await?;
    Ok(Json(json!({})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    follower: String,
    #[serde(default)]
    part: Option<String>,
}

async fn begin_seed(
    State(shipping): State<Shipping>,
    Query(begin): Query<Begin>,
) -> Result<Response, FollowerRefusal> {
    blocking(move || {
        let part = match begin.part.as_deref() {
            Some("keys") => Part::Keys,
            _ => Part::All,
        };
        if part == Part::All {
            shipping.keep_for_seed(&begin.follower)?;
        } else if !is_follower_name(&begin.follower) {
            return Err(FollowerRefusal::Name(begin.follower));
        }
        let body = axum::body::Body::new(seed(&shipping, &begin.follower, part)?);
        let headers =
            [(HEADER_STORE, shipping.0.store.clone()), (HEADER_VERSION, VERSION.to_string())];
        Ok((headers, body).into_response())
    })
    .await
}

async fn list(State(shipping): State<Shipping>) -> Result<Response, FollowerRefusal> {
    blocking(move || {
        let persisted = shipping.0.journal.persisted_position();
        let followers = shipping.status();
        let held_bytes_max = shipping.0.options.held_bytes_max;
        Ok(Json(json!({
            "persisted": persisted, "held_bytes_max": held_bytes_max, "followers": followers,
        }))
        .into_response())
    })
    .await
}

async fn remove(
    State(shipping): State<Shipping>,
    Segment(name): Segment<String>,
) -> Result<Response, FollowerRefusal> {
    blocking(move || {
        shipping.remove(&name)?;
        Ok(Json(json!({})).into_response())
    })
    .await
}
