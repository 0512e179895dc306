//! A canary proves that notifications arrive: a file in the agent's own folder is written, and has
//! to become due like any other name.

use std::path::PathBuf;
use std::time::Duration;

use crate::options::Level;
use crate::shared::{IncidentKind, Shared, monotonic_ns};
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
    let (group, expected) = {
        let mut state = shared.lock();
        if !state.tracker.saw_canary(monotonic_ns()) {
            let delay = shared.options.canary_delay_max;
            return Some(format!("a canary was not notified within {delay:?}"));
        }
        let marked = state.file_systems.values();
        let marked = marked.filter(|found| found.state.level == Level::FileSystem);
        let marked: Vec<_> = marked.map(|found| (found.device, found.state.path.clone())).collect();
        (state.group.clone()?, marked)
    };
    // The list has a line for each directory, so it is not read under the lock.
    let devices = group.marked_devices().ok()?;
    let (_, path) = expected.iter().find(|(device, _)| !devices.contains(device))?;
    Some(format!("the mark on the file system of {} is gone", model::path::show(path)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use model::DirectoryHandles as _;

    use super::*;
    use crate::options::Options;
    use crate::watcher::Watcher;

    /// Needs root and fanotify with file handles.
    #[test]
    fn privileged_removed_mark_is_noticed() {
        let (top, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let watcher = Watcher::start(Options {
            roots: vec![top.path().to_owned()],
            canary: Some(own.path().to_owned()),
            canary_interval: Duration::from_millis(150),
            canary_delay_max: Duration::from_millis(100),
            ..Options::default()
        })
        .unwrap();
        let directory = std::fs::File::open(top.path()).unwrap();
        let path = top.path().as_os_str().as_encoded_bytes();
        watcher.handles().enter(path, directory.as_fd());
        let group = watcher.shared.lock().group.clone().unwrap();
        #[expect(unsafe_code, reason = "no safe binding exists for fanotify_mark")]
        // SAFETY: the descriptor is open, and flushing ignores the path.
        let result = unsafe {
            libc::fanotify_mark(
                group.as_fd().as_raw_fd(),
                libc::FAN_MARK_FLUSH | libc::FAN_MARK_FILESYSTEM,
                0,
                libc::AT_FDCWD,
                std::ptr::null(),
            )
        };
        assert_eq!(result, 0);
        let incident = loop {
            if let Some(incident) = watcher.incidents().pop() {
                break incident;
            }
            // Due names are not taken here, so this may return at once.
            watcher.wait(Duration::from_secs(1));
        };
        assert_eq!(incident.kind, IncidentKind::CanaryMissed);
        assert!(incident.detail.ends_with("is gone"), "{}", incident.detail);
        let marked = watcher.shared.lock().group.clone().unwrap().marked_devices().unwrap();
        assert_eq!(marked.len(), 1, "the new group has the mark");
    }
}
