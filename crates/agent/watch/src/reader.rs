//! The thread that drains the group. It reads at most every few milliseconds, so that the kernel
//! merges repeated changes in its queue. It makes no other system calls, except to find the names of
//! files that have a new hard link.

use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fanotify::Group;
use crate::links;
use crate::shared::{IncidentKind, Shared, monotonic_ns, reset};
use dirty::ReadTimes;
use dirty::decode::decode;

/// Shortest time between two drains.
const PACE: Duration = Duration::from_millis(5);
/// Bytes of one read: about 2,500 notifications.
const BUFFER_BYTES: usize = 256 << 10;
/// Reads of one drain. A queue that fills faster is left to the next drain.
const READS_MAX: usize = 64;

/// Reads until the watcher stops.
pub(crate) fn run(shared: &Shared) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let group = {
            let state = shared.lock();
            if state.stopping {
                return;
            }
            state.group.clone()
        };
        if wait(shared, group.as_deref(), None)
            && let Some(group) = group
        {
            drain(shared, &group, &mut buffer);
            // Only the end or another group cuts the pause short.
            wait(shared, None, Some(PACE));
        }
    }
}

/// Waits for notifications, a wake-up or the timeout. Returns true if notifications are pending.
fn wait(shared: &Shared, group: Option<&Group>, timeout: Option<Duration>) -> bool {
    let mut fds = vec![PollFd::new(&shared.reader_wake, PollFlags::IN)];
    fds.extend(group.map(|group| PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // An interrupted wait is repeated by the caller's loop.
    let _ = poll(&mut fds, timeout.as_ref());
    let ready = |number: usize| fds.get(number).is_some_and(|fd| !fd.revents().is_empty());
    if ready(0) {
        reset(&shared.reader_wake);
    }
    ready(1)
}

/// Reads and applies notifications until the queue is empty.
fn drain(shared: &Shared, group: &Group, buffer: &mut [u8]) {
    let _reading = shared.reading.lock();
    for _ in 0..READS_MAX {
        let (before_ns, before_us) = (monotonic_ns(), shared.now_us());
        match group.read(buffer) {
            Ok(0) => {
                let mut state = shared.lock();
                state.complete_ns = before_ns;
                state.complete_us = before_us;
                state.tracker.drained();
                return;
            }
            Ok(bytes) => {
                apply(shared, buffer.get(..bytes).unwrap_or_default());
                links::resolve(shared);
            }
            Err(e) => {
                let detail = format!("reading notifications: {e}");
                return shared.reopen(IncidentKind::Overflow, detail);
            }
        }
    }
}

/// Applies the notifications of one read.
fn apply(shared: &Shared, read: &[u8]) {
    let (to_ns, wall_us) = (monotonic_ns(), shared.now_us());
    let mut lost_because = None;
    let mut state = shared.lock();
    let times = ReadTimes { from_ns: state.complete_ns, to_ns, wall_us };
    for notification in decode(read) {
        match notification {
            Ok(found) if found.mask & libc::FAN_Q_OVERFLOW != 0 => {
                lost_because = Some("the kernel's queue was full".to_owned());
            }
            Ok(found) => state.tracker.apply(&found, &times),
            Err(e) => lost_because = Some(e.to_string()),
        }
    }
    let roots_moved = state.tracker.has_moved_roots();
    shared.announce(state);
    if let Some(reason) = lost_because {
        lost(shared, &reason);
    }
    if roots_moved {
        crate::shared::signal(&shared.upkeep_wake);
    }
}

fn lost(shared: &Shared, reason: &str) {
    let mut state = shared.lock();
    state.overflows += 1;
    let roots = state.all_roots();
    shared.report(&mut state, IncidentKind::Overflow, &roots, reason.to_owned());
    shared.announce(state);
}
