//! The scanning thread. It scans files and packages at start, on their intervals, and on request. In
//! between, and in the middle of a scan, it checks the names that realtime detection reports.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use detect::{Gap, Progress, ScanBudget, ScanError, ScanOptions, ScanPorts, ScanReport, Scanner};
use env::clock::Clock;
use env::uptime::Uptime;
use explain::{Explainer, ExplainingSink};
use link::ControlOutcome;
use model::{Coverage, CoverageKind};
use queue::{QueueBaseline, QueueError, ScanSink};
use realtime::Realtime;
use tracing::{error, info, warn};

use crate::config::{AgentSettings, ScanConfig};
use crate::datasets::DatasetKind;
use crate::display;
use crate::gaps;
use crate::notes::{self, Alive};
use crate::packages::{self, LookOutcome, Packages, Reading};
use crate::shared::{Begin, ScanCommand, Shared};
use crate::waking_sink::WakingSink;
use crate::watching;

/// Interval at which the agent notes that it runs. A gap after a crash begins at the last note.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
/// Most that wall clock and monotonic clock may drift apart between two notes.
const CLOCK_JUMP: Duration = Duration::from_mins(1);

/// The state of the scanning thread.
pub(super) struct Scanning {
    pub(super) shared: Arc<Shared>,
    pub(super) scanner: Scanner,
    /// `None` if realtime detection is off.
    pub(super) realtime: Option<Realtime>,
    pub(super) baseline: QueueBaseline,
    pub(super) sink: ExplainingSink<WakingSink<ScanSink>>,
    pub(super) packages: Packages,
    clock: Arc<dyn Clock>,
    pub(super) config: ScanConfig,
    begin: Begin,
    /// Time at which the agent was last known to run, until the gap before this start is reported.
    down_since_us: Option<u64>,
    /// Wall clock and monotonic time of the last note that the agent runs.
    seen: (u64, Duration),
    /// Open gaps as last stored.
    pub(super) gaps: Vec<Gap>,
    /// Time at which the state of the roots was last stored.
    pub(super) watch_noted: Option<Instant>,
    /// Start of the next scan, seconds since the epoch.
    pub(super) next_scan_s: i64,
    /// True if names waited for the end of a package transaction when they were last looked at.
    pub(super) holding: bool,
    /// True once a scan of this run has completed.
    pub(super) whole: bool,
    changes: u64,
    /// True if the first look at the packages succeeded; `None` before it.
    looked: Option<bool>,
}

/// The database's knowledge of earlier runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    /// None: the database was just created.
    None,
    /// The database has the state of earlier runs.
    Kept,
}

impl Scanning {
    pub(super) fn new(
        shared: &Arc<Shared>,
        settings: &AgentSettings,
        begin: Begin,
        history: History,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let options = ScanOptions {
            readers: usize::from(settings.scan.threads),
            excluded: excluded(&settings.excluded),
            ..ScanOptions::default()
        };
        let scanner = Scanner::new(settings.rules.clone(), options, clock.clone())?;
        let mut baseline = shared.queue.baseline(&shared.dataset)?;
        let sink = shared.queue.scan_sink(&shared.dataset, shared.names.clone())?;
        let sink = WakingSink::new(sink, shared.clone());
        let explainer = Explainer::new(&settings.inventory.root, clock.clone());
        let mut sink = ExplainingSink::new(sink, explainer);
        // If the configuration of its groups is refused, the agent may watch less than it should;
        // nothing is removed from the queue because of that.
        let whole = shared.syncer.config().refused.is_empty();
        let covered = if !whole || !notes::rules_changed(&shared.queue, &settings.rules)? {
            whole
        } else if let Some(dropped) = scanner.forget_unwatched(&mut baseline, &mut sink)? {
            info!(dropped, "the rules changed; what they no longer cover was dropped");
            true
        } else {
            warn!(
                "the rules changed, and one is a link that leads nowhere: nothing was dropped yet"
            );
            false
        };
        if covered {
            notes::set_rules(&shared.queue, &settings.rules)?;
        }
        let no_gap = history == History::None || begin == Begin::Reload;
        let down = if no_gap { None } else { notes::alive(&shared.queue)? };
        let down_since_us = match down {
            Some(alive) => Some(down_since(shared, &alive, clock.now_us())?),
            None => None,
        };
        shared.settled.store(down_since_us.is_none(), Ordering::Release);
        let seen = (clock.now_us(), clock.monotonic());
        let gaps = gaps::restore(shared, &scanner, history == History::None)?;
        let roots = scanner.realtime_roots();
        let realtime = watching::start(shared, settings, roots, clock.clone())?;
        let packages = Packages::new(
            &shared.queue,
            &settings.inventory,
            clock.clone(),
            shared.console.clone(),
        )?;
        Ok(Self {
            shared: shared.clone(),
            scanner,
            realtime,
            baseline,
            sink,
            packages,
            clock,
            config: settings.scan.clone(),
            begin,
            down_since_us,
            seen,
            gaps,
            watch_noted: None,
            next_scan_s: 0,
            holding: false,
            whole: false,
            changes: 0,
            looked: None,
        })
    }

    /// Scans now, then whenever a scan is due or requested, until stopped.
    pub(super) fn run(mut self, scan_commands: &Receiver<ScanCommand>) {
        // After a reload, use the budget of rescans: many agents may receive a new configuration at
        // the same time.
        let budget = match self.begin {
            Begin::Start => ScanBudget::UNLIMITED,
            Begin::Reload => self.background(),
        };
        // Rescans that were accepted before a reload are answered by the first scan.
        let asked = self.asked();
        let done = self.scan(if asked.is_empty() { budget } else { ScanBudget::UNLIMITED });
        self.look_at_packages();
        self.report_outcomes(&asked, &done);
        self.allow_checks();
        let mut due = self.plan_scan();
        let mut look = Instant::now() + self.packages.interval();
        // `Stop` does not reach a channel that is full.
        while !self.shared.cancel.is_cancelled() {
            self.note_alive();
            self.sink.explainer().tidy();
            self.run_due_checks();
            if self.has_transaction_ended() {
                look = Instant::now();
            }
            let note = self.note_watched().unwrap_or(ALIVE_EVERY).min(ALIVE_EVERY);
            let wait = due.min(look).saturating_duration_since(Instant::now()).min(note);
            let next = self.realtime.as_ref().and_then(Realtime::next_due);
            let received = scan_commands.recv_timeout(next.map_or(wait, |next| wait.min(next)));
            let asked = self.asked();
            if !asked.is_empty() || Instant::now() >= look {
                self.look_at_packages();
                look = Instant::now() + self.packages.interval();
            }
            match received {
                Ok(ScanCommand::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                // One scan answers all commands that were accepted before it.
                _ if !asked.is_empty() => {
                    let done = self.scan(ScanBudget::UNLIMITED);
                    self.report_outcomes(&asked, &done);
                }
                Ok(ScanCommand::Wake) | Err(RecvTimeoutError::Timeout) if Instant::now() < due => {
                    continue;
                }
                Ok(ScanCommand::Wake) | Err(RecvTimeoutError::Timeout) => {
                    let _ = self.scan(self.background());
                }
            }
            self.allow_checks();
            due = self.plan_scan();
        }
        self.report_transients(true);
        self.note_alive();
    }

    /// Returns the start of the next scan.
    fn plan_scan(&mut self) -> Instant {
        let interval = self.interval();
        self.next_scan_s = self.now_s().saturating_add_unsigned(interval.as_secs());
        Instant::now() + interval
    }

    /// Reports the gap before this start, and allows checks, once files and packages were scanned.
    fn allow_checks(&mut self) {
        if !self.whole || self.looked.is_none() {
            return;
        }
        if let Err(e) = self.report_down_gap() {
            return error!("agent's queue: {e}");
        }
        self.shared.syncer.note_scanned();
        if !self.shared.scanned.swap(true, Ordering::SeqCst) {
            self.shared.report.notify_one();
        }
    }

    /// Reports the gap before this start, if there was one and it is not reported yet.
    fn report_down_gap(&mut self) -> Result<(), QueueError> {
        let Some(from_us) = self.down_since_us else { return Ok(()) };
        let files = self.changes;
        let found = match self.packages.changes() {
            Some(_) if self.looked == Some(false) => format!("files {files}, packages unknown"),
            Some(packages) => format!("files {files}, packages {packages}"),
            None => format!("files {files}"),
        };
        let gap = Coverage {
            kind: CoverageKind::AgentDown,
            path: String::new(),
            from_us,
            to_us: self.clock.now_us(),
            found: Some(files + self.packages.changes().unwrap_or_default()),
            lasting: None,
            detail: format!("the agent was not running; its restart scan found changes: {found}"),
        };
        self.shared.queue.append_coverage(&self.shared.dataset, gap)?;
        self.down_since_us = None;
        self.shared.settled.store(true, Ordering::Release);
        self.shared.report.notify_one();
        Ok(())
    }

    /// Compares the installed packages with the queue, if their database was written.
    fn look_at_packages(&mut self) {
        let looked = self.packages.scan_packages(self.sink.explainer());
        let current = matches!(packages::reading(&self.shared.queue), Ok(Reading::Current));
        self.looked.get_or_insert(looked.is_ok() && current);
        match looked {
            Ok(LookOutcome::Committed) => self.shared.report.notify_one(),
            Ok(LookOutcome::Unchanged) => {}
            // Nothing was committed, so the next scan of packages finds the same changes.
            Err(e) => error!("packages: {e}"),
        }
    }

    fn background(&self) -> ScanBudget {
        let max = self.config.max_bytes_per_second;
        ScanBudget {
            max_bytes_per_second: (max > 0).then_some(max),
            background: self.config.background_priority,
        }
    }

    /// Runs one scan; returns the result for a command's outcome.
    fn scan(&mut self, budget: ScanBudget) -> Result<String, String> {
        self.shared.names.clear();
        let started_at_s = self.now_s();
        self.report_scan(started_at_s, None);
        self.scanner.set_budget(budget);
        let progress = Progress::new();
        let shown = display::show_progress(&progress);
        let result = self.scan_files(&progress);
        drop(shown);
        if !self.shared.cancel.is_cancelled() {
            self.report_scan(started_at_s, Some(self.now_s()));
        }
        let outcome = match result {
            Ok(report) => self.scanned(&report),
            Err(e) => Err(e.to_string()),
        };
        if self.shared.cancel.is_cancelled() {
            info!("the scan was stopped; the next one continues from the baseline");
        } else if let Err(problem) = &outcome {
            error!("scan: {problem}");
            self.shared.console.line(&format!("scan failed: {problem}"));
            if self.shared.queue.is_damaged() {
                self.shared.rebuild();
            }
        }
        // Even a failed scan may have committed changes.
        self.shared.report.notify_one();
        outcome
    }

    /// Scans with the checks that become due in the middle of the scan.
    fn scan_files(&mut self, progress: &Progress) -> Result<ScanReport, ScanError> {
        let cancel = &self.shared.cancel;
        let (baseline, sink) = (&mut self.baseline, &mut self.sink);
        let Some(realtime) = &mut self.realtime else {
            return self.scanner.scan(baseline, sink, progress, cancel);
        };
        let mut handles = realtime.handles();
        let handles = &mut handles;
        realtime.begin_scan();
        let mut ports = ScanPorts { baseline, sink, handles, interrupt: realtime };
        let scanned = self.scanner.scan_with(&mut ports, progress, cancel);
        realtime.end_scan();
        scanned
    }

    fn now_s(&self) -> i64 {
        (self.clock.now_us() / 1_000_000) as i64
    }

    fn report_scan(&self, started_at_s: i64, ended_at_s: Option<i64>) {
        self.shared.syncer.note_scan(started_at_s, ended_at_s);
        self.shared.beat.notify_one();
    }

    fn scanned(&mut self, report: &ScanReport) -> Result<String, String> {
        display::print_scan(&self.shared.console, report);
        self.note_gaps();
        let kept = self.store_result(report);
        kept.map_err(|e| e.to_string())?;
        if report.cancelled {
            return Err("stopped before its end".into());
        }
        Ok(display::scan_line(report))
    }

    /// Stores the result of a completed scan.
    fn store_result(&mut self, report: &ScanReport) -> Result<(), QueueError> {
        self.changes += report.counts.changes();
        if report.cancelled {
            return Ok(());
        }
        notes::set_seen(&self.shared.queue, DatasetKind::Files, report.ended_at_us)?;
        notes::set_last_scan(&self.shared.queue, report)?;
        self.whole = true;
        if let Some(realtime) = &self.realtime {
            realtime.end_first_scan();
        }
        Ok(())
    }

    /// Returns the rescan commands that are not answered yet.
    fn asked(&self) -> Vec<u64> {
        self.shared.rescans.lock().clone()
    }

    fn report_outcomes(&self, commands: &[u64], done: &Result<String, String>) {
        if commands.is_empty() || self.shared.cancel.is_cancelled() {
            // The agent that follows a reload scans again. After a restart the server sends the
            // commands again.
            return;
        }
        self.shared.rescans.lock().retain(|other| !commands.contains(other));
        let outcome = if done.is_ok() { "done" } else { "failed" };
        let (Ok(detail) | Err(detail)) = done;
        let outcome = |id: &u64| ControlOutcome {
            id: *id,
            outcome: outcome.to_owned(),
            detail: detail.clone(),
        };
        self.shared.outcomes.lock().extend(commands.iter().map(outcome));
        self.shared.beat.notify_one();
    }

    /// Stores the time at which the agent runs, and reports a jump of the wall clock as a gap. Does
    /// not store the time until the gap before this start is reported, so that a stop in between
    /// does not shorten that gap.
    pub(super) fn note_alive(&mut self) {
        let now = (self.clock.now_us(), self.clock.monotonic());
        let wall = Duration::from_micros(now.0.abs_diff(self.seen.0));
        let passed = now.1.saturating_sub(self.seen.1);
        let jumped = now.0 < self.seen.0 || wall.abs_diff(passed) > CLOCK_JUMP;
        let from_us = std::mem::replace(&mut self.seen, now).0;
        let queue = &self.shared.queue;
        let alive = Alive { wall_us: now.0, uptime: Uptime::now() };
        let first = self.down_since_us.is_none();
        let noted = if first { notes::set_alive(queue, &alive) } else { Ok(()) };
        let noted = noted.and_then(|()| {
            if !jumped {
                return Ok(());
            }
            let gap = Coverage {
                kind: CoverageKind::ClockJump,
                path: String::new(),
                from_us: from_us.min(now.0),
                to_us: from_us.max(now.0),
                found: None,
                lasting: None,
                detail: format!(
                    "the wall clock moved from {} to {} within {:.0} s",
                    model::timestamp::micros(from_us),
                    model::timestamp::micros(now.0),
                    passed.as_secs_f64()
                ),
            };
            queue.append_coverage(&self.shared.dataset, gap)
        });
        if let Err(e) = noted.and_then(|()| self.report_open_gaps()) {
            error!("agent's queue: {e}");
        }
    }
}

/// Returns the real paths of the program's own folders.
fn excluded(folders: &[PathBuf]) -> Vec<Vec<u8>> {
    let real = folders.iter().filter_map(|folder| folder.canonicalize().ok());
    real.map(|path| path.into_os_string().into_vec()).collect()
}

/// Returns the time since which the agent was not running, according to the present wall clock. If
/// the wall clock jumped in between, reports that as a gap and stores the corrected time. Across a
/// reboot only a backward jump can be detected.
fn down_since(shared: &Shared, before: &Alive, now_us: u64) -> Result<u64, QueueError> {
    let passed = before
        .uptime
        .as_ref()
        .zip(Uptime::now())
        .and_then(|(before, now)| now.since(before))
        .map(|passed| passed.as_micros() as u64);
    let expected_us = passed.map(|passed| before.wall_us.saturating_add(passed));
    let jumped = match expected_us {
        Some(expected_us) => expected_us.abs_diff(now_us) > CLOCK_JUMP.as_micros() as u64,
        None => now_us < before.wall_us,
    };
    if !jumped {
        return Ok(before.wall_us);
    }
    let gap = Coverage {
        kind: CoverageKind::ClockJump,
        path: String::new(),
        from_us: before.wall_us.min(now_us),
        to_us: before.wall_us.max(now_us),
        found: None,
        lasting: None,
        detail: format!(
            "the wall clock moved from {} to {} while the agent was not running",
            model::timestamp::micros(before.wall_us),
            model::timestamp::micros(now_us),
        ),
    };
    shared.queue.append_coverage(&shared.dataset, gap)?;
    let since_us = now_us.saturating_sub(passed.unwrap_or(0));
    // If this run ends before its first scan, the next start must not report the jump again.
    let uptime = before.uptime.clone().filter(|_| passed.is_some());
    notes::set_alive(&shared.queue, &Alive { wall_us: since_us, uptime })?;
    Ok(since_us)
}
