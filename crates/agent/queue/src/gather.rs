//! The sink of a scan. It gathers batches into groups, so that writes in any order reach the disk
//! in sorted order.
//!
//! Gathered changes are not durable. If the process ends before [`Sink::flush`], they are lost, and
//! the next scan finds them again. They are not visible in the baseline either. This is safe for a
//! scan, because it reads each directory's baseline once, before it writes there, and flushes at
//! the end of a root. Other users must use [`crate::QueueSink`], which commits every batch.
//!
//! Limits: a group in the order of the table is committed at [`ORDERED_STEPS_MAX`] changes, since a
//! larger one gains nothing. A group in any other order is committed at [`STEPS_MAX`] changes. Any
//! group is committed at [`BYTES_MAX`], or with the first batch after [`AGE_MAX`].

use std::mem;
use std::time::Duration;

use model::traits::PortError;
use model::{ChangeBatch, Sink, SinkOutcome};

use crate::job::{Job, Step};
use crate::options::Transaction;
use crate::sink::QueueSink;

/// Most changes of a group that is in the order of the table.
pub(crate) const ORDERED_STEPS_MAX: usize = 8192;
/// Most changes of any group.
pub(crate) const STEPS_MAX: usize = 65_536;
/// Approximate limit of a group's memory, bytes.
pub(crate) const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Age of a group after which the next batch commits it.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);
/// A group is ordered while fewer than one in this number of changes goes back to an earlier
/// directory.
const ORDERED_STEPS_PER_BREAK: usize = 256;

/// A sink for the changes of a scan; see [`crate::Queue::scan_sink`].
pub struct ScanSink {
    sink: QueueSink,
    job: Job,
    bytes: usize,
    /// Number of steps whose order was examined.
    placed: usize,
    /// Directory of the last examined step.
    last_directory: i64,
    /// Number of steps that went back to an earlier directory.
    breaks: usize,
    /// Monotonic time of the first change of the group.
    since: Duration,
}

impl ScanSink {
    pub(crate) fn new(sink: QueueSink) -> Self {
        let job = sink.job();
        let since = Duration::ZERO;
        Self { sink, job, bytes: 0, placed: 0, last_directory: 0, breaks: 0, since }
    }

    fn is_empty(&self) -> bool {
        self.job.steps.is_empty() && self.job.events.is_empty()
    }

    /// Returns true if the group is to be committed.
    fn is_due(&self, now: Duration) -> bool {
        let steps = self.job.steps.len();
        let ordered = self.breaks * ORDERED_STEPS_PER_BREAK < steps;
        steps >= if ordered { ORDERED_STEPS_MAX } else { STEPS_MAX }
            || self.bytes >= BYTES_MAX
            || now.saturating_sub(self.since) >= AGE_MAX
    }

    /// Counts how often the new steps go back in the order of the table. A new directory gets the
    /// highest number, so it never goes back.
    fn look_at_order(&mut self) {
        let mut path: &[u8] = &[];
        let catalog = self.sink.inner.catalog.read();
        let Some(state) = catalog.datasets.get(&self.job.dataset) else { return };
        for step in self.job.steps.iter().skip(self.placed) {
            if step.key.directory == path {
                continue;
            }
            path = &step.key.directory;
            let Some(id) = state.paths.get(path) else { continue };
            self.breaks += usize::from(*id < self.last_directory);
            self.last_directory = *id;
        }
        self.placed = self.job.steps.len();
    }

    /// Returns the memory of the keys and events after these indexes, bytes.
    fn weigh(&self, steps: usize, events: usize) -> usize {
        let keys: usize = self
            .job
            .steps
            .iter()
            .skip(steps)
            .map(|step| size_of::<Step>() + step.key.directory.len() + step.key.name.len())
            .sum();
        let events: usize = self.job.events.iter().skip(events).map(Vec::len).sum();
        keys + events
    }
}

impl Sink for ScanSink {
    /// Adds a batch to the group. If this makes the group due, commits it and returns its outcome;
    /// otherwise the outcome is empty. A group that cannot be committed is dropped.
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        if self.sink.inner.options.transaction == Transaction::PerEvent {
            return self.sink.apply(batch);
        }
        let now = self.sink.inner.clock.monotonic();
        if self.is_empty() {
            self.since = now;
        }
        let (steps, events, bodies) =
            (self.job.steps.len(), self.job.events.len(), self.job.bodies.len());
        self.sink.prepare_into(&mut self.job, batch);
        batch.clear();
        self.bytes += self.job.bodies.len() - bodies + self.weigh(steps, events);
        self.look_at_order();
        if self.is_due(now) { self.flush() } else { Ok(SinkOutcome::default()) }
    }

    fn flush(&mut self) -> Result<SinkOutcome, PortError> {
        if self.is_empty() {
            return Ok(SinkOutcome::default());
        }
        let next = self.sink.job();
        let job = mem::replace(&mut self.job, next);
        (self.bytes, self.placed, self.last_directory, self.breaks) = (0, 0, 0, 0);
        let outcome = self.sink.inner.submit(job).result?;
        Ok(SinkOutcome { items: outcome.items, events: outcome.events })
    }
}
