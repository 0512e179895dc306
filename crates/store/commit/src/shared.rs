//! The state shared by the submitters, the applier and the keeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use env::files::FileIdentity;
use journal::Journal;
use model::{Position, Record};
use parking_lot::{Condvar, Mutex};
use state::StateStore;
use tokio::sync::{Notify, watch};

use crate::error::CommitError;
use crate::options::{CommitOptions, CommitStats, Refusal};

/// Minimum number of bytes counted per record in flight, so that the limit also bounds the number
/// of records.
const RECORD_BYTES_MIN: u64 = 1_024;

/// The applier's position, and the error that stopped it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(crate) applied: Position,
    pub(crate) failed: Option<CommitError>,
    /// Time of that error, microseconds since the epoch.
    pub(crate) failed_us: u64,
}

/// Counters of the applier.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

/// Amount applied since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct AppliedAmount {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The state's own log has grown too large.
    pub(crate) log: bool,
}

pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) state: Arc<StateStore>,
    pub(crate) options: CommitOptions,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) counters: Counters,
    /// Amount applied since the last checkpoint; `wake` notifies the keeper when one is due.
    pub(crate) due: Mutex<AppliedAmount>,
    pub(crate) wake: Condvar,
    /// Identity of each watched folder at the start.
    pub(crate) folders_found: Vec<Option<FileIdentity>>,
    in_flight: Arc<InFlight>,
    checkpointed: Mutex<Position>,
    closed: AtomicBool,
    /// Names the disk that is too full to accept records, and its free bytes.
    pub(crate) disk_full: Mutex<Option<String>>,
    /// A watched folder was removed or replaced while the program runs.
    pub(crate) folder_lost: AtomicBool,
    /// The state could not apply a batch for lack of space; the applier retries it.
    pub(crate) stalled: AtomicBool,
    pub(crate) floor: Mutex<Floor>,
}

/// The records that another store needs.
pub(crate) enum Floor {
    None,
    /// All, because that store is not open yet.
    All,
    /// Those above the position that this returns. See [`crate::Commit::keep_above`].
    Above(Box<dyn Fn() -> u64 + Send + Sync>),
}

impl Floor {
    /// Returns the position below which the other store needs no record.
    fn position(&self) -> u64 {
        match self {
            Self::None => u64::MAX,
            Self::All => 0,
            Self::Above(position) => position(),
        }
    }
}

#[derive(Default)]
struct InFlight {
    bytes: AtomicU64,
    none: Notify,
}

/// A permit for the bytes of one record in flight, released when dropped.
pub(crate) struct Permit {
    in_flight: Arc<InFlight>,
    counted: u64,
    /// Length of the encoded record, bytes.
    pub(crate) bytes: u64,
}

/// A record that may be appended.
pub(crate) struct AdmittedRecord {
    pub(crate) encoded: Vec<u8>,
    pub(crate) permit: Permit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.in_flight.bytes.fetch_sub(self.counted, Ordering::AcqRel) == self.counted {
            self.in_flight.none.notify_waiters();
        }
    }
}

impl Shared {
    pub(crate) fn new(
        journal: Journal,
        state: Arc<StateStore>,
        options: CommitOptions,
        applied: Position,
    ) -> Self {
        let floor = Mutex::new(if options.shared_journal { Floor::All } else { Floor::None });
        let folders_found = options.folders.iter().map(|folder| FileIdentity::of(folder)).collect();
        Self {
            journal,
            state,
            options,
            folders_found,
            progress: watch::Sender::new(Progress { applied, failed: None, failed_us: 0 }),
            counters: Counters::default(),
            due: Mutex::default(),
            wake: Condvar::new(),
            in_flight: Arc::default(),
            checkpointed: Mutex::default(),
            closed: AtomicBool::new(false),
            disk_full: Mutex::default(),
            folder_lost: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            floor,
        }
    }

    /// Returns `Ok` if records are accepted now.
    pub(crate) fn available(&self) -> Result<(), CommitError> {
        if let Some(error) = self.progress.borrow().failed.clone() {
            return Err(error);
        }
        if self.is_closed() {
            return Err(CommitError::Closed);
        }
        let full = |why: &str| Err(CommitError::Full(why.to_owned()));
        if self.folder_lost.load(Ordering::Relaxed) {
            return full(
                "the server's data folder is gone: put it back, or restore a backup there",
            );
        }
        if let Some(disk) = &*self.disk_full.lock() {
            return full(&format!("the server's disk is nearly full: free space there: {disk}"));
        }
        if self.stalled.load(Ordering::Relaxed) {
            return full("records that were accepted wait for free space in the state store");
        }
        Ok(())
    }

    /// Returns the reason why no records are accepted now, if there is one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let cause = self.available().err()?;
        let set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let word = match &cause {
            CommitError::Closed => "stopping",
            CommitError::Poisoned(_) | CommitError::Journal { .. } => "journal_failed",
            CommitError::Full(_) if set(&self.folder_lost) => "data_folder_gone",
            CommitError::Full(_) => "disk_full",
            _ => "state_failed",
        };
        let progress = self.progress.borrow();
        let since_us = progress.failed.as_ref().map(|_| progress.failed_us);
        Some(Refusal { word, cause, since_us })
    }

    /// Encodes a record and reserves its bytes in flight, if records are accepted now.
    pub(crate) fn admit(&self, record: &Record) -> Result<AdmittedRecord, CommitError> {
        self.available().inspect_err(|error| {
            if matches!(error, CommitError::Full(_)) {
                self.count_refusal();
            }
        })?;
        let encoded = record.encode();
        let bytes = encoded.len() as u64;
        if bytes > self.options.record_bytes_max {
            return Err(CommitError::TooLarge { bytes, limit: self.options.record_bytes_max });
        }
        let permit = self.reserve(bytes)?;
        // Checked again after the reservation, because `close` waits only for permits that it sees.
        if self.is_closed() {
            return Err(CommitError::Closed);
        }
        Ok(AdmittedRecord { encoded, permit })
    }

    fn reserve(&self, bytes: u64) -> Result<Permit, CommitError> {
        let counted = bytes.max(RECORD_BYTES_MIN);
        // Pairs with the load of `closed` in `admit`, in the reverse order of `close` and
        // `drained`: one of the two sees the other only if all four are sequentially consistent.
        let before = self.in_flight.bytes.fetch_add(counted, Ordering::SeqCst);
        let permit = Permit { in_flight: Arc::clone(&self.in_flight), counted, bytes };
        // A single record is admitted, however small the limit.
        if before > 0 && before + counted > self.options.in_flight_bytes_max {
            drop(permit);
            return Err(self.refuse("too many sessions are in flight"));
        }
        Ok(permit)
    }

    fn refuse(&self, why: &str) -> CommitError {
        self.count_refusal();
        CommitError::Full(why.to_owned())
    }

    fn count_refusal(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("holdfast_commit_refused_total").increment(1);
    }

    /// Makes all later submits fail with `error`, if it is the first failure, and logs it.
    pub(crate) fn fail(&self, error: &CommitError) {
        self.progress.send_if_modified(|progress| {
            let first = progress.failed.is_none();
            if first {
                tracing::error!(%error, "commit stopped");
                metrics::gauge!("holdfast_commit_failed").set(1.0);
                progress.failed = Some(error.clone());
                progress.failed_us = self.options.clock.now_us();
            }
            first
        });
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _due = self.due.lock();
        self.wake.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until no record is in flight.
    pub(crate) async fn drained(&self) {
        loop {
            let none = self.in_flight.none.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            if self.in_flight.bytes.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
    }

    /// Counts an applied batch, publishes its position, and wakes the keeper if a checkpoint is
    /// due.
    pub(crate) fn applied(&self, position: Position, records: u64, bytes: u64, took: Duration) {
        let counters = &self.counters;
        counters.records.fetch_add(records, Ordering::Relaxed);
        counters.record_bytes.fetch_add(bytes, Ordering::Relaxed);
        counters.batches.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("holdfast_commit_records_total").increment(records);
        metrics::counter!("holdfast_commit_record_bytes_total").increment(bytes);
        metrics::histogram!("holdfast_commit_batch_records").record(records as f64);
        metrics::histogram!("holdfast_commit_apply_seconds").record(took.as_secs_f64());
        self.progress.send_modify(|progress| progress.applied = position);
        let log = self.state.checkpoint_due();
        let mut due = self.due.lock();
        due.records += records;
        due.bytes += bytes;
        due.log |= log;
        if self.is_due(&due) {
            self.wake.notify_all();
        }
    }

    pub(crate) fn is_due(&self, due: &AppliedAmount) -> bool {
        due.log
            || due.records >= self.options.checkpoint_records
            || due.bytes >= self.options.checkpoint_bytes
    }

    /// Persists the state, then trims the journal below its position. One checkpoint runs at a
    /// time.
    pub(crate) fn checkpoint(&self) -> Result<Position, CommitError> {
        let mut checkpointed = self.checkpointed.lock();
        if let Some(error @ CommitError::State(_)) = &self.progress.borrow().failed {
            return Err(error.clone());
        }
        let before = std::mem::take(&mut *self.due.lock());
        let position = match self.pass_by_rows().and_then(|()| self.state.checkpoint()) {
            Ok(position) => position,
            Err(error) => {
                let mut due = self.due.lock();
                due.records += before.records;
                due.bytes += before.bytes;
                due.log |= before.log;
                drop(due);
                let failed = CommitError::State(error.to_string());
                if !error.is_transient() {
                    // A flush that succeeds later would not cover what this one did not write.
                    self.fail(&failed);
                }
                return Err(failed);
            }
        };
        if position > *checkpointed {
            // The record at the position itself is kept, so that the next open can compare the end
            // of the state with the journal.
            let floor = self.floor.lock().position();
            self.journal.trim(position.0.min(floor)).map_err(CommitError::from)?;
            *checkpointed = position;
            self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("holdfast_commit_checkpoints_total").increment(1);
            metrics::gauge!("holdfast_commit_checkpointed_position").set(position.0 as f64);
        }
        Ok(*checkpointed)
    }

    /// Stores the position of records that the state has passed by without a transaction, so that the
    /// journal can be trimmed although nothing else happens.
    fn pass_by_rows(&self) -> Result<(), state::StateError> {
        let applied = self.progress.borrow().applied;
        if applied > self.state.applied()? {
            self.state.apply(&[(applied, Record::RegistryRows(Vec::new()))])?;
        }
        Ok(())
    }

    /// Gives the space of the state's own log back to the file system, unless a query prevents it.
    pub(crate) fn shrink(&self) -> Result<bool, CommitError> {
        let _one_at_a_time = self.checkpointed.lock();
        self.state.shrink().map_err(|error| {
            let failed = CommitError::State(error.to_string());
            if !error.is_transient() {
                self.fail(&failed);
            }
            failed
        })
    }

    pub(crate) fn stats(&self) -> CommitStats {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let journal = self.journal.stats();
        let c = &self.counters;
        // Two statements, so that `progress` is not held while waiting for a checkpoint.
        let applied = self.progress.borrow().applied;
        let checkpointed = *self.checkpointed.lock();
        CommitStats {
            applied,
            checkpointed,
            records: read(&c.records),
            record_bytes: read(&c.record_bytes),
            batches: read(&c.batches),
            quarantined: read(&c.quarantined),
            refused: read(&c.refused),
            in_flight_bytes: read(&self.in_flight.bytes),
            journal_bytes: journal.bytes_written,
            journal_blocks: journal.blocks,
            journal_flushes: journal.flushes,
            checkpoints: read(&c.checkpoints),
        }
    }
}
