//! Collects operations and passes them to the sink in batches, sorted by key.
//!
//! Targeted checks write each item at most once ([`Writer::once`]): two checks may overlap, and what
//! changes after the first is notified again.

use std::cmp::Ordering;
use std::collections::HashSet;

use model::{ChangeBatch, ItemKey, Op, Sink};

use crate::report::ScanError;

/// A batch of operations for the sink.
pub(crate) struct Writer<'a> {
    sink: &'a mut dyn Sink,
    batch: ChangeBatch,
    limit: usize,
    /// The items written so far, if each is written only once.
    once: Option<HashSet<ItemKey>>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink, limit: usize) -> Self {
        Self { sink, batch: ChangeBatch::new(), limit, once: None }
    }

    /// Returns a writer that drops every operation on an item after the first one. With `limit` or
    /// more operations, moves are reported as deletions and creations.
    pub(crate) fn once(sink: &'a mut dyn Sink, limit: usize) -> Self {
        Self { sink, batch: ChangeBatch::new(), limit, once: Some(HashSet::new()) }
    }

    /// Returns the sink, for another writer. Call [`Writer::flush`] first.
    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        &mut *self.sink
    }

    /// Returns the collected operations, to be changed before they are passed on.
    pub(crate) fn batch(&mut self) -> &mut ChangeBatch {
        &mut self.batch
    }

    /// Returns the items that were written, if each is written only once.
    pub(crate) fn into_written(self) -> HashSet<ItemKey> {
        self.once.unwrap_or_default()
    }

    /// Adds an operation. Passes the batch to the sink when it is full.
    pub(crate) fn push(&mut self, op: Op) -> Result<(), ScanError> {
        if let (Some(written), Some(key)) = (&mut self.once, key(&op))
            && !written.insert(key.clone())
        {
            return Ok(());
        }
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

fn key(op: &Op) -> Option<&ItemKey> {
    match op {
        Op::Put { key, .. } | Op::Touch { key, .. } | Op::Delete { key, .. } => Some(key),
        Op::Coverage(_) => None,
    }
}
