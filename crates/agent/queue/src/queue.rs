//! The handle that everything else goes through.

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
    /// [`QueueError::Locked`], [`QueueError::Newer`], [`QueueError::Foreign`], or what the
    /// operating system says.
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

    /// The dataset's baseline on a read connection of its own.
    ///
    /// # Errors
    /// Returns an error if the database cannot be opened once more.
    pub fn baseline(&self, dataset: &Dataset) -> Result<QueueBaseline, QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        QueueBaseline::new(Arc::clone(&self.inner), id)
    }

    /// Returns a sink for the dataset's changes. Events name users and groups by `names`.
    ///
    /// # Errors
    /// Returns an error if a new dataset cannot be registered.
    pub fn sink(&self, dataset: &Dataset, names: Arc<dyn Names>) -> Result<QueueSink, QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        Ok(QueueSink::new(Arc::clone(&self.inner), id, names))
    }

    /// Returns a sink for a scan's changes: gathered into large groups, durable at [`model::Sink::flush`].
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

    /// Puts documents of a dataset without observations: key and body of each. Returns how many
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

    /// [`Queue::put_documents`] of one. `true` when it changed.
    ///
    /// # Errors
    /// As there.
    pub fn put_document(
        &self,
        dataset: &Dataset,
        key: &[u8],
        body: &[u8],
    ) -> Result<bool, QueueError> {
        self.put_documents(dataset, &[(key, body)]).map(|changed| changed > 0)
    }

    /// Puts and deletes documents of a dataset and appends their events, and `events` that belong
    /// to none of them, in one transaction; with [`crate::Transaction::PerEvent`] each with its
    /// event in one of its own. A document equal to the stored one changes nothing. Items are
    /// counted where they changed.
    ///
    /// # Errors
    /// [`QueueError::TooLarge`], or when it could not be committed; then nothing was, or with a
    /// transaction for each the first ones.
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

    /// The documents of a dataset that are not gone, key and body of each: its baseline.
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

    /// Appends a coverage event that no sink carries.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn append_coverage(&self, dataset: &Dataset, gap: Coverage) -> Result<(), QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        let events = vec![EventBody::of_coverage(gap).to_json()];
        self.inner.submit(Job { dataset: id, events, ..Job::default() }).result.map(drop)
    }

    /// Appends events of a dataset, each written already, in one transaction. What they hold is for
    /// who leases them: a queue that sessions are made of holds [`EventBody`]s alone.
    ///
    /// # Errors
    /// Returns an error if they could not be committed; then none was.
    pub fn append_events(&self, dataset: &Dataset, events: Vec<Vec<u8>>) -> Result<(), QueueError> {
        let id = self.inner.dataset_id(dataset)?;
        self.inner.submit(Job { dataset: id, events, ..Job::default() }).result.map(drop)
    }

    /// Begins a cycle, or goes on with the unfinished one. Committed when this returns.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn begin_cycle(&self, dataset: &Dataset) -> Result<Cycle, QueueError> {
        self.inner.begin_cycle(dataset)
    }

    /// The next items of the cycle, about `byte_budget` bytes of documents but at least one item;
    /// Returns `None` if all were sent. Durable state does not change.
    ///
    /// # Errors
    /// [`QueueError::NoCycle`], or when the database cannot be read.
    pub fn lease(
        &self,
        dataset: &Dataset,
        byte_budget: usize,
    ) -> Result<Option<Lease>, QueueError> {
        self.inner.lease(dataset, byte_budget)
    }

    /// The server accepted the lease's session but for what it `skipped`.
    ///
    /// # Errors
    /// [`QueueError::StaleLease`], or when it could not be committed; then the same items are
    /// leased again.
    pub fn ack(&self, lease: Lease, skipped: &[Skip]) -> Result<AckOutcome, QueueError> {
        let outcome = self.inner.ack(&lease, skipped);
        self.return_(lease);
        outcome
    }

    /// The session failed: the same items are leased again.
    pub fn return_(&self, lease: Lease) {
        *self.inner.lease_buffers.lock() = lease.into_buffers();
    }

    /// Everything of the cycle was acknowledged.
    ///
    /// # Errors
    /// [`QueueError::NoCycle`], [`QueueError::CycleUnfinished`], or when it could not be committed.
    pub fn end_cycle(&self, dataset: &Dataset) -> Result<(), QueueError> {
        self.inner.end_cycle(dataset)
    }

    /// Sends these items again in the next cycle, under new versions (repair). Returns those that
    /// there are none of, in their order.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn resend(&self, dataset: &Dataset, keys: &[ItemKey]) -> Result<Vec<ItemKey>, QueueError> {
        self.inner.resend(dataset, keys)
    }

    /// Sends every item again under its version: the server's store is a new one.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    pub fn resend_all(&self, dataset: &Dataset) -> Result<(), QueueError> {
        self.inner.resend_all(dataset)
    }

    /// The oldest events of all datasets: at most `count`, about `bytes` but at least one; empty
    /// when there are none.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn lease_events(&self, count: usize, bytes: usize) -> Result<EventLease, QueueError> {
        self.inner.lease_events(count, bytes)
    }

    /// The events of a dataset behind this number, oldest first: number and body of each.
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

    /// The body of the event of this number, while it is queued.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn event(&self, seq: u64) -> Result<Option<Vec<u8>>, QueueError> {
        self.inner.event(seq)
    }

    /// The server has them: remove. Returns how many were removed.
    ///
    /// # Errors
    /// Returns an error if it could not be committed.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is answered once")]
    pub fn ack_events(&self, lease: EventLease) -> Result<u64, QueueError> {
        self.inner.ack_events(&lease)
    }

    /// The dataset at this instant, on one read transaction.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn snapshot(&self, dataset: &Dataset) -> Result<QueueSnapshot, QueueError> {
        QueueSnapshot::new(&self.inner, dataset)
    }

    /// Content that cannot be decoded was met in a lease or a snapshot, which do not go through
    /// this handle.
    pub fn note_damage(&self) {
        self.inner.damage.met();
    }

    /// Returns true if content that cannot be decoded was met since it was opened. The next opening drops
    /// it, or moves the file aside and begins a new one.
    pub fn is_damaged(&self) -> bool {
        self.inner.damage.is_doubtful()
    }

    /// Returns its content and cost.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn status(&self) -> Result<QueueStatus, QueueError> {
        self.inner.status()
    }

    /// A note of the program by its name.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, QueueError> {
        self.inner.note(name)
    }

    /// Keeps a note durably, at most [`crate::NOTE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`QueueError::TooLarge`] for its value or for one name too many, or when it could not be
    /// committed.
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

    /// Marks a clean end and checkpoints the write-ahead log. Later calls on any clone fail.
    ///
    /// # Errors
    /// Returns an error if it could not be committed; the next opening is then unclean.
    pub fn close(&self) -> Result<(), QueueError> {
        self.inner.close()
    }
}
