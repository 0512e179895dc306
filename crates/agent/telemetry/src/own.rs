//! The agent's own metrics: its queues, the rows that the server accepted, and its resource usage.
//! The rows are sent with those of the host (`docs/format/rows.md`).

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use host::metrics::MetricRow;
use queue::QueueStatus;
use rustix::time::{ClockId, clock_gettime};

/// Counters of the rows sent since the agent started.
#[derive(Debug, Default)]
pub(super) struct SentCounters {
    stored: AtomicU64,
    refused: AtomicU64,
    failures: AtomicU64,
}

impl SentCounters {
    /// Counts an answer of the server.
    pub(super) fn count_answer(&self, stored: u64, refused: u64) {
        self.stored.fetch_add(stored, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
    }

    /// Counts a failed request.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the state of the queue of metrics.
pub(super) fn looks(metrics: &QueueStatus) -> MetricRow {
    let names = ["agent.looks_queued", "agent.looks_dropped", "agent.queue_bytes"];
    row(&names, "queue=metrics", &[metrics.events, metrics.events_dropped, metrics.file_bytes])
}

/// Returns the state of the agent's queue, the counters of sent rows, and the usage of the process.
pub(super) fn rows(queue: &QueueStatus, sent: &SentCounters) -> Vec<MetricRow> {
    let mut rows = Vec::new();
    for dataset in &queue.datasets {
        let names = ["agent.items", "agent.pending", "agent.exceptions"];
        let values = [dataset.items, dataset.pending, dataset.exceptions];
        rows.push(row(&names, &format!("dataset={}", dataset.name), &values));
    }
    let names = [
        "agent.events_queued",
        "agent.events_dropped",
        "agent.queue_bytes",
        "agent.queue_log_bytes",
    ];
    let values = [queue.events, queue.events_dropped, queue.file_bytes, queue.wal_bytes];
    rows.push(row(&names, "queue=agent", &values));
    let names = ["agent.rows_stored", "agent.rows_refused", "agent.sends_failed"];
    let values = [&sent.stored, &sent.refused, &sent.failures];
    rows.push(row(&names, "queue=metrics", &values.map(|n| n.load(Ordering::Relaxed))));
    rows.extend(process());
    rows
}

/// Returns the counters of realtime detection; nothing while it is off.
pub(super) fn realtime(counters: &[(&str, f64)]) -> Option<MetricRow> {
    let (names, values): (Vec<&str>, Vec<f64>) = counters.iter().copied().unzip();
    (!names.is_empty())
        .then(|| MetricRow { name: format!("{} watch=files", names.join("|")), values })
}

/// Returns processor time, memory and files of this process, and its reads and writes where the
/// kernel provides them (proc(5)).
fn process() -> Vec<MetricRow> {
    let mut rows = Vec::new();
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_s = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    let files = fs::read_dir("/proc/self/fd").map(Iterator::count);
    if let (Some(kib), Ok(files)) = (number("/proc/self/status", "VmRSS:"), files) {
        let names = ["agent.cpu_seconds", "agent.resident_bytes", "agent.open_files"];
        let values = vec![cpu_s, kib * 1024.0, files as f64];
        rows.push(MetricRow { name: format!("{} process=self", names.join("|")), values });
    }
    let io = |key| number("/proc/self/io", key);
    if let (Some(read), Some(written)) = (io("read_bytes:"), io("write_bytes:")) {
        let name = "agent.read_bytes|agent.written_bytes process=self".to_owned();
        rows.push(MetricRow { name, values: vec![read, written] });
    }
    rows
}

/// Returns the number after a key in a file of `/proc`.
fn number(file: &str, key: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn row(names: &[&str], tag: &str, values: &[u64]) -> MetricRow {
    let values = values.iter().map(|n| *n as f64).collect();
    MetricRow { name: format!("{} {tag}", names.join("|")), values }
}
