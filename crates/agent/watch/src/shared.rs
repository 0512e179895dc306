//! State that the watcher's threads and callers share. See the crate's **Locking** paragraph.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dirty::{NotificationInfo, Tracker};
use env::clock::{Clock as _, SystemClock};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};

use crate::fanotify::Group;
use crate::file_systems::{FileSystem, FileSystemId};
use crate::intake::Intake;
use crate::options::Options;
use crate::refusals::Refusal;

/// Incidents that wait for the caller; older ones are dropped, since each makes its roots due.
const INCIDENTS_MAX: usize = 1_000;

/// Cause of an interval that notifications did not cover. The roots are due completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncidentKind {
    /// The kernel's queue was full, or was dropped because of its size.
    Overflow,
    /// The canary did not pass, or a mark disappeared.
    CanaryMissed,
    /// A file system was mounted or unmounted at, above or below the roots.
    MountChanged,
    /// The index or the kernel's marks reached a limit: parts of the roots have no notifications.
    LimitReached,
}

/// An interval in which notifications may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    pub kind: IncidentKind,
    /// Paths of the roots concerned.
    pub roots: Vec<Vec<u8>>,
    /// Last moment at which the notifications were known to be complete, microseconds since the
    /// epoch.
    pub from_us: u64,
    /// Moment of the detection, microseconds since the epoch.
    pub to_us: u64,
    pub detail: String,
}

/// Data behind the main lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tracker: Tracker,
    /// `None` if the kernel refuses a group.
    pub(crate) group: Option<Arc<Group>>,
    /// Reason why there is no group.
    pub(crate) refused: Option<Refusal>,
    /// Time of the group, or of the last mount: a directory that was marked before must be marked
    /// again. Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) marks_since_ns: u64,
    pub(crate) file_systems: HashMap<FileSystemId, FileSystem>,
    pub(crate) missing_roots: HashSet<usize>,
    /// Roots that are single files, and whether the directory of each is marked.
    pub(crate) file_roots: HashMap<usize, bool>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) overflows: u64,
    /// Start of the last read that found the queue empty, or of the first group, microseconds since
    /// the epoch.
    pub(crate) complete_us: u64,
    pub(crate) canary_us: u64,
    /// Time of the next due entry that the caller knows of.
    announced: Option<u64>,
    interrupted: bool,
    pub(crate) stopping: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) intake: Intake,
    /// Held while the reader drains the group; taken before `state`.
    pub(crate) reading: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the reader: another group, or the end.
    pub(crate) reader_wake: OwnedFd,
    /// Wakes the upkeep thread: a root moved, or the end.
    pub(crate) upkeep_wake: OwnedFd,
    clock: SystemClock,
}

impl Shared {
    pub(crate) fn new(options: Options, tracker: Tracker) -> std::io::Result<Self> {
        let clock = SystemClock::new();
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let state = State {
            tracker,
            group: None,
            refused: None,
            marks_since_ns: monotonic_ns(),
            file_systems: HashMap::new(),
            missing_roots: HashSet::new(),
            file_roots: HashMap::new(),
            incidents: Vec::new(),
            overflows: 0,
            complete_us: clock.now_us(),
            canary_us: 0,
            announced: None,
            interrupted: false,
            stopping: false,
        };
        Ok(Self {
            options,
            intake: Intake::new(),
            reading: Mutex::new(()),
            state: Mutex::new(state),
            changed: Condvar::new(),
            reader_wake: event()?,
            upkeep_wake: event()?,
            clock,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// Returns a notification of the watcher's own.
    pub(crate) fn noted(&self) -> NotificationInfo {
        NotificationInfo {
            now: monotonic_ns(),
            wall_us: self.now_us(),
            ..NotificationInfo::default()
        }
    }

    /// Makes roots due and records an incident. Call [`announce`](Self::announce) next.
    pub(crate) fn report(
        &self,
        state: &mut State,
        kind: IncidentKind,
        roots: &[usize],
        detail: String,
    ) {
        let noted = self.noted();
        for root in roots {
            state.tracker.dirty_root(*root, &noted);
        }
        self.record(state, kind, roots, detail);
    }

    /// Records an incident.
    pub(crate) fn record(
        &self,
        state: &mut State,
        kind: IncidentKind,
        roots: &[usize],
        detail: String,
    ) {
        let to_us = self.now_us();
        let from_us = state.complete_us.min(to_us);
        let path = |root: &usize| state.tracker.roots().get(*root).cloned();
        let roots = roots.iter().filter_map(path).collect();
        tracing::warn!(?kind, detail, "notifications may be missing");
        if state.incidents.len() >= INCIDENTS_MAX {
            state.incidents.remove(0);
        }
        state.incidents.push(Incident { kind, roots, from_us, to_us, detail });
    }

    /// Wakes the caller if something is due sooner than it knows.
    pub(crate) fn announce(&self, mut state: MutexGuard<'_, State>) {
        let next = state.tracker.next_due();
        let sooner = next.is_some_and(|next| state.announced.is_none_or(|known| next < known));
        if sooner {
            state.announced = next;
        }
        let wake = sooner || !state.incidents.is_empty();
        drop(state);
        if wake {
            self.changed.notify_all();
            if let Some(wake) = &self.options.wake {
                (wake.0)();
            }
        }
    }

    /// Takes what is due, and leaves the time of what is due next to the caller.
    pub(crate) fn take_due(&self, now: u64, names_max: usize) -> Vec<model::DueCheck> {
        let mut state = self.lock();
        let due = state.tracker.take_due(now, names_max);
        state.announced = state.tracker.next_due();
        due
    }

    /// Takes a directory or tree that is due.
    pub(crate) fn take_due_tree(&self, now: u64) -> Option<model::DueCheck> {
        let mut state = self.lock();
        let due = state.tracker.take_due_tree(now);
        state.announced = state.tracker.next_due();
        due
    }

    /// Waits until something is due, an incident is reported or the caller is interrupted. Returns false
    /// after the timeout.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let end = monotonic_ns().saturating_add(timeout.as_nanos() as u64);
        let mut state = self.lock();
        loop {
            let now = monotonic_ns();
            let next = state.tracker.next_due();
            let is_due = next.is_some_and(|next| next <= now) || !state.incidents.is_empty();
            if std::mem::take(&mut state.interrupted) || is_due || state.stopping {
                return true;
            }
            if now >= end {
                return false;
            }
            let until = next.unwrap_or(end).min(end);
            self.changed.wait_for(&mut state, Duration::from_nanos(until - now));
        }
    }

    /// Makes [`wait`](Self::wait) return.
    pub(crate) fn interrupt_wait(&self) {
        self.lock().interrupted = true;
        self.changed.notify_all();
    }

    /// Ends the threads and every wait.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
        signal(&self.reader_wake);
        signal(&self.upkeep_wake);
    }
}

/// Wakes the thread that polls an eventfd.
pub(crate) fn signal(event: &OwnedFd) {
    // The counter is full only if the thread is going to wake up anyway.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Resets an eventfd.
pub(crate) fn reset(event: &OwnedFd) {
    let mut count = [0; 8];
    // Fails if no signal is pending, which is as good.
    let _ = rustix::io::read(event, &mut count);
}

/// Returns the nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
