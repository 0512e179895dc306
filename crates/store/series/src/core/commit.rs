//! Who logs and applies: the store's own thread, or a writer that finds nobody before it.
//!
//! Such a writer logs its batch without a flush and applies it on the processor that has it in its
//! cache. If the batch must be persisted, the store's thread flushes meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::{Durability, Journal};
use parking_lot::MutexGuard;

use super::{Committer, Core, DEFINITIONS_MAX, GROUP_BYTES_MAX, Queue, RECORD_BYTES_ADDED};
use crate::error::WriteError;
use crate::model::Outcome;
use crate::options::{Ack, INTERVAL_MS_DEFAULT, Wal};
use crate::pending::{Pending, What};
use crate::record::{self, Tombstone};
use crate::wait::{Slot, Ticket};

/// Who persists a group.
enum Flush {
    /// Whoever logs it, and so what waits for a flush already.
    Now(Vec<Arc<Slot>>),
    /// The store's thread, while it is applied.
    Beside,
}

/// Somebody who commits, until it is dropped.
struct Committing<'a>(&'a Core);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.committing = false;
        if !queue.is_idle() || queue.closed {
            self.0.work.notify_one();
        }
    }
}

impl Queue {
    /// Whether nothing is to be done.
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.unpersisted.is_empty()
    }
}

impl Core {
    /// Put a batch on its way; `waits` if its writer does nothing else until it is stored.
    pub(super) fn enqueue(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        pending: Pending,
        waits: bool,
    ) -> Ticket {
        let ticket = Ticket(Arc::clone(&pending.slot));
        if !self.options.background {
            // The queue stays locked, so that closing it waits for this batch, and none overtakes it.
            self.commit(&mut self.commit.lock(), vec![pending], Flush::Now(Vec::new()));
            drop(queue);
        } else if self.commits_itself(&queue, &pending, waits)
            && let Some(mut committer) = self.commit.try_lock()
        {
            queue.committing = true;
            drop(queue);
            let _committing = Committing(self);
            self.commit(&mut committer, vec![pending], Flush::Beside);
            drop(committer);
        } else {
            queue.samples += pending.what.samples();
            queue.pending.push_back(pending);
            // Whoever commits looks for more when it is done.
            if !queue.committing {
                self.work.notify_one();
            }
        }
        ticket
    }

    /// Whether a writer logs and applies its batch itself. Not while others are on their way, whom it
    /// would overtake, nor where it would wait for a flush. What is left to wait for is a new segment
    /// of the log, now and then.
    fn commits_itself(&self, queue: &Queue, pending: &Pending, waits: bool) -> bool {
        let is_free = queue.is_idle() && !queue.committing && !queue.flushing;
        if !is_free || !matches!(pending.what, What::Batch(_)) {
            return false;
        }
        if self.options.wal == Wal::Off {
            return true;
        }
        // One who does not wait goes on reading while another core stores, if one is free.
        let working = self.working.load(Ordering::Relaxed).max(1);
        let gains = (waits && pending.ack == Ack::Persisted) || working >= self.options.cores;
        gains && !self.journal.read().as_ref().is_some_and(Journal::is_busy)
    }

    /// Log, apply and flush what is queued until the store is closed and nothing is left.
    pub(crate) fn serve(&self) {
        while let Some((group, waiting)) = self.next_group() {
            if group.is_empty() {
                self.persist(waiting);
                continue;
            }
            let _committing = Committing(self);
            self.commit(&mut self.commit.lock(), group, Flush::Now(waiting));
        }
    }

    /// What is queued, as much as is logged together, unless somebody commits already; and what
    /// waits for a flush. Waits for either; `None` after the last one.
    fn next_group(&self) -> Option<(Vec<Pending>, Vec<Arc<Slot>>)> {
        let mut queue = self.queue.lock();
        while queue.unpersisted.is_empty()
            && (queue.committing || (queue.pending.is_empty() && !queue.closed))
        {
            self.work.wait(&mut queue);
        }
        if queue.is_idle() {
            return None;
        }
        let waiting = std::mem::take(&mut queue.unpersisted);
        if queue.committing {
            queue.flushing = true;
            return Some((Vec::new(), waiting));
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
        queue.committing = !group.is_empty();
        queue.flushing = group.is_empty();
        self.wake_writers(queue);
        Some((group, waiting))
    }

    /// Bytes of records that are logged together at most: the log takes no group larger than a
    /// segment, and refuses it whole.
    pub(super) fn group_bytes_max(&self) -> usize {
        let half = usize::try_from(self.options.segment_bytes / 2).unwrap_or(usize::MAX);
        half.min(GROUP_BYTES_MAX)
    }

    /// Refuse batches of rows that were forgotten while they waited.
    fn known(&self, group: Vec<Pending>) -> Vec<Pending> {
        let forgotten = self.catalog.forgotten();
        let is_known = |pending: &Pending| match &pending.what {
            What::Batch(batch) if pending.forgotten != forgotten => self.catalog.check(batch),
            _ => Ok(()),
        };
        let known = group.into_iter().filter_map(|pending| match is_known(&pending) {
            Ok(()) => Some(pending),
            Err(e) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                pending.slot.finish(Err(e));
                None
            }
        });
        known.collect()
    }

    /// Log a group, apply it, tell its writers.
    fn commit(&self, committer: &mut Committer, group: Vec<Pending>, flush: Flush) {
        let group = self.known(group);
        let (waiting, beside) = match flush {
            Flush::Now(waiting) => (waiting, false),
            Flush::Beside => (Vec::new(), self.options.wal == Wal::Always),
        };
        if group.is_empty() {
            return self.persist(waiting);
        }
        let durability = self.durability(&group, beside, !waiting.is_empty());
        let (first, flushes) = match self.log(committer, &group, durability) {
            Ok(done) => done,
            Err(e) => {
                self.counters.failed.fetch_add(group.len() as u64, Ordering::Relaxed);
                for pending in &group {
                    pending.slot.finish(Err(e.clone()));
                }
                return self.persist(waiting);
            }
        };
        // The group's flush was one of all before it.
        for slot in waiting {
            slot.persisted(Ok(()));
        }
        let is_beside = |pending: &Pending| beside && pending.ack == Ack::Persisted;
        if group.iter().any(is_beside) {
            let slots = group.iter().filter(|p| is_beside(p)).map(|p| Arc::clone(&p.slot));
            self.queue.lock().unpersisted.extend(slots);
            self.work.notify_one();
        }
        for (pending, position) in group.into_iter().zip(first..) {
            let (log_bytes, is_beside) = (pending.record.len() as u64, is_beside(&pending));
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
            let outcome = Outcome { position, samples, log_bytes, flushes };
            if is_beside {
                pending.slot.applied(Outcome { flushes: 1, ..outcome });
            } else {
                pending.slot.finish(Ok(outcome));
            }
        }
    }

    /// How durable a group is when it is logged: `beside` if it is flushed by another, `waited` if
    /// others wait for its flush.
    fn durability(&self, group: &[Pending], beside: bool, waited: bool) -> Durability {
        let wants = |ack| group.iter().any(|p| p.ack == ack);
        match self.options.wal {
            Wal::Interval(interval) => Durability::Within(interval),
            _ if waited || (!beside && wants(Ack::Persisted)) => Durability::Persist,
            _ if wants(Ack::Flushed) => {
                Durability::Within(Duration::from_millis(INTERVAL_MS_DEFAULT))
            }
            _ => Durability::Flush,
        }
    }

    /// Persist what is logged, and tell those who wait for it.
    fn persist(&self, waiting: Vec<Arc<Slot>>) {
        if waiting.is_empty() {
            return;
        }
        let journal = self.journal.read().clone();
        let persisted =
            journal.map_or(Ok(()), |journal| journal.persist().map_err(WriteError::from));
        // Whoever is told comes back at once.
        self.queue.lock().flushing = false;
        if persisted.is_err() {
            self.counters.failed.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        }
        for slot in waiting {
            slot.persisted(persisted.clone());
        }
    }

    /// The position of a group's first batch, and the flushes it took.
    fn log(
        &self,
        committer: &mut Committer,
        group: &[Pending],
        durability: Durability,
    ) -> Result<(u64, u32), WriteError> {
        let journal = self.journal.read().clone();
        let Some(journal) = journal else { return Ok((self.live.read().position + 1, 0)) };
        let rows = self.catalog.rows();
        while committer.logged_rows < rows {
            let (to, bytes) = self.define(committer.logged_rows, rows);
            journal.append(&bytes, Durability::Flush)?;
            committer.logged_rows = to;
        }
        let records: Vec<&[u8]> = group.iter().map(|p| &*p.record).collect();
        let outcome = journal.append_all(&records, durability)?;
        Ok((committer.log_base + outcome.first, outcome.flushes))
    }

    /// The record of the definitions of rows from `from` on, as many as go into one, and the row
    /// behind the last of them.
    fn define(&self, from: u32, rows: u32) -> (u32, Vec<u8>) {
        let mut to = rows.min(from + DEFINITIONS_MAX);
        loop {
            let mut bytes = record::definitions();
            self.catalog.encode(from, to, &mut bytes);
            if bytes.len() <= self.group_bytes_max() || to <= from + 1 {
                return (to, bytes);
            }
            to = from + (to - from) / 2;
        }
    }
}
