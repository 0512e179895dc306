//! Priority of the reading thread. A short-lived process is gone before `/proc` is read unless the
//! thread runs at once.

use std::fmt;

/// Priority of the thread that reads `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// `SCHED_FIFO` with priority 1.
    RealTime,
    /// Nice -20. Up to 4 % of short-lived processes are gone before they are read.
    High,
    /// The process's own. Up to 80 % of short-lived processes are gone before they are read.
    Normal,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RealTime => "real-time",
            Self::High => "high",
            Self::Normal => "normal",
        })
    }
}

/// Raises the calling thread as far as the process's rights allow, and returns what it got.
pub(crate) fn raise() -> Priority {
    let parameter = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    #[expect(unsafe_code, reason = "no safe wrapper sets the policy of a thread")]
    // SAFETY: the pointer is to a local that outlives the call; 0 is the calling thread.
    let real_time = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } == 0;
    if real_time {
        return Priority::RealTime;
    }
    #[expect(unsafe_code, reason = "the safe wrapper sets the nice value of a process")]
    // SAFETY: the call takes no pointers; 0 is the calling thread on Linux.
    let high = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0;
    if high { Priority::High } else { Priority::Normal }
}
