//! Who logs and applies: the store's own thread, or a writer that finds nobody before it.
//!
//! Such a writer logs its batch without a flush and applies it on the processor that has it in its
//! cache. If the batch must be persisted, the store's thread flushes meanwhile, and others log and apply
//! theirs beside that flush, for the next one. A writer whose thread would do nothing but wait flushes
//! itself if no other one is at work: no thread is woken for it, and it by none.

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
use crate::wait::Ticket;
use crate::working::Working;

/// Bytes of records that are logged and applied before what waits for a flush gets it, at most.
const BEFORE_FLUSH_BYTES_MAX: usize = 256 << 10;

/// How a writer waits until its batch is stored.
#[derive(Debug)]
pub(crate) enum Waits {
    /// Not at all: it goes on.
    No,
    /// With a ticket that it does not leave before.
    Ticket,
    /// On a thread that does nothing else meanwhile: it is at work until its batch is logged and applied.
    Thread(#[expect(dead_code, reason = "it ends when it is dropped")] Working),
}

/// Somebody who commits, until it is dropped.
struct Committing<'a>(&'a Core);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.committing = false;
        if !queue.pending.is_empty() || queue.closed {
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
    /// Put a batch on its way.
    pub(super) fn enqueue(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        pending: Pending,
        waits: Waits,
    ) -> Ticket {
        let ticket = Ticket(Arc::clone(&pending.slot));
        if !self.options.background {
            // The queue stays locked, so that closing it waits for this batch, and none overtakes it.
            self.commit(&mut self.commit.lock(), vec![pending], false);
            drop(queue);
        } else if self.commits_itself(&queue, &pending, &waits)
            && let Some(mut committer) = self.commit.try_lock()
        {
            queue.committing = true;
            drop(queue);
            // Beside others its core has more to do than to wait, and one flush may serve them all.
            let persists = matches!(waits, Waits::Thread(_)) && self.working() == 1;
            let committing = Committing(self);
            self.commit(&mut committer, vec![pending], persists);
            drop(committer);
            drop((committing, waits));
            if persists {
                self.persist_waiting();
            }
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

    /// Writers at work; whoever asks is one.
    fn working(&self) -> usize {
        self.working.load(Ordering::Relaxed).max(1)
    }

    /// Whether a writer logs and applies its batch itself. Not while others are on their way, whom it
    /// would overtake, nor where it would wait for them or for a new segment of the log (but for one that
    /// the definitions of many new rows begin).
    fn commits_itself(&self, queue: &Queue, pending: &Pending, waits: &Waits) -> bool {
        let is_free = queue.pending.is_empty() && !queue.committing;
        if !is_free || !matches!(pending.what, What::Batch(_)) {
            return false;
        }
        if self.options.wal == Wal::Off {
            return true;
        }
        let waits = !matches!(waits, Waits::No) && pending.ack == Ack::Persisted;
        // One who does not wait goes on reading while another core stores, if one is free.
        let gains = waits || self.working() >= self.options.cores;
        let bytes = (pending.record.len() + RECORD_BYTES_ADDED) as u64;
        let waits_for = |journal: &Journal| journal.is_busy() || !journal.has_room(bytes);
        gains && !self.journal.read().as_ref().is_some_and(waits_for)
    }

    /// Log, apply and flush what is queued until the store is closed and nothing is left.
    pub(crate) fn serve(&self) {
        while let Some(group) = self.next_group() {
            let bytes: usize = group.iter().map(|pending| pending.record.len()).sum();
            if bytes > BEFORE_FLUSH_BYTES_MAX {
                self.persist_waiting();
            }
            if !group.is_empty() {
                let _committing = Committing(self);
                self.commit(&mut self.commit.lock(), group, false);
            }
            self.persist_waiting();
        }
    }

    /// What is queued, as much as is logged together; nothing if somebody commits already. Waits for
    /// that or for what waits for a flush; `None` after the last one.
    fn next_group(&self) -> Option<Vec<Pending>> {
        let mut queue = self.queue.lock();
        while queue.unpersisted.is_empty()
            && (queue.committing || (queue.pending.is_empty() && !queue.closed))
        {
            self.work.wait(&mut queue);
        }
        if queue.is_idle() {
            return None;
        }
        if queue.committing {
            return Some(Vec::new());
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
        self.wake_writers(queue);
        Some(group)
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

    /// Log a group, apply it, tell its writers. Who commits persists it then if it `persists`, the store's
    /// thread otherwise.
    fn commit(&self, committer: &mut Committer, group: Vec<Pending>, persists: bool) {
        let group = self.known(group);
        if group.is_empty() {
            return;
        }
        let beside = self.options.background && self.options.wal == Wal::Always;
        let durability = self.durability(&group, beside);
        let (first, flushes) = match self.log(committer, &group, durability) {
            Ok(done) => done,
            Err(e) => {
                self.counters.failed.fetch_add(group.len() as u64, Ordering::Relaxed);
                for pending in &group {
                    pending.slot.finish(Err(e.clone()));
                }
                return;
            }
        };
        let is_beside = |pending: &Pending| beside && pending.ack == Ack::Persisted;
        if group.iter().any(is_beside) {
            let slots = group.iter().filter(|p| is_beside(p)).map(|p| Arc::clone(&p.slot));
            let mut queue = self.queue.lock();
            queue.unpersisted.extend(slots);
            if !persists {
                self.work.notify_one();
            }
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

    /// How durable a group is when it is logged: `beside` if it is flushed behind that.
    fn durability(&self, group: &[Pending], beside: bool) -> Durability {
        let wants = |ack| group.iter().any(|p| p.ack == ack);
        match self.options.wal {
            Wal::Interval(interval) => Durability::Within(interval),
            _ if !beside && wants(Ack::Persisted) => Durability::Persist,
            _ if wants(Ack::Flushed) => {
                Durability::Within(Duration::from_millis(INTERVAL_MS_DEFAULT))
            }
            _ => Durability::Flush,
        }
    }

    /// Persist what is logged if somebody waits for it, and tell who does.
    fn persist_waiting(&self) {
        // Before: the store's thread does not end, nor is the log closed, while somebody waits.
        let journal = self.journal.read().clone();
        let waiting = std::mem::take(&mut self.queue.lock().unpersisted);
        if waiting.is_empty() {
            return;
        }
        let persist = |journal: Journal| journal.persist().map_err(WriteError::from);
        let persisted = journal.map_or(Err(WriteError::Closed), persist);
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
