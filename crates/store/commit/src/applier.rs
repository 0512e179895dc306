//! The one thread that applies, in journal order, many records in one transaction.
//!
//! Appends finish in any order; what is ahead of its turn waits. A record that was persisted but
//! never handed over (its task died with the runtime) is read from the journal after a while, so
//! that a hole cannot stop the others. A full disk is waited out: the callers are refused, the
//! records stay and are applied when there is room again.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use model::{Applied, Position, Record};
use state::StateError;
use tokio::sync::oneshot;

use crate::error::CommitError;
use crate::options::Committed;
use crate::shared::{Permit, Shared};

/// How long a hole may stay before the journal is asked for the record.
const HOLE_WAIT: Duration = Duration::from_secs(2);
/// How long to wait before a batch is tried again that found the disk full or busy.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// What the applier is told.
pub(crate) enum Message {
    /// A persisted record.
    Record(Box<Submitted>),
    /// Finish what is there and end.
    Stop,
}

/// One persisted record.
pub(crate) struct Submitted {
    pub(crate) position: Position,
    pub(crate) record: Record,
    /// `None` when nobody waits.
    pub(crate) caller: Option<Caller>,
}

/// Who waits for a record.
pub(crate) struct Caller {
    /// Room given back when the answer goes out.
    pub(crate) permit: Permit,
    pub(crate) answer: oneshot::Sender<Result<Committed, CommitError>>,
}

impl Caller {
    fn answer(self, outcome: Result<Committed, CommitError>) {
        drop(self.permit);
        // A caller that no longer waits misses nothing: the record is applied all the same.
        let _ = self.answer.send(outcome);
    }
}

/// Records whose turn has not come, and what holds them up.
pub(crate) struct Applier<'s> {
    shared: &'s Shared,
    pending: BTreeMap<u64, Box<Submitted>>,
    /// The position that is missing, and since when.
    hole: Option<(u64, Instant)>,
    /// When a batch that found no room is tried again.
    retry_at: Option<Instant>,
}

/// Run until stopped.
pub(crate) fn run(shared: &Shared, receiver: &Receiver<Message>) {
    let mut applier = Applier { shared, pending: BTreeMap::new(), hole: None, retry_at: None };
    loop {
        let stop = applier.collect(receiver);
        while applier.apply_next() {}
        if stop {
            break;
        }
    }
}

impl Applier<'_> {
    /// Wait for a message and take all that are there; whether to stop after them.
    fn collect(&mut self, receiver: &Receiver<Message>) -> bool {
        // With records held up the wait is bounded.
        let first = if self.pending.is_empty() {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(RETRY_WAIT)
        };
        let mut message = match first {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return true,
        };
        let mut stop = false;
        while let Some(one) = message {
            match one {
                Message::Record(submitted) => self.take(submitted),
                Message::Stop => stop = true,
            }
            message = receiver.try_recv().ok();
        }
        stop
    }

    fn take(&mut self, submitted: Box<Submitted>) {
        let progress = self.shared.progress.borrow().clone();
        let Submitted { position, caller, .. } = &*submitted;
        if let Some(error) = progress.failed {
            if let Some(caller) = submitted.caller {
                caller.answer(Err(error));
            }
        } else if *position > progress.applied {
            self.pending.insert(position.0, submitted);
        } else if caller.is_some() {
            // It was read from the journal before its task came: applied, but what it came to was
            // not kept. Sending it again tells.
            let position = *position;
            if let Some(caller) = submitted.caller {
                let late = CommitError::State(format!("record {position} was applied unseen"));
                caller.answer(Err(late));
            }
        }
    }

    /// Apply the next batch; whether to go on at once.
    fn apply_next(&mut self) -> bool {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        let next = self.shared.progress.borrow().applied.0 + 1;
        match self.pending.first_key_value() {
            None => return false,
            Some((first, _)) if *first != next => {
                let first = *first;
                return self.fill_hole(next, first);
            }
            Some(_) => self.hole = None,
        }
        let mut batch = Vec::new();
        let mut callers = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.shared.options.batch_records_max
            && bytes < self.shared.options.batch_bytes_max
        {
            match self.pending.first_entry() {
                Some(entry) if *entry.key() == next + batch.len() as u64 => {
                    let Submitted { position, record, caller } = *entry.remove();
                    bytes += caller.as_ref().map_or(0, |c| c.permit.bytes);
                    batch.push((position, record));
                    callers.push(caller);
                }
                _ => break,
            }
        }
        self.apply(batch, callers, bytes)
    }

    fn apply(
        &mut self,
        batch: Vec<(Position, Record)>,
        callers: Vec<Option<Caller>>,
        bytes: u64,
    ) -> bool {
        let started = Instant::now();
        match self.shared.state.apply(&batch) {
            Ok(answers) => {
                self.retry_at = None;
                self.shared.stalled.store(false, Ordering::Relaxed);
                if let Some((last, _)) = batch.last() {
                    self.shared.applied(*last, batch.len() as u64, bytes, started.elapsed());
                }
                for (((position, _), caller), applied) in batch.iter().zip(callers).zip(answers) {
                    self.answer(*position, caller, applied);
                }
                true
            }
            Err(error) if error.is_transient() => {
                self.hold(batch, callers, &error);
                false
            }
            Err(error) => {
                let error = CommitError::State(error.to_string());
                self.shared.fail(&error);
                let held = std::mem::take(&mut self.pending).into_values();
                for caller in callers.into_iter().chain(held.map(|s| s.caller)).flatten() {
                    caller.answer(Err(error.clone()));
                }
                false
            }
        }
    }

    fn answer(&self, position: Position, caller: Option<Caller>, applied: Applied) {
        if let Some(reason) = &applied.quarantined {
            self.shared.counters.quarantined.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("holdfast_commit_quarantined_total").increment(1);
            tracing::error!(%position, reason, "record set aside");
        }
        if let Some(caller) = caller {
            caller.answer(Ok(Committed { position, applied }));
        }
    }

    /// No room: refuse the callers, keep the records.
    fn hold(
        &mut self,
        batch: Vec<(Position, Record)>,
        callers: Vec<Option<Caller>>,
        error: &StateError,
    ) {
        if !self.shared.stalled.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "records wait to be applied");
        }
        self.retry_at = Some(Instant::now() + RETRY_WAIT);
        let full = CommitError::Full(error.to_string());
        for caller in callers.into_iter().flatten() {
            caller.answer(Err(full.clone()));
        }
        self.refuse_pending(&full);
        for (position, record) in batch {
            let held = Submitted { position, record, caller: None };
            self.pending.insert(position.0, Box::new(held));
        }
    }

    /// Nobody waits any longer for a record whose turn does not come; the records stay.
    fn refuse_pending(&mut self, error: &CommitError) {
        for caller in self.pending.values_mut().filter_map(|held| held.caller.take()) {
            caller.answer(Err(error.clone()));
        }
    }

    /// Read what is missing from the journal once it has been missing for long enough; whether it
    /// is there now.
    fn fill_hole(&mut self, next: u64, first: u64) -> bool {
        match self.hole {
            Some((position, since)) if position == next => {
                if since.elapsed() < HOLE_WAIT {
                    return false;
                }
            }
            _ => {
                self.hole = Some((next, Instant::now()));
                return false;
            }
        }
        tracing::warn!(position = next, "record was not handed over: read from the journal");
        let read = match self.read_hole(next, first) {
            Ok(read) => read,
            Err(reason) => {
                let error = CommitError::Journal { position: next, reason };
                self.shared.fail(&error);
                self.refuse_pending(&error);
                return false;
            }
        };
        self.hole = None;
        for (position, record) in read {
            let own = Submitted { position, record, caller: None };
            self.pending.entry(position.0).or_insert_with(|| Box::new(own));
        }
        true
    }

    fn read_hole(&self, next: u64, first: u64) -> Result<Vec<(Position, Record)>, String> {
        let reader = self.shared.journal.read_from(next).map_err(|e| e.to_string())?;
        let mut records = Vec::new();
        for read in reader.take((first - next) as usize) {
            let (position, bytes) = read.map_err(|e| e.to_string())?;
            crate::replay::known(Position(position), &bytes).map_err(|e| e.to_string())?;
            records.push((Position(position), Record::decode(&bytes)?));
        }
        if records.len() as u64 == first - next {
            Ok(records)
        } else {
            Err("records that later ones follow are missing".into())
        }
    }
}
