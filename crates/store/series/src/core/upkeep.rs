//! The state of seals, merges and retention between two of their rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::unread::Unread;

/// See the module.
pub(crate) struct Upkeep {
    /// When the active head began, by the clock's monotone side.
    pub(crate) head_began: Mutex<Duration>,
    /// Why the last seal failed, if it did.
    pub(crate) trouble: Mutex<Option<String>>,
    /// Partitions that cannot be read.
    pub(crate) unread: Mutex<Unread>,
    /// The store is being closed: merges end where they are.
    stopping: AtomicBool,
    sleep: Mutex<()>,
    woken: Condvar,
}

impl Upkeep {
    pub(super) fn new(head_began: Duration, unread: Unread) -> Self {
        Self {
            head_began: Mutex::new(head_began),
            trouble: Mutex::new(None),
            unread: Mutex::new(unread),
            stopping: AtomicBool::new(false),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Returns how long ago the active head began.
    pub(crate) fn head_age(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.head_began.lock())
    }

    /// Ends merges and the upkeep thread.
    pub(crate) fn stop(&self) {
        // With the lock, or the thread could have looked just before and not be asleep yet.
        let _awake = self.sleep.lock();
        self.stopping.store(true, Ordering::Release);
        self.woken.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sleeps for a while, until there is work or the store is being closed.
    pub(crate) fn sleep(&self, time: Duration) {
        let mut sleep = self.sleep.lock();
        if !self.is_stopping() {
            self.woken.wait_for(&mut sleep, time);
        }
    }

    /// Lets the upkeep thread look whether there is work. A call that comes just before it falls
    /// asleep is missed; it looks again by itself.
    pub(crate) fn wake(&self) {
        self.woken.notify_all();
    }
}
