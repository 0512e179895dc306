//! The host's metrics: sampled on an interval, stored in a queue of their own, and sent to the
//! server's series store (`docs/format/rows.md`).

mod config;
mod metrics;
mod own;

pub use config::MetricsConfig;
pub use metrics::{
    FILE as METRICS_FILE, HostMetrics, REOPEN_AFTER, RealtimeCounters, TelemetryPorts,
};
