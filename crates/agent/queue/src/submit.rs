//! Submits changes. Writers wait in a [`WriterQueue`](writers::WriterQueue); all
//! waiting jobs are committed in one transaction, sorted by key.

use crate::apply::apply;
use crate::error::QueueError;
use crate::inner::Inner;
use crate::job::{Job, Submitted};
use crate::options::{QueueDurability, Transaction};
use crate::writer::Writer;
use writers::Window;

/// Number of changes from which on a group does not wait for more.
const WINDOW_CHANGES_MAX: usize = 1000;

impl Inner {
    /// Commits the job, together with those of other writers, and returns it with its result.
    pub(crate) fn submit(&self, job: Job) -> Submitted {
        let weight = job.steps.len() + job.events.len();
        let answer = self.line.submit(job, weight, self.window(), |jobs| self.commit_line(jobs));
        answer.unwrap_or_else(|| {
            let detail = "a writer died while it committed".to_owned();
            let result = Err(QueueError::Poisoned { path: self.path.clone(), detail });
            Submitted { job: Job::default(), result }
        })
    }

    /// Returns the time that a group waits for more changes; `None` unless every commit is flushed.
    fn window(&self) -> Option<Window> {
        let at_most = self.options.window;
        let waits = self.options.durability == QueueDurability::Power
            && self.options.transaction == Transaction::Group
            && !at_most.is_zero();
        waits.then_some(Window { at_most, weight: WINDOW_CHANGES_MAX })
    }

    fn commit_line(&self, jobs: Vec<Job>) -> Vec<Submitted> {
        match self.writer.lock().as_mut() {
            None => fail(jobs, &self.closed()),
            Some(writer) if self.options.transaction == Transaction::PerEvent => {
                jobs.into_iter().flat_map(|job| self.commit_group(writer, vec![job])).collect()
            }
            Some(writer) => self.commit_group(writer, jobs),
        }
    }

    fn commit_group(&self, writer: &mut Writer, jobs: Vec<Job>) -> Vec<Submitted> {
        let bytes: usize = jobs
            .iter()
            .map(|job| job.bodies.len() + job.events.iter().map(Vec::len).sum::<usize>())
            .sum();
        let feed = writer.feed.clone();
        let all: Vec<&Job> = jobs.iter().collect();
        match self.transact(writer, "commit changes", |txn| apply(txn, &feed, &all)) {
            Err(error) => fail(jobs, &error),
            Ok(outcomes) => {
                self.upkeep(writer, bytes as u64);
                self.watch_log(writer, jobs.iter().map(|job| job.steps.len() as u64).sum());
                jobs.into_iter()
                    .zip(outcomes)
                    .map(|(job, outcome)| Submitted { job, result: Ok(outcome) })
                    .collect()
            }
        }
    }
}

fn fail(jobs: Vec<Job>, error: &QueueError) -> Vec<Submitted> {
    jobs.into_iter().map(|job| Submitted { job, result: Err(error.clone()) }).collect()
}
