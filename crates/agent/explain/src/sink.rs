//! The sink that explains changes before they are stored.

use std::sync::Arc;

use model::traits::PortError;
use model::{ChangeBatch, Op, Sink, SinkOutcome};

use crate::explainer::Explainer;

/// Sets the cause of each change, and passes the batches on. The creation of a temporary file of
/// dpkg is left out while dpkg runs: the file does not enter the baseline, so that the next check
/// or scan sees it again if it stays.
#[derive(Debug)]
pub struct ExplainingSink<S> {
    inner: S,
    explainer: Explainer,
}

impl<S> ExplainingSink<S> {
    /// Returns a sink in front of `inner`.
    pub fn new(inner: S, explainer: Explainer) -> Self {
        Self { inner, explainer }
    }

    /// Returns what explains the changes.
    pub fn explainer(&mut self) -> &mut Explainer {
        &mut self.explainer
    }
}

impl<S: Sink> Sink for ExplainingSink<S> {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        self.explainer.begin();
        batch.retain_mut(|op| {
            let (Op::Put { change: Some(change), .. } | Op::Delete { change: Some(change), .. }) =
                op
            else {
                return true;
            };
            if self.explainer.is_temporary(change) {
                return false;
            }
            // A batch that could not be committed comes again.
            if change.cause.is_none() {
                change.cause = self.explainer.explain(change).map(Arc::new);
            }
            true
        });
        self.inner.apply(batch)
    }

    fn flush(&mut self) -> Result<SinkOutcome, PortError> {
        self.inner.flush()
    }
}
