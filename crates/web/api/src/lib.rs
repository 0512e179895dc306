//! The REST API: one list of operations, from which the router, the checks of parameters, access,
//! the OpenAPI document and the tests all follow.
//!
//! A request passes through the pipeline in this order: rate limit, route, token, role, parameters,
//! body, operation, audit, envelope, headers, access log. An operation is data and a function (one
//! file per resource under `resource/`); it sees only a checked `Call`.
//!
//! # Invariants
//! - Without a token only the login, `/healthz`, `/readyz` and the page's files answer (`/metrics`
//!   also from this machine). A test walks the list of operations and proves each one's rule.
//! - A parameter that is not described is refused, never ignored.
//! - Store calls run on blocking threads, a bounded number at once; beyond a bounded queue: 503.
//! - What a caller sends reaches a store only as a bound value or a listed column.
//! - A revoked token is refused by the very next request.
//!
//! Limits: [`limits`]. Shapes and codes: `docs/reference/api.md`, the rest: `api-guide.md` beside it.

mod access;
mod code;
mod error;
mod http;
pub mod limits;
mod openapi;
mod resource;
mod routes;

use std::sync::Arc;

use axum::Router;
use commit::Commit;
use registry::Registry;
use state::StateStore;

use http::api::{Api, Described};

pub use access::caller::Source;
pub use access::token::TokenKeyError;
pub use code::error_codes;
pub use http::api::{ApiError, ApiOptions, ConfigFile, ServerClock};
pub use http::log_ring::{LogLine, LogRing};
pub use http::metrics::install_recorder;
pub use http::request_log::TARGET as ACCESS_LOG;
pub use http::serve::{ServeError, ServeOptions, Server, TlsPem, UnixOptions, serve, serve_unix};
pub use openapi::json as openapi_json;

/// The whole API as one router.
///
/// # Errors
/// When the registry gives no usable token keys.
pub fn router(
    options: ApiOptions,
    registry: Registry,
    state: Arc<dyn StateStore>,
    commit: Arc<Commit>,
) -> Result<Router, ApiError> {
    let described =
        Described { openapi: openapi::json().into_bytes(), needs: routes::needs().collect() };
    let api = Arc::new(Api::new(options, registry, state, commit, described)?);
    Ok(http::pipeline::router(&api, routes::all()))
}
