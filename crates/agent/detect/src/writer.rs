//! Collects operations and passes them to the sink in batches, sorted by key.

use std::cmp::Ordering;

use model::{ChangeBatch, Op, Sink};

use crate::report::ScanError;

/// A batch of operations for the sink.
pub(crate) struct Writer<'a> {
    sink: &'a mut dyn Sink,
    batch: ChangeBatch,
    limit: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink, limit: usize) -> Self {
        Self { sink, batch: ChangeBatch::with_capacity(limit), limit }
    }

    /// Adds an operation. Passes the batch to the sink when it is full.
    pub(crate) fn push(&mut self, op: Op) -> Result<(), ScanError> {
        self.batch.push(op);
        if self.batch.len() >= self.limit { self.hand_over() } else { Ok(()) }
    }

    /// Passes the batch to the sink and flushes the sink.
    pub(crate) fn flush(&mut self) -> Result<(), ScanError> {
        self.hand_over()?;
        self.sink.flush().map(drop).map_err(ScanError::Sink)
    }

    fn hand_over(&mut self) -> Result<(), ScanError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        // The sort is stable: two operations on one item keep their order.
        self.batch.sort_by(compare);
        self.sink.apply(&mut self.batch).map_err(ScanError::Sink)?;
        self.batch.clear();
        Ok(())
    }
}

fn compare(a: &Op, b: &Op) -> Ordering {
    match (key(a), key(b)) {
        (Some(a), Some(b)) => a.cmp(b),
        // Coverage events come last.
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

fn key(op: &Op) -> Option<&model::ItemKey> {
    match op {
        Op::Put { key, .. } | Op::Touch { key, .. } | Op::Delete { key, .. } => Some(key),
        Op::Coverage(_) => None,
    }
}
