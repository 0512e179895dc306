//! Realtime detection on the scanning thread: starts the watcher, and runs the checks that are due.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use detect::{CheckReport, NoChecks, ScanError, ScanPorts, Scanner};
use env::clock::Clock;
use model::{Check, EventBody, WatchReport};
use realtime::{AttributionOptions, Realtime, RealtimeOptions, WakeCallback, WatchOptions};
use tracing::error;

use crate::config::AgentSettings;
use crate::notes;
use crate::scan::Scanning;
use crate::shared::{ScanCommand, Shared};

/// Interval of scans where realtime detection covers every root: an independent check of it.
const INTERVAL_REALTIME: Duration = Duration::from_hours(1);
/// Shortest time between two notes of the state, so that a busy agent does not write them with each
/// change.
const NOTE_EVERY: Duration = Duration::from_secs(5);
/// Interval at which gaps are reported and the state is noted while checks are due without a pause.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Interval of scans otherwise.
const INTERVAL_SCAN: Duration = Duration::from_mins(5);

/// Starts the watcher, unless realtime detection is off.
pub(crate) fn start(
    shared: &Arc<Shared>,
    settings: &AgentSettings,
    roots: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Option<Realtime>> {
    let config = &settings.realtime;
    if !config.enabled || roots.is_empty() {
        return Ok(None);
    }
    let commands = shared.scan_commands.clone();
    // If the channel is full, the thread is awake.
    let wake = WakeCallback(Arc::new(move || drop(commands.try_send(ScanCommand::Wake))));
    let real = |folder: &PathBuf| folder.canonicalize().ok();
    let watch = WatchOptions {
        roots,
        excluded: settings.excluded.iter().filter_map(real).collect(),
        canary: real(&settings.folder),
        dirty_max: config.names_max as usize,
        directories_max: config.directories_max as usize,
        queue_max: config.notifications_max as usize,
        wake: Some(wake),
        ..WatchOptions::default()
    };
    let attribution = config
        .attribution
        .then(|| AttributionOptions { mask: config.mask.clone(), ..AttributionOptions::default() });
    let checks_per_second = config.checks_per_second;
    let packages_root = settings.inventory.root.clone();
    let options = RealtimeOptions { watch, checks_per_second, attribution, packages_root };
    Realtime::start(options, clock).map(Some).context("watcher")
}

impl Scanning {
    /// Returns the time between two scans.
    pub(crate) fn interval(&self) -> Duration {
        self.config.interval.unwrap_or_else(|| {
            let covered = self.realtime.as_ref().is_some_and(|r| r.status().is_realtime());
            if covered { INTERVAL_REALTIME } else { INTERVAL_SCAN }
        })
    }

    /// Runs the checks that are due. Before the first scan has ended they wait.
    pub(crate) fn run_due_checks(&mut self) {
        if !self.whole {
            return;
        }
        let mut told = Instant::now();
        // Not short-circuited: a flood of names must not hold back a tree.
        while !self.shared.cancel.is_cancelled() && (self.check_names() | self.check_long()) {
            // A flood may keep this loop busy for minutes.
            if told.elapsed() >= TELL_EVERY {
                self.report_findings();
                self.note_alive();
                self.note_watched();
                told = Instant::now();
            }
        }
        self.report_findings();
    }

    /// Reports what the checks found apart from changes.
    fn report_findings(&mut self) {
        self.note_gaps();
        self.report_watch_gaps();
        self.report_transients(false);
    }

    /// Checks the names that are due. Returns false if there were none, or their check failed.
    fn check_names(&mut self) -> bool {
        let Some(realtime) = self.realtime.as_mut() else { return false };
        let checks = realtime.due_names();
        if realtime.is_holding() {
            self.sink.explainer().note_transaction();
        }
        if checks.is_empty() {
            return false;
        }
        self.shared.names.clear();
        let mut ports = ScanPorts {
            baseline: &mut self.baseline,
            sink: &mut self.sink,
            handles: &mut realtime.handles(),
            interrupt: &mut NoChecks,
        };
        let checked = self.scanner.check(&checks, &mut ports, &self.shared.cancel);
        self.settle(checked, None)
    }

    /// Compares a tree or reads a large file that waits. Names that become due are checked in its
    /// middle. Returns false if none waits, or its check failed.
    fn check_long(&mut self) -> bool {
        let Some(realtime) = self.realtime.as_mut() else { return false };
        let tree = realtime.due_tree();
        let large = if tree.is_empty() { realtime.due_large() } else { None };
        let checks = large.as_ref().map_or(tree.as_slice(), std::slice::from_ref);
        if checks.is_empty() {
            return false;
        }
        let (mut handles, cancel) = (realtime.handles(), &self.shared.cancel);
        let mut ports = ScanPorts {
            baseline: &mut self.baseline,
            sink: &mut self.sink,
            handles: &mut handles,
            interrupt: realtime,
        };
        let run = if large.is_some() { Scanner::check_large } else { Scanner::check };
        let checked = run(&self.scanner, checks, &mut ports, cancel);
        self.settle(checked, large.as_ref())
    }

    /// Takes the outcome of checks, of names or of one large file. Returns false if they failed.
    fn settle(&mut self, checked: Result<CheckReport, ScanError>, large: Option<&Check>) -> bool {
        let Some(realtime) = self.realtime.as_mut() else { return false };
        match (large, &checked) {
            (Some(large), _) => realtime.large_checked(large, checked.as_ref().ok()),
            (None, Ok(report)) => realtime.checked(report),
            (None, Err(_)) => realtime.failed(),
        }
        checked.inspect_err(|problem| self.check_failed(problem)).is_ok()
    }

    /// Returns true if a transaction of dpkg has ended since the last call. Only those are noticed
    /// for which names waited, or that made a change.
    pub(crate) fn has_transaction_ended(&mut self) -> bool {
        let holding = self.realtime.as_ref().is_some_and(Realtime::is_holding);
        let waited = std::mem::replace(&mut self.holding, holding) && !holding;
        self.sink.explainer().has_dpkg_ended() || waited
    }

    fn check_failed(&self, problem: &ScanError) {
        error!("check: {problem}");
        if self.shared.queue.is_damaged() {
            self.shared.rebuild();
        }
    }

    /// Reports the intervals that the watcher missed, after their roots were checked.
    fn report_watch_gaps(&mut self) {
        let Some(realtime) = &mut self.realtime else { return };
        for gap in realtime.gaps() {
            if let Err(problem) = self.shared.queue.append_coverage(&self.shared.dataset, gap) {
                error!("agent's queue: {problem}");
            }
            self.shared.report.notify_one();
        }
    }

    /// Reports files that were created and removed before they could be compared.
    pub(crate) fn report_transients(&mut self, end: bool) {
        let Some(realtime) = &mut self.realtime else { return };
        let events: Vec<Vec<u8>> =
            realtime.transient_events(end).iter().map(EventBody::to_json).collect();
        if events.is_empty() {
            return;
        }
        if let Err(problem) = self.shared.queue.append_events(&self.shared.dataset, events) {
            error!("agent's queue: {problem}");
        }
        self.shared.report.notify_one();
    }

    /// Stores how the roots are watched, for `agent status`, and reports it to the server if it
    /// changed. Returns the time after which to call it again, if the last note is too recent.
    pub(crate) fn note_watched(&mut self) -> Option<Duration> {
        let left = self.watch_noted.and_then(|noted| NOTE_EVERY.checked_sub(noted.elapsed()));
        if left.is_some() {
            return left;
        }
        self.watch_noted = Some(Instant::now());
        let mut status = self.realtime.as_ref().map(Realtime::status).unwrap_or_default();
        let found = std::mem::take(&mut status.roots);
        let on = self.realtime.is_some();
        status.roots = realtime::roots(self.scanner.rules(), found, on, &self.scanner.gaps());
        if let Err(problem) = notes::set_realtime(&self.shared.queue, &status) {
            error!("agent's queue: {problem}");
        }
        *self.shared.realtime_counters.lock() = if on { status.counters() } else { Vec::new() };
        let changed = self.shared.syncer.note_watch(WatchReport {
            scan_interval_s: self.interval().as_secs(),
            next_scan_s: self.next_scan_s,
            attribution: status.attribution.on,
            attribution_reason: status.attribution.reason,
            roots: status.roots,
            more: 0,
        });
        if changed {
            self.shared.beat.notify_one();
        }
        None
    }
}
