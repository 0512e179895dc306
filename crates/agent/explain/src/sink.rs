//! The sink that explains changes before they are stored.

use std::collections::HashMap;
use std::sync::Arc;

use model::traits::PortError;
use model::{Cause, Change, ChangeBatch, ChangeKind, Kind, Op, Sink, SinkOutcome};

use crate::explainer::Explainer;

/// Sets the cause of each change, and passes the batches on. The creation of a temporary file of
/// dpkg is left out while dpkg runs: the file does not enter the baseline, so that the next check
/// or scan sees it again if it stays. An item whose removal was not notified, because the check of
/// its directory came first, has the cause of the removed directory.
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

impl<S: Sink> ExplainingSink<S> {
    /// Explains the changes of a batch.
    fn explain(&mut self, batch: &mut ChangeBatch) {
        self.explainer.begin();
        batch.retain(|op| change(op).is_none_or(|change| !self.explainer.is_temporary(change)));
        // Of a removed directory, with what it had.
        let mut removed: HashMap<Vec<u8>, Arc<Cause>> = HashMap::new();
        for change in batch.iter_mut().filter_map(change_mut) {
            // A batch that could not be committed comes again.
            if change.cause.is_none() {
                change.cause = self.explainer.explain(change).map(Arc::new);
            }
            let before = change.before.as_ref().filter(|_| change.kind == ChangeKind::Deleted);
            if before.is_some_and(|before| before.kind == Kind::Directory)
                && let Some(cause) = &change.cause
            {
                removed.insert(change.key.path(), cause.clone());
            }
        }
        if removed.is_empty() {
            return;
        }
        for change in batch.iter_mut().filter_map(change_mut) {
            if change.cause.is_none() && is_unnoticed_removal(change) {
                let cause = cause_above(&removed, &change.key.directory);
                change.cause = cause.map(|cause| without_writer(&cause));
            }
        }
    }
}

/// Returns true if the item is gone and its removal was not notified: the check of its directory
/// found it.
fn is_unnoticed_removal(change: &Change) -> bool {
    let noticed = change.seen.as_ref().is_some_and(|seen| seen.notices > 0);
    change.kind == ChangeKind::Deleted && !noticed
}

/// Returns the cause for a change whose writer was not seen.
fn without_writer(cause: &Cause) -> Arc<Cause> {
    Arc::new(Cause { writer_matches: false, ..cause.clone() })
}

/// Returns the cause of the closest removed directory at or above a path.
fn cause_above(removed: &HashMap<Vec<u8>, Arc<Cause>>, directory: &[u8]) -> Option<Arc<Cause>> {
    let mut path = directory;
    loop {
        if let Some(cause) = removed.get(path) {
            return Some(cause.clone());
        }
        let end = path.iter().rposition(|b| *b == b'/')?;
        path = path.get(..end)?;
    }
}

fn change(op: &Op) -> Option<&Change> {
    match op {
        Op::Put { change, .. } | Op::Delete { change, .. } => change.as_deref(),
        Op::Touch { .. } | Op::Coverage(_) => None,
    }
}

fn change_mut(op: &mut Op) -> Option<&mut Change> {
    match op {
        Op::Put { change, .. } | Op::Delete { change, .. } => change.as_deref_mut(),
        Op::Touch { .. } | Op::Coverage(_) => None,
    }
}

impl<S: Sink> Sink for ExplainingSink<S> {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        self.explain(batch);
        self.inner.apply(batch)
    }

    fn flush(&mut self) -> Result<SinkOutcome, PortError> {
        self.inner.flush()
    }
}
