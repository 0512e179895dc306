//! The thread that drains the group and applies the notifications. It reads at most every few
//! milliseconds, so that the kernel merges repeated changes in its queue. It makes no other system
//! calls, except to find the names of files that have a new hard link.

use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::fanotify::Group;
use crate::intake::Batch;
use crate::links;
use crate::shared::{IncidentKind, Shared, reset};
use dirty::decode::decode;

/// Shortest time between two drains.
const PACE: Duration = Duration::from_millis(5);
/// Reads of one drain. A queue that fills faster is left to the next drain.
const READS_MAX: usize = 64;

/// Reads until the watcher stops.
pub(crate) fn run(shared: &Shared) {
    loop {
        let group = {
            let state = shared.lock();
            if state.stopping {
                return;
            }
            state.group.clone()
        };
        wait(shared, group.as_deref());
        // Without a group nothing is complete.
        if group.is_some() {
            drain(shared);
        }
        // No wake-up ends this pause: a wake-up after each exec would leave nothing to merge.
        std::thread::sleep(PACE);
    }
}

/// Waits for notifications or a wake-up.
fn wait(shared: &Shared, group: Option<&Group>) {
    let mut fds = vec![PollFd::new(&shared.reader_wake, PollFlags::IN)];
    fds.extend(group.map(|group| PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)));
    // An interrupted wait reads in vain.
    let _ = poll(&mut fds, None);
    if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
        reset(&shared.reader_wake);
    }
}

/// Reads and applies notifications until the queue is empty.
fn drain(shared: &Shared) {
    let _reading = shared.reading.lock();
    for _ in 0..READS_MAX {
        let before_us = shared.now_us();
        let taken = match shared.intake.read() {
            Ok(taken) => taken,
            Err(e) => {
                let detail = format!("reading notifications: {e}");
                return shared.reopen(IncidentKind::Overflow, detail);
            }
        };
        for batch in &taken.batches {
            apply(shared, batch);
            links::resolve(shared);
        }
        if taken.is_empty {
            let mut state = shared.lock();
            state.complete_us = before_us;
            state.tracker.drained();
            return;
        }
    }
}

/// Applies the notifications of one read.
fn apply(shared: &Shared, batch: &Batch) {
    let mut lost_because = None;
    let mut state = shared.lock();
    for notification in decode(&batch.bytes) {
        match notification {
            Ok(found) if found.mask & libc::FAN_Q_OVERFLOW != 0 => {
                lost_because = Some("the kernel's queue was full".to_owned());
            }
            Ok(found) => state.tracker.apply(&found, &batch.times),
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
