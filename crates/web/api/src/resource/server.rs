//! The server itself: its identity, health, metrics and description.

use axum::http::StatusCode;
use metrics::{counter, gauge};
use model::{CoverageKind, timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, JSON};
use rest::http::operation::{Access, COMMON_PRETTY, Handler, Operation, Shape, Verb};

const TEXT: &str = "text/plain; charset=utf-8";
/// The content type that Prometheus requests.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/",
        id: "server.info",
        about: "Name and version of the server.",
        access: Access::User,
        parameters: &[COMMON_PRETTY],
        body: None,
        shape: Shape::Plain("ServerInfo"),
        handler: Handler::Blocking(info),
    },
    Operation {
        verb: Verb::Get,
        path: "/healthz",
        id: "server.healthz",
        about: "Whether the process answers.",
        access: Access::Open,
        parameters: &[],
        body: None,
        shape: Shape::Raw(TEXT),
        handler: Handler::Waiting(|_| Box::pin(async { Ok(ok()) })),
    },
    Operation {
        verb: Verb::Get,
        path: "/readyz",
        id: "server.readyz",
        about: "Whether the stores answer and agents are served.",
        access: Access::Open,
        parameters: &[],
        body: None,
        shape: Shape::Raw(TEXT),
        handler: Handler::Blocking(super::ready::ready),
    },
    Operation {
        verb: Verb::Get,
        path: "/metrics",
        id: "server.metrics",
        about: "Metrics in the Prometheus text format; no token needed on the same machine.",
        access: Access::Loopback,
        parameters: &[],
        body: None,
        shape: Shape::Raw(METRICS),
        handler: Handler::Blocking(metrics),
    },
    Operation {
        verb: Verb::Get,
        path: "/openapi.json",
        id: "server.openapi",
        about: "This description.",
        access: Access::User,
        parameters: &[],
        body: None,
        shape: Shape::Raw(JSON),
        handler: Handler::Blocking(|call| Ok(description(call))),
    },
];

/// Identity of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServerInfo {
    title: &'static str,
    /// Version of the program.
    api_version: String,
    /// Revision of that version: `release`, or the name of a pre-release.
    revision: &'static str,
    license_name: &'static str,
    license_url: &'static str,
    hostname: String,
    /// The server's time, RFC 3339.
    timestamp: String,
}

fn info(call: &Call) -> Result<Answer, Failure> {
    let now_us = call.api.options.clock.now_us();
    Answer::data(&ServerInfo {
        title: "Holdfast API REST",
        api_version: call.api.options.version.clone(),
        revision: match env!("CARGO_PKG_VERSION_PRE") {
            "" => "release",
            before => before,
        },
        license_name: "Apache-2.0",
        license_url: "https://www.apache.org/licenses/LICENSE-2.0",
        hostname: call.api.options.hostname.clone(),
        timestamp: super::common::seconds_z(&timestamp::micros(now_us)),
    })
}

fn ok() -> Answer {
    Answer::Raw { status: StatusCode::OK, content_type: TEXT, body: b"ok\n".to_vec() }
}

fn metrics(call: &Call) -> Result<Answer, Failure> {
    let Some(recorder) = &call.api.metrics else {
        return Err(Failure::busy("another metrics recorder is installed in this process", 60));
    };
    let agents = call.registry().status_summary()?;
    for (status, count) in [
        ("active", agents.active),
        ("disconnected", agents.disconnected),
        ("never_connected", agents.never_connected),
        ("pending", agents.pending),
    ] {
        gauge!("holdfast_agents", "status" => status).set(count as f64);
    }
    let silent = call.api.registry.silent_agents(&registry::Permitted::All);
    gauge!("holdfast_agents_silent").set(silent.count as f64);
    open_gap_gauges(&call.state().open_gaps_by_kind(call.reader())?);
    let counts = call.state().counts(call.reader())?;
    for (dataset, documents, bytes) in counts.documents {
        let name = dataset.name().to_owned();
        gauge!("holdfast_documents", "dataset" => name.clone()).set(documents as f64);
        gauge!("holdfast_document_bytes", "dataset" => name).set(bytes as f64);
    }
    for (name, value) in [
        ("holdfast_events", counts.events),
        ("holdfast_event_bytes", counts.event_bytes),
        ("holdfast_records_quarantined", counts.quarantined),
    ] {
        gauge!(name).set(value as f64);
    }
    let access = call.api.registry.access_counts();
    counter!("holdfast_access_cache_total", "result" => "hit").absolute(access.hits);
    counter!("holdfast_access_cache_total", "result" => "miss").absolute(access.misses);
    if let Some(rules) = &call.api.options.rules {
        let counts = rules.counts();
        counter!("holdfast_rules_cache_total", "result" => "hit").absolute(counts.hits);
        counter!("holdfast_rules_cache_total", "result" => "miss").absolute(counts.misses);
        counter!("holdfast_rules_file_reads_total").absolute(counts.file_reads);
        counter!("holdfast_rules_folder_reads_total").absolute(counts.folder_reads);
    }
    counter!("holdfast_database_statements_total").absolute(state::statements());
    let commit = call.commit().stats();
    for (name, value) in [
        ("holdfast_commit_applied_position", commit.applied.0),
        ("holdfast_commit_checkpointed_position", commit.checkpointed.0),
        ("holdfast_commit_records", commit.records),
        ("holdfast_commit_record_bytes", commit.record_bytes),
        ("holdfast_commit_refused", commit.refused),
        ("holdfast_commit_in_flight_bytes", commit.in_flight_bytes),
        ("holdfast_journal_bytes", commit.journal_bytes),
        ("holdfast_journal_blocks", commit.journal_blocks),
        ("holdfast_journal_flushes", commit.journal_flushes),
        ("holdfast_checkpoints", commit.checkpoints),
    ] {
        gauge!(name).set(value as f64);
    }
    if let Some(store) = &call.api.options.series {
        series_gauges(&store.stats());
    }
    recorder.run_upkeep();
    Ok(Answer::Raw {
        status: StatusCode::OK,
        content_type: METRICS,
        body: recorder.render().into_bytes(),
    })
}

/// Kinds of gaps that can be open. The words in events are the agents', so all others are `other`.
const OPEN_KINDS: [CoverageKind; 6] = [
    CoverageKind::AgentSilent,
    CoverageKind::AgentStopped,
    CoverageKind::RootGone,
    CoverageKind::Unreadable,
    CoverageKind::LimitReached,
    CoverageKind::WatchInterrupted,
];

/// Sets the number of open gaps of each kind, also to 0.
fn open_gap_gauges(by_kind: &[(String, u64)]) {
    let mut other: u64 = by_kind.iter().map(|(_, gaps)| gaps).sum();
    for kind in OPEN_KINDS.map(CoverageKind::name) {
        let open = by_kind.iter().find(|(name, _)| name == kind).map_or(0, |(_, gaps)| *gaps);
        other -= open;
        gauge!("holdfast_open_gaps", "kind" => kind).set(open as f64);
    }
    gauge!("holdfast_open_gaps", "kind" => "other").set(other as f64);
}

/// Sets the gauges of the series store. Rows per protocol are counted by the listeners.
fn series_gauges(stats: &series::StoreStats) {
    for (name, value) in [
        ("holdfast_series_rows", stats.rows),
        ("holdfast_series_known", stats.series),
        ("holdfast_series_rows_active", stats.rows_active),
        ("holdfast_series_samples", stats.samples),
        ("holdfast_series_batches", stats.batches),
        ("holdfast_series_batches_failed", stats.batches_failed),
        ("holdfast_series_dropped_samples", stats.dropped_samples),
        ("holdfast_series_dropped_bytes", stats.dropped_bytes),
        ("holdfast_series_head_bytes", stats.head_bytes),
        ("holdfast_series_position", stats.position),
        ("holdfast_series_sealed_position", stats.sealed_position),
        ("holdfast_series_parts", stats.parts),
        ("holdfast_series_part_bytes", stats.part_bytes),
        ("holdfast_series_part_samples", stats.part_samples),
        ("holdfast_series_partitions", stats.partitions),
        ("holdfast_series_log_payload_bytes", stats.log_payload_bytes),
        ("holdfast_series_trouble", u64::from(stats.trouble.is_some())),
    ] {
        gauge!(name).set(value as f64);
    }
}

fn description(call: &Call) -> Answer {
    Answer::Raw { status: StatusCode::OK, content_type: JSON, body: call.api.openapi.clone() }
}
