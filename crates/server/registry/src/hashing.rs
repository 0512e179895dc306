//! Password hashes (Argon2id) and the pool of login threads, a fixed number of threads with a
//! bounded queue. The pool runs only logins, so no other work waits for a login.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use env::random::Random;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::options::HashCost;
use crate::{RegistryError, files};

/// Amount by which the priority of the pool's threads is lowered (nice(2)). They compute hashes
/// themselves when the hasher's threads get no CPU time.
const NICE: i32 = 5;
/// Bytes of salt: RFC 9106, 3.1 recommends 16.
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Returns a hash for which no password is known: random bytes in the usual format. Checking a
/// password against it takes as long as against a real hash, but creating it is cheap.
pub(crate) fn of_nothing(cost: HashCost, random: &dyn Random) -> Result<String, RegistryError> {
    let mut bytes = [0; SALT_BYTES + HASH_BYTES];
    random.fill_bytes(&mut bytes)?;
    let (salt, hash) = bytes.split_at(SALT_BYTES);
    Ok(format!(
        "$argon2id$v=19$m={},t={},p={}${}${}",
        cost.memory_kib,
        cost.passes,
        cost.lanes,
        STANDARD_NO_PAD.encode(salt),
        STANDARD_NO_PAD.encode(hash)
    ))
}

/// Returns true if the output equals that of the hash.
pub(crate) fn fits(hash: &str, computed: &Output) -> bool {
    // The comparison takes constant time.
    PasswordHash::new(hash).is_ok_and(|hash| hash.hash.as_ref() == Some(computed))
}

/// Returns the hash with its output replaced; PHC form.
pub(crate) fn with(hash: &str, computed: Output) -> Result<String, RegistryError> {
    let mut hash = PasswordHash::new(hash).map_err(|e| RegistryError::Hash(e.to_string()))?;
    hash.hash = Some(computed);
    Ok(hash.to_string())
}

/// Computes the output for a password with the salt and cost of the hash `like`. `memory` is grown
/// to the size needed and can be reused.
pub(crate) fn compute(password: &str, like: &str, memory: &mut Vec<Block>) -> Option<Output> {
    let like = PasswordHash::new(like).ok()?;
    let algorithm = Algorithm::new(like.algorithm.as_str()).ok()?;
    let version = Version::try_from(like.version?).ok()?;
    let params = Params::try_from(&like).ok()?;
    let blocks = params.block_count();
    if memory.len() < blocks {
        memory.resize(blocks, Block::default());
    }
    let mut out = vec![0; like.hash?.len()];
    Argon2::new(algorithm, version, params)
        .hash_password_into_with_memory(
            password.as_bytes(),
            like.salt.as_ref()?,
            &mut out,
            memory.get_mut(..blocks)?,
        )
        .ok()?;
    Output::new(&out).ok()
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads of the pool. They end when it is dropped.
pub(crate) struct Pool {
    jobs: SyncSender<Job>,
}

/// The error if all threads are busy and the queue is full.
pub(crate) struct HasherBusy;

impl Pool {
    pub(crate) fn start(workers: usize, queue_max: usize) -> Result<Self, RegistryError> {
        let (jobs, queue) = sync_channel::<Job>(queue_max);
        let queue = Arc::new(Mutex::new(queue));
        for n in 0..workers.max(1) {
            let queue = queue.clone();
            thread::Builder::new()
                .name(format!("login-{n}"))
                .spawn(move || work(&queue))
                .map_err(|e| files::failed("login threads".as_ref(), &e.to_string()))?;
        }
        Ok(Self { jobs })
    }

    /// Runs `job` on a thread of the pool; `None` when the job panicked.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, HasherBusy> {
        let (done, result) = oneshot::channel();
        let job = Box::new(move || drop(done.send(job())));
        match self.jobs.try_send(job) {
            Ok(()) => Ok(result),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(HasherBusy),
        }
    }
}

/// Lowers the priority of the calling thread (on Linux, priority is per thread). A failure is
/// ignored.
pub(crate) fn step_down() {
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, own.saturating_add(NICE));
}

fn work(queue: &Mutex<Receiver<Job>>) {
    step_down();
    loop {
        // The lock is held while waiting: the thread that holds it takes the next job.
        let job = queue.lock().recv();
        let Ok(job) = job else { return };
        // A panic ends the job, not the thread; its caller sees the dropped channel.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use env::random::SystemRandom;

    use super::*;

    const COST: HashCost = HashCost { memory_kib: 8, passes: 1, lanes: 1 };

    #[test]
    fn dummy_hash_has_the_usual_format_and_matches_no_password() {
        let nothing = of_nothing(COST, &SystemRandom).unwrap();
        let mut memory = Vec::new();
        let computed = compute("Correct-Horse-9", &nothing, &mut memory).unwrap();
        assert!(!fits(&nothing, &computed));
        let real = with(&nothing, computed).unwrap();
        assert!(fits(&real, &compute("Correct-Horse-9", &real, &mut memory).unwrap()));
        assert!(!fits(&real, &compute("", &real, &mut memory).unwrap()));
        assert_eq!(nothing.len(), real.len());
        assert_eq!(nothing.rsplit_once('$').unwrap().0, real.rsplit_once('$').unwrap().0);
        let again = of_nothing(COST, &SystemRandom).unwrap();
        assert_ne!(nothing.split('$').nth(4), again.split('$').nth(4), "a salt of its own");
    }

    #[test]
    fn pool_thread_survives_a_panicking_job() {
        let pool = Pool::start(1, 4).unwrap_or_else(|e| panic!("{e}"));
        let lost = pool.submit(|| panic!("on purpose")).unwrap_or_else(|_| panic!("full"));
        let done = pool.submit(|| 7).unwrap_or_else(|_| panic!("full"));
        assert!(lost.blocking_recv().map(|(): ()| ()).is_err());
        assert_eq!(done.blocking_recv().unwrap(), 7);
    }
}
