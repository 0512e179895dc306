//! Group commit: append to the log, apply to the head, acknowledge.
//!
//! The log thread takes what is queued in groups. It appends a group to the log as durably as its
//! most demanding writer asks for, applies it to the active head, and then completes the tickets.
//! So a batch is visible only when it is as durable as its writer asked for, and heads take batches
//! in the order of their positions. While a group is persisted writers fill the next one: one flush
//! serves all of them.
//!
//! A store without background threads has no log thread. There each writer commits its own batch,
//! with the queue locked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::Durability;
use parking_lot::MutexGuard;

use super::{Committer, Core, DEFINITIONS_MAX, GROUP_BYTES_MAX, Queue, RECORD_BYTES_ADDED};
use crate::error::WriteError;
use crate::model::Outcome;
use crate::options::{Ack, INTERVAL_MS_DEFAULT, Wal};
use crate::pending::{Pending, What};
use crate::record::{self, Tombstone};
use crate::wait::Ticket;

/// Where a group is in the log, and what appending it cost.
struct Logged {
    /// Position of its first record.
    first_position: u64,
    flushes: u32,
}

/// The record that defines a run of rows.
struct Definitions {
    record: Vec<u8>,
    /// The row behind the last one.
    to: u32,
}

impl Core {
    /// Queues a batch or a delete for the log thread. Without background threads commits it.
    pub(super) fn enqueue(&self, mut queue: MutexGuard<'_, Queue>, pending: Pending) -> Ticket {
        let ticket = Ticket(Arc::clone(&pending.slot));
        if self.options.background {
            queue.samples += pending.what.samples();
            queue.pending.push_back(pending);
            self.work.notify_one();
        } else {
            // With the queue locked no other writer overtakes this one, and closing waits for it.
            self.commit(vec![pending]);
            drop(queue);
        }
        ticket
    }

    /// The log thread: commits what is queued until the store is closed and the queue is empty.
    pub(crate) fn run_log(&self) {
        while let Some(group) = self.next_group() {
            self.commit(group);
        }
    }

    /// Waits for something in the queue, and takes as much of it as is logged together. Returns
    /// `None` when the store is closed and the queue is empty.
    fn next_group(&self) -> Option<Vec<Pending>> {
        let mut queue = self.queue.lock();
        while queue.pending.is_empty() && !queue.closed {
            self.work.wait(&mut queue);
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(next) = queue.pending.front() {
            bytes += next.record.len() + RECORD_BYTES_ADDED;
            // A record too large for any group goes alone, and fails alone.
            if bytes > self.group_bytes_max() && !group.is_empty() {
                break;
            }
            let Some(pending) = queue.pending.pop_front() else { break };
            queue.samples -= pending.what.samples();
            group.push(pending);
        }
        self.wake_writers(queue);
        (!group.is_empty()).then_some(group)
    }

    /// Bytes of records that are logged together at most: the log takes no group larger than a
    /// segment, and refuses it whole.
    fn group_bytes_max(&self) -> usize {
        let half = usize::try_from(self.options.segment_bytes / 2).unwrap_or(usize::MAX);
        half.min(GROUP_BYTES_MAX)
    }

    /// Logs a group, applies it and completes its tickets. If it cannot be logged, none of it is
    /// applied, and each writer gets the error.
    fn commit(&self, group: Vec<Pending>) {
        let mut committer = self.commit.lock();
        let group = self.refuse_forgotten(group);
        if group.is_empty() {
            return;
        }
        let logged = match self.log(&mut committer, &group) {
            Ok(logged) => logged,
            Err(e) => {
                return group.into_iter().for_each(|pending| self.refuse(&pending, e.clone()));
            }
        };
        for (pending, position) in group.into_iter().zip(logged.first_position..) {
            let log_bytes = pending.record.len() as u64;
            let samples = match pending.what {
                What::Batch(batch) => {
                    self.apply(&batch, position);
                    self.spares.give(batch, pending.record)
                }
                What::Delete(tombstone) => {
                    self.bury(Tombstone { position, ..tombstone });
                    0
                }
            };
            self.counters.samples.fetch_add(samples, Ordering::Relaxed);
            self.counters.batches.fetch_add(1, Ordering::Relaxed);
            self.counters.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
            let outcome = Outcome { position, samples, log_bytes, flushes: logged.flushes };
            pending.slot.finish(Ok(outcome));
        }
    }

    fn refuse(&self, pending: &Pending, error: WriteError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        pending.slot.finish(Err(error));
    }

    /// Refuses batches with rows that were forgotten while they were queued. Returns the others.
    fn refuse_forgotten(&self, mut group: Vec<Pending>) -> Vec<Pending> {
        let forgotten = self.catalog.forgotten();
        group.retain(|pending| match &pending.what {
            What::Batch(batch) if pending.forgotten != forgotten => {
                let checked = self.catalog.check(batch);
                checked.map_err(|e| self.refuse(pending, e)).is_ok()
            }
            _ => true,
        });
        group
    }

    /// Appends a group to the log, and before it the definitions of rows that the log does not have
    /// yet.
    fn log(&self, committer: &mut Committer, group: &[Pending]) -> Result<Logged, WriteError> {
        let journal = self.journal.read().clone();
        let Some(journal) = journal else {
            return Ok(Logged { first_position: self.live.read().position + 1, flushes: 0 });
        };
        let rows = self.catalog.rows();
        while committer.logged_rows < rows {
            let definitions = self.define(committer.logged_rows, rows);
            journal.append(&definitions.record, Durability::Flush)?;
            committer.logged_rows = definitions.to;
        }
        let records: Vec<&[u8]> = group.iter().map(|p| &*p.record).collect();
        let outcome = journal.append_all(&records, self.durability(group))?;
        let first_position = committer.log_base + outcome.first;
        Ok(Logged { first_position, flushes: outcome.flushes })
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

    /// Encodes the definitions of as many rows from `from` on as go into one record.
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
