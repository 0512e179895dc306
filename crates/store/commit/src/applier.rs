//! The applier thread: applies records in journal order, many in one transaction.
//!
//! Appends finish in any order; a record that arrives before an earlier one waits. A record that
//! was persisted but not sent (its task died with the runtime) is read from the journal after
//! `HOLE_WAIT`, so that a hole does not block later records. While the disk is full, callers get an
//! error; the records stay pending and are applied once there is free space.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use model::{Applied, Position, Record};
use state::StateError;
use tokio::sync::oneshot;

use crate::error::CommitError;
use crate::options::Committed;
use crate::shared::{Permit, Shared};

/// Time that a hole may last before the missing record is read from the journal.
const HOLE_WAIT: Duration = Duration::from_secs(2);
/// Delay before a batch that found the disk full or busy is retried.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// A message to the applier.
pub(crate) enum Message {
    /// A persisted record.
    Record(Box<Submitted>),
    /// Applies what was sent before, then stops the applier.
    Stop,
}

/// One persisted record.
pub(crate) struct Submitted {
    pub(crate) position: Position,
    pub(crate) record: Record,
    /// `None` if no caller waits.
    pub(crate) caller: Option<Caller>,
}

/// The caller that waits for a record.
pub(crate) struct Caller {
    /// Permit for the bytes in flight; released when the caller is answered.
    pub(crate) permit: Permit,
    pub(crate) answer: oneshot::Sender<Result<Committed, CommitError>>,
}

impl Caller {
    pub(crate) fn send_outcome(self, outcome: Result<Committed, CommitError>) {
        drop(self.permit);
        // The caller may no longer wait. The record is applied in any case.
        let _ = self.answer.send(outcome);
    }
}

/// The state of the applier: records that cannot be applied yet, and the reason.
pub(crate) struct Applier<'s> {
    shared: &'s Shared,
    pending: BTreeMap<u64, Box<Submitted>>,
    /// The gap before the first record in `pending`.
    hole: Option<MissingPosition>,
    /// The time at which a batch that found the disk full is retried.
    retry_at: Option<Instant>,
}

/// A position that is missing while later ones are there.
struct MissingPosition {
    position: u64,
    since: Instant,
}

/// Consecutive records for one transaction.
#[derive(Default)]
struct Batch {
    records: Vec<(Position, Record)>,
    /// The caller of each record.
    callers: Vec<Option<Caller>>,
    bytes: u64,
}

/// The result of an attempt to apply a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// More records may be ready to apply.
    Done,
    /// Nothing can be applied before the next message or a timeout.
    Blocked,
}

/// Runs the applier until it is stopped.
pub(crate) fn run(shared: &Shared, receiver: &Receiver<Message>) {
    let mut applier = Applier { shared, pending: BTreeMap::new(), hole: None, retry_at: None };
    loop {
        let more = applier.collect(receiver);
        while applier.apply_next() == Attempt::Done {}
        if more.is_break() {
            break;
        }
    }
}

impl Applier<'_> {
    /// Waits for a message and takes all queued ones. Returns `Break` if the applier must stop
    /// after them.
    fn collect(&mut self, receiver: &Receiver<Message>) -> ControlFlow<()> {
        // Pending records may become ready without a message: after a retry or a hole's timeout.
        let first = if self.pending.is_empty() {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(RETRY_WAIT)
        };
        let mut message = match first {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        };
        let mut more = ControlFlow::Continue(());
        while let Some(one) = message {
            match one {
                Message::Record(submitted) => self.accept_record(submitted),
                Message::Stop => more = ControlFlow::Break(()),
            }
            message = receiver.try_recv().ok();
        }
        more
    }

    fn accept_record(&mut self, submitted: Box<Submitted>) {
        let progress = self.shared.progress.borrow().clone();
        let Submitted { position, caller, .. } = &*submitted;
        if let Some(error) = progress.failed {
            if let Some(caller) = submitted.caller {
                caller.send_outcome(Err(error));
            }
        } else if *position > progress.applied {
            self.pending.insert(position.0, submitted);
        } else if caller.is_some() {
            // The record was read from the journal before its task sent it. It is applied, but the
            // outcome was not kept. The caller gets it by submitting the record again.
            let position = *position;
            if let Some(caller) = submitted.caller {
                let late = CommitError::State(format!(
                    "record {position} was applied, but its outcome is not known: submit it again"
                ));
                caller.send_outcome(Err(late));
            }
        }
    }

    /// Applies the next batch.
    fn apply_next(&mut self) -> Attempt {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Attempt::Blocked;
        }
        let next = self.shared.progress.borrow().applied.0 + 1;
        match self.pending.first_key_value() {
            None => return Attempt::Blocked,
            Some((first, _)) if *first != next => {
                let first = *first;
                return self.fill_hole(next, first);
            }
            Some(_) => self.hole = None,
        }
        let batch = self.take_batch(next);
        self.apply(batch)
    }

    /// Takes the pending records from `next` on, up to the first gap or the limits of a batch.
    fn take_batch(&mut self, next: u64) -> Batch {
        let options = &self.shared.options;
        let mut batch = Batch::default();
        while batch.records.len() < options.batch_records_max
            && batch.bytes < options.batch_bytes_max
        {
            match self.pending.first_entry() {
                Some(entry) if *entry.key() == next + batch.records.len() as u64 => {
                    let Submitted { position, record, caller } = *entry.remove();
                    batch.bytes += caller.as_ref().map_or(0, |c| c.permit.bytes);
                    batch.records.push((position, record));
                    batch.callers.push(caller);
                }
                _ => break,
            }
        }
        batch
    }

    /// Applies a batch in one transaction and answers its callers. A transient failure keeps the
    /// batch for a retry; any other one fails the commit and every pending caller.
    fn apply(&mut self, batch: Batch) -> Attempt {
        let started = Instant::now();
        if let Some((last, _)) = batch.records.last()
            && batch.records.iter().all(|(_, record)| matches!(record, Record::RegistryRows(_)))
        {
            // The state stores its position with the next record of its own, or at a checkpoint.
            self.shared.applied(*last, batch.records.len() as u64, 0, started.elapsed());
            return Attempt::Done;
        }
        match self.shared.state.apply(&batch.records) {
            Ok(answers) => {
                self.retry_at = None;
                self.shared.stalled.store(false, Ordering::Relaxed);
                let Batch { records, callers, bytes } = batch;
                if let Some((last, _)) = records.last() {
                    self.shared.applied(*last, records.len() as u64, bytes, started.elapsed());
                }
                for (((position, _), caller), applied) in records.iter().zip(callers).zip(answers) {
                    self.answer_caller(*position, caller, applied);
                }
                Attempt::Done
            }
            Err(error) if error.is_transient() => {
                self.keep_for_retry(batch, &error);
                Attempt::Blocked
            }
            Err(error) => {
                let error = CommitError::State(error.to_string());
                self.shared.fail(&error);
                let held = std::mem::take(&mut self.pending).into_values();
                for caller in batch.callers.into_iter().chain(held.map(|s| s.caller)).flatten() {
                    caller.send_outcome(Err(error.clone()));
                }
                Attempt::Blocked
            }
        }
    }

    fn answer_caller(&self, position: Position, caller: Option<Caller>, applied: Applied) {
        if let Some(reason) = &applied.quarantined {
            self.shared.counters.quarantined.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("holdfast_commit_quarantined_total").increment(1);
            tracing::error!(%position, reason, "record set aside");
        }
        if let Some(caller) = caller {
            caller.send_outcome(Ok(Committed { position, applied }));
        }
    }

    /// Handles a full disk: sends the callers an error and keeps the records for a retry.
    fn keep_for_retry(&mut self, batch: Batch, error: &StateError) {
        if !self.shared.stalled.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "records wait to be applied");
        }
        self.retry_at = Some(Instant::now() + RETRY_WAIT);
        let full = CommitError::Full(error.to_string());
        for caller in batch.callers.into_iter().flatten() {
            caller.send_outcome(Err(full.clone()));
        }
        self.refuse_pending(&full);
        for (position, record) in batch.records {
            let held = Submitted { position, record, caller: None };
            self.pending.insert(position.0, Box::new(held));
        }
    }

    /// Sends `error` to every caller of a pending record. The records stay pending.
    fn refuse_pending(&mut self, error: &CommitError) {
        for caller in self.pending.values_mut().filter_map(|held| held.caller.take()) {
            caller.send_outcome(Err(error.clone()));
        }
    }

    /// Reads the missing records `next..first` from the journal once the hole has lasted for
    /// `HOLE_WAIT`. If they cannot be read, the commit fails for good.
    fn fill_hole(&mut self, next: u64, first: u64) -> Attempt {
        match &self.hole {
            Some(hole) if hole.position == next => {
                if hole.since.elapsed() < HOLE_WAIT {
                    return Attempt::Blocked;
                }
            }
            _ => {
                self.hole = Some(MissingPosition { position: next, since: Instant::now() });
                return Attempt::Blocked;
            }
        }
        tracing::warn!(position = next, "record was not handed over: read from the journal");
        let read = match self.read_hole(next, first) {
            Ok(read) => read,
            Err(reason) => {
                let error = CommitError::Journal { position: next, reason };
                self.shared.fail(&error);
                self.refuse_pending(&error);
                return Attempt::Blocked;
            }
        };
        self.hole = None;
        for (position, record) in read {
            let own = Submitted { position, record, caller: None };
            self.pending.entry(position.0).or_insert_with(|| Box::new(own));
        }
        Attempt::Done
    }

    fn read_hole(&self, next: u64, first: u64) -> Result<Vec<(Position, Record)>, String> {
        let reader = self.shared.journal.read_from(next).map_err(|e| e.to_string())?;
        let mut records = Vec::new();
        for read in reader.take((first - next) as usize) {
            let (position, bytes) = read.map_err(|e| e.to_string())?;
            crate::replay::check_version(Position(position), &bytes).map_err(|e| e.to_string())?;
            records.push((Position(position), Record::decode(&bytes)?));
        }
        if records.len() as u64 == first - next {
            Ok(records)
        } else {
            Err("records that later ones follow are missing".into())
        }
    }
}
