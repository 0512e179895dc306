//! The handle that everything else goes through.

use std::path::Path;
use std::sync::Arc;

use env::clock::Clock;
use env::random::Random;
use model::{Coverage, Dataset, ItemKey, Names};

use crate::baseline::QueueBaseline;
use crate::cycle::{AckOutcome, Cycle, Lease, Skip};
use crate::error::QueueError;
use crate::events::EventLease;
use crate::options::{OpenReport, QueueOptions};
use crate::sink::QueueSink;
use crate::snapshot::Snapshot;
use crate::status::QueueStatus;

/// An open agent.db. Clones share it.
#[derive(Clone)]
pub struct Queue {}

impl Queue {
    /// Open or create the database. A damaged one is moved aside and replaced
    /// ([`OpenReport::rebuilt`]).
    ///
    /// # Errors
    /// [`QueueError::Locked`], [`QueueError::Newer`], [`QueueError::Foreign`], or what the
    /// operating system says.
    pub fn open(
        _path: &Path,
        _options: QueueOptions,
        _clock: Arc<dyn Clock>,
        _random: Arc<dyn Random>,
    ) -> Result<(Self, OpenReport), QueueError> {
        todo!()
    }

    /// The dataset's baseline on a read connection of its own.
    ///
    /// # Errors
    /// When the database cannot be opened once more.
    pub fn baseline(&self, _dataset: &Dataset) -> Result<QueueBaseline, QueueError> {
        todo!()
    }

    /// Where the dataset's changes go. Events name users and groups by `names`.
    ///
    /// # Errors
    /// When a new dataset cannot be registered.
    pub fn sink(
        &self,
        _dataset: &Dataset,
        _names: Arc<dyn Names>,
    ) -> Result<QueueSink, QueueError> {
        todo!()
    }

    /// Put documents of a dataset without observations, in one transaction: key and body of each.
    /// A document equal to the stored one changes nothing. Returns how many changed.
    ///
    /// # Errors
    /// [`QueueError::TooLarge`], or when they could not be committed; then none was.
    pub fn put_documents(
        &self,
        _dataset: &Dataset,
        _documents: &[(&[u8], &[u8])],
    ) -> Result<u64, QueueError> {
        todo!()
    }

    /// [`Queue::put_documents`] of one. `true` when it changed.
    ///
    /// # Errors
    /// As there.
    pub fn put_document(
        &self,
        _dataset: &Dataset,
        _key: &[u8],
        _body: &[u8],
    ) -> Result<bool, QueueError> {
        todo!()
    }

    /// Delete documents by key, in one transaction. Returns how many were there.
    ///
    /// # Errors
    /// When it could not be committed; then none was.
    pub fn delete_documents(&self, _dataset: &Dataset, _keys: &[&[u8]]) -> Result<u64, QueueError> {
        todo!()
    }

    /// Append a coverage event that no sink carries.
    ///
    /// # Errors
    /// When it could not be committed.
    pub fn append_coverage(&self, _dataset: &Dataset, _gap: Coverage) -> Result<(), QueueError> {
        todo!()
    }

    /// Begin a cycle, or go on with the unfinished one. Committed when this returns.
    ///
    /// # Errors
    /// When it could not be committed.
    pub fn begin_cycle(&self, _dataset: &Dataset) -> Result<Cycle, QueueError> {
        todo!()
    }

    /// The next items of the cycle, about `byte_budget` bytes of documents but at least one item;
    /// `None` when all were told. Durable state does not change.
    ///
    /// # Errors
    /// [`QueueError::NoCycle`], or when the database cannot be read.
    pub fn lease(
        &self,
        _dataset: &Dataset,
        _byte_budget: usize,
    ) -> Result<Option<Lease>, QueueError> {
        todo!()
    }

    /// The server accepted the lease's session but for what it `skipped`.
    ///
    /// # Errors
    /// [`QueueError::StaleLease`], or when it could not be committed; then the same items are
    /// leased again.
    pub fn ack(&self, _lease: Lease, _skipped: &[Skip]) -> Result<AckOutcome, QueueError> {
        todo!()
    }

    /// The session failed: the same items are leased again.
    pub fn return_(&self, lease: Lease) {
        drop(lease);
    }

    /// Everything of the cycle was acknowledged.
    ///
    /// # Errors
    /// [`QueueError::NoCycle`], [`QueueError::CycleUnfinished`], or when it could not be committed.
    pub fn end_cycle(&self, _dataset: &Dataset) -> Result<(), QueueError> {
        todo!()
    }

    /// Tell these items again in the next cycle, under new versions (repair). Unknown keys are
    /// ignored. Returns how many there were.
    ///
    /// # Errors
    /// When it could not be committed.
    pub fn resend(&self, _dataset: &Dataset, _keys: &[ItemKey]) -> Result<u64, QueueError> {
        todo!()
    }

    /// Tell every item again under its version: the server's store is a new one.
    ///
    /// # Errors
    /// When it could not be committed.
    pub fn resend_all(&self, _dataset: &Dataset) -> Result<(), QueueError> {
        todo!()
    }

    /// The oldest events of all datasets: at most `count`, about `bytes` but at least one; empty
    /// when there are none.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn lease_events(&self, _count: usize, _bytes: usize) -> Result<EventLease, QueueError> {
        todo!()
    }

    /// The server has them: remove. Returns how many were removed.
    ///
    /// # Errors
    /// When it could not be committed.
    pub fn ack_events(&self, _lease: EventLease) -> Result<u64, QueueError> {
        todo!()
    }

    /// The dataset at this instant, on one read transaction.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn snapshot(&self, _dataset: &Dataset) -> Result<Snapshot, QueueError> {
        todo!()
    }

    /// What it holds and costs.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn status(&self) -> Result<QueueStatus, QueueError> {
        todo!()
    }

    /// A note of the program by its name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn meta_get(&self, _name: &str) -> Result<Option<Vec<u8>>, QueueError> {
        todo!()
    }

    /// Keep a note durably, at most [`crate::NOTE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`QueueError::TooLarge`], or when it could not be committed.
    pub fn meta_set(&self, _name: &str, _value: &[u8]) -> Result<(), QueueError> {
        todo!()
    }

    /// Give unused space back to the file system. Returns the bytes given back.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn compact(&self) -> Result<u64, QueueError> {
        todo!()
    }

    /// Mark a clean end and fold the write-ahead log in. Later calls on any clone fail.
    ///
    /// # Errors
    /// When it could not be committed; the next opening is then unclean.
    pub fn close(&self) -> Result<(), QueueError> {
        todo!()
    }
}
