//! The threads that check passwords against their hashes: fewer than there are processors, and only
//! for time that nobody else wants.
//!
//! A request that takes a fraction of a millisecond must not wait for a slice of a hash that takes
//! fifty times as much. A lower nice value does not see to that: a task that wakes up is still put
//! behind the slice of the one that runs, and a slice ends with the kernel's tick (4 ms at 250 Hz).
//! `SCHED_IDLE` does (sched(7)): whoever wakes up runs at once. Nothing is locked, read or allocated
//! under it, since whoever needs that would wait for a thread that nobody lets run.
//!
//! Where the machine has no time to spare at all, the login's own thread gives up waiting and checks
//! the password itself: logins become slower then, but they go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use argon2::Block;
use parking_lot::Mutex;

use crate::{RegistryError, files, hashing};

/// How long a login waits for a check for each login that may stand before it.
const PATIENCE: Duration = Duration::from_millis(200);

/// A check that a login waits for.
struct Check {
    password: String,
    hash: String,
    /// Nobody waits for it any more.
    given_up: Arc<AtomicBool>,
    right: SyncSender<bool>,
}

/// The threads. They end when it is dropped.
pub(crate) struct Hasher {
    checks: Sender<Check>,
    patience: Duration,
    /// Its threads are not let run: somebody gave up, and none of them took a check since.
    starved: Arc<AtomicBool>,
}

impl Hasher {
    /// For so many logins at once.
    pub(crate) fn start(logins: usize) -> Result<Self, RegistryError> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let (checks, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let starved = Arc::new(AtomicBool::new(false));
        for n in 0..threads(logins, processors) {
            let (queue, starved) = (Arc::clone(&queue), Arc::clone(&starved));
            thread::Builder::new()
                .name(format!("hash-{n}"))
                .spawn(move || work(&queue, &starved))
                .map_err(|e| files::failed("hashing threads".as_ref(), &e.to_string()))?;
        }
        let patience = PATIENCE * u32::try_from(logins.max(1)).unwrap_or(u32::MAX);
        Ok(Self { checks, patience, starved })
    }

    /// Whether the password belongs to the hash. Blocks for as long as that takes.
    pub(crate) fn verify(&self, password: &str, hash: &str) -> bool {
        self.check(password, hash).unwrap_or_else(|| {
            let mut memory = Vec::new();
            hashing::verify(password, hash, &mut memory)
        })
    }

    /// What the threads say; `None` when they are not let run.
    fn check(&self, password: &str, hash: &str) -> Option<bool> {
        if self.starved.load(Ordering::Acquire) {
            return None;
        }
        let given_up = Arc::new(AtomicBool::new(false));
        let (right, answer) = sync_channel(1);
        let (password, hash) = (password.to_owned(), hash.to_owned());
        self.checks.send(Check { password, hash, given_up: Arc::clone(&given_up), right }).ok()?;
        let answer = answer.recv_timeout(self.patience).ok();
        if answer.is_none() {
            given_up.store(true, Ordering::Release);
            self.starved.store(true, Ordering::Release);
            // Whoever takes it runs: that is how this is found to be over.
            let (right, _) = sync_channel(1);
            let (password, hash) = (String::new(), String::new());
            let _ = self.checks.send(Check { password, hash, given_up, right });
        }
        answer
    }
}

/// Leaves a processor to everybody else where there is more than one.
fn threads(logins: usize, processors: usize) -> usize {
    logins.min(processors.saturating_sub(1)).max(1)
}

fn work(queue: &Mutex<Receiver<Check>>, starved: &AtomicBool) {
    step_back();
    // Kept: a hash takes megabytes, and making room for them anew takes the locks of all.
    let mut memory: Vec<Block> = Vec::new();
    loop {
        // The lock is held while waiting: whoever has it takes the next check.
        let next = queue.lock().recv();
        let Ok(check) = next else { return };
        starved.store(false, Ordering::Release);
        if check.given_up.load(Ordering::Acquire) {
            continue;
        }
        // A panic ends the check, not the thread: who waits for it makes it itself.
        let verify = || hashing::verify(&check.password, &check.hash, &mut memory);
        if let Ok(right) = catch_unwind(AssertUnwindSafe(verify)) {
            let _ = check.right.try_send(right);
        }
    }
}

/// Have the calling thread run only when nobody else wants to.
#[expect(unsafe_code, reason = "sched_setscheduler has no safe wrapper")]
fn step_back() {
    let none = libc::sched_param { sched_priority: 0 };
    let param = std::ptr::from_ref(&none);
    // SAFETY: the pointer is valid for the call, which only reads it. On Linux 0 is the calling
    // thread alone; the C library's own function is not used, since musl's refuses.
    let done =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, param) } == 0;
    if !done {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "no idle priority for hashing: requests may wait behind logins");
        hashing::step_down();
    }
}

#[cfg(test)]
mod tests {
    use env::random::SystemRandom;

    use super::*;
    use crate::options::HashCost;

    fn hash(password: &str) -> String {
        let cost = HashCost { memory_kib: 64, passes: 1, lanes: 1 };
        hashing::hash(password, cost, &SystemRandom).unwrap()
    }

    #[test]
    fn a_processor_is_left_to_everybody_else() {
        for (logins, processors, wanted) in
            [(2, 2, 1), (10, 2, 1), (2, 8, 2), (10, 4, 3), (1, 1, 1)]
        {
            assert_eq!(threads(logins, processors), wanted, "{logins} {processors}");
        }
    }

    #[test]
    fn checks_of_different_cost_share_a_threads_memory() {
        let hasher = Hasher::start(1).unwrap();
        let cost = HashCost { memory_kib: 256, passes: 1, lanes: 2 };
        let large = hashing::hash("Correct-Horse-9", cost, &SystemRandom).unwrap();
        for hash in [hash("Correct-Horse-9"), large.clone(), hash("Correct-Horse-9"), large] {
            assert!(hasher.verify("Correct-Horse-9", &hash));
            assert!(!hasher.verify("Correct-Horse-8", &hash));
        }
        assert!(!hasher.verify("Correct-Horse-9", "no hash"));
    }

    #[test]
    fn a_login_goes_on_where_the_threads_are_not_let_run() {
        // Nobody takes a check, as if they never ran.
        let (checks, queue) = channel();
        let starved = Arc::new(AtomicBool::new(false));
        let hasher =
            Hasher { checks, patience: Duration::from_millis(1), starved: Arc::clone(&starved) };
        let hash = hash("Correct-Horse-9");
        assert!(hasher.verify("Correct-Horse-9", &hash));
        assert!(starved.load(Ordering::Acquire));
        assert!(!hasher.verify("Correct-Horse-8", &hash), "at once, and no second check is left");
        // The one that was left behind is passed over, and the threads count again.
        drop(hasher);
        work(&Mutex::new(queue), &starved);
        assert!(!starved.load(Ordering::Acquire));
    }
}
