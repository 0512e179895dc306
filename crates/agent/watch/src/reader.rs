//! The thread that drains the group. It reads at most every few milliseconds, so that the kernel
//! merges repeated changes in its queue, and resolves nothing with system calls.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::decode::decode;
use crate::fanotify::Group;
use crate::shared::{IncidentKind, Shared, monotonic_ns, reset};
use crate::track::ReadTimes;

/// Shortest time between two drains.
const PACE: Duration = Duration::from_millis(5);
/// Bytes of one read: about 2,500 notifications.
const BUFFER_BYTES: usize = 256 << 10;
/// Reads of one drain. A queue that fills faster is left to the next drain.
const READS_MAX: usize = 64;

/// Reads until the watcher stops.
pub(crate) fn run(shared: &Shared) {
    let mut reader = Reader { buffer: vec![0; BUFFER_BYTES], empty_ns: monotonic_ns() };
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
            reader.drain(shared, &group);
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

struct Reader {
    buffer: Vec<u8>,
    /// Before the last read that found the queue empty.
    empty_ns: u64,
}

impl Reader {
    /// Reads and applies notifications until the queue is empty.
    fn drain(&mut self, shared: &Shared, group: &Arc<Group>) {
        let _reading = shared.reading.lock();
        for _ in 0..READS_MAX {
            let (before_ns, before_us) = (monotonic_ns(), shared.now_us());
            let bytes = match group.read(&mut self.buffer) {
                Ok(0) => {
                    self.empty_ns = before_ns;
                    let mut state = shared.lock();
                    state.complete_us = before_us;
                    state.tracker.renamed.clear();
                    return;
                }
                Ok(bytes) => bytes,
                Err(e) => return lost(shared, &format!("reading notifications: {e}")),
            };
            let read = self.buffer.get(..bytes).unwrap_or_default();
            apply(shared, read, self.empty_ns);
        }
    }
}

/// Applies the notifications of one read.
fn apply(shared: &Shared, read: &[u8], empty_ns: u64) {
    let times = ReadTimes { from_ns: empty_ns, to_ns: monotonic_ns(), wall_us: shared.now_us() };
    let mut lost_because = None;
    let mut state = shared.lock();
    for notification in decode(read) {
        match notification {
            Ok(found) if found.mask & libc::FAN_Q_OVERFLOW != 0 => {
                lost_because = Some("the kernel's queue was full".to_owned());
            }
            Ok(found) => state.tracker.apply(&found, &times),
            Err(e) => lost_because = Some(e.to_string()),
        }
    }
    let roots_moved = !state.tracker.moved_roots.is_empty();
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
