//! The state of seals, merges and retention between their rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::model::LogFailure;
use crate::unread::Unread;

/// See the module.
pub(crate) struct Upkeep {
    /// Time at which the store was opened, by the monotonic clock.
    pub(crate) opened: Duration,
    /// Start time of the active head, by the monotonic clock.
    pub(crate) head_began: Mutex<Duration>,
    /// The error of the last seal, if it failed.
    pub(crate) trouble: Mutex<Option<String>>,
    /// The failure of the log, after which no rows are accepted.
    pub(crate) log_failure: Mutex<Option<LogFailure>>,
    /// The reason why the last write was refused, if there was no space on the disk.
    pub(crate) disk_full: Mutex<Option<String>>,
    /// Times of the latest attempts to open the log again, by the monotonic clock.
    pub(crate) reopenings: Mutex<Vec<Duration>>,
    /// Partitions that cannot be read.
    pub(crate) unread: Mutex<Unread>,
    /// Set when the store is being closed: merges stop.
    stopping: AtomicBool,
    sleep: Mutex<()>,
    woken: Condvar,
}

impl Upkeep {
    pub(super) fn new(opened: Duration, unread: Unread) -> Self {
        Self {
            opened,
            head_began: Mutex::new(opened),
            trouble: Mutex::new(None),
            log_failure: Mutex::new(None),
            disk_full: Mutex::new(None),
            reopenings: Mutex::default(),
            unread: Mutex::new(unread),
            stopping: AtomicBool::new(false),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Returns the age of the active head.
    pub(crate) fn head_age(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.head_began.lock())
    }

    /// Stops merges and the upkeep thread.
    pub(crate) fn stop(&self) {
        // Without the lock, the thread could check just before and then miss the notification.
        let _awake = self.sleep.lock();
        self.stopping.store(true, Ordering::Release);
        self.woken.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sleeps for `time`, or until there is work or the store is being closed.
    pub(crate) fn sleep(&self, time: Duration) {
        let mut sleep = self.sleep.lock();
        if !self.is_stopping() {
            self.woken.wait_for(&mut sleep, time);
        }
    }

    /// Wakes the upkeep thread to check for work. A call just before the thread sleeps is lost,
    /// which only delays the work by an interval.
    pub(crate) fn wake(&self) {
        self.woken.notify_all();
    }
}
