//! The thread that keeps the marks right: it bounds the kernel's queue, marks roots that moved,
//! follows mounts and sends canaries.

use std::os::fd::AsFd as _;
use std::time::Duration;

use model::path::is_at_or_below;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::canary::Canary;
use crate::mounts::Mounts;
use crate::shared::{IncidentKind, Shared, State, monotonic_ns, reset};

/// Runs until the watcher stops. `mounts` were read before the first mark was set.
pub(crate) fn run(shared: &Shared, mut mounts: Option<Mounts>) {
    let mut canary = Canary::new(shared);
    let mut retry_ns = 0;
    loop {
        let timeout = canary.timeout(shared).min(shared.options.queue_check_interval);
        let mounts_changed = wait(shared, mounts.as_ref(), timeout);
        if shared.lock().stopping {
            return;
        }
        if let Some(mounts) = mounts.as_mut().filter(|_| mounts_changed) {
            follow_mounts(shared, mounts);
        }
        attach_moved_roots(shared);
        check_queue(shared);
        retry_group(shared, &mut retry_ns);
        canary.run(shared);
    }
}

/// Waits for a wake-up or the timeout. Returns true if the table of mounts changed.
fn wait(shared: &Shared, mounts: Option<&Mounts>, timeout: Duration) -> bool {
    let mut fds = vec![PollFd::new(&shared.upkeep_wake, PollFlags::IN)];
    fds.extend(mounts.map(|mounts| PollFd::from_borrowed_fd(mounts.as_fd(), PollFlags::PRI)));
    let timeout = Timespec::try_from(timeout).ok();
    // An interrupted wait only runs the checks sooner.
    let _ = poll(&mut fds, timeout.as_ref());
    reset(&shared.upkeep_wake);
    fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
}

/// Marks the paths of moved roots again. A root is due once more afterwards, because changes may
/// have been missed until its marks were set.
fn attach_moved_roots(shared: &Shared) {
    let moved = shared.lock().tracker.take_moved_roots();
    for number in moved {
        shared.attach_root(number);
        let noted = shared.noted();
        let mut state = shared.lock();
        state.tracker.dirty_root(number, &noted);
        shared.announce(state);
    }
}

/// Tries again to open a group that the kernel refused, for instance for want of descriptors.
fn retry_group(shared: &Shared, next_ns: &mut u64) {
    let now = monotonic_ns();
    if now < *next_ns {
        return;
    }
    *next_ns = now + shared.options.canary_interval.as_nanos() as u64;
    let refused = {
        let state = shared.lock();
        if state.group.is_some() {
            return;
        }
        state.refused.as_ref().map(|refused| refused.reason.clone()).unwrap_or_default()
    };
    shared.open_group();
    let mut state = shared.lock();
    if state.group.is_some() {
        let roots = state.all_roots();
        shared.report(&mut state, IncidentKind::Overflow, &roots, refused);
        shared.announce(state);
    }
}

/// Replaces the group if its queue is too long: the queue counts towards the agent's memory.
fn check_queue(shared: &Shared) {
    let Some(group) = shared.lock().group.clone() else { return };
    let pending = group.pending().unwrap_or_default();
    drop(group);
    if pending > shared.options.queue_max {
        let detail = format!("the kernel's queue had {pending} notifications and was dropped");
        shared.reopen(IncidentKind::Overflow, detail);
    }
}

/// Marks the roots that a mount or unmount concerns, and makes them due.
fn follow_mounts(shared: &Shared, mounts: &mut Mounts) {
    let paths = match mounts.changes() {
        Ok(paths) => paths,
        Err(e) => return tracing::warn!("/proc/self/mountinfo: {e}"),
    };
    let mut roots = Vec::new();
    {
        let mut state = shared.lock();
        let concerns = |root: &Vec<u8>| {
            paths.iter().any(|path| is_at_or_below(root, path) || is_at_or_below(path, root))
        };
        let all = state.tracker.roots().iter().enumerate();
        roots.extend(all.filter(|(_, root)| concerns(root)).map(|(number, _)| number));
        if roots.is_empty() {
            return;
        }
        // An unmounted file system has lost its marks, and may be mounted again.
        state.marks_since_ns = monotonic_ns();
        state.file_systems.clear();
    }
    shared.attach_all();
    let shown: Vec<_> = paths.iter().take(8).map(|path| model::path::show(path)).collect();
    let detail = format!("mounted or unmounted: {}", shown.join(", "));
    let mut state = shared.lock();
    shared.report(&mut state, IncidentKind::MountChanged, &roots, detail);
    shared.announce(state);
}

impl Shared {
    /// Replaces the group. All roots are due afterwards.
    pub(crate) fn reopen(&self, kind: IncidentKind, detail: String) {
        self.open_group();
        let mut state = self.lock();
        if kind == IncidentKind::Overflow {
            state.overflows += 1;
        }
        let roots = state.all_roots();
        self.report(&mut state, kind, &roots, detail);
        self.announce(state);
    }
}

impl State {
    /// Returns the numbers of all roots.
    pub(crate) fn all_roots(&self) -> Vec<usize> {
        (0..self.tracker.roots().len()).collect()
    }
}
