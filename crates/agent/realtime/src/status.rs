//! State of the watched roots, for people and for the server.

use std::fmt;

use detect::CheckReport;
use model::path::show;
use model::{CoverageState, DueCheck, WatchedRoot, timestamp};
use serde::{Deserialize, Serialize};
use watch::{Level, WatchCounters as Counters, WatchState};

/// Delays of which the quantiles are computed: the most recent ones.
const DELAYS_MAX: usize = 1_000;

/// Numbers since the start that the watcher does not count.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    checks: u64,
    changes: u64,
    /// Times from the first notification to the commit, microseconds; a ring.
    delays_us: Vec<u64>,
    next: usize,
}

impl Counts {
    /// Adds checks that ended at `now_us`.
    pub(crate) fn add<'a>(
        &mut self,
        dues: impl Iterator<Item = &'a DueCheck>,
        report: &CheckReport,
        now_us: u64,
    ) {
        for due in dues {
            self.checks += 1;
            let delay_us = now_us.saturating_sub(due.notices.first_us);
            if self.delays_us.len() < DELAYS_MAX {
                self.delays_us.push(delay_us);
            } else if let Some(slot) = self.delays_us.get_mut(self.next) {
                *slot = delay_us;
            }
            self.next = (self.next + 1) % DELAYS_MAX;
        }
        self.changes += report.counts.changes();
    }

    /// Returns the delay that `percent` of the recent checks did not exceed, milliseconds.
    fn delay_ms(&self, percent: usize) -> u64 {
        let mut delays = self.delays_us.clone();
        delays.sort_unstable();
        let last = delays.len().saturating_sub(1);
        delays.get(last * percent / 100).map_or(0, |delay_us| delay_us / 1_000)
    }
}

/// State of attribution, and its answers since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttributionStatus {
    /// True if changes are attributed to processes.
    pub on: bool,
    /// Why they are not, or what makes it less certain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Writers whose process and executable are known.
    pub exact: u64,
    /// Writers that ran several programs in the interval of the change.
    pub ambiguous: u64,
    /// Writers that may be another process with the same number.
    pub uncertain: u64,
    pub unknown: u64,
    /// Times at which messages of the kernel were lost.
    pub losses: u64,
}

impl From<attribution::Status> for AttributionStatus {
    fn from(status: attribution::Status) -> Self {
        let reason = match (&status.failure, status.priority) {
            (Some(failure), _) => failure.clone(),
            (None, attribution::Priority::RealTime) => String::new(),
            (None, _) => "the names of programs are incomplete: without real-time priority \
                 short-lived programs are ambiguous or missed; allow LimitRTPRIO=1 or CAP_SYS_NICE"
                .into(),
        };
        Self {
            on: status.failure.is_none(),
            reason,
            exact: status.exact,
            ambiguous: status.ambiguous,
            uncertain: status.uncertain,
            unknown: status.unknown,
            losses: status.losses,
        }
    }
}

/// State of realtime detection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RealtimeStatus {
    pub roots: Vec<WatchedRoot>,
    /// Notifications that the kernel delivered.
    pub notifications: u64,
    /// Names that wait for their check.
    pub pending: u64,
    /// Names that were checked.
    pub checks: u64,
    /// Changes that checks found.
    pub changes: u64,
    /// Overflows of the kernel's queue.
    pub overflows: u64,
    /// Median of the recent delays from the first notification to the commit, milliseconds.
    pub delay_p50_ms: u64,
    /// Delay that 99 % of the recent checks did not exceed, milliseconds.
    pub delay_p99_ms: u64,
    /// Time at which the pipeline was last proven to work, RFC 3339; empty before the first time.
    pub canary: String,
    #[serde(default)]
    pub attribution: AttributionStatus,
}

impl RealtimeStatus {
    pub(crate) fn new(
        states: &[WatchState],
        counters: &Counters,
        counts: &Counts,
        attribution: AttributionStatus,
    ) -> Self {
        let canary = match counters.canary_us {
            0 => String::new(),
            at_us => timestamp::micros(at_us),
        };
        Self {
            roots: states.iter().flat_map(roots_of).collect(),
            notifications: counters.notifications,
            pending: counters.pending as u64,
            checks: counts.checks,
            changes: counts.changes,
            overflows: counters.overflows,
            delay_p50_ms: counts.delay_ms(50),
            delay_p99_ms: counts.delay_ms(99),
            canary,
            attribution,
        }
    }

    /// Returns the counters as metrics of this agent.
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        let AttributionStatus { exact, ambiguous, uncertain, unknown, losses, .. } =
            self.attribution;
        let counters = [
            ("agent.notifications", self.notifications),
            ("agent.names_waiting", self.pending),
            ("agent.names_checked", self.checks),
            ("agent.changes_noticed", self.changes),
            ("agent.queue_overflows", self.overflows),
            ("agent.writers_exact", exact),
            ("agent.writers_ambiguous", ambiguous),
            ("agent.writers_uncertain", uncertain),
            ("agent.writers_unknown", unknown),
            ("agent.process_messages_lost", losses),
        ];
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        let delays = [
            ("agent.check_delay_p50_seconds", seconds(self.delay_p50_ms)),
            ("agent.check_delay_p99_seconds", seconds(self.delay_p99_ms)),
        ];
        counters.into_iter().map(|(name, n)| (name, n as f64)).chain(delays).collect()
    }

    /// Returns true if notifications cover every root.
    pub fn is_realtime(&self) -> bool {
        !self.roots.is_empty()
            && self.roots.iter().all(|root| root.state == CoverageState::Realtime)
    }
}

impl fmt::Display for RealtimeStatus {
    /// Writes a line for each root and file system, and one with the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for root in &self.roots {
            let place = if root.path == root.root { "" } else { root.path.as_str() };
            let space = if place.is_empty() { "" } else { " at " };
            let WatchedRoot { method, file_system, .. } = root;
            let state = match root.state {
                CoverageState::Realtime => "realtime",
                CoverageState::Scan => "scan",
                CoverageState::Gap => "gap",
            };
            let on = if file_system.is_empty() { "" } else { "; " };
            write!(f, "{}{space}{place}: {state} ({method}{on}{file_system})", root.root)?;
            if !root.reason.is_empty() {
                write!(f, ": {}", root.reason)?;
            }
            if !root.remedy.is_empty() {
                write!(f, "; {}", root.remedy)?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "realtime: {} notifications, {} checks, {} changes, {} names wait; \
             delay p50 {} ms, p99 {} ms; {} overflows; last proof {}",
            self.notifications,
            self.checks,
            self.changes,
            self.pending,
            self.delay_p50_ms,
            self.delay_p99_ms,
            self.overflows,
            if self.canary.is_empty() { "none yet" } else { &self.canary },
        )?;
        let AttributionStatus { on, reason, exact, ambiguous, uncertain, unknown, losses } =
            &self.attribution;
        write!(f, "\nattribution: {}", if *on { "on" } else { "off" })?;
        if !reason.is_empty() {
            write!(f, " ({reason})")?;
        }
        write!(
            f,
            "; {exact} exact, {ambiguous} ambiguous, {uncertain} uncertain, {unknown} unknown; \
             {losses} losses"
        )
    }
}

fn roots_of(state: &WatchState) -> Vec<WatchedRoot> {
    let root = show(&state.path).into_owned();
    let of = |fs: &watch::FileSystemState| {
        let method = match fs.level {
            Level::FileSystem => "fanotify, file system",
            Level::Directories => "fanotify, directories",
            Level::ScanOnly => "scan",
        };
        WatchedRoot {
            root: root.clone(),
            path: show(&fs.path).into_owned(),
            file_system: fs.kind.clone(),
            state: match fs.level {
                Level::ScanOnly => CoverageState::Scan,
                Level::FileSystem | Level::Directories => CoverageState::Realtime,
            },
            method: method.into(),
            reason: fs.reason.clone(),
            remedy: fs.remedy.clone(),
        }
    };
    state.file_systems.iter().map(of).collect()
}
