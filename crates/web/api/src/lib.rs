//! The REST API. The router, the validation of parameters, access control, the OpenAPI document and the
//! tests are all derived from one list of operations.
//!
//! A request passes through the pipeline in this order: rate limit, route, token, role, parameters,
//! body, operation, audit, envelope, headers, access log. An operation is a description and a function
//! (one file per resource under `resource/`); it receives a validated `Call`.
//!
//! # Invariants
//! - Without a token, only the login, `/healthz`, `/readyz` and the page's files answer (`/metrics`
//!   also for callers on this machine). A test checks the rule of every operation.
//! - A parameter that is not described is rejected, never ignored.
//! - Store calls run on blocking threads. Their number and their queue are bounded; a full queue
//!   answers 503.
//! - Input reaches a store only as a bound value or as a column from a fixed list.
//! - The first request after a revocation is refused.
//!
//! See [`limits`] for the limits, `docs/reference/api.md` for shapes and codes, `api-guide.md` for the
//! rest.

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

pub use access::token::TokenKeyError;
pub use code::error_codes;
pub use http::api::{ApiError, ApiOptions, ConfigFile, ServerClock};
pub use http::log_ring::{LogLine, LogRing};
pub use http::metrics::install_recorder;
pub use http::request_log::TARGET as ACCESS_LOG;
pub use openapi::json as openapi_json;

/// Returns the router of the whole API.
///
/// # Errors
/// Fails if the registry provides no usable token keys.
pub fn router(
    options: ApiOptions,
    registry: Registry,
    state: Arc<dyn StateStore>,
    commit: Arc<Commit>,
) -> Result<Router, ApiError> {
    let described = Described {
        openapi: openapi::json().into_bytes(),
        needs: routes::required_actions().collect(),
    };
    let api = Arc::new(Api::new(options, registry, state, commit, described)?);
    Ok(http::pipeline::router(&api, routes::all()))
}
