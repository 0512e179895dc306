//! The threads that hash passwords, to check them and to set new ones. There are fewer of them than
//! processors, and they use idle CPU time only.
//!
//! A request that takes a fraction of a millisecond must not wait for a time slice of a hash that
//! takes fifty times as long. A lower nice value does not prevent that: a task that wakes up is
//! still queued behind the slice of the running one, and a slice ends with the kernel's tick (4 ms
//! at 250 Hz). `SCHED_IDLE` (sched(7)) does: any task that wakes up runs at once. Nothing is
//! locked, read or allocated under it, because other threads would then wait for a thread that gets
//! no CPU time.
//!
//! If the machine has no idle time at all, the thread of the login stops waiting and computes the
//! hash itself. Logins become slower but continue to work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use argon2::Block;
use argon2::password_hash::phc::Output;
use env::random::Random;
use parking_lot::Mutex;

use crate::options::HashCost;
use crate::{RegistryError, files, hashing};

/// Time that a login waits for a hash, per login that may be ahead of it.
const PATIENCE: Duration = Duration::from_millis(200);

/// A hash that a caller waits for.
struct Task {
    password: String,
    /// Hash that supplies salt and cost.
    like: String,
    /// True if the caller has stopped waiting.
    given_up: Arc<AtomicBool>,
    computed: SyncSender<Option<Output>>,
}

/// The error if the threads get no CPU time.
struct NotRun;

/// The hashing threads. They end when it is dropped.
pub(crate) struct Hasher {
    tasks: Sender<Task>,
    patience: Duration,
    /// True if the threads get no CPU time: a caller gave up, and no thread has taken a task since.
    starved: Arc<AtomicBool>,
}

impl Hasher {
    /// Starts threads for this number of concurrent logins.
    pub(crate) fn start(logins: usize) -> Result<Self, RegistryError> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let (tasks, queue) = channel();
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
        Ok(Self { tasks, patience, starved })
    }

    /// Returns true if the password matches the hash. Blocks until it is done.
    pub(crate) fn verify(&self, password: &str, hash: &str) -> bool {
        self.compute(password, hash).is_some_and(|computed| hashing::fits(hash, &computed))
    }

    /// Hashes a new password with its own salt; PHC form. Blocks until it is done.
    pub(crate) fn hash(
        &self,
        password: &str,
        cost: HashCost,
        random: &dyn Random,
    ) -> Result<String, RegistryError> {
        let like = hashing::of_nothing(cost, random)?;
        let computed = self.compute(password, &like);
        let bad = || RegistryError::Hash("its cost is out of range".into());
        hashing::with(&like, computed.ok_or_else(bad)?)
    }

    /// Computes the output for a password with a hash's salt and cost; `None` if the hash is not
    /// valid.
    fn compute(&self, password: &str, like: &str) -> Option<Output> {
        self.run_task(password, like)
            .unwrap_or_else(|NotRun| hashing::compute(password, like, &mut Vec::new()))
    }

    /// Queues a task for the threads and waits for its output. Fails if they get no CPU time.
    fn run_task(&self, password: &str, like: &str) -> Result<Option<Output>, NotRun> {
        if self.starved.load(Ordering::Acquire) {
            return Err(NotRun);
        }
        let given_up = Arc::new(AtomicBool::new(false));
        let (computed, answer) = sync_channel(1);
        let (password, like) = (password.to_owned(), like.to_owned());
        let task = Task { password, like, given_up: Arc::clone(&given_up), computed };
        self.tasks.send(task).map_err(|_| NotRun)?;
        let answer = answer.recv_timeout(self.patience).map_err(|_| NotRun);
        if answer.is_err() {
            given_up.store(true, Ordering::Release);
            self.starved.store(true, Ordering::Release);
            // Queue an abandoned task: the thread that takes it clears the flag, which ends the
            // starvation.
            let (computed, _) = sync_channel(1);
            let (password, like) = (String::new(), String::new());
            let _ = self.tasks.send(Task { password, like, given_up, computed });
        }
        answer
    }
}

/// Returns the number of threads. Leaves one processor free if there is more than one.
fn threads(logins: usize, processors: usize) -> usize {
    logins.min(processors.saturating_sub(1)).max(1)
}

fn work(queue: &Mutex<Receiver<Task>>, starved: &AtomicBool) {
    step_back();
    // The memory is reused: a hash takes megabytes, and allocating them takes locks that all
    // threads share.
    let mut memory: Vec<Block> = Vec::new();
    loop {
        // The lock is held while waiting: the thread that holds it takes the next task.
        let next = queue.lock().recv();
        let Ok(task) = next else { return };
        starved.store(false, Ordering::Release);
        if task.given_up.load(Ordering::Acquire) {
            continue;
        }
        // A panic ends the task, not the thread; its caller then computes the hash itself.
        let compute = || hashing::compute(&task.password, &task.like, &mut memory);
        if let Ok(computed) = catch_unwind(AssertUnwindSafe(compute)) {
            let _ = task.computed.try_send(computed);
        }
    }
}

/// Makes the calling thread run only when the CPU is otherwise idle.
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
        tracing::warn!(%error, "idle priority is not available for hashing: requests may wait behind logins");
        hashing::step_down();
    }
}

#[cfg(test)]
mod tests {
    use env::random::SystemRandom;

    use super::*;

    const COST: HashCost = HashCost { memory_kib: 64, passes: 1, lanes: 1 };

    #[test]
    fn hasher_threads_leave_one_processor_free() {
        for (logins, processors, wanted) in
            [(2, 2, 1), (10, 2, 1), (2, 8, 2), (10, 4, 3), (1, 1, 1)]
        {
            assert_eq!(threads(logins, processors), wanted, "{logins} {processors}");
        }
    }

    #[test]
    fn hashes_of_different_cost_share_a_threads_memory() {
        let hasher = Hasher::start(1).unwrap();
        let large = HashCost { memory_kib: 256, passes: 1, lanes: 2 };
        for cost in [COST, large, COST, large] {
            let hash = hasher.hash("Correct-Horse-9", cost, &SystemRandom).unwrap();
            assert!(hasher.verify("Correct-Horse-9", &hash));
            assert!(!hasher.verify("Correct-Horse-8", &hash));
        }
        assert!(!hasher.verify("Correct-Horse-9", "no hash"));
        let none = HashCost { memory_kib: 0, passes: 0, lanes: 0 };
        assert!(hasher.hash("Correct-Horse-9", none, &SystemRandom).is_err());
    }

    #[test]
    fn logins_and_new_passwords_work_with_starved_hasher_threads() {
        let hash = Hasher::start(1).unwrap().hash("Correct-Horse-9", COST, &SystemRandom).unwrap();
        // No thread receives from this queue, which simulates threads that never run.
        let (tasks, queue) = channel();
        let starved = Arc::new(AtomicBool::new(false));
        let hasher =
            Hasher { tasks, patience: Duration::from_millis(1), starved: Arc::clone(&starved) };
        assert!(hasher.verify("Correct-Horse-9", &hash));
        assert!(starved.swap(false, Ordering::AcqRel));
        let other = hasher.hash("Correct-Horse-8", COST, &SystemRandom).unwrap();
        assert!(starved.load(Ordering::Acquire), "a new password was theirs to hash, too");
        assert!(hasher.verify("Correct-Horse-8", &other), "at once: no further task is left");
        // Abandoned tasks are skipped, and the threads are used again.
        drop(hasher);
        work(&Mutex::new(queue), &starved);
        assert!(!starved.load(Ordering::Acquire));
    }
}
