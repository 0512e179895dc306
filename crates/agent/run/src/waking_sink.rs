//! The sink that wakes the sender.

use std::sync::Arc;

use model::traits::PortError;
use model::{ChangeBatch, Sink, SinkOutcome};

use crate::shared::Shared;

/// Wakes the sender after each commit that has events, so that a change does not wait for the end of
/// a scan, of a flood of checks or of the reading of a large file. The sender limits how often it
/// runs.
pub(crate) struct WakingSink<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> WakingSink<S> {
    /// Returns a sink in front of `inner`.
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }

    fn wake(&self, outcome: SinkOutcome) -> SinkOutcome {
        if outcome.events > 0 {
            self.shared.report.notify_one();
        }
        outcome
    }
}

impl<S: Sink> Sink for WakingSink<S> {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        self.inner.apply(batch).map(|outcome| self.wake(outcome))
    }

    fn flush(&mut self) -> Result<SinkOutcome, PortError> {
        self.inner.flush().map(|outcome| self.wake(outcome))
    }
}
