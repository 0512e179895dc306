//! The writer queue: group commit by a leader and its followers.
//!
//! Writers add their jobs to the queue. A writer that finds no leader becomes the leader: it takes
//! all jobs, commits them, and stores an answer for each. While one group commits, the next one
//! gathers, so under load many writers share one flush. A single writer does not wait, unless a
//! window is set. With a window, a leader whose group is small waits for more jobs.
//!
//! Invariants, checked for every interleaving by the tests under the feature `loom`: every job is
//! committed and answered exactly once, jobs of one writer are committed in their order, and no
//! writer sleeps while the queue has a job and no leader.
//!
//! **Locking.** One mutex guards the state. It is not held during `commit`. A panic in `commit`
//! drops `LeaderGuard`, which answers all its jobs with `None` and wakes the followers.

use std::collections::BTreeMap;
use std::mem;
use std::sync::PoisonError;
use std::time::Duration;

#[cfg(feature = "loom")]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
use std::sync::{Condvar, Mutex, MutexGuard};

/// Number of a job in the queue.
type JobNumber = u64;

/// Time that a leader waits for more jobs.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Longest wait.
    pub at_most: Duration,
    /// Weight of the waiting jobs from which on the leader does not wait.
    pub weight: usize,
}

/// A queue of writers. `J` is a job, `A` its answer.
pub struct WriterQueue<J, A> {
    state: Mutex<State<J, A>>,
    changed: Condvar,
}

struct State<J, A> {
    waiting: Vec<(JobNumber, J)>,
    /// Weight of the waiting jobs.
    weight: usize,
    next: JobNumber,
    /// Answers by ticket; `None` if the leader panicked.
    answers: BTreeMap<JobNumber, Option<A>>,
    /// True while there is a leader, which gathers or commits a group.
    led: bool,
}

impl<J, A> Default for WriterQueue<J, A> {
    fn default() -> Self {
        let state =
            State { waiting: Vec::new(), weight: 0, next: 0, answers: BTreeMap::new(), led: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

/// The guard of a leader. When it is dropped, also by a panic, it stores an answer for every job of
/// the group and gives up the leadership.
struct LeaderGuard<'a, J, A> {
    line: &'a WriterQueue<J, A>,
    tickets: Vec<JobNumber>,
    answers: Vec<A>,
}

impl<J, A> Drop for LeaderGuard<'_, J, A> {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        let mut answers = mem::take(&mut self.answers).into_iter();
        for ticket in mem::take(&mut self.tickets) {
            state.answers.insert(ticket, answers.next());
        }
        state.led = false;
        drop(state);
        self.line.changed.notify_all();
    }
}

impl<J, A> WriterQueue<J, A> {
    fn lock(&self) -> MutexGuard<'_, State<J, A>> {
        // A leader's panic leaves the state consistent, because `LeaderGuard` stores the answers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the job is committed, by this writer or another one, and returns its answer;
    /// `None` if the leader panicked. `commit` must return one answer for each job, in their order.
    pub fn submit(
        &self,
        job: J,
        weight: usize,
        window: Option<Window>,
        mut commit: impl FnMut(Vec<J>) -> Vec<A>,
    ) -> Option<A> {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        state.waiting.push((ticket, job));
        state.weight += weight;
        if state.led && window.is_some() {
            // The leader may be waiting for more jobs.
            self.changed.notify_all();
        }
        loop {
            if let Some(answer) = state.answers.remove(&ticket) {
                return answer;
            }
            if state.led {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.led = true;
            let mut lead = LeaderGuard { line: self, tickets: Vec::new(), answers: Vec::new() };
            state = self.gather(state, window);
            state.weight = 0;
            let waiting = mem::take(&mut state.waiting);
            drop(state);
            let (tickets, jobs) = waiting.into_iter().unzip();
            lead.tickets = tickets;
            lead.answers = commit(jobs);
            drop(lead);
            state = self.lock();
        }
    }

    /// Waits for more jobs within the window.
    #[cfg(not(feature = "loom"))]
    fn gather<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<J, A>>,
        window: Option<Window>,
    ) -> MutexGuard<'a, State<J, A>> {
        let Some(window) = window else { return state };
        let until = std::time::Instant::now() + window.at_most;
        while state.weight < window.weight {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Returns at once, because the model has no time.
    #[cfg(feature = "loom")]
    fn gather<'a>(
        &'a self,
        state: MutexGuard<'a, State<J, A>>,
        _window: Option<Window>,
    ) -> MutexGuard<'a, State<J, A>> {
        state
    }
}

#[cfg(all(test, feature = "loom"))]
mod model {
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::WriterQueue;

    /// Most preemptions in one interleaving; a soak test has no limit.
    const PREEMPTIONS_MAX: usize = 3;

    fn check_interleavings(run: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        let soak = std::env::var_os("HOLDFAST_SOAK").is_some();
        builder.preemption_bound = (!soak).then_some(PREEMPTIONS_MAX);
        builder.check(run);
    }

    #[test]
    fn every_interleaving_commits_and_answers_each_job_once() {
        check_interleavings(|| {
            let line: Arc<WriterQueue<u32, u32>> = Arc::new(WriterQueue::default());
            let committed: Arc<Mutex<Vec<u32>>> = Arc::default();
            let write =
                |line: &WriterQueue<u32, u32>, committed: &Mutex<Vec<u32>>, jobs: &[u32]| {
                    for job in jobs {
                        let answer = line.submit(*job, 1, None, |jobs| {
                            committed.lock().unwrap().extend(&jobs);
                            jobs.iter().map(|job| job * 10).collect()
                        });
                        assert_eq!(answer, Some(job * 10));
                    }
                };
            let other = {
                let (line, committed) = (Arc::clone(&line), Arc::clone(&committed));
                thread::spawn(move || write(&line, &committed, &[1, 2]))
            };
            write(&line, &committed, &[3]);
            other.join().unwrap();
            let order = committed.lock().unwrap().clone();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [1, 2, 3]);
            let at = |job| order.iter().position(|done| *done == job);
            assert!(at(1) < at(2));
        });
    }

    #[test]
    fn three_concurrent_writers_are_all_answered() {
        check_interleavings(|| {
            let line: Arc<WriterQueue<u32, u32>> = Arc::new(WriterQueue::default());
            let others: Vec<_> = [1, 2]
                .into_iter()
                .map(|job| {
                    let line = Arc::clone(&line);
                    thread::spawn(move || line.submit(job, 1, None, |jobs| jobs))
                })
                .collect();
            assert_eq!(line.submit(3, 1, None, |jobs| jobs), Some(3));
            for (other, job) in others.into_iter().zip([1, 2]) {
                assert_eq!(other.join().unwrap(), Some(job));
            }
        });
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn panicked_leader_does_not_block_next_writer() {
        let line: Arc<WriterQueue<u32, u32>> = Arc::default();
        let dying = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.submit(1, 1, None, |_| panic!("the leader dies")))
        };
        assert!(dying.join().is_err());
        assert_eq!(line.submit(2, 1, None, |jobs| jobs), Some(2));
    }

    #[test]
    fn leader_waits_for_more_jobs_only_below_window_weight() {
        let line: Arc<WriterQueue<u32, usize>> = Arc::default();
        let window = Some(Window { at_most: Duration::from_mins(1), weight: 2 });
        let count = |jobs: Vec<u32>| vec![jobs.len(); jobs.len()];
        let first = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.submit(1, 1, window, count))
        };
        // The second job makes the group heavy enough, so it ends long before the window.
        let second = line.submit(2, 1, window, count);
        assert_eq!((first.join().unwrap(), second), (Some(2), Some(2)));
        assert_eq!(line.submit(3, 5, window, count), Some(1));
    }
}
