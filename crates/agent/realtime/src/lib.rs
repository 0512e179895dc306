//! Realtime detection: turns the names that the watcher reports into checks, and takes their
//! results.
//!
//! A [`Realtime`] belongs to the thread that scans, which is the only one that writes observations.
//! The thread asks for [`Realtime::due_names`] and [`Realtime::due_tree`], runs them with
//! [`detect::Scanner::check`], and returns the report. In the middle of a scan, and of these checks,
//! the scanner does the same through [`detect::Interrupt`].
//!
//! **Nothing is lost.** A name is taken from the watcher only when it is checked. If the check
//! fails, the name returns to the watcher; if the agent is killed before the commit, the restart
//! scan finds the change. What the watcher may have missed is checked completely, and becomes a gap
//! with the number of changes that the check found.
//!
//! **dpkg.** While a transaction of dpkg runs, names that only it changed are held back until it
//! ends, at most [`explain::limits::HOLD_MAX`].
//!
//! **Fairness.** Users, their sessions and the watched roots take turns. A round has at most
//! [`NAMES_OF_A_ROUND`] names. A tree or a large file may take long: names and other trees are checked in its middle,
//! and while they wait it gets a quarter of the time ([`PAUSE_SHARE`]).
//!
//! **Limits.** At most [`RealtimeOptions::checks_per_second`] names are checked in a second; more
//! wait in the watcher, which merges them above its own limit. A file above
//! [`detect::limits::LARGE_BYTES`] is read when nothing else is due, and again no sooner than after
//! [`REREAD_FACTOR`] times the duration of its last reading.

/// Most names checked in one round.
pub const NAMES_OF_A_ROUND: usize = 128;
/// An interrupted check goes on for at least the time of the interruption divided by this.
pub const PAUSE_SHARE: u64 = 3;
/// Longest time for which an interrupted check goes on while names wait, nanoseconds.
const PAUSE_MAX_NS: u64 = 250_000_000;
/// Checks in the middle of each other: names in a tree, in a scan or a large file or another tree.
const NESTED_MAX: usize = 2;

mod attributed;
mod deferred;
mod held;
mod large;
mod pace;
mod roots;
mod status;
mod transient;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use detect::{CheckReport, Deferred, DueChecks, Interrupt};
use env::clock::Clock;
use model::notification::Detection;
use model::path::is_at_or_below;
use model::{Check, Coverage, CoverageKind, Depth, DueCheck, EventBody, ItemKey, Notices, Writer};
use watch::{Handles, Incident, IncidentKind, Watcher, monotonic_ns};

use attributed::Attributed;
use deferred::DeferredNames;
use held::HeldNames;
use large::LargeFiles;
use pace::NameRate;
use transient::Transients;

pub use attribution::Options as AttributionOptions;
pub use large::REREAD_FACTOR;
pub use roots::roots;
pub use status::{AttributionStatus, RealtimeStatus};
pub use watch::{Level, Options as WatchOptions, WakeCallback};

/// Settings of realtime detection.
#[derive(Debug, Clone)]
pub struct RealtimeOptions {
    pub watch: WatchOptions,
    /// Names checked in a second.
    pub checks_per_second: u32,
    /// Settings of attribution; `None` if changes are not attributed to processes.
    pub attribution: Option<attribution::Options>,
    /// Root folder of the system whose dpkg is respected, usually `/`.
    pub packages_root: PathBuf,
}

/// The last full scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Scanned {
    #[default]
    Never,
    Running,
    /// Ended at this time, microseconds since the epoch.
    Ended(u64),
}

impl Scanned {
    /// Returns the earliest possible time of a change that a check finds. A scan that ran after the
    /// first notification has reported what it found at its own time: what is found later must not
    /// be dated before that.
    fn not_before_us(self, notices: &Notices, now_us: u64) -> u64 {
        match self {
            Self::Running => now_us,
            // An end in the future means that the clock was set back since.
            Self::Ended(end_us) if (notices.first_us..=now_us).contains(&end_us) => {
                notices.last_us.max(end_us)
            }
            Self::Never | Self::Ended(_) => 0,
        }
    }
}

/// Realtime detection of one set of roots. Dropping it stops the watcher.
pub struct Realtime {
    watcher: Watcher,
    attribution: Attributed,
    pace: NameRate,
    /// The entries whose check is running, with its beginning in nanoseconds of `CLOCK_MONOTONIC`. The
    /// later ones run in the middle of the earlier.
    running: Vec<(u64, HashMap<ItemKey, DueCheck>)>,
    /// Time until which what was interrupted goes on.
    resumed_until_ns: u64,
    held: HeldNames,
    /// Root of the system with dpkg's database.
    packages_root: PathBuf,
    /// The folder of dpkg.
    database: PathBuf,
    deferred: DeferredNames,
    large: LargeFiles,
    transients: Transients,
    /// Incidents whose roots have not been checked.
    incidents: Vec<Incident>,
    gaps: Vec<Coverage>,
    scanned: Scanned,
    status: status::Counts,
    clock: Arc<dyn Clock>,
}

impl Realtime {
    /// Starts the watcher. Call it before the first scan.
    ///
    /// # Errors
    /// Returns an error if the process cannot have another thread or file descriptor. Where the
    /// kernel does not notify, that is not an error: see [`Realtime::status`].
    pub fn start(options: RealtimeOptions, clock: Arc<dyn Clock>) -> io::Result<Self> {
        // The table must be complete before the first notification.
        let identity = attribution::Identity {
            paths: explain::identity_paths,
            is_altered: explain::is_altered,
        };
        let attribution = options.attribution.map(|own| attribution::Options { identity, ..own });
        let attribution = Attributed::start(attribution);
        let watch = WatchOptions { origins: attribution.origins(), ..options.watch };
        let watcher = Watcher::start(watch)?;
        attribution.on_exec(watcher.exec_callback());
        Ok(Self {
            attribution,
            watcher,
            pace: NameRate::new(options.checks_per_second, monotonic_ns()),
            running: Vec::new(),
            resumed_until_ns: 0,
            held: HeldNames::new(&options.packages_root),
            database: options.packages_root.join("var/lib/dpkg"),
            packages_root: options.packages_root,
            deferred: DeferredNames::default(),
            large: LargeFiles::default(),
            transients: Transients::default(),
            incidents: Vec::new(),
            gaps: Vec::new(),
            scanned: Scanned::default(),
            status: status::Counts::default(),
            clock,
        })
    }

    /// Returns what a scan or check reports its directories to.
    pub fn handles(&self) -> Handles {
        self.watcher.handles()
    }

    /// Call this when the first scan of this run has ended.
    pub fn end_first_scan(&self) {
        self.watcher.end_first_scan();
    }

    /// Call this when a full scan begins.
    pub fn begin_scan(&mut self) {
        // The last scan may have failed in the middle of them.
        self.failed();
        self.scanned = Scanned::Running;
    }

    /// Call this when a full scan has ended.
    pub fn end_scan(&mut self) {
        self.scanned = Scanned::Ended(self.clock.now_us());
    }

    /// Returns the time until something is due; `None` if nothing waits.
    pub fn next_due(&self) -> Option<std::time::Duration> {
        let now = monotonic_ns();
        let next = self.watcher.next_due_ns().into_iter().chain(self.large.next_due_ns());
        let next =
            next.chain(self.held.next_due_ns(now)).chain(self.deferred.next_due_ns()).min()?;
        let next = next.max(self.pace.ready_ns());
        Some(std::time::Duration::from_nanos(next.saturating_sub(now)))
    }

    /// Takes the names that are due now. Report their outcome with [`Realtime::checked`] or
    /// [`Realtime::failed`].
    pub fn due_names(&mut self) -> Vec<Check> {
        let now = monotonic_ns();
        let names_max = self.pace.allowance(now).min(NAMES_OF_A_ROUND);
        if names_max == 0 {
            return Vec::new();
        }
        let due = self.watcher.due(now, names_max);
        let released_max = names_max.saturating_sub(due.len());
        self.begin(due, now, released_max)
    }

    /// Takes a directory or tree that is due, with the held names below it. Report its outcome with
    /// [`Realtime::checked`] or [`Realtime::failed`].
    pub fn due_tree(&mut self) -> Vec<Check> {
        let now = monotonic_ns();
        let Some(due) = self.watcher.due_tree(now) else { return Vec::new() };
        self.begin(vec![due], now, 0)
    }

    /// Begins the checks of due entries, except those that are held.
    fn begin(&mut self, due: Vec<DueCheck>, now: u64, released_max: usize) -> Vec<Check> {
        let by_dpkg = |writers: &[Writer]| {
            explain::is_by_dpkg(&self.attribution.resolve(writers), &self.database)
        };
        let mut due = self.held.filter(due, now, released_max, &by_dpkg);
        // Names in a new directory would wait for it anyway. Those in a known tree must not: its check
        // may take long.
        let is_new = |due: &&DueCheck| {
            due.depth == Depth::Below && (due.notices.created || due.notices.moved)
                || self.deferred.is_awaited(&due.key)
        };
        let below = |tree: &DueCheck| self.watcher.take_below(&tree.key.path(), now);
        let below: Vec<DueCheck> = due.iter().filter(is_new).flat_map(below).collect();
        due.extend(below);
        // After the entries were taken: the incident of a root that is among them is known.
        for incident in self.watcher.incidents() {
            if incident.kind == IncidentKind::LimitReached {
                self.gaps.extend(gaps_of(&incident, None));
            } else {
                self.incidents.push(incident);
            }
        }
        // Names that were deferred have been counted.
        self.pace.spend(due.len());
        let due = self.deferred.release(due, now);
        if due.is_empty() {
            return Vec::new();
        }
        let now_us = self.clock.now_us();
        let not_before_us = |due: &DueCheck| self.scanned.not_before_us(&due.notices, now_us);
        let boot_us = now_us.saturating_sub(now / 1_000);
        let as_check = |due| as_check(due, &self.attribution, not_before_us(due), boot_us);
        let running: HashMap<_, _> = due.into_iter().map(|due| (due.key.clone(), due)).collect();
        let checks = running.values().map(as_check).collect();
        self.running.push((now, running));
        checks
    }

    /// Returns true if names are held back because a transaction of dpkg runs.
    pub fn is_holding(&self) -> bool {
        self.held.len() > 0
    }

    /// Takes the outcome of the checks that began last.
    pub fn checked(&mut self, report: &CheckReport) {
        let now = monotonic_ns();
        let (_, mut running) = self.running.pop().unwrap_or_default();
        self.status.add(running.values(), report, self.clock.now_us());
        self.close_incidents(&running, report.counts.changes());
        for key in &report.unsettled {
            if let Some(due) = running.get(key) {
                self.watcher.recheck(due.clone());
            } else {
                // It was found below a directory: the name alone is checked next.
                self.watcher.recheck(DueCheck::name(key.clone()));
            }
        }
        for Deferred { directory, names } in &report.deferred {
            let names = names.iter().filter_map(|name| running.remove(name));
            if self.is_within_a_running_tree(directory) {
                names.for_each(|due| self.watcher.recheck(due));
                continue;
            }
            self.deferred.add(directory.clone(), names.collect(), now);
            self.watcher.recheck(DueCheck::name(directory.clone()));
        }
        for check in &report.transient {
            let root = &self.packages_root;
            let explain = |key: &_, seen: &_| explain::transient_cause(key, seen, root);
            self.transients.add(check, now, explain);
        }
        for check in &report.large {
            self.large.push(check.clone(), now);
        }
    }

    /// Returns true if a tree that contains the directory is being compared: these checks ran in its
    /// middle.
    fn is_within_a_running_tree(&self, directory: &ItemKey) -> bool {
        let mut running = self.running.iter().flat_map(|(_, running)| running.values());
        running.any(|due| {
            due.depth == Depth::Below && is_at_or_below(&directory.path(), &due.key.path())
        })
    }

    /// Reports the incidents whose roots were checked completely, root by root.
    fn close_incidents(&mut self, running: &HashMap<ItemKey, DueCheck>, found: u64) {
        let is_checked = |root: &Vec<u8>| {
            let due = running.get(&ItemKey::of_path(root));
            due.is_some_and(|due| due.depth == Depth::Below)
        };
        for incident in &mut self.incidents {
            let (checked, left) = incident.roots.drain(..).partition(is_checked);
            let closed = Incident { roots: checked, ..incident.clone() };
            self.gaps.extend(gaps_of(&closed, Some(found)));
            incident.roots = left;
        }
        self.incidents.retain(|incident| !incident.roots.is_empty());
    }

    /// Returns the entries of checks that failed to the watcher.
    pub fn failed(&mut self) {
        for (_, due) in self.running.drain(..).flat_map(|(_, running)| running) {
            self.watcher.recheck(due);
        }
    }

    /// Takes a large file that may be read now. Run it with [`detect::Scanner::check_large`] and
    /// report it with [`Realtime::large_checked`].
    pub fn due_large(&mut self) -> Option<Check> {
        self.large.pop(monotonic_ns())
    }

    /// Takes the outcome of the check of a large file; `None` if it failed.
    pub fn large_checked(&mut self, check: &Check, report: Option<&CheckReport>) {
        let now = monotonic_ns();
        let Some(report) = report else {
            self.large.push(check.clone(), now);
            return self.failed();
        };
        self.large.note_read(check.key.clone(), now, report.took);
        if !report.unsettled.is_empty() {
            self.large.push(check.clone(), now);
        }
    }

    /// Takes the gaps to be reported.
    pub fn gaps(&mut self) -> Vec<Coverage> {
        std::mem::take(&mut self.gaps)
    }

    /// Takes the events of files that were created and removed before their check, a minute after
    /// the first one of a directory; at the end of the agent all of them.
    pub fn transient_events(&mut self, end: bool) -> Vec<EventBody> {
        self.transients.take_events(monotonic_ns(), end)
    }

    /// Returns how each root is watched, and the counters since the start.
    pub fn status(&self) -> RealtimeStatus {
        let attribution = self.attribution.status();
        let mut counters = self.watcher.counters();
        counters.pending += self.held.len() + self.deferred.len();
        RealtimeStatus::new(&self.watcher.states(), &counters, &self.status, attribution)
    }
}

impl Interrupt for Realtime {
    fn due(&mut self) -> DueChecks {
        let now = monotonic_ns();
        if self.running.len() > NESTED_MAX || now < self.resumed_until_ns {
            return DueChecks::default();
        }
        let names = self.due_names();
        // A tree in the middle of another one is interrupted by names only, which are not interrupted.
        if !names.is_empty() || self.running.len() == NESTED_MAX {
            return names.into();
        }
        DueChecks { checks: self.due_tree(), interruptible: true }
    }

    fn checked(&mut self, report: CheckReport) {
        let began_ns = self.running.last().map_or(0, |(began_ns, _)| *began_ns);
        Self::checked(self, &report);
        let now = monotonic_ns();
        let pause = (now.saturating_sub(began_ns) / PAUSE_SHARE).min(PAUSE_MAX_NS);
        self.resumed_until_ns = now.saturating_add(pause);
    }
}

/// Returns the check of a due name. `boot_us` is the time at which `CLOCK_MONOTONIC` was 0, microseconds
/// since the epoch.
fn as_check(due: &DueCheck, attribution: &Attributed, not_before_us: u64, boot_us: u64) -> Check {
    let notices = &due.notices;
    let moved_after_us = match notices.writers.as_slice() {
        [writer] if notices.moved && notices.more_writers == 0 && !notices.others_below => {
            Some(boot_us + writer.whole().from_ns / 1_000)
        }
        _ => None,
    };
    let seen = Detection {
        first_us: notices.first_us,
        last_us: notices.last_us,
        not_before_us,
        notices: notices.count,
        is_created: notices.created,
        is_transient: notices.created && notices.removed,
        is_renamed: notices.moved,
        moved_after_us,
        actors: attribution.resolve(&notices.writers),
        more_actors: notices.more_writers,
    };
    Check { key: due.key.clone(), depth: due.depth, seen: Some(Arc::new(seen)) }
}

/// Returns the gaps of an incident, one for each root.
fn gaps_of(incident: &Incident, found: Option<u64>) -> Vec<Coverage> {
    let kind = match incident.kind {
        IncidentKind::Overflow => CoverageKind::Overflow,
        IncidentKind::LimitReached => CoverageKind::LimitReached,
        IncidentKind::CanaryMissed | IncidentKind::MountChanged => CoverageKind::WatchInterrupted,
    };
    let gap = |root: &Vec<u8>| Coverage {
        kind,
        path: model::path::show(root).into_owned(),
        from_us: incident.from_us,
        to_us: incident.to_us,
        found,
        lasting: None,
        detail: incident.detail.clone(),
    };
    incident.roots.iter().map(gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_found_after_a_scan_is_not_dated_before_it() {
        let notices = Notices { first_us: 5, last_us: 8, ..Notices::default() };
        assert_eq!(Scanned::Never.not_before_us(&notices, 20), 0);
        assert_eq!(Scanned::Running.not_before_us(&notices, 20), 20);
        assert_eq!(Scanned::Ended(4).not_before_us(&notices, 20), 0, "the scan came first");
        assert_eq!(Scanned::Ended(6).not_before_us(&notices, 20), 8);
        assert_eq!(Scanned::Ended(10).not_before_us(&notices, 20), 10);
        assert_eq!(Scanned::Ended(30).not_before_us(&notices, 20), 0, "the clock was set back");
    }
}
