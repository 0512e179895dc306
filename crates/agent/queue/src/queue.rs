//! The handle of an open queue.

use std::path::Path;
use std::sync::Arc;

use env::clock::Clock;
use env::random::Random;
use model::{Coverage, Dataset, EventBody, ItemKey, Names};

use crate::answer::{AckOutcome, Skip};
use crate::baseline::QueueBaseline;
use crate::body::Body;
use crate::cycle::Cycle;
use crate::error::QueueError;
use crate::events::EventLease;
use crate::gather::ScanSink;
use crate::inner::Inner;
use crate::job::Job;
use crate::lease::Lease;
use crate::open::{self, Opened};
use crate::options::{QueueOpenReport, QueueOptions};
use crate::sink::{self, DocumentStep, QueueSink};
use crate::snapshot::QueueSnapshot;
use crate::status::QueueStatus;

/// An open agent.db. Clones share it.
#[derive(Clone)]
pub struct Queue {
    inner: Arc<Inner>,
}

impl Queue {
    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Opens or creates the database. A damaged one is moved aside and replaced
    /// ([`QueueOpenReport::rebuilt`]).
    ///
    /// # Errors
    /// Returns [`QueueError::Locked`], [`QueueError::Newer`], [`QueueError::Foreign`], or an error
    /// of the operating system.
    #[expect(clippy::needless_pass_by_value, reason = "the handle owns its seams")]
    pub fn open(
        path: &Path,
        options: QueueOptions,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<(Self, QueueOpenReport), QueueError> {
        let Opened { parts, report } = open::open(path, &options, &*clock, &*random)?;
        let inner = Inner::new(path, options, clock, parts);
        Ok((Self { inner: Arc::new(inner) }, report))
    }

    /// Returns the dataset's baseline on a separate read connection.
    ///
    /// # Errors
    /// Returns an error if another connection cannot be opened.
    pub fn baseline(&self, dataset: &Dataset) -> Result<QueueBaseline, QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        QueueBaseline::new(Arc::clone(&self.inner), id)
    }

    /// Returns a sink for the dataset's changes. `names` resolves user and group ids for events.
    ///
    /// # Errors
    /// Returns an error if a new dataset cannot be registered.
    pub fn sink(&self, dataset: &Dataset, names: Arc<dyn Names>) -> Result<QueueSink, QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        Ok(QueueSink::new(Arc::clone(&self.inner), id, names))
    }

    /// Returns a sink for a scan's changes. It gathers changes into large groups, which are
    /// committed by [`model::Sink::flush`] at the latest.
    ///
    /// # Errors
    /// Returns an error if a new dataset cannot be registered.
    pub fn scan_sink(
        &self,
        dataset: &Dataset,
        names: Arc<dyn Names>,
    ) -> Result<ScanSink, QueueError> {
        self.sink(dataset, names).map(ScanSink::new)
    }

    /// Puts documents of a dataset, given as key and body. Returns the number of those that
    /// changed.
    ///
    /// # Errors
    /// See [`Queue::apply_documents`].
    pub fn put_documents(
        &self,
        dataset: &Dataset,
        documents: &[(&[u8], &[u8])],
    ) -> Result<u64, QueueError> {
        let steps: Vec<_> = documents
            .iter()
            .map(|(key, body)| DocumentStep { key, document: Some(body), event: None })
            .collect();
        self.apply_documents(dataset, &steps, &[]).map(|outcome| outcome.items)
    }

    /// Puts one document. Returns true if it changed.
    ///
    /// # Errors
    /// See [`Queue::apply_documents`].
    pub fn put_document(
        &self,
        dataset: &Dataset,
        key: &[u8],
        body: &[u8],
    ) -> Result<bool, QueueError> {
        self.put_documents(dataset, &[(key, body)]).map(|changed| changed > 0)
    }

    /// Puts and deletes documents of a dataset, and appends the events of the steps and the other
    /// `events`, all in one transaction. With [`crate::Transaction::PerEvent`] each step is
    /// committed with its event in a separate transaction. A document equal to the stored one
    /// changes nothing and is not counted in the outcome.
    ///
    /// # Errors
    /// Returns [`QueueError::TooLarge`], or an error if a commit fails. Then nothing was committed;
    /// with [`crate::Transaction::PerEvent`] the steps before the failed one were.
    pub fn apply_documents(
        &self,
        dataset: &Dataset,
        steps: &[DocumentStep<'_>],
        events: &[EventBody],
    ) -> Result<model::SinkOutcome, QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        let transaction = self.inner.options.transaction;
        let mut total = model::SinkOutcome::default();
        for job in sink::jobs(id, dataset, transaction, steps, events)? {
            let outcome = self.inner.submit(job).result?;
            total.items += outcome.items;
            total.events += outcome.events;
        }
        Ok(total)
    }

    /// Visits the key and body of each document of a dataset. Deleted ones are skipped.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub fn documents(
        &self,
        dataset: &Dataset,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        self.inner.read(|conn| crate::baseline::documents(conn, id, visit))
    }

    /// Returns the content of an item, if it exists.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read, or the item cannot be decoded.
    pub fn body(&self, dataset: &Dataset, key: &ItemKey) -> Result<Option<Body>, QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        let stored = self.inner.stored(id, key)?;
        let decode = |bytes: Vec<u8>| Body::decode(&bytes);
        let damaged = || self.inner.undecodable(key);
        stored.map(|bytes| decode(bytes).ok_or_else(damaged)).transpose()
    }

    /// Appends a coverage event.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn append_coverage(&self, dataset: &Dataset, gap: Coverage) -> Result<(), QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        let events = vec![EventBody::of_coverage(gap).to_json()];
        self.inner.submit(Job { dataset: id, events, ..Job::default() }).result.map(drop)
    }

    /// Appends serialised events of a dataset in one transaction. The queue does not interpret
    /// them. If sessions are built from the queue, each one must be an [`EventBody`] as JSON.
    ///
    /// # Errors
    /// Returns an error if they could not be committed; then none was.
    pub fn append_events(&self, dataset: &Dataset, events: Vec<Vec<u8>>) -> Result<(), QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        self.inner.submit(Job { dataset: id, events, ..Job::default() }).result.map(drop)
    }

    /// Begins a cycle, or continues the unfinished one. The beginning is committed when this
    /// returns.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn begin_cycle(&self, dataset: &Dataset) -> Result<Cycle, QueueError> {
        self.inner.begin_cycle(dataset)
    }

    /// Leases the next items of the cycle: about `byte_budget` bytes of documents, but at least one
    /// item. Returns `None` if all were sent. Does not change durable state.
    ///
    /// # Errors
    /// Returns [`QueueError::NoCycle`], or an error if the database cannot be read.
    pub fn lease(
        &self,
        dataset: &Dataset,
        byte_budget: usize,
    ) -> Result<Option<Lease>, QueueError> {
        self.inner.lease(dataset, byte_budget)
    }

    /// Acknowledges a lease: the server accepted its session, except the items in `skipped`.
    ///
    /// # Errors
    /// Returns [`QueueError::StaleLease`], or an error if it could not be committed. In the latter
    /// case the same items are leased again.
    pub fn ack(&self, lease: Lease, skipped: &[Skip]) -> Result<AckOutcome, QueueError> {
        let outcome = self.inner.ack(&lease, skipped);
        self.return_(lease);
        outcome
    }

    /// Returns a lease whose session failed, so that the same items are leased again.
    pub fn return_(&self, lease: Lease) {
        *self.inner.lease_buffers.lock() = lease.into_buffers();
    }

    /// Ends the cycle after all its items were acknowledged.
    ///
    /// # Errors
    /// Returns [`QueueError::NoCycle`], [`QueueError::CycleUnfinished`], or an error if it could
    /// not be committed.
    pub fn end_cycle(&self, dataset: &Dataset) -> Result<(), QueueError> {
        self.inner.end_cycle(dataset)
    }

    /// Gives these items new versions, so that the next cycle sends them again. Returns the keys
    /// that do not exist, in their order.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn resend(&self, dataset: &Dataset, keys: &[ItemKey]) -> Result<Vec<ItemKey>, QueueError> {
        self.inner.resend(dataset, keys)
    }

    /// Makes every item pending under its present version, for a server with a new store.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn resend_all(&self, dataset: &Dataset) -> Result<(), QueueError> {
        self.inner.resend_all(dataset)
    }

    /// Leases the oldest events of all datasets: at most `count`, about `bytes` in total, but at
    /// least one. The lease is empty if there are none.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn lease_events(&self, count: usize, bytes: usize) -> Result<EventLease, QueueError> {
        self.inner.lease_events(count, bytes)
    }

    /// Visits the number and body of each event of a dataset after the number `after`, oldest
    /// first.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn events_after(
        &self,
        dataset: &Dataset,
        after: u64,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), QueueError> {
        self.inner.events_after(dataset, after, visit)
    }

    /// Returns the body of the event with this number, if it is still queued.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn event(&self, seq: u64) -> Result<Option<Vec<u8>>, QueueError> {
        self.inner.event(seq)
    }

    /// Removes events that the server has acknowledged. Returns the number of removed events.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is answered once")]
    pub fn ack_events(&self, lease: EventLease) -> Result<u64, QueueError> {
        self.inner.ack_events(&lease)
    }

    /// Returns a snapshot of the dataset, which holds a read transaction.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn snapshot(&self, dataset: &Dataset) -> Result<QueueSnapshot, QueueError> {
        QueueSnapshot::new(&self.inner, dataset)
    }

    /// Records that content of a lease or a snapshot could not be decoded. These do not report it
    /// themselves.
    pub fn note_damage(&self) {
        self.inner.damage.met();
    }

    /// Returns true if damaged content was met or a flush failed since the queue was opened. The
    /// next open drops such rows, or moves the file aside and creates a new one.
    pub fn is_damaged(&self) -> bool {
        self.inner.damage.is_doubtful()
    }

    /// Returns the numbers of items and events, sizes and settings.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn status(&self) -> Result<QueueStatus, QueueError> {
        self.inner.status()
    }

    /// Returns the note with this name.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, QueueError> {
        self.inner.note(name)
    }

    /// Stores a note of at most [`crate::NOTE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Returns [`QueueError::TooLarge`] if the value is too long or there are too many notes, or an
    /// error if it could not be committed.
    pub fn meta_set(&self, name: &str, value: &[u8]) -> Result<(), QueueError> {
        self.inner.set_note(name, value)
    }

    /// Gives unused space back to the file system. Returns the bytes given back.
    ///
    /// # Errors
    /// Returns an error if the database cannot be written.
    pub fn compact(&self) -> Result<u64, QueueError> {
        self.inner.compact()
    }

    /// Marks a clean shutdown and checkpoints the write-ahead log. Later calls on any clone fail.
    ///
    /// # Errors
    /// Returns an error if it could not be committed. The next open is then unclean.
    pub fn close(&self) -> Result<(), QueueError> {
        self.inner.close()
    }
}
