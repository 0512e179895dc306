//! A canary proves that notifications arrive: a file in the agent's own folder is written, and has
//! to become due like any other name.

use std::path::PathBuf;
use std::time::Duration;

use crate::options::Level;
use crate::shared::{IncidentKind, Shared, State, monotonic_ns};
use dirty::CANARY_FILE;

/// Timeout while there is nothing to do.
const LONG: Duration = Duration::from_hours(1);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Canary {
    path: Option<PathBuf>,
    /// Time of the next canary or of the check of the last one.
    next_ns: u64,
    is_sent: bool,
}

impl Canary {
    pub(crate) fn new(shared: &Shared) -> Self {
        let path = shared.options.canary.as_ref().map(|folder| folder.join(CANARY_FILE));
        let next_ns = monotonic_ns() + shared.options.canary_interval.as_nanos() as u64;
        Self { path, next_ns, is_sent: false }
    }

    /// Returns the time until [`run`](Self::run) has something to do.
    pub(crate) fn timeout(&self, shared: &Shared) -> Duration {
        if self.path.is_none() || shared.lock().group.is_none() {
            return LONG;
        }
        Duration::from_nanos(self.next_ns.saturating_sub(monotonic_ns()))
    }

    /// Sends a canary or checks the one that was sent, if it is time.
    pub(crate) fn run(&mut self, shared: &Shared) {
        let Some(path) = &self.path else { return };
        let now = monotonic_ns();
        if now < self.next_ns || shared.lock().group.is_none() {
            return;
        }
        let delay = shared.options.canary_delay_max;
        if self.is_sent {
            let missed = missed(shared);
            if let Some(detail) = missed {
                shared.reopen(IncidentKind::CanaryMissed, detail);
            } else {
                shared.lock().canary_us = shared.now_us();
            }
            let interval = shared.options.canary_interval.saturating_sub(delay);
            self.next_ns = now + interval.as_nanos() as u64;
            self.is_sent = false;
            return;
        }
        shared.lock().tracker.reset_canary();
        if let Err(e) = std::fs::write(path, b"") {
            // A full or damaged disk is reported elsewhere, and says nothing about notifications.
            tracing::warn!("{}: cannot write the canary: {e}", path.display());
            self.next_ns = now + shared.options.canary_interval.as_nanos() as u64;
            return;
        }
        self.next_ns = now + delay.as_nanos() as u64;
        self.is_sent = true;
    }
}

/// Returns the reason if the last canary did not pass, or if a mark is missing.
fn missed(shared: &Shared) -> Option<String> {
    let mut state = shared.lock();
    let now = monotonic_ns();
    let seen = state.tracker.saw_canary(now);
    if !seen {
        let delay = shared.options.canary_delay_max;
        return Some(format!("a canary was not notified within {delay:?}"));
    }
    lost_mark(&state)
}

/// Compares the marks that the kernel shows with those that were set.
fn lost_mark(state: &State) -> Option<String> {
    let marked = state.group.as_ref()?.marked_devices().ok()?;
    let lost = state.file_systems.values().find(|file_system| {
        file_system.state.level == Level::FileSystem && !marked.contains(&file_system.device)
    })?;
    let path = model::path::show(&lost.state.path).into_owned();
    Some(format!("the mark on the file system of {path} is gone"))
}
