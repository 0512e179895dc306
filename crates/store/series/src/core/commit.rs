//! Group commit: appends to the log, applies to the head, acknowledges.
//!
//! The log thread takes queued writes in groups. It appends a group to the log with the highest
//! durability that any of its writers requested, applies it to the active head, and then completes
//! the tickets. So a batch is visible only when it is as durable as requested, and heads get
//! batches in the order of their positions. While a group is persisted, writers fill the next one:
//! one flush serves all of them.
//!
//! A store without background threads has no log thread. Each writer commits its own batch with the
//! queue locked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::Durability;
use parking_lot::MutexGuard;

use super::queue::QueueState;
use super::{Core, LogState};
use crate::error::WriteError;
use crate::model::{LogFailure, WriteOutcome};
use crate::options::{Ack, INTERVAL_MS_DEFAULT, Wal};
use crate::pending::{Pending, Write};
use crate::record::{self, Tombstone};
use crate::ticket::QueuedBatch;

/// Maximum size of a group in bytes. Half a segment if that is less.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Maximum number of row definitions in one record.
const DEFINITIONS_MAX: u32 = 2000;

/// Position of a group in the log, and the cost of appending it.
struct LoggedGroup {
    /// Position of its first record.
    first_position: u64,
    flushes: u32,
}

/// The record that defines a run of rows.
struct Definitions {
    record: Vec<u8>,
    /// The row after the last one.
    to: u32,
}

impl Core {
    /// Queues a batch or a delete for the log thread. Without background threads, commits it.
    pub(super) fn enqueue(
        &self,
        queue: MutexGuard<'_, QueueState>,
        pending: Pending,
    ) -> QueuedBatch {
        let ticket = QueuedBatch(Arc::clone(&pending.slot));
        if self.options.background {
            self.queue.push(queue, pending);
        } else {
            // With the queue locked, no other writer gets an earlier position, and a close waits
            // for this one.
            self.commit(vec![pending]);
            drop(queue);
        }
        ticket
    }

    /// Runs the log thread: commits queued writes until the store is closed and the queue is empty.
    pub(crate) fn run_log(&self) {
        while let Some(group) = self.queue.take_group(self.group_bytes_max()) {
            self.commit(group);
        }
    }

    /// Returns the maximum size of a group in bytes. The log rejects a group that does not fit in a
    /// segment.
    fn group_bytes_max(&self) -> usize {
        let half = usize::try_from(self.options.segment_bytes / 2).unwrap_or(usize::MAX);
        half.min(GROUP_BYTES_MAX)
    }

    /// Logs a group, applies it and completes its tickets. If it cannot be logged, nothing of it is
    /// applied, and each writer gets the error.
    fn commit(&self, group: Vec<Pending>) {
        let mut log = self.commit.lock();
        let group = self.refuse_forgotten(group);
        if group.is_empty() {
            return;
        }
        let logged = match self.append(&mut log, &group) {
            Ok(logged) => logged,
            Err(e) => {
                self.note_failure(&e);
                return group.into_iter().for_each(|pending| self.refuse(&pending, e.clone()));
            }
        };
        self.upkeep.disk_full.lock().take();
        for (pending, position) in group.into_iter().zip(logged.first_position..) {
            let log_bytes = pending.record.len() as u64;
            let samples = pending.write.samples() as u64;
            match pending.write {
                Write::Batch(batch) => {
                    self.apply(&batch, position);
                    self.spares.give(batch, pending.record);
                }
                Write::Delete(tombstone) => {
                    self.apply_delete(Tombstone { position, ..tombstone });
                }
            }
            self.counters.samples.fetch_add(samples, Ordering::Relaxed);
            self.counters.batches.fetch_add(1, Ordering::Relaxed);
            self.counters.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
            let outcome = WriteOutcome { position, samples, log_bytes, flushes: logged.flushes };
            pending.slot.finish(Ok(outcome));
        }
    }

    /// Records that the disk is full, or records and logs the first failure of the log.
    fn note_failure(&self, error: &WriteError) {
        let cause = match error {
            WriteError::Full(cause) => return *self.upkeep.disk_full.lock() = Some(cause.clone()),
            WriteError::Failed(cause) => cause,
            _ => return,
        };
        self.upkeep.log_failure.lock().get_or_insert_with(|| {
            let dir = self.dir.display();
            tracing::error!("{dir}: no rows are accepted until the log is opened again: {error}");
            let since_us = self.options.clock.now_us();
            LogFailure { cause: cause.clone(), since_us, gave_up: false }
        });
        self.upkeep.wake();
    }

    fn refuse(&self, pending: &Pending, error: WriteError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        pending.slot.finish(Err(error));
    }

    /// Fails batches with rows that were forgotten while they were queued. Returns the others.
    fn refuse_forgotten(&self, mut group: Vec<Pending>) -> Vec<Pending> {
        let forgotten = self.catalog.forgotten();
        group.retain(|pending| {
            let checked = match &pending.write {
                Write::Batch(batch) if pending.forgotten != forgotten => self.catalog.check(batch),
                _ => Ok(()),
            };
            let is_known = checked.is_ok();
            checked.unwrap_or_else(|e| self.refuse(pending, e));
            is_known
        });
        group
    }

    /// Appends a group to the log, preceded by the definitions of rows that are not in the log yet.
    fn append(&self, log: &mut LogState, group: &[Pending]) -> Result<LoggedGroup, WriteError> {
        if let Some(failure) = &*self.upkeep.log_failure.lock() {
            return Err(WriteError::Failed(failure.cause.clone()));
        }
        let journal = self.journal.read().clone();
        let Some(journal) = journal else {
            return Ok(LoggedGroup { first_position: self.live.read().position + 1, flushes: 0 });
        };
        let rows = self.catalog.rows();
        while log.rows_logged < rows {
            let definitions = self.define(log.rows_logged, rows);
            journal.append(&definitions.record, Durability::Flush)?;
            log.rows_logged = definitions.to;
        }
        let records: Vec<&[u8]> = group.iter().map(|p| &*p.record).collect();
        let outcome = journal.append_all(&records, self.durability(group))?;
        let first_position = log.base + outcome.first;
        Ok(LoggedGroup { first_position, flushes: outcome.flushes })
    }

    fn durability(&self, group: &[Pending]) -> Durability {
        match self.options.wal {
            Wal::Interval(interval) => Durability::Within(interval),
            Wal::Always | Wal::Off if group.iter().any(|p| p.ack == Ack::Persisted) => {
                Durability::Persist
            }
            Wal::Always | Wal::Off => {
                Durability::Within(Duration::from_millis(INTERVAL_MS_DEFAULT))
            }
        }
    }

    /// Encodes the definitions of as many rows from `from` on as fit in one record.
    fn define(&self, from: u32, rows: u32) -> Definitions {
        let mut to = rows.min(from + DEFINITIONS_MAX);
        loop {
            let mut record = record::definitions();
            self.catalog.encode(from, to, &mut record);
            if record.len() <= self.group_bytes_max() || to <= from + 1 {
                return Definitions { record, to };
            }
            to = from + (to - from) / 2;
        }
    }
}
