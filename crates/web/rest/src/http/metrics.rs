//! The program's metrics: counters recorded through the `metrics` crate, collected by one recorder per
//! process and rendered for Prometheus at `/metrics`.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Bounds of the request histogram, seconds.
const SECONDS_BOUNDS: [f64; 12] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

const REQUESTS: &str = "holdfast_api_requests_total";
const SECONDS: &str = "holdfast_api_request_seconds";

/// Installs the process's recorder, once. Values recorded before are lost, so the binary calls this
/// first. Returns `None` if another recorder is already installed.
pub fn install_recorder() -> Option<PrometheusHandle> {
    RECORDER
        .get_or_init(|| {
            let builder = PrometheusBuilder::new().set_buckets(&SECONDS_BOUNDS).ok()?;
            match builder.install_recorder() {
                Ok(handle) => {
                    describe_counter!(REQUESTS, "requests by operation and status");
                    describe_histogram!(SECONDS, "time to answer a request, seconds");
                    Some(handle)
                }
                Err(cause) => {
                    tracing::warn!("metrics: {cause}: /metrics will answer 503");
                    None
                }
            }
        })
        .clone()
}

/// Records one request, labelled with the operation's id (the path would be an unbounded label).
pub fn record_request(operation: &'static str, status: u16, took: Duration) {
    let status = status_label(status);
    counter!(REQUESTS, "operation" => operation, "status" => status).increment(1);
    histogram!(SECONDS, "operation" => operation).record(took.as_secs_f64());
}

fn status_label(status: u16) -> &'static str {
    match status {
        200 => "200",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        406 => "406",
        413 => "413",
        429 => "429",
        500 => "500",
        503 => "503",
        201..=299 => "2xx",
        300..=399 => "3xx",
        402..=499 => "4xx",
        _ => "5xx",
    }
}
