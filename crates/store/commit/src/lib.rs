//! Commits records: appends them to the journal, applies them to the state, and makes checkpoints.
//! Replays the journal at open.
//!
//! A submitted record is appended to the journal, persisted by a group commit, and applied to the
//! state by the applier thread in journal order. Only then is the caller answered. The state stores
//! the journal position of the last record applied.
//!
//! # Invariants
//! - A record whose [`Commit::submit`] returned `Ok` survives a power cut: it is in the journal, or
//!   below a completed checkpoint of the state.
//! - Replay starts after the position that the state stored together with its data, so no record is
//!   applied twice or left out. A journal that lacks records the state needs is rejected.
//! - The journal is trimmed only below the position of the last *completed* checkpoint.
//! - A record is either appended and applied, or neither, even if its caller stops waiting: applied
//!   positions have no holes.
//! - Rows of the registry ([`Commit::append_rows`]) are records of the same journal. The state passes
//!   them by; its position has no holes. The journal is kept above what the registry has durably.
//! - Queues are bounded: beyond the limits a submit fails with [`CommitError::Full`].
//!
//! # Locking
//! Submitters, the applier's thread and the keeper's thread, which makes checkpoints, share these:
//! - `checkpointed` is held through one checkpoint, its I/O in the state and the journal included,
//!   and while the state's own log is made smaller.
//!   `stats` takes it, too, and so waits for a checkpoint in progress.
//! - `floor` is held while the registry is asked up to where it is durable, which takes the registry's
//!   writer. The registry's writer may be held while a record is appended, never while a checkpoint is
//!   waited for.
//! - `due` is held to count what was applied since the last checkpoint. The condition variable
//!   `wake` belongs to it.
//! - `progress` (a watch channel) is locked while it is read or changed, never across a call.
//! - The state and the journal have their own locks. None of the locks above is held while the
//!   state applies or the journal appends.
//!
//! They are taken in this order: `checkpointed`, then `floor`, then the locks of the state and the journal, then
//! `due`. `progress` and `due` are never held together. Trimming the journal is safe because only
//! one checkpoint runs at a time: no older checkpoint in progress needs records below the position
//! that the state returned.
//!
//! Two more orders matter. A submit reserves its bytes in flight and then checks `closed`; `close`
//! sets `closed` and then waits until no bytes are in flight. So either the submit sees that the
//! commit is closed, or `close` waits for it. `close` also locks `due` before it notifies the
//! keeper, which checks `closed` under the same lock before it waits.
//!
//! A caller that blocks in `submit_blocking`, `barrier` or `checkpoint` must not hold a connection
//! or a lock that the state needs to apply records: the answer comes only after that. The applier
//! itself must not submit. The keeper may: it writes the events of a full disk.
//!
//! On a full disk, submits fail until there is free space. After a failed flush of the journal or
//! damage to the state database, every submit fails until the program is restarted, which replays
//! the journal.

mod applier;
mod disk;
mod error;
mod keeper;
mod options;
mod replay;
mod rows;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use journal::{Durability, Journal};
use model::{Position, Record};
use parking_lot::Mutex;
use state::StateStore;
use tokio::sync::oneshot;

pub use disk::{DiskState, DiskThresholds};
pub use error::CommitError;
pub use options::{CommitOptions, CommitStats, Committed, Refusal, ReplayReport};

pub use replay::catch_up;
pub use rows::JournalLog;

use applier::{Caller, Message, Submitted};
use shared::Shared;

/// Writes records to the journal and the state. All writes to both go through it.
pub struct Commit {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Message>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Commit {
    /// Applies the journal's records after the state's position, then accepts submits. Blocks
    /// during the replay.
    ///
    /// # Errors
    /// Returns an error if the journal lacks records that the state needs or cannot be read, or if
    /// the state fails.
    pub fn open(
        journal: Journal,
        state: Arc<StateStore>,
        options: CommitOptions,
    ) -> Result<(Arc<Self>, ReplayReport), CommitError> {
        let report = replay::replay(&journal, &state, &options)?;
        let shared = Arc::new(Shared::new(journal, state, options, report.to));
        // A process that is killed before each checkpoint must not leave more and more behind.
        if let Err(error) = shared.checkpoint().and_then(|_| shared.shrink()) {
            tracing::warn!(%error, "no checkpoint at opening: the journal keeps what was applied");
        }
        let (sender, receiver) = mpsc::channel();
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.into())
                .spawn(work)
                .map_err(|e| CommitError::State(format!("cannot start a thread: {e}")))
        };
        let applier = Arc::clone(&shared);
        let mut threads =
            vec![start("applier", Box::new(move || applier::run(&applier, &receiver)))?];
        let keeper = Arc::clone(&shared);
        let own = sender.clone();
        threads.push(start("checkpoints", Box::new(move || keeper::run(&keeper, own)))?);
        Ok((Arc::new(Self { shared, sender, threads: Mutex::new(threads) }), report))
    }

    /// Appends a record and waits until it is persisted and applied. Dropping the future does not
    /// cancel the append.
    ///
    /// # Errors
    /// [`CommitError::Full`] and [`CommitError::TooLarge`]: nothing was stored, except that after a
    /// full disk the record may still be applied later; submitting it again is harmless. For the
    /// other variants see [`CommitError`].
    pub async fn submit(&self, record: Record) -> Result<Committed, CommitError> {
        let admitted = self.shared.admit(&record)?;
        let shared = Arc::clone(&self.shared);
        let sender = self.sender.clone();
        let (answer, answered) = oneshot::channel();
        let caller = Caller { permit: admitted.permit, answer };
        // A separate task is not dropped with the caller: an assigned position must reach the
        // applier.
        tokio::spawn(async move {
            let outcome =
                shared.journal.append_async(vec![admitted.encoded], Durability::Persist).await;
            hand_over(&shared, &sender, record, outcome, caller);
        });
        answered.await.unwrap_or(Err(CommitError::Closed))
    }

    /// Does the same as [`Commit::submit`], for threads that may block.
    ///
    /// # Errors
    /// See [`Commit::submit`].
    pub fn submit_blocking(&self, record: Record) -> Result<Committed, CommitError> {
        submit_blocking(&self.shared, &self.sender, record)
    }

    /// Waits until everything persisted before the call is applied, and returns that position.
    ///
    /// # Errors
    /// Returns an error if the state fails, or the commit is closed first.
    pub async fn barrier(&self) -> Result<Position, CommitError> {
        let target = self.shared.journal.persisted_position();
        let mut progress = self.shared.progress.subscribe();
        let reached = progress
            .wait_for(|p| p.applied.0 >= target || p.failed.is_some())
            .await
            .map_err(|_| CommitError::Closed)?;
        match &reached.failed {
            Some(error) if reached.applied.0 < target => Err(error.clone()),
            _ => Ok(reached.applied),
        }
    }

    /// Persists the state up to the returned position, and trims the part of the journal that is no
    /// longer needed. Blocks.
    ///
    /// # Errors
    /// Returns an error if the state or the journal cannot be written.
    pub fn checkpoint(&self) -> Result<Position, CommitError> {
        self.shared.checkpoint()
    }

    /// Returns `Ok` if records are accepted now. Cheap: does not access the disk.
    ///
    /// # Errors
    /// Returns the error that the next submit would get.
    pub fn available(&self) -> Result<(), CommitError> {
        self.shared.available()
    }

    /// Returns the reason why no records are accepted now, or `None` if they are.
    pub fn refusal(&self) -> Option<Refusal> {
        self.shared.refusal()
    }

    /// Waits until the journal or the state has failed for good, and returns the error. Does not
    /// return while both work.
    pub async fn failed(&self) -> CommitError {
        let mut progress = self.shared.progress.subscribe();
        match progress.wait_for(|p| p.failed.is_some()).await.map(|p| p.failed.clone()) {
            Ok(Some(error)) => error,
            Ok(None) | Err(_) => CommitError::Closed,
        }
    }

    /// Returns the counters since opening.
    pub fn stats(&self) -> CommitStats {
        self.shared.stats()
    }

    /// Stops accepting submits, finishes pending ones, makes a checkpoint and closes the
    /// journal.
    ///
    /// # Errors
    /// Returns an error if the last checkpoint fails. The journal then keeps the records that the
    /// next start replays.
    pub async fn close(&self) -> Result<(), CommitError> {
        self.shared.close();
        self.shared.drained().await;
        // The message stops the applier; the flag `closed` stops the keeper.
        let _ = self.sender.send(Message::Stop);
        let threads = std::mem::take(&mut *self.threads.lock());
        let shared = Arc::clone(&self.shared);
        let finish = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // The panic of a thread is logged already. Its records are replayed at the next
                // start.
                let _ = thread.join();
            }
            let checkpoint = shared.checkpoint().and_then(|_| shared.shrink()).map(drop);
            let closed = shared.journal.clone().close().map_err(CommitError::from);
            checkpoint.and(closed)
        });
        finish.await.map_err(|e| CommitError::State(e.to_string()))?
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        self.shared.close();
        let _ = self.sender.send(Message::Stop);
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn submit_blocking(
    shared: &Arc<Shared>,
    sender: &mpsc::Sender<Message>,
    record: Record,
) -> Result<Committed, CommitError> {
    let admitted = shared.admit(&record)?;
    let (answer, answered) = oneshot::channel();
    let caller = Caller { permit: admitted.permit, answer };
    let outcome = shared.journal.append(&admitted.encoded, Durability::Persist);
    hand_over(shared, sender, record, outcome, caller);
    answered.blocking_recv().unwrap_or(Err(CommitError::Closed))
}

/// Sends a persisted record to the applier, or answers the caller if the append failed.
fn hand_over(
    shared: &Shared,
    sender: &mpsc::Sender<Message>,
    record: Record,
    outcome: Result<journal::AppendOutcome, journal::AppendError>,
    caller: Caller,
) {
    match outcome {
        Ok(outcome) => {
            let position = Position(outcome.position);
            let submitted = Submitted { position, record, caller: Some(caller) };
            // If the applier has stopped, the answer channel is dropped and the caller gets
            // `Closed`.
            let _ = sender.send(Message::Record(Box::new(submitted)));
        }
        Err(error) => {
            let error = CommitError::from(error);
            if matches!(error, CommitError::Poisoned(_)) {
                shared.fail(&error);
            }
            caller.send_outcome(Err(error));
        }
    }
}
