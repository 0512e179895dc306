//! The REST API. The router, the validation of parameters, access control, the OpenAPI document and the
//! tests are all derived from one list of operations.
//!
//! The operations are in `resource/`, one file per resource, and in the crate `security`; `routes.rs`
//! lists all of them. The pipeline that calls them and its invariants are in the crate `rest`.
//!
//! See [`limits`] for the limits, `docs/reference/api.md` for shapes and codes, `api-guide.md` for the
//! rest.

mod openapi;
mod resource;
mod routes;

use std::sync::Arc;

use axum::Router;
use commit::Commit;
use registry::Registry;
use state::StateStore;

use rest::http::api::{Api, RouteDocuments};

pub use rest::access::token::TokenKeyError;
pub use rest::code::error_codes;
pub use rest::http::api::{ApiError, ApiOptions, ConfigFile};
pub use rest::http::log_ring::{LogLine, LogRing};
pub use rest::http::metrics::install_recorder;
pub use rest::http::request_log::TARGET as ACCESS_LOG;
pub use rest::limits;

pub use openapi::json as openapi_json;

/// Returns the router of the whole API.
///
/// # Errors
/// Fails if the registry provides no usable token keys.
pub fn router(
    options: ApiOptions,
    registry: Registry,
    state: Arc<StateStore>,
    commit: Arc<Commit>,
) -> Result<Router, ApiError> {
    let described = RouteDocuments {
        openapi: openapi::json().into_bytes(),
        needs: routes::required_actions().collect(),
    };
    let api = Arc::new(Api::new(options, registry, state, commit, described)?);
    if let Err(error) = security::entries::name_wrong_policies(&api.registry, &api.needs) {
        tracing::warn!(%error, "policies could not be checked");
    }
    Ok(rest::http::pipeline::router(&api, routes::all()))
}
