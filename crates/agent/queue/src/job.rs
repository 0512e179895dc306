//! Jobs of the writer queue and their outcomes.

use std::ops::Range;

use model::ItemKey;

use crate::error::QueueError;

/// A step of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    Put,
    /// Like `Put`, but does nothing if the stored body is equal.
    PutIfDifferent,
    Touch,
    Delete,
}

/// One change of one item.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: ItemKey,
    pub(crate) kind: StepKind,
    /// Range of its body in [`Job::bodies`].
    pub(crate) body: Range<usize>,
}

/// The changes and events that one writer commits together.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) dataset: i64,
    pub(crate) steps: Vec<Step>,
    pub(crate) bodies: Vec<u8>,
    pub(crate) events: Vec<Vec<u8>>,
}

/// The outcome of a job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JobOutcome {
    pub(crate) items: u64,
    pub(crate) events: u64,
}

/// A job after its commit, or after its failure.
pub(crate) struct Submitted {
    /// The job, returned so that the caller can restore its keys.
    pub(crate) job: Job,
    pub(crate) result: Result<JobOutcome, QueueError>,
}
