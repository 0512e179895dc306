//! The host's metrics. They are sampled on an interval and stored in a separate queue
//! (`metrics.db`) until the server has persisted them. They are sent first in, first out. Above the
//! queue's limit the oldest samples are dropped, which is reported as a gap.
//!
//! A queue that cannot be opened, or is damaged, affects only metrics: it is reopened from time to
//! time, and files are still watched.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use env::clock::Clock;
use env::random::{Random as _, SystemRandom};
use host::metrics::{Metrics, Reading};
use model::{Coverage, CoverageKind, Dataset, EventBody};
use parking_lot::Mutex;
use queue::{EventLease, Queue, QueueError, QueueOpenReport, QueueOptions};
use serde::Deserialize;
use serde_json::json;
use service::Console;
use sync::{SyncError, Syncer, backoff};
use tokio::sync::{Notify, watch};
use tracing::{debug, info, warn};

use crate::config::MetricsConfig;
use crate::own::{self, SentCounters};

/// The queue's file in the agent's folder.
pub const FILE: &str = "metrics.db";
/// Most samples sent at once.
const LOOKS_MAX: usize = 200;
/// Approximate number of bytes sent at once.
const BYTES_MAX: usize = 512 * 1024;
/// Longest interval between two attempts to send.
const SEND_EVERY: Duration = Duration::from_mins(1);

/// Interval between two reports of rows that are refused for the same reason.
const REFUSAL_EVERY: Duration = Duration::from_hours(1);
/// Pause after a queue was reopened, or could not be opened, before the next attempt.
pub const REOPEN_AFTER: Duration = Duration::from_mins(10);

/// Returns the dataset of the queue's events.
fn dataset() -> Dataset {
    Dataset::new("host-metrics")
}

/// The parts of the agent that metrics use.
#[derive(Clone)]
pub struct TelemetryPorts {
    /// The agent's own queue, which reports gaps of metrics.
    pub queue: Queue,
    /// Dataset of these gaps.
    pub dataset: Dataset,
    pub syncer: Arc<Syncer>,
    pub console: Console,
    pub clock: Arc<dyn Clock>,
    pub realtime: RealtimeCounters,
}

/// Counters of realtime detection, by name.
pub type RealtimeCounters = Arc<Mutex<Vec<(&'static str, f64)>>>;

/// The sampler and sender of metrics.
pub struct HostMetrics {
    path: PathBuf,
    options: QueueOptions,
    kept: Mutex<QueueHandle>,
    ports: TelemetryPorts,
    interval: Duration,
    metrics: Metrics,
    /// True if the agent's own metrics are reported as well.
    own: bool,
    sent: SentCounters,
    /// Monotonic time at which each reason for refused rows was reported.
    refused: Mutex<HashMap<String, Duration>>,
    /// Notified when there is something to send.
    ready: Notify,
}

/// The queue, while it can be used.
#[derive(Default)]
struct QueueHandle {
    queue: Option<Queue>,
    /// Monotonic time before which it is not reopened.
    not_before: Option<Duration>,
    /// True if the failure to open it was reported, and it has not been opened since.
    logged: bool,
    /// True if the agent is ending: the queue is not reopened.
    closed: bool,
}

impl HostMetrics {
    /// Opens the queue, if possible.
    pub fn open(folder: &Path, config: &MetricsConfig, ports: TelemetryPorts) -> Arc<Self> {
        let options = QueueOptions {
            byte_limit: u64::from(config.limit_mib) << 20,
            cache_bytes: 1 << 20,
            journal_size_limit_bytes: 4 << 20,
            wal_autocheckpoint_pages: Some(500),
            ..QueueOptions::default()
        };
        let metrics = Arc::new(Self {
            path: folder.join(FILE),
            options,
            kept: Mutex::default(),
            ports,
            interval: config.interval,
            metrics: Metrics::new(Path::new("/"), &config.processes, &config.ignore_interfaces),
            own: config.own,
            sent: SentCounters::default(),
            refused: Mutex::default(),
            ready: Notify::new(),
        });
        metrics.queue();
        metrics
    }

    /// Returns the queue. Reopens it if it is damaged or could not be opened before, at most every
    /// [`REOPEN_AFTER`]. Returns `None` while it cannot be used. Blocks on the disk.
    fn queue(&self) -> Option<Queue> {
        let mut kept = self.kept.lock();
        if kept.closed {
            return None;
        }
        if let Some(queue) = kept.queue.as_ref().filter(|queue| !queue.is_damaged()) {
            return Some(queue.clone());
        }
        let now = self.ports.clock.monotonic();
        if kept.not_before.is_some_and(|at| now < at) {
            return None;
        }
        let damaged = kept.queue.take();
        if let Some(damaged) = &damaged {
            warn!("{FILE} is damaged: it was recreated");
            if let Err(problem) = damaged.close() {
                debug!("{FILE}: {problem}");
            }
        }
        let random = Arc::new(SystemRandom);
        let opened =
            Queue::open(&self.path, self.options.clone(), self.ports.clock.clone(), random);
        if damaged.is_some() || opened.is_err() {
            kept.not_before = Some(now + REOPEN_AFTER);
        }
        match opened {
            Ok((queue, report)) => {
                self.opened(&report);
                kept.logged = false;
                kept.queue = Some(queue.clone());
                Some(queue)
            }
            Err(problem) => {
                if !std::mem::replace(&mut kept.logged, true) {
                    self.not_opened(&problem);
                }
                None
            }
        }
    }

    fn opened(&self, report: &QueueOpenReport) {
        if let Some(rebuilt) = &report.rebuilt {
            self.ports.console.line(&format!(
                "{FILE} was damaged ({}); kept as {}, a new one was created",
                rebuilt.reason,
                rebuilt.moved_to.display()
            ));
        }
    }

    /// Logs the problem, prints it, and reports it as a gap.
    fn not_opened(&self, problem: &QueueError) {
        warn!("metrics are not kept: {problem}");
        self.ports.console.line(&format!("metrics are not kept: {problem}"));
        let now_us = self.ports.clock.now_us();
        let gap = Coverage {
            kind: CoverageKind::Unreadable,
            path: self.path.display().to_string(),
            from_us: now_us,
            to_us: now_us,
            found: None,
            lasting: None,
            detail: format!("metrics of this host are not kept: {problem}"),
        };
        if let Err(problem) = self.ports.queue.append_coverage(&self.ports.dataset, gap) {
            warn!("cannot report that metrics are not kept: {problem}");
        }
    }

    /// Samples until stopped. The first sample is taken at a random instant of the first interval,
    /// so that machines that start together do not sample, and send, together.
    pub async fn sample_until_stopped(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let random = SystemRandom.next_u64().unwrap_or(0) as f64 / u64::MAX as f64;
        let mut at = tokio::time::Instant::now() + self.interval.mul_f64(random);
        let mut warned = Vec::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                _ = stopped.wait_for(|s| *s) => return,
            }
            // Samples missed during a pause of the machine are not made up for.
            at = (at + self.interval).max(tokio::time::Instant::now());
            let own = self.clone();
            match tokio::task::spawn_blocking(move || own.once()).await {
                Ok(Ok(problems)) => {
                    warn_of(&problems, &warned);
                    warned = problems;
                    self.ready.notify_one();
                }
                Ok(Err(e)) => {
                    warn!("metrics were not kept: {e}");
                }
                Err(_) => return,
            }
        }
    }

    /// Takes one sample and keeps it if possible; returns the sources that could not be read.
    fn once(&self) -> Result<Vec<String>, QueueError> {
        let Some(queue) = self.queue() else { return Ok(Vec::new()) };
        let time_us = self.ports.clock.now_us();
        let Reading { mut rows, problems } = self.metrics.sample();
        rows.push(own::looks(&queue.status()?));
        if self.own {
            rows.extend(own::rows(&self.ports.queue.status()?, &self.sent));
            rows.extend(own::realtime(&self.ports.realtime.lock()));
        }
        let rows: Vec<_> = rows.iter().map(|row| json!([row.name, row.values])).collect();
        let line = json!({ "time_ns": time_us.saturating_mul(1000), "rows": rows });
        queue.append_events(&dataset(), vec![line.to_string().into_bytes()])?;
        Ok(problems)
    }

    /// Sends samples until stopped. A failed attempt is retried after a backoff.
    pub async fn send(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut failures = 0;
        loop {
            let sent = tokio::select! {
                sent = self.send_all() => sent,
                // Rows that were sent but not acknowledged are sent again. The server replaces
                // them.
                _ = stopped.wait_for(|s| *s) => return,
            };
            let wait = match sent {
                Ok(()) if failures == 0 => SEND_EVERY,
                Ok(()) => {
                    info!("the server accepts metrics again");
                    failures = 0;
                    SEND_EVERY
                }
                Err(problem) => {
                    self.sent.failed();
                    report(failures, &problem);
                    let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
                    let wait = backoff::delay(failures, random, problem.retry_after());
                    failures += 1;
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.ready.notified(), if failures == 0 => {}
                _ = stopped.wait_for(|s| *s) => return,
            }
        }
    }

    /// Sends all queued samples, oldest first, and removes those that the server persisted or
    /// refused.
    async fn send_all(self: &Arc<Self>) -> Result<(), SyncError> {
        let own = self.clone();
        let Some(kept) = blocking(move || own.queue()).await? else { return Ok(()) };
        loop {
            let queue = kept.clone();
            let lease = move || queue.lease_events(LOOKS_MAX, BYTES_MAX);
            let lease = blocking(lease).await??;
            if lease.items.is_empty() {
                return Ok(());
            }
            let SampleLease { lines, mut gaps, from_us, to_us } = looks(&lease);
            let report = if lines.is_empty() {
                sync::RowsReport::default()
            } else {
                match self.ports.syncer.send_rows(lines).await {
                    Err(e) if e.is_too_new() && self.is_ahead(from_us) => sync::RowsReport {
                        refused: lease.items.len() as u64,
                        reason: Some(
                            "taken while this host's clock was more than a day ahead".into(),
                        ),
                        ..sync::RowsReport::default()
                    },
                    sent => sent?,
                }
            };
            gaps.extend(self.refusal(&report, from_us, to_us));
            self.sent.count_answer(report.rows, report.refused);
            debug!(rows = report.rows, refused = report.refused, "metrics persisted");
            let (queue, ports) = (kept.clone(), self.ports.clone());
            let done = move || {
                let mut gaps = gaps.into_iter();
                gaps.try_for_each(|gap| ports.queue.append_coverage(&ports.dataset, gap))?;
                queue.ack_events(lease)
            };
            blocking(done).await??;
        }
    }

    /// Returns true if the time is more than a day ahead of this host's clock as well. Otherwise
    /// this clock or the server's is behind now, and the rows must wait.
    fn is_ahead(&self, time_us: u64) -> bool {
        time_us > self.ports.clock.now_us().saturating_add(model::limits::CLOCK_OFF_US)
    }

    /// Returns the gap of rows that the server refused, at most once an hour for each reason.
    fn refusal(&self, report: &sync::RowsReport, from_us: u64, to_us: u64) -> Option<Coverage> {
        let reason = report.reason.clone().filter(|_| report.refused > 0)?;
        let now = self.ports.clock.monotonic();
        let mut reported = self.refused.lock();
        if reported.get(&reason).is_some_and(|at| now < *at + REFUSAL_EVERY) {
            return None;
        }
        reported.retain(|_, at| now < *at + REFUSAL_EVERY);
        reported.insert(reason.clone(), now);
        drop(reported);
        warn!(refused = report.refused, reason, "metrics were refused");
        Some(Coverage {
            kind: CoverageKind::LimitReached,
            path: self.path.display().to_string(),
            from_us,
            to_us,
            found: None,
            lasting: None,
            detail: format!("{} rows of metrics were not stored: {reason}", report.refused),
        })
    }

    /// Returns true if no metrics can be kept now.
    pub fn is_off(&self) -> bool {
        self.kept.lock().queue.as_ref().is_none_or(Queue::is_damaged)
    }

    /// Closes the queue.
    pub fn close(&self) {
        let mut kept = self.kept.lock();
        kept.closed = true;
        if let Some(Err(problem)) = kept.queue.take().map(|queue| queue.close()) {
            warn!("{FILE}: {problem}");
        }
    }
}

/// Logs that the server accepted nothing, with the number of failures after the first one. An agent
/// that is refused says so once, at its heartbeat.
fn report(failures: u32, problem: &SyncError) {
    if failures == 0 && !problem.refuses_agent() {
        warn!("metrics are kept until the server accepts them: {problem}");
    } else {
        debug!(failures, "metrics are still kept: {problem}");
    }
}

/// Logs the sources that could not be read, if they differ from the last ones logged.
fn warn_of(problems: &[String], warned: &[String]) {
    for problem in problems.iter().filter(|_| problems != warned) {
        warn!("metrics: {problem}");
    }
}

/// The content of a lease.
struct SampleLease {
    /// One line for each sample.
    lines: Vec<u8>,
    /// Gaps that the queue recorded between the samples.
    gaps: Vec<Coverage>,
    /// Times of the earliest and the latest sample, microseconds since the epoch.
    from_us: u64,
    to_us: u64,
}

/// Splits a lease into samples and gaps.
fn looks(lease: &EventLease) -> SampleLease {
    #[derive(Deserialize)]
    struct Timed {
        time_ns: u64,
    }
    let mut looks =
        SampleLease { lines: Vec::new(), gaps: Vec::new(), from_us: u64::MAX, to_us: 0 };
    for event in &lease.items {
        let gap = serde_json::from_slice::<EventBody>(&event.body).ok();
        if let Some(gap) = gap.and_then(|event| event.holdfast.coverage) {
            looks.gaps.push(gap);
            continue;
        }
        if let Ok(Timed { time_ns }) = serde_json::from_slice(&event.body) {
            looks.from_us = looks.from_us.min(time_ns / 1_000);
            looks.to_us = looks.to_us.max(time_ns / 1_000);
        }
        looks.lines.extend_from_slice(&event.body);
        looks.lines.push(b'\n');
    }
    looks.from_us = looks.from_us.min(looks.to_us);
    looks
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SyncError> {
    tokio::task::spawn_blocking(call).await.map_err(|_| SyncError::Stopping)
}
