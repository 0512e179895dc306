//! The sink: turns changes into jobs of rows and events. This is done outside the writer's lock.

use std::mem;
use std::sync::Arc;

use model::traits::PortError;
use model::{ChangeBatch, Dataset, EventBody, ItemKey, Names, Op, Sink, SinkOutcome};

use crate::body::DOCUMENT_TAG;
use crate::error::QueueError;
use crate::inner::Inner;
use crate::job::{Job, Step, StepKind, Submitted};
use crate::options::Transaction;

/// Bytes reserved for an encoded observation.
const OBSERVATION_BYTES_USUAL: usize = 96;

/// A sink for a dataset's changes; see [`crate::Queue::sink`]. It is cheap: create one per thread.
pub struct QueueSink {
    pub(crate) inner: Arc<Inner>,
    dataset: i64,
    names: Arc<dyn Names>,
}

impl QueueSink {
    pub(crate) fn new(inner: Arc<Inner>, dataset: i64, names: Arc<dyn Names>) -> Self {
        Self { inner, dataset, names }
    }

    /// Returns an empty job of this dataset.
    pub(crate) fn job(&self) -> Job {
        Job { dataset: self.dataset, ..Job::default() }
    }

    /// Adds operations to a job: moves their keys, and encodes bodies and events.
    pub(crate) fn prepare_into(&self, job: &mut Job, ops: &mut [Op]) {
        job.steps.reserve(ops.len());
        job.bodies.reserve(ops.len() * OBSERVATION_BYTES_USUAL);
        for op in ops {
            let start = job.bodies.len();
            let (key, kind, change) = match op {
                Op::Put { key, observation, change } => {
                    observation.encode(&mut job.bodies);
                    (key, StepKind::Put, change.as_deref())
                }
                Op::Touch { key, observation } => {
                    observation.encode(&mut job.bodies);
                    (key, StepKind::Touch, None)
                }
                Op::Delete { key, change } => (key, StepKind::Delete, change.as_deref()),
                Op::Coverage(gap) => {
                    job.events.push(EventBody::of_coverage(gap.clone()).to_json());
                    continue;
                }
            };
            if let Some(change) = change {
                job.events.push(EventBody::of_change(change, &*self.names).to_json());
            }
            let body = start..job.bodies.len();
            job.steps.push(Step { key: mem::take(key), kind, body });
        }
    }

    /// Commits these operations. If that fails, they are restored.
    fn commit(&self, ops: &mut [Op]) -> Result<SinkOutcome, QueueError> {
        let mut job = self.job();
        self.prepare_into(&mut job, ops);
        let Submitted { job, result } = self.inner.submit(job);
        if result.is_err() {
            let keys = ops.iter_mut().filter_map(key_of);
            for (key, step) in keys.zip(job.steps) {
                *key = step.key;
            }
        }
        result.map(|outcome| SinkOutcome { items: outcome.items, events: outcome.events })
    }
}

fn key_of(op: &mut Op) -> Option<&mut ItemKey> {
    match op {
        Op::Put { key, .. } | Op::Touch { key, .. } | Op::Delete { key, .. } => Some(key),
        Op::Coverage(_) => None,
    }
}

impl Sink for QueueSink {
    /// Commits the whole batch in one transaction. With [`Transaction::PerEvent`] each operation
    /// has a separate one, and after a failure the batch holds the operations that were not
    /// committed.
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        if self.inner.options.transaction == Transaction::Group {
            let outcome = self.commit(batch)?;
            batch.clear();
            return Ok(outcome);
        }
        let mut total = SinkOutcome::default();
        for done in 0..batch.len() {
            let Some(op) = batch.get_mut(done..=done) else { break };
            match self.commit(op) {
                Ok(outcome) => {
                    total.items += outcome.items;
                    total.events += outcome.events;
                }
                Err(error) => {
                    batch.drain(..done);
                    return Err(error.into());
                }
            }
        }
        batch.clear();
        Ok(total)
    }
}

/// A change of one document; see [`crate::Queue::apply_documents`].
#[derive(Debug, Clone, Copy)]
pub struct DocumentStep<'a> {
    /// The item's key.
    pub key: &'a [u8],
    /// The document; `None` to delete it.
    pub document: Option<&'a [u8]>,
    /// The event of the change, committed in the same transaction.
    pub event: Option<&'a EventBody>,
}

/// Returns the jobs for document changes and other events: one job for all, or with
/// [`Transaction::PerEvent`] one for each.
pub(crate) fn jobs(
    id: i64,
    dataset: &Dataset,
    transaction: Transaction,
    steps: &[DocumentStep<'_>],
    events: &[EventBody],
) -> Result<Vec<Job>, QueueError> {
    let mut jobs = Vec::new();
    let mut job = Job { dataset: id, ..Job::default() };
    let cut = |job: &mut Job, jobs: &mut Vec<Job>| {
        if transaction == Transaction::PerEvent {
            jobs.push(mem::replace(job, Job { dataset: id, ..Job::default() }));
        }
    };
    for step in steps {
        let (kind, body) = match step.document {
            Some(body) => (StepKind::PutIfDifferent, body),
            None => (StepKind::Delete, &[][..]),
        };
        push(&mut job, dataset, kind, step.key, body)?;
        job.events.extend(step.event.map(EventBody::to_json));
        cut(&mut job, &mut jobs);
    }
    for event in events {
        job.events.push(event.to_json());
        cut(&mut job, &mut jobs);
    }
    if transaction == Transaction::Group {
        jobs.push(job);
    }
    Ok(jobs)
}

fn push(
    job: &mut Job,
    dataset: &Dataset,
    kind: StepKind,
    key: &[u8],
    body: &[u8],
) -> Result<(), QueueError> {
    check(dataset, "key", key.len(), crate::KEY_BYTES_MAX)?;
    check(dataset, "document", body.len(), model::limits::DOCUMENT_BYTES_MAX)?;
    let start = job.bodies.len();
    job.bodies.push(DOCUMENT_TAG);
    job.bodies.extend_from_slice(body);
    let key = ItemKey::new(Vec::new(), key);
    job.steps.push(Step { key, kind, body: start..job.bodies.len() });
    Ok(())
}

fn check(
    dataset: &Dataset,
    what: &'static str,
    bytes: usize,
    bytes_max: usize,
) -> Result<(), QueueError> {
    if bytes > bytes_max {
        return Err(QueueError::TooLarge { dataset: dataset.to_string(), what, bytes, bytes_max });
    }
    Ok(())
}
