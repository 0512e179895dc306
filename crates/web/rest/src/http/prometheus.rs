//! Prometheus' API behind ours: its routes over the series store, and its form of errors, which clients
//! such as Grafana show.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::json;
use series::Store;

use crate::error::Failure;
use crate::http::envelope::JSON;

/// Returns the routes, by their whole paths. Everything else below the address of the data source is
/// not found.
pub fn routes(store: Store, memory: ingest::Memory) -> Router {
    Router::new()
        .nest("/series/prometheus/api/v1", ingest::prometheus_routes(store, memory))
        .fallback(missing)
}

async fn missing() -> impl IntoResponse {
    let failure = Failure::missing("no such operation of Prometheus' API");
    (failure.status, [(CONTENT_TYPE, JSON)], error_body(&failure))
}

/// Returns the body of a failed request. The types are those of Prometheus, but for `unauthorized`,
/// `forbidden` and `too_many_requests`, which it does not need.
pub fn error_body(failure: &Failure) -> Vec<u8> {
    let kind = match failure.status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::REQUEST_TIMEOUT => "timeout",
        StatusCode::TOO_MANY_REQUESTS => "too_many_requests",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        status if status.is_server_error() => "internal",
        _ => "bad_data",
    };
    let body = json!({"status": "error", "errorType": kind, "error": failure.detail});
    body.to_string().into_bytes()
}
