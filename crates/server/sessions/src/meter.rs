//! Counters of the sessions side, for `GET /metrics` and the process's own recorder.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use serde_json::{Value, json};

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    by_status: [AtomicU64; STATUSES.len()],
    other: AtomicU64,
    pub(crate) sessions: AtomicU64,
    /// Sessions that changed nothing: repeated, or overtaken by newer versions.
    pub(crate) unchanged: AtomicU64,
    /// Repeated sessions, answered without being applied again.
    pub(crate) replayed: AtomicU64,
    /// Sessions refused because they may have been applied before.
    pub(crate) outdated: AtomicU64,
    pub(crate) values: AtomicU64,
    /// Values that were skipped, with a reason in the answer.
    pub(crate) skipped: AtomicU64,
    /// Requests answered 503 with Retry-After.
    pub(crate) shed: AtomicU64,
    /// Sessions that asked for a scan, which this server does not run.
    pub(crate) scans_skipped: AtomicU64,
    /// Local callers whose user is not allowed.
    pub(crate) refused_uids: AtomicU64,
    /// Requests refused because another instance holds the agent's lease.
    pub(crate) copies_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
}

const STATUSES: [u16; 16] =
    [200, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 431, 500, 503, 504];

/// Adds to a counter of [`Meter`].
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Values from other parts of the program that are reported with the counters.
pub(crate) struct ExternalGauges {
    pub(crate) in_flight_bytes: usize,
    /// Open connections over TLS.
    pub(crate) connections: usize,
    pub(crate) leases: usize,
    /// Batches appended to the journal since the start.
    pub(crate) journal_batches: u64,
    /// Connections over TLS since the start.
    pub(crate) connections_seen: u64,
}

impl Meter {
    /// Counts one answer.
    pub(crate) fn count_answer(&self, status: StatusCode) {
        let code = status.as_u16();
        let place = STATUSES.iter().position(|s| *s == code);
        let counter = place.and_then(|p| self.by_status.get(p)).unwrap_or(&self.other);
        add(counter, 1);
        metrics::counter!("holdfast_agent_requests_total", "status" => code.to_string())
            .increment(1);
    }

    /// Returns the counters as JSON: `{"name","timestamp","metrics":[{"name","type","value"}]}`.
    pub(crate) fn to_json(&self, now_us: u64, readings: &ExternalGauges) -> Value {
        let counter = |name: String, c: &AtomicU64| json!({"name": name, "type": "counter", "value": c.load(Ordering::Relaxed)});
        let mut list: Vec<Value> = STATUSES
            .iter()
            .zip(&self.by_status)
            .map(|(status, c)| counter(format!("sync.requests.total.{status}"), c))
            .collect();
        for (name, c) in [
            ("sync.requests.total.other", &self.other),
            ("sync.sessions.committed", &self.sessions),
            ("sync.sessions.unchanged", &self.unchanged),
            ("sync.sessions.replayed", &self.replayed),
            ("sync.sessions.outdated", &self.outdated),
            ("sync.values.committed", &self.values),
            ("sync.values.skipped", &self.skipped),
            ("sync.pipeline.shed.total", &self.shed),
            ("vd.scans.skipped", &self.scans_skipped),
            ("sync.local.refused", &self.refused_uids),
            ("sync.copies.refused", &self.copies_refused),
            ("sync.handshakes.failed", &self.handshakes_failed),
        ] {
            list.push(counter(name.to_owned(), c));
        }
        for (name, n) in [
            ("sync.bulk.flushes", readings.journal_batches),
            ("sync.connections.total", readings.connections_seen),
        ] {
            list.push(json!({"name": name, "type": "counter", "value": n}));
        }
        for (name, n) in [
            ("sync.inflight.bytes", readings.in_flight_bytes),
            ("sync.connections", readings.connections),
            ("sync.seats", readings.leases),
        ] {
            list.push(json!({"name": name, "type": "gauge", "value": n}));
        }
        let timestamp = model::timestamp::micros(now_us);
        json!({"name": "holdfast", "timestamp": timestamp, "metrics": list})
    }
}
